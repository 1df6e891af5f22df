from __future__ import annotations

import numpy as np
import pytest
from fontTools.ttLib import TTFont

from forgetscope.data import glyphs
from forgetscope.data.library import load_data


def test_a_hundred_different_characters_with_different_names() -> None:
    assert len(set(glyphs.CHARACTERS)) == len(glyphs.CHARACTERS) == 100
    assert len(set(glyphs.CLASS_NAMES)) == 100


def test_every_font_has_every_character() -> None:
    assert len(glyphs.FONTS) == len(set(glyphs.FONTS)) == 16
    for name in glyphs.FONTS:
        available = TTFont(glyphs._font_folder() / name).getBestCmap()
        assert not [c for c in glyphs.CHARACTERS if ord(c) not in available], name


def test_the_same_call_gives_the_same_pixels_and_train_differs_from_test() -> None:
    first, labels = glyphs.render("glyphs-train", 2, 8)
    again, _ = glyphs.render("glyphs-train", 2, 8)
    test, _ = glyphs.render("glyphs-test", 2, 8)
    assert first.shape == (200, 8, 8, 3)
    assert np.bincount(labels).tolist() == [2] * 100
    assert (first == again).all()
    assert not (first == test).all(axis=(1, 2, 3)).any()


@pytest.mark.parametrize("size", [16, 24])
def test_ink_stands_out_from_paper_at_any_size(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glyphs, "NOISE", (0.0, 0.0))
    images, _ = glyphs.render("glyphs-train", 3, size)
    spread = images.astype(float).mean(axis=3).reshape(len(images), -1)
    assert (spread.max(axis=1) - spread.min(axis=1) > 255 * 0.15).mean() > 0.97


def test_the_embedded_data_set_is_as_promised() -> None:
    data = load_data("glyphs")
    assert data.train.images.shape == (20000, 16, 16, 3)
    assert data.train.images.dtype == np.uint8
    assert np.bincount(data.train.labels).tolist() == [200] * 100
    assert np.bincount(data.test.labels).tolist() == [100] * 100
