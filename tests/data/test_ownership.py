"""The cache may be a folder that holds other things: they stay as they are, byte for byte, whatever is added or removed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from own_data import own
from PIL import Image

from forgetscope.data import glyphs
from forgetscope.data.acquisition import add_data, get_data
from forgetscope.data.images import manifest_bytes
from forgetscope.data.library import installed, leftovers, load_data, remove_data
from forgetscope.errors import DataError
from tiny_cifar100 import SPLITS, binary

LEFT_ALONE = "It is left as it is: move it elsewhere, or use another name or another cache"


@pytest.fixture(autouse=True)
def cache(empty_cache: Path) -> Path:
    empty_cache.mkdir()
    return empty_cache


def images(folder: Path) -> Path:
    """Two class folders of four images."""
    for name in ("owl", "wren"):
        (folder / name).mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (8, 8), (i * 40, 0, 0)).save(folder / name / f"{i}.png")
    return folder


def contents(folder: Path) -> dict[str, bytes | str]:
    """All that is in a folder, links as what they point to."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else ""
        for path in sorted(folder.rglob("*"))
    }


def quiet(text: str) -> None: ...


def test_images_that_lie_in_the_cache_under_the_data_set_s_name_are_kept(cache: Path) -> None:
    before = contents(images(cache / "birds").parent)
    with pytest.raises(DataError, match=rf"cache/birds is there already and is not a data set.*{LEFT_ALONE}"):
        add_data("birds", cache / "birds", test_share=0.5)
    assert contents(cache) == before
    add_data("kept", cache / "birds", test_share=0.5)  # from there, under another name
    assert {name: data for name, data in contents(cache).items() if name.startswith("birds")} == before


@pytest.mark.parametrize("way", ["link to the source", "source through a link", "cache through a link", "dots"])
def test_no_detour_leads_to_a_source_that_is_replaced(
    way: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = images(cache / "birds")
    if way == "link to the source":
        source = shutil.move(source, tmp_path / "originals")
        (cache / "birds").symlink_to(source)
    elif way == "source through a link":
        (tmp_path / "link").symlink_to(source)
        source = tmp_path / "link"
    elif way == "cache through a link":
        (tmp_path / "other").symlink_to(cache)
        monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path / "other"))
    else:
        monkeypatch.setenv("FORGETSCOPE_CACHE", str(cache / "birds" / ".."))
    before = contents(tmp_path)
    with pytest.raises(DataError, match=LEFT_ALONE.split(":")[0]):
        add_data("birds", source, test_share=0.5)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("what", ["an empty folder", "a file", "a broken link", "a folder with a manifest"])
def test_whatever_has_the_name_of_a_new_data_set_is_kept(what: str, cache: Path) -> None:
    place = cache / "mine"
    if what == "a file":
        place.write_text("diary")
    elif what == "a broken link":
        place.symlink_to("nowhere")
    else:
        place.mkdir()
    if what == "a folder with a manifest":
        (place / "manifest.json").write_text('{"name": "mine", "files": {}}')
    before = contents(cache)
    with pytest.raises(DataError, match="cache/mine is there already"):
        own("mine")
    assert contents(cache) == before


def test_what_appears_under_the_name_during_the_conversion_is_kept(cache: Path, tmp_path: Path) -> None:
    def appear(what: str, done: int, total: int) -> None:
        images(cache / "birds") if done == total else None

    with pytest.raises(DataError, match="cache/birds is there already"):
        add_data("birds", images(tmp_path / "birds"), test_share=0.5, progress=appear)
    assert contents(cache / "birds") == contents(tmp_path / "birds")
    assert [path.name for path in cache.iterdir() if path.is_dir()] == ["birds"]


def test_a_public_data_set_unpacked_in_the_cache_is_kept(cache: Path) -> None:
    (cache / "cifar100").mkdir()
    for name in SPLITS:
        (cache / "cifar100" / f"{name}.bin").write_bytes(binary(name))
    before = contents(cache)
    for origin in (str(cache / "cifar100"), "http://127.0.0.1:9/never-asked.tar.gz", None):
        with pytest.raises(DataError, match="cache/cifar100 is there already"):
            get_data("cifar100", origin, note=quiet)
    assert contents(cache) == before


def test_other_folders_in_the_place_of_glyphs_and_of_other_sizes_are_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.zeros((100, 8, 8, 3), np.uint8)
    monkeypatch.setattr(glyphs, "render_both", lambda size: [(pixels, np.arange(100))] * 2)
    digest = own().digest
    for name in ("glyphs-v1@8px", f"mine@8px-{digest[:8]}"):
        (cache / name).mkdir()
        (cache / name / "manifest.json").write_text("{}")
        (cache / name / "photo.jpg").write_text("mine")
    before = contents(cache)
    for name in ("glyphs", "mine"):
        with pytest.raises(DataError, match=r"@8px.* is there already"):
            load_data(name, 8)
    for path in ("glyphs-v1@8px", f"mine@8px-{digest[:8]}"):
        shutil.copy(cache / "mine" / "test_labels.npy", cache / path)  # now it looks like ours, but for the photo
    before = contents(cache)
    for name in ("glyphs", "mine"):
        with pytest.raises(DataError, match=r"@8px.* holds 'photo.jpg', which forgetscope did not make"):
            load_data(name, 8)
        with pytest.raises(DataError, match=r"@8px.* holds 'photo.jpg', which forgetscope did not make"):
            remove_data(name)
    assert contents(cache) == before


