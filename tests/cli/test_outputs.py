"""Commands that write where they are told: what is there and is not theirs stays, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import forgetscope as fs
from forgetscope.cli.app import app
from forgetscope.errors import SpecError
from forgetscope.outputs import PAGE, writing_folder
from forgetscope.store import Store

FILES = {  # and what they call what they write
    "page": ("report", "{store}", "-o"),
    "PDF": ("report", "{store}", "--format", "pdf", "-o"),
    "export": ("store", "export", "{store}", "-o"),
    "contact sheet": ("data", "check", "glyphs", "-o"),
}
FOLDERS = {  # and the option that names it
    ("report", "{store}", "--format", "latex", "-o"): "-o",
    ("report", "{store}", "--format", "png", "-o"): "-o",
    ("analyse", "{store}", "--out"): "--out",
    ("lemma", "-o"): "-o",
}


def invoke(command: tuple[str, ...], store: Store, path: str | Path) -> Result:
    return CliRunner().invoke(app, [*(word.format(store=store.path) for word in command), str(path)])


def assert_refused(result: Result, message: str) -> None:
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("Error: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("what", FILES)
def test_a_file_of_somebody_else_stays(what: str, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "thesis.html"
    path.write_bytes(b"<!doctype html>mine, about forgetscope")
    assert_refused(invoke(FILES[what], store, path), f"is no {what} that was written here before; it is left as it is. Name")
    assert path.read_bytes() == b"<!doctype html>mine, about forgetscope"


@pytest.mark.parametrize("what", FILES)
def test_folders_links_and_devices_are_no_files_to_replace(what: str, store: Store, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    assert_refused(invoke(FILES[what], store, tmp_path), "is there and is a folder; it is left as it is")
    assert_refused(invoke(FILES[what], store, tmp_path / "link"), "is there and is a link; it is left as it is")
    assert_refused(invoke(FILES[what], store, "/dev/full"), "/dev/full is there and is no regular file")
    assert_refused(invoke(FILES[what], store, "-"), f"-o -: a {what} goes into a file, not to standard output")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(("command", "option"), FOLDERS.items(), ids=" ".join)
def test_a_folder_of_somebody_else_stays(command: tuple[str, ...], option: str, store: Store, tmp_path: Path) -> None:
    folder, link = tmp_path / "mine", tmp_path / "link"
    folder.mkdir()
    (folder / "notes").write_text("mine")
    link.symlink_to(tmp_path / "nowhere")
    assert_refused(invoke(command, store, folder / "notes"), "is a file, and no folder; it is left as it is. Name another with")
    for path in (folder, link):
        assert_refused(invoke(command, store, path), "is no folder that was written here before: it has no")
        assert_refused(invoke(command, store, path), f"it is left as it is. Name another with {option}.")
    assert_refused(invoke(command, store, "-"), "not to standard output")
    assert [path.name for path in folder.iterdir()] == ["notes"]


@pytest.mark.parametrize("what", ["page", "export", "contact sheet"])
def test_what_was_written_here_is_replaced(what: str, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "out.png"
    for _ in range(2):
        result = invoke(FILES[what], store, path)
        assert result.exit_code == 0, result.output
    assert [file.name for file in tmp_path.iterdir() if file.name != "store"] == ["out.png"]


def test_an_analysis_takes_the_place_of_an_analysis(store: Store, tmp_path: Path) -> None:
    for _ in range(2):
        result = invoke(("analyse", "{store}", "--resamples", "100", "--out"), store, tmp_path / "out")
        assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", [command for command in FOLDERS if command[0] != "lemma"], ids=" ".join)
def test_a_folder_with_files_of_the_same_names_stays(command: tuple[str, ...], store: Store, tmp_path: Path) -> None:
    for name in ("tables.tex", "report.tex", "captions.txt"):
        (tmp_path / "paper").mkdir(exist_ok=True)
        (tmp_path / "paper" / name).write_text("mine")
    assert_refused(
        invoke(command, store, tmp_path / "paper"), "is no folder that was written here before: it has no .forgetscope"
    )
    assert {path.read_text() for path in (tmp_path / "paper").iterdir()} == {"mine"}


def test_a_folder_is_replaced_file_by_file_and_only_as_it_was_written(tmp_path: Path) -> None:
    def write(**contents: str) -> None:
        with writing_folder(tmp_path / "out") as building:
            (building / "part").mkdir()
            for name, content in contents.items():
                (building / "part" / f"{name}.txt").write_text(content)

    write(a="1", b="1")
    (tmp_path / "out" / "notes").write_text("mine")
    write(a="2")
    part = tmp_path / "out" / "part"
    assert {path.name: path.read_text() for path in part.iterdir()} == {"a.txt": "2", "b.txt": "1"}
    (part / "c.txt").write_text("mine")
    with pytest.raises(SpecError, match=r"c\.txt is there and is not as it was written here, or was never written here"):
        write(a="3", c="3")
    (part / "a.txt").write_text("2, edited")
    with pytest.raises(SpecError, match=r"a\.txt is there and is not as it was written here"):
        write(a="3")
    assert {path.name: path.read_text() for path in part.iterdir()} == {"a.txt": "2, edited", "b.txt": "1", "c.txt": "mine"}
    assert (tmp_path / "out" / "notes").read_text() == "mine"


def test_a_folder_is_not_written_through_links(tmp_path: Path) -> None:
    def write() -> None:
        with writing_folder(tmp_path / "out") as building:
            (building / "a.txt").write_text("ours")

    write()
    (tmp_path / "private").write_text("ours")
    (tmp_path / "out" / "a.txt").unlink()
    (tmp_path / "out" / "a.txt").symlink_to(tmp_path / "private")
    with pytest.raises(SpecError, match=r"a\.txt is there and is reached through a link"):
        write()
    assert not (tmp_path / "private").is_symlink()


def test_a_page_of_before_is_known_by_its_head(store: Store, tmp_path: Path) -> None:
    page = fs.write_report(fs.open_experiment(store.path), tmp_path / "page.html")
    content = page.read_bytes()
    assert all(mark in content for mark in PAGE)
    page.write_bytes(content.replace(PAGE[0], b""))
    fs.write_report(fs.open_experiment(store.path), page)
    assert page.read_bytes() == content
    page.write_bytes(content.replace(PAGE[0], b"").replace(PAGE[1], b""))
    with pytest.raises(SpecError, match="is no page that was written here before"):
        fs.write_report(fs.open_experiment(store.path), page)


def test_the_demo_looks_before_it_trains(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("mine")
    result = CliRunner().invoke(app, ["demo", "--store", str(tmp_path)])
    assert_refused(result, "is no page that was written here before")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
