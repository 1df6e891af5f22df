from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from forgetscope.cli.app import app
from tiny_cifar100 import SPLITS, binary, write_tar


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["data", *(str(argument) for argument in arguments)])


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    """Class folders of unequal sizes and images of unequal shapes."""
    rng = np.random.default_rng(0)
    for name, count in (("wren", 30), ("owl", 12), ("swift", 20)):
        (tmp_path / "birds" / name).mkdir(parents=True)
        for i in range(count):
            shape = (int(rng.integers(10, 20)), int(rng.integers(10, 20)), 3)
            Image.fromarray(rng.integers(256, size=shape, dtype=np.uint8)).save(tmp_path / "birds" / name / f"{i}.png")
    return tmp_path / "birds"


def test_help_has_examples() -> None:
    for command in ("list", "get", "add", "check", "remove"):
        assert f"Example: forgetscope data {command}" in invoke(command, "--help").output


def test_get_list_check_remove(tmp_path: Path) -> None:
    archive = write_tar(tmp_path / "tiny.tar.gz", {f"{name}.bin": binary(name) for name in SPLITS})
    got = invoke("get", "cifar100", "--from", archive)
    assert got.exit_code == 0, got.output
    assert "DataSet('cifar100', 100 classes, 200 + 100 images, 32x32) is ready: dataset = \"cifar100\"" in got.stdout
    again = invoke("get", "cifar100")
    assert again.exit_code == 0
    assert "cifar100 is here already" in again.stderr
    listed = invoke("list").stdout
    assert "cifar100" in listed
    assert "fetch it with `forgetscope data get tiny-imagenet`" in listed
    checked = invoke("check", "cifar100", "-o", "sheet.png")
    assert "Images per class: 2 to learn from, 1 to test on" in checked.stdout
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.height == 25 * 32
    facts = json.loads(invoke("check", "cifar100", "--json").stdout)
    assert facts["images_per_class"]["apple"] == {"train": 2, "test": 1}
    assert json.loads(invoke("list", "--json").stdout)["here"][0]["digest"] == facts["digest"]
    shutil.copytree(tmp_path / "cache" / "cifar100", tmp_path / "cache" / "broken")
    (tmp_path / "cache" / "broken" / "test_images.npy").write_bytes(b"")
    assert "broken is damaged" in invoke("list").stdout
    assert "cifar100" in invoke("list").stdout
    assert [data["name"] for data in json.loads(invoke("list", "--json").stdout)["here"]] == ["cifar100"]
    assert invoke("remove", "broken").exit_code == 0
    assert invoke("remove", "cifar100").exit_code == 0
    assert json.loads(invoke("list", "--json").stdout)["here"] == []


def test_an_empty_list_says_what_to_do(empty_cache: Path) -> None:
    listed = invoke("list").stdout
    assert "None yet. Add your own images with `forgetscope data add NAME PATH`" in listed
    assert "fetch it with `forgetscope data get cifar100`" in listed
    assert not empty_cache.exists()


def test_a_folder_of_somebody_else_is_listed_as_such_and_not_removed(empty_cache: Path) -> None:
    (empty_cache / "project").mkdir(parents=True)
    (empty_cache / "project" / "manifest.json").write_text("{}")
    assert "project is not a data set that forgetscope made" in invoke("list").stdout
    refused = invoke("remove", "project")
    assert refused.exit_code == 2
    assert "It is left as it is" in refused.stderr
    assert (empty_cache / "project" / "manifest.json").read_text() == "{}"


def test_the_user_s_own_images_survive_under_the_name_of_the_data_set(
    birds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path))
    refused = invoke("add", "birds", birds, "--test-share", "0.25", "--size", "8")
    assert refused.exit_code == 2
    assert f"{birds} is there already and is not a data set that forgetscope made" in refused.stderr
    assert len(list(birds.glob("*/*.png"))) == 62


def test_what_a_killed_conversion_left_is_listed_with_what_becomes_of_it(empty_cache: Path) -> None:
    left = empty_cache / ".making-4194305-0f3a91c2"
    left.mkdir(parents=True)
    (left / "train_images.npy").write_bytes(bytes(2_500_000))
    assert f"{left} (2.5 MB): left by an interrupted conversion or removal; the next" in invoke("list").stdout
    (listed,) = json.loads(invoke("list", "--json").stdout)["left"]
    assert (listed["path"], listed["bytes"]) == (str(left), 2_500_000)
    assert "Removed .making-4194305-0f3a91c2." in invoke("remove", ".making-4194305-0f3a91c2").stdout
    assert not left.exists()