@pytest.mark.parametrize("name", ["quarantine", "downloads", "Quarantine", "Glyphs", "glyphs-v2", "CIFAR100", "Tiny-ImageNet"])
def test_names_that_forgetscope_uses_itself_are_refused(name: str, cache: Path, tmp_path: Path) -> None:
    (cache / "quarantine").mkdir()
    (cache / "quarantine" / "precious").write_text("mine")
    with pytest.raises(DataError, match=f"The name '{name}' is taken"):
        own(name)
    with pytest.raises(DataError, match=f"The name '{name}' is taken"):
        add_data(name, images(tmp_path / "birds"), test_share=0.5)
    assert contents(cache) == {"quarantine": "", "quarantine/precious": b"mine"}


def test_a_name_that_differs_only_by_case_is_refused(cache: Path) -> None:
    own("birds")
    before = contents(cache)
    with pytest.raises(DataError, match=r"'birds' in the cache differs from 'Birds' only by case. Use another name"):
        own("Birds")
    assert contents(cache) == before
    with pytest.raises(DataError, match="There is no data set 'Birds'"):
        remove_data("Birds")
    assert contents(cache) == before


@pytest.mark.parametrize("what", ["a file", "a link", "a pipe"])
def test_what_has_the_name_of_a_lock_is_kept(what: str, cache: Path) -> None:
    lock = cache / ".mine.lock"
    if what == "a file":
        lock.write_text("mine")
    elif what == "a link":
        lock.symlink_to("nowhere")
    else:
        os.mkfifo(lock)
    with pytest.raises(DataError, match=rf"mine.lock is where a lock would be.*{LEFT_ALONE}"):
        own("mine")
    assert [path.name for path in cache.iterdir()] == [".mine.lock"]


def test_a_data_set_s_manifest_cannot_lead_its_other_sizes_out_of_the_cache(cache: Path) -> None:
    own()
    manifest = json.loads((cache / "mine" / "manifest.json").read_text())
    del manifest["checksum"]
    (cache / "mine" / "manifest.json").write_bytes(manifest_bytes(manifest | {"name": "../outside"}))
    with pytest.raises(DataError, match=r"'../outside' cannot be a data set's name"):
        load_data("mine", 8)
    assert [path.name for path in cache.parent.iterdir()] == ["cache"]


# Removal


@pytest.mark.parametrize("manifest", ["{}", "no JSON", '{"name": "project", "files": {}}', "[1]", "[" * 100_000])
def test_a_folder_with_somebody_else_s_manifest_is_not_removed(manifest: str, cache: Path) -> None:
    (cache / "project").mkdir()
    (cache / "project" / "manifest.json").write_text(manifest)
    (cache / "project" / "train_images.npy").write_bytes(b"mine")
    before = contents(cache)
    with pytest.raises(DataError, match=rf"cache/project is not a data set that forgetscope made.*{LEFT_ALONE}"):
        remove_data("project")
    with pytest.raises(DataError, match="cache/project is not a data set that forgetscope made"):
        load_data("project")
    assert installed() == []
    assert contents(cache) == before


@pytest.mark.parametrize("place", ["mine", "mine@8px"])
def test_a_data_set_beside_which_somebody_put_something_is_not_removed(place: str, cache: Path) -> None:
    own()
    load_data("mine", 8)
    (folder,) = (path for path in cache.glob("mine*") if path.name.startswith(place) and ("@" in path.name) == ("@" in place))
    (folder / "notes").mkdir()
    before = contents(cache)
    with pytest.raises(DataError, match=rf"{folder.name} holds 'notes', which forgetscope did not make"):
        remove_data("mine")
    assert contents(cache) == before
    (folder / "notes").rmdir()
    remove_data("mine")
    assert list(cache.glob("mine*")) == []


def test_a_link_is_used_but_not_followed_by_removal(cache: Path, tmp_path: Path) -> None:
    digest = own().digest
    shutil.move(cache / "mine", tmp_path / "large-disk")
    (cache / "mine").symlink_to(tmp_path / "large-disk")
    assert load_data("mine").digest == digest
    before = contents(tmp_path)
    with pytest.raises(DataError, match="cache/mine is a symbolic link, which forgetscope did not make"):
        remove_data("mine")
    assert contents(tmp_path) == before


