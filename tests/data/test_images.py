from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from forgetscope.data import glyphs
from forgetscope.data.acquisition import add_arrays
from forgetscope.data.cache import cache_folder
from forgetscope.data.images import FILES, MANIFEST, class_strips, manifest_bytes
from forgetscope.data.library import load_data, recorded_data
from forgetscope.errors import DamagedData, DataError
from forgetscope.files import file_digest


def test_opening_maps_the_file_and_copies_nothing() -> None:
    data = load_data("glyphs", 8)
    assert isinstance(data.train.images, np.memmap)
    assert not data.train.images.flags.writeable


def test_mean_and_deviation_are_those_of_the_training_pixels() -> None:
    data = load_data("glyphs", 8)
    pixels = data.train.images.reshape(-1, 3) / 255
    np.testing.assert_allclose(data.mean, pixels.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(data.std, pixels.std(axis=0), rtol=1e-10)


def test_an_unknown_data_set_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(DataError, match=r"no data set 'glyph'. Did you mean 'glyphs'\?"):
        load_data("glyph")


@pytest.mark.parametrize("name", [MANIFEST, *(f"{file}.npy" for file in FILES)])
@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_damaged_glyphs_are_noticed_put_aside_and_drawn_again(
    name: str, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = cache_folder() / "glyphs-v1@8px"
    whole = load_data("glyphs", 8)
    folder = shutil.copytree(source, tmp_path / source.name)
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content if damage == "flip" else content[:-7])
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path))
    drawn = [(np.array(part.images), np.array(part.labels)) for part in (whole.train, whole.test)]
    monkeypatch.setattr(glyphs, "render_both", lambda size: drawn)  # drawing takes seconds
    notes: list[str] = []
    again = load_data("glyphs", 8, notes.append)
    assert again.digest == whole.digest
    assert "is damaged" in notes[0]
    assert name in notes[0] or (name == MANIFEST and "(" in notes[0])  # a cut manifest is no JSON at all
    assert (tmp_path / "quarantine" / "glyphs-v1@8px-1" / name).read_bytes() == (content if damage == "flip" else content[:-7])


@pytest.mark.parametrize("content", ['"text"', "[1]", "5", "[" * 100_000, ""])
def test_glyphs_whose_manifest_is_something_else_are_drawn_again(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, whole = cache_folder() / "glyphs-v1@8px", load_data("glyphs", 8)
    shutil.copytree(source, tmp_path / source.name)
    (tmp_path / source.name / MANIFEST).write_text(content)
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path))
    drawn = [(np.array(part.images), np.array(part.labels)) for part in (whole.train, whole.test)]
    monkeypatch.setattr(glyphs, "render_both", lambda size: drawn)
    assert load_data("glyphs", 8).digest == whole.digest
    assert (tmp_path / "quarantine" / "glyphs-v1@8px-1" / MANIFEST).read_text() == content


def test_a_damaged_data_set_that_cannot_be_made_here_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path))
    images = np.arange(4 * 8 * 8 * 3, dtype=np.uint8).reshape(4, 8, 8, 3)
    add_arrays("mine", images, [0, 1, 0, 1], images[:2], [0, 1])
    path = tmp_path / "mine" / "test_images.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 128
    path.write_bytes(content)
    with pytest.raises(DamagedData, match=r"mine is damaged \(test_images.npy does not match its checksum\)\. Delete that"):
        load_data("mine")
    assert load_data("mine", verify=False).classes == ("0", "1")


@pytest.mark.parametrize(
    ("file", "array"),
    [
        ("train_images", np.zeros((4, 8, 8), np.uint8)),
        ("test_images", np.zeros((2, 8, 9, 3), np.uint8)),
        ("test_images", np.zeros((2, 8, 8, 3), np.float64)),
        ("train_labels", np.zeros((), np.int64)),
        ("train_labels", np.zeros(4, np.float64)),
        ("test_labels", np.zeros(3, np.int64)),
        ("test_labels", np.array([0, 2])),
    ],
)
def test_arrays_that_are_no_images_and_labels_are_damage_though_their_checksums_are_right(
    file: str, array: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path))
    images = np.arange(4 * 8 * 8 * 3, dtype=np.uint8).reshape(4, 8, 8, 3)
    add_arrays("mine", images, [0, 1, 0, 1], images[:2], [0, 1])
    np.save(tmp_path / "mine" / f"{file}.npy", array)
    manifest = json.loads((tmp_path / "mine" / MANIFEST).read_text())
    del manifest["checksum"]
    manifest["files"][file] = file_digest(tmp_path / "mine" / f"{file}.npy")
    (tmp_path / "mine" / MANIFEST).write_bytes(manifest_bytes(manifest))
    for verify in (True, False):
        with pytest.raises(
            DamagedData, match=rf"mine is damaged \(.*{file.split('_')[0]}_(images|labels).* Delete that folder"
        ):
            load_data("mine", verify=verify)


@pytest.mark.parametrize("verify", [True, False])
def test_a_device_or_a_pipe_in_the_place_of_an_array_is_damage_and_is_not_read(
    verify: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path))
    images = np.zeros((4, 8, 8, 3), np.uint8)
    add_arrays("mine", images, [0, 1, 0, 1], images[:2], [0, 1])
    file = tmp_path / "mine" / "test_labels.npy"
    for replace in (lambda: file.symlink_to("/dev/zero"), lambda: os.mkfifo(file), file.mkdir):
        file.unlink()
        replace()
        with pytest.raises(DamagedData, match=r"mine is damaged \(test_labels.npy is no plain file\)"):
            load_data("mine", verify=verify)


def test_an_unwritable_cache_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match="Set FORGETSCOPE_CACHE to another folder"):
        load_data("glyphs", 8)


def test_the_digest_is_that_of_pixels_and_labels() -> None:
    first, other = load_data("glyphs", 8), load_data("glyphs", 16)
    assert first.digest != other.digest
    manifest = json.loads((cache_folder() / "glyphs-v1@8px" / "manifest.json").read_text())
    assert manifest["digest"] == first.digest


def test_strips_show_a_class_s_first_images() -> None:
    data = load_data("glyphs", 8)
    strip = np.asarray(Image.open(io.BytesIO(class_strips(data, [3])[3])))
    assert strip.shape == (8, 32, 3)
    assert (strip[:, :8] == data.train.images[600]).all()


def test_a_record_of_other_data_finds_none() -> None:
    data = load_data("glyphs", 8)
    record = {"name": "glyphs", "image_size": 8, "shape": [8, 8], "digest": data.digest}
    assert repr(recorded_data(record)) == repr(data)
    assert recorded_data({**record, "digest": "other"}) is None
    assert recorded_data({**record, "name": "unknown"}) is None