def test_one_s_own_images_of_unequal_number_and_shape_run_end_to_end(birds: Path, tmp_path: Path) -> None:
    refused = invoke("add", "birds", birds)
    assert refused.exit_code == 2
    assert "--test-share 0.2" in refused.stderr
    added = invoke("add", "birds", birds, "--test-share", "0.25", "--size", "8")
    assert added.exit_code == 0, added.output
    assert "Images per class: 9 to 22 to learn from, 3 to 8 to test on" in invoke("check", "birds").stdout
    config = 'dataset = "birds"\nsequence = [[0, 2], [1]]\nretention = 0.3\nepochs = 1\nbatch = 16\n'
    (tmp_path / "birds.toml").write_text(config)
    ran = CliRunner().invoke(app, ["run", "birds.toml", "--store", "results", "--threads", "1", "--json"])
    assert ran.exit_code == 0, ran.output
    rows = [row for row in json.loads(ran.stdout)["classes"] if row["step"] == 2]
    kept = {row["class_name"]: row["rehearsal_images"] for row in rows}
    assert kept == {"owl": 3, "wren": 7, "swift": None}  # floor(0.3 n + 0.5) of 9 and 22 images
    assert [row["share"] for row in rows[:2]] == [0.3, 0.7]  # p_c = |R_c| / |R|
    assert all(row["sic"] is not None for row in rows[:2])
    assert CliRunner().invoke(app, ["report", "results", "-o", "page.html"]).exit_code == 0
    assert "data:image/png;base64," in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("get", "cifar"), "Did you mean 'cifar100'?"),
        (("get", "cifar100", "--from", "nowhere"), "There is nothing at nowhere"),
        (("get", "cifar100", "--from", "ftp://example.org/x"), "only http:// and https:// addresses are supported"),
        (("add", "cifar100", "."), "The name 'cifar100' is taken"),
        (("add", "mine", "nowhere"), "There is nothing at nowhere"),
        (("add", "mine", "/dev/zero"), "/dev/zero is neither a file nor a folder"),
        (("get", "cifar100", "--from", "/dev/zero"), "/dev/zero is neither a file nor a folder"),
        (("get", "tiny-imagenet", "--from", "/dev/null"), "/dev/null is neither a file nor a folder"),
        (("check", "mine"), "There is no data set 'mine'"),
        (("remove", "mine"), "There is no data set 'mine'"),
        (("remove", "glyphs"), "glyphs is embedded in forgetscope"),
    ],
)
def test_wrong_input_is_one_clear_error(arguments: tuple[str, ...], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_pipe_in_the_place_of_data_is_not_waited_for(birds: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    for arguments in (("add", "mine", "pipe.npz"), ("get", "cifar100", "--from", "pipe.npz")):
        refused = invoke(*arguments)
        assert refused.exit_code == 2
        assert "pipe.npz is neither a file nor a folder" in refused.stderr


def test_broken_images_are_named_or_left_out_and_what_was_done_is_told(birds: Path) -> None:
    (birds / "owl" / "3.png").write_bytes(b"")
    (birds / "wren" / "7.png").write_bytes(b"no image")
    (birds / "wren" / "notes.txt").write_text("seen in May")
    Image.new("RGBA", (9, 9)).save(birds / "swift" / "1.png")
    arguments = ("add", "birds", birds, "--test-share", "0.25", "--size", "8", "--workers", "1")
    refused = invoke(*arguments)
    assert refused.exit_code == 2
    assert "2 of 62 images cannot be used" in refused.stderr
    assert "owl/3.png is empty (0 bytes); " in refused.stderr
    assert "wren/7.png cannot be read as an image" in refused.stderr
    assert "--skip-broken" in refused.stderr
    added = invoke(*arguments, "--skip-broken")
    assert added.exit_code == 0, added.output
    assert "Left out 2 images that cannot be used: " in added.stderr
    assert "owl/3.png" in added.stderr
    assert "1 .txt file (such as wren/notes.txt)" in added.stderr
    assert "Transparent in places, laid on white: 1 of 60 images." in added.stderr
    assert "3 classes, 44 + 16 images" in added.stdout


def test_names_that_are_not_utf_8(birds: Path) -> None:
    os.rename(os.fsencode(birds / "owl" / "3.png"), os.fsencode(birds / "owl") + b"/\xff.png")
    added = invoke("add", "birds", birds, "--test-share", "0.25", "--size", "8", "--workers", "1")
    assert added.exit_code == 0, added.output
    os.rename(os.fsencode(birds / "owl"), os.fsencode(birds) + b"/\xfe")
    refused = invoke("add", "others", birds, "--test-share", "0.25", "--size", "8", "--workers", "1")
    assert refused.exit_code == 2
    assert "is not valid Unicode (UTF-8). Rename it." in refused.stderr
    os.rename(os.fsencode(birds) + b"/\xfe", os.fsencode(birds / "owl"))
    os.rename(os.fsencode(birds), os.fsencode(birds) + b"\xfd")
    added = invoke("add", "third", os.fsdecode(os.fsencode(birds) + b"\xfd"), "--test-share", "0.25", "--size", "8")
    assert added.exit_code == 0, added.output


def test_a_share_that_holds_nothing_out_is_refused(birds: Path, tmp_path: Path) -> None:
    shutil.copytree(birds, tmp_path / "both" / "train")
    shutil.copytree(birds, tmp_path / "both" / "val")
    (tmp_path / "mine.npz").touch()
    refused = invoke("add", "mine", "both", "--test-share", "0.2")
    assert "both has val/ beside train/, so nothing is held out: leave --test-share out." in refused.stderr
    refused = invoke("add", "mine", "mine.npz", "--test-share", "0.2")
    assert "mine.npz says itself which images are for testing: leave --test-share out." in refused.stderr


def test_what_is_no_data_and_a_sheet_without_an_ending_are_told_what_to_be(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("birds")
    refused = invoke("add", "mine", "notes.txt")
    assert "notes.txt is no .npz file. Name a folder of images, or a .npz file." in refused.stderr
    assert "Name another .png file with -o." in invoke("check", "glyphs", "-o", "sheet").stderr