def test_a_link_in_place_of_a_file_makes_the_folder_not_ours(cache: Path, tmp_path: Path) -> None:
    own()
    shutil.move(cache / "mine" / "train_images.npy", tmp_path / "moved.npy")
    (cache / "mine" / "train_images.npy").symlink_to(tmp_path / "moved.npy")
    with pytest.raises(DataError, match=r"mine holds 'train_images.npy', which forgetscope did not make"):
        remove_data("mine")
    assert (tmp_path / "moved.npy").is_file()


def test_removal_takes_what_it_names_and_nothing_that_is_called_alike(cache: Path) -> None:
    own("mine")
    own("mine-too")
    shutil.copytree(cache / "mine", cache / "mine@backup")
    load_data("mine", 8)
    remove_data("mine")
    assert sorted(path.name for path in cache.iterdir()) == ["mine-too", "mine@backup"]


def test_a_data_set_of_an_earlier_version_is_removed(cache: Path) -> None:
    own()
    manifest = json.loads((cache / "mine" / "manifest.json").read_text())
    keys = ("name", "classes", "digest", "mean", "std", "augmentation")  # without checksums
    (cache / "mine" / "manifest.json").write_text(json.dumps({key: manifest[key] for key in keys}))
    remove_data("mine")
    assert list(cache.iterdir()) == []


def test_a_pipe_in_place_of_a_manifest_hangs_nothing(cache: Path) -> None:
    (cache / "project").mkdir()
    os.mkfifo(cache / "project" / "manifest.json")
    assert installed() == []
    with pytest.raises(DataError, match="project is not a data set that forgetscope made"):
        remove_data("project")


# What a kill leaves

KILLED_ONE = f".making-{2**22 + 1}-0f3a91c2"  # of a process that cannot be there: Linux counts to 2^22


def leave_unfinished(cache: Path, name: str = KILLED_ONE) -> Path:
    folder = cache / name
    folder.mkdir()
    (folder / "train_labels.npy").write_bytes(b"half")
    return folder


KILLED = """
import os, signal
import numpy as np
from forgetscope.data.acquisition import add_arrays
from forgetscope.data import conversion
conversion._write_manifest = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
images = np.zeros((2, 8, 8, 3), np.uint8)
add_arrays("birds", images, [0, 1], images, [0, 1])
"""


def test_what_a_killed_conversion_left_is_listed_and_the_next_conversion_deletes_it(cache: Path) -> None:
    result = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert result.returncode == -signal.SIGKILL
    leave_unfinished(cache)
    found = leftovers()
    assert len(found) == 2
    assert all("the next `forgetscope data add` or `data get` deletes it" in remark for _, _, remark in found)
    assert (KILLED_ONE, 4) in [(path.name, size) for path, size, _ in found]
    own()
    assert leftovers() == []
    assert [path.name for path in cache.iterdir() if path.is_dir()] == ["mine"]


def test_what_a_killed_conversion_left_can_be_removed_by_its_name(cache: Path) -> None:
    leave_unfinished(cache)
    remove_data(KILLED_ONE)
    assert list(cache.iterdir()) == []
    with pytest.raises(DataError, match=f"There is no data set '{KILLED_ONE}'"):
        remove_data(KILLED_ONE)


def test_what_another_process_is_making_is_no_leftover(cache: Path) -> None:
    running = leave_unfinished(cache, f".making-{os.getppid()}-0f3a91c2")  # also where locks do nothing
    own()
    assert leftovers() == []
    assert running.is_dir()
    code = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    held = leave_unfinished(cache)
    with subprocess.Popen(
        [sys.executable, "-c", code, str(cache / ".birds.lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout
        other.stdout.readline()
        own("second")
        assert leftovers() == []
        with pytest.raises(DataError, match=f"There is no data set '{KILLED_ONE}'"):
            remove_data(held.name)
        assert held.is_dir()
        other.communicate(b"")
    assert [path for path, _, _ in leftovers()] == [held]


@pytest.mark.parametrize("name", [".making-notes", KILLED_ONE, ".making-of.film"])
def test_what_only_looks_unfinished_is_kept(name: str, cache: Path) -> None:
    (cache / name).mkdir()
    (cache / name / "photo.jpg").write_text("mine")
    own()
    assert leftovers() == []
    with pytest.raises(DataError, match=r"There is no data set|cannot be a data set's name"):
        remove_data(name)
    assert (cache / name / "photo.jpg").read_text() == "mine"


@pytest.mark.parametrize("name", [".making-abcdefgh", ".making-12-abcdefgh", ".making-0f3a91c2", ".making-12-0f3a91c2-old"])
def test_what_has_our_files_but_no_name_that_we_give_is_kept(name: str, cache: Path) -> None:
    """Labels are called `train_labels.npy` by others, too."""
    mine = leave_unfinished(cache, name)
    own()
    assert leftovers() == []
    with pytest.raises(DataError, match=r"There is no data set|cannot be a data set's name"):
        remove_data(name)
    assert (mine / "train_labels.npy").read_bytes() == b"half"
