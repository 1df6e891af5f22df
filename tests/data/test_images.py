from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from forgetscope.data.images import class_strips
from forgetscope.data.library import cache_folder, load_data, recorded_strips
from forgetscope.errors import DataError


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


def test_a_damaged_cache_is_named_and_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "glyphs-v1@8px"
    source = cache_folder() / folder.name
    load_data("glyphs", 8)
    folder.mkdir()
    for file in source.iterdir():
        (folder / file.name).write_bytes(file.read_bytes()[: 200 if file.name == "train_images.npy" else None])
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path))
    with pytest.raises(DataError, match=r"glyphs-v1@8px is damaged .* Delete that folder"):
        load_data("glyphs", 8)


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


def test_a_record_of_other_data_gets_no_strips() -> None:
    data = load_data("glyphs", 8)
    record = {"name": "glyphs", "image_size": 8, "shape": [8, 8], "digest": data.digest}
    assert list(recorded_strips(record, [0, 1])) == [0, 1]
    assert recorded_strips({**record, "digest": "other"}, [0]) == {}
    assert recorded_strips({**record, "name": "unknown"}, [0]) == {}
