"""A user's own code: looking reads it, running executes what was hashed, and what goes wrong in it has a place."""

from __future__ import annotations

import hashlib
import json
import os
import py_compile
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forgetscope.errors import OwnCodeFailed, SpecError
from forgetscope.learning import plugins
from forgetscope.learning.plugins import blaming_own_code, load_all, load_named, source_digests

RETURNS = "def answer():\n    return {!r}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder; what is imported here is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    path, modules, loaded = list(sys.path), dict(sys.modules), dict(plugins._loaded)
    yield tmp_path
    sys.path[:] = path
    for name in sys.modules.keys() - modules.keys():
        del sys.modules[name]
    plugins._loaded.clear()
    plugins._loaded.update(loaded)


def load(name: str) -> object:
    return load_named(name, source_digests([name])[name])


def test_a_digest_is_of_the_file_and_imports_neither_it_nor_its_packages(folder: Path) -> None:
    canary = f"open({str(folder / 'canary')!r}, 'w').close()\n"
    for package in ("outer", "outer/inner"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text(canary)
    (folder / "outer/inner/own.py").write_text(canary)
    (folder / "namespace" / "deeper").mkdir(parents=True)
    (folder / "namespace" / "deeper" / "own.py").write_text("different")
    assert source_digests(["uniform", "outer.inner.own:f", "outer.inner:f", "namespace.deeper.own:f"]) == {
        "outer.inner.own:f": hashlib.sha256(canary.encode()).hexdigest(),
        "outer.inner:f": hashlib.sha256(canary.encode()).hexdigest(),
        "namespace.deeper.own:f": hashlib.sha256(b"different").hexdigest(),
    }
    assert not (folder / "canary").exists()
    assert not {"outer", "outer.inner", "outer.inner.own", "namespace"} & sys.modules.keys()


def test_what_was_edited_since_it_was_hashed_does_not_run(folder: Path) -> None:
    (folder / "own.py").write_text(RETURNS.format(1))
    digest = source_digests(["own:answer"])["own:answer"]
    edited = RETURNS.format(2) + f"open({str(folder / 'canary')!r}, 'w').close()\n"
    (folder / "own.py").write_text(edited)
    found = hashlib.sha256(edited.encode()).hexdigest()
    with pytest.raises(SpecError) as error:
        load_named("own:answer", digest)
    assert f"{folder / 'own.py'} has SHA-256 {found[:12]}, and the run began with {digest[:12]}" in str(error.value)
    assert "Put it back" in str(error.value)
    assert not (folder / "canary").exists()
    with pytest.raises(SpecError, match="it is not said which version"):
        load_named("own:answer", None)


def test_what_was_loaded_stays_whatever_becomes_of_its_file(folder: Path) -> None:
    (folder / "own.py").write_text(RETURNS.format(1))
    old = source_digests(["own:answer"])
    load_all(old)
    (folder / "own.py").write_text(RETURNS.format(2))
    assert load_named("own:answer", old["own:answer"])() == 1
    assert load("own:answer")() == 2  # type: ignore[operator]
    (folder / "own.py").unlink()
    assert load_named("own:answer", old["own:answer"])() == 1


def test_a_compiled_file_of_another_version_is_not_taken_for_it(folder: Path) -> None:
    """Equal in size and time, so that Python itself would take it."""
    (folder / "own.py").write_text(RETURNS.format(1))
    py_compile.compile("own.py")
    times = (folder / "own.py").stat()
    (folder / "own.py").write_text(RETURNS.format(2))
    os.utime(folder / "own.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert load("own:answer")() == 2  # type: ignore[operator]


def test_a_module_of_a_package_imports_its_neighbours(folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "__init__.py").write_text("base = 40\n")
    (folder / "mine" / "near.py").write_text("two = 2\n")
    (folder / "mine" / "own.py").write_text("from . import base, near\n\ndef answer():\n    return base + near.two\n")
    assert load("mine.own:answer")() == 42  # type: ignore[operator]


def test_the_current_folder_shadows_no_module_for_others(folder: Path) -> None:
    for name in ("json", "colorsys", "scipy"):
        (folder / f"{name}.py").write_text(RETURNS.format("shadow"))
    (folder / "own.py").write_text("import near\nanswer = near.answer\n")
    (folder / "near.py").write_text(RETURNS.format("near"))
    before = list(sys.path)
    assert load("own:answer")() == "near"  # type: ignore[operator]
    assert sys.path == [*before, str(folder)]
    sys.modules.pop("colorsys", None)
    import colorsys

    assert not colorsys.__file__.startswith(str(folder))
    with pytest.raises(SpecError, match="colorsys has no function 'answer'"):
        load("colorsys:answer")


def test_a_module_of_somebody_else_keeps_its_name(folder: Path) -> None:
    theirs = sys.modules["hypothesis"]
    (folder / "hypothesis.py").write_text(RETURNS.format("mine"))
    assert load("hypothesis:answer")() == "mine"  # type: ignore[operator]
    assert sys.modules["hypothesis"] is theirs


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nowhere_at_all", r"cannot import own \(ModuleNotFoundError: No module named 'nowhere_at_all'\) at own.py:1"),
        ("x = 1\nx.y", r"cannot import own \(AttributeError: 'int' object has no attribute 'y'\) at own.py:2"),
        ("def (", r"cannot import own \(SyntaxError: invalid syntax \(own.py, line 1\)\)"),
        ("a\0b", r"cannot import own \((Value|Syntax)Error: source code string cannot contain null bytes\)"),
        ("import sys\nsys.exit(0)", r"cannot import own \(SystemExit: 0\) at own.py:2"),
    ],
)
def test_what_goes_wrong_at_import_is_one_line_with_its_place(
    source: str, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "own", raising=False)  # another test's
    (folder / "own.py").write_text(source)
    with pytest.raises(SpecError, match=message):
        load("own:answer")
    assert "own" not in sys.modules


def test_what_it_raises_is_told_with_its_place_and_kept_as_the_cause(folder: Path) -> None:
    (folder / "own.py").write_text("import near\n\ndef answer():\n    return near.far()\n")
    (folder / "near.py").write_text("import json\n\ndef far():\n    return json.loads('{')\n")
    message = "^near.py:4: JSONDecodeError: Expecting property name .*It is your own code"
    with pytest.raises(OwnCodeFailed, match=message) as error, blaming_own_code():
        load("own:answer")()  # type: ignore[operator]
    assert type(error.value.__cause__).__name__ == "JSONDecodeError"


def test_leaving_the_process_is_a_failure_and_ctrl_c_is_not(folder: Path) -> None:
    (folder / "own.py").write_text("import sys\n\ndef leave():\n    sys.exit()\n\ndef stop():\n    raise KeyboardInterrupt\n")
    with pytest.raises(OwnCodeFailed, match=r"own.py:4: SystemExit. It is your own code"), blaming_own_code():
        load("own:leave")()  # type: ignore[operator]
    with pytest.raises(KeyboardInterrupt), blaming_own_code():
        load("own:stop")()  # type: ignore[operator]


def test_a_bug_of_ours_stays_what_it_is(folder: Path) -> None:
    (folder / "own.py").write_text(RETURNS.format(1))
    load("own:answer")
    with pytest.raises(json.JSONDecodeError):
        blaming_own_code()(json.loads)("{")
