"""What a store's page begins with: bars of all past classes of one step, beside what noise would make of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forgetscope.analysis.questions.example import Example, PastClass, Taken
from forgetscope.report.pages.picture import LINES, Bar, Picture, picture

REACH = 0.1  # half of an interval by the noise of the test images


def test_bars_and_their_bands_are_on_one_scale_from_zero() -> None:
    found = picture(example(0.5, 0.2, 0.1, 0.0))
    low, high = bounds(found)
    assert (low, high) == (0.0, pytest.approx(0.5, abs=0.11))
    for bar, forgetting in zip(found.bars, (0.5, 0.2, 0.1, 0.0), strict=True):
        assert span(bar, low, high) == pytest.approx((0, forgetting), abs=1e-3)
        assert bar.band is not None
        around = [low + at / 100 * (high - low) for at in (bar.band[0], sum(bar.band))]
        assert around == pytest.approx([0.2 - REACH, 0.2 + REACH], abs=1e-3)


def test_a_class_that_gained_reaches_to_the_other_side_of_zero() -> None:
    found = picture(example(0.4, -0.2))
    low, high = bounds(found)
    assert span(found.bars[1], low, high) == pytest.approx((-0.2, 0), abs=1e-3)
    assert (found.bars[0].said, found.bars[1].said) == ("lost 40\u202f%", "gained 20\u202f%")


def test_a_bar_tells_by_its_band_what_noise_explains() -> None:
    found = picture(example(0.6, 0.3, 0.28, 0.0))
    assert [bar.kind for bar in found.bars] == ["more", "alike", "alike", "less"]
    unknown = picture(
        replace(example(0.6, 0.3), classes=tuple(replace(one, low=float("nan")) for one in example(0.6, 0.3).classes))
    )
    assert [bar.kind for bar in unknown.bars] == ["unknown"] * 2
    assert not unknown.noise


def test_barely_learned_classes_change_neither_scale_nor_mean_and_are_clipped() -> None:
    clear = example(0.6, 0.3, 0.0)
    odd = replace(clear.classes[0], id=9, forgetting=-26.0, low=-40.0, barely_learned=True, taken_for=())
    found = picture(replace(clear, classes=(*clear.classes, odd)))
    assert found.ticks == picture(clear).ticks
    assert found.bars[:3] == picture(clear).bars
    assert (found.bars[3].kind, found.bars[3].clipped, found.bars[3].band) == ("barely", "left", None)


def test_the_worst_are_the_first_that_were_learned() -> None:
    clear = example(0.6, 0.5, 0.4, 0.3)
    assert [bar.past.id for bar in picture(clear).worst] == [0, 1, 2]
    barely = replace(clear, classes=tuple(replace(one, barely_learned=one.id != 3) for one in clear.classes))
    assert [bar.past.id for bar in picture(barely).worst] == [3]


def test_a_class_that_was_not_forgotten_is_not_among_the_worst() -> None:
    assert [bar.past.id for bar in picture(example(0.2, 0.0, -0.5)).worst] == [0]
    assert picture(example(0.0, -0.1)).worst == []


def test_a_class_that_was_clearly_forgotten_less_than_the_average_is_not_among_the_worst() -> None:
    found = picture(example(0.9, 0.2, 0.2))
    assert [bar.kind for bar in found.bars] == ["more", "less", "less"]
    assert [bar.past.id for bar in found.worst] == [0]


def test_where_nothing_is_concluded_no_class_is_told_from_the_others() -> None:
    found = picture(example(0.6, 0.3, 0.1), conclusive=False)
    assert found.kinds == {"unjudged"}
    assert len(found.worst) == 3


def test_many_classes_stand_side_by_side() -> None:
    assert not picture(example(*[0.1] * LINES)).side_by_side
    assert picture(example(*[0.1] * (LINES + 1))).side_by_side


def example(*forgetting: float) -> Example:
    """A step of classes that were recognised in every second image, most forgotten first; of the worst three with a mistake."""
    classes = tuple(
        PastClass(
            i,
            f"class {i}",
            value,
            0.5,
            0.5 * (1 - value),
            value - REACH,
            value + REACH,
            False,
            (Taken(7, "seven", 0.2),) * (i < 3),
        )
        for i, value in enumerate(forgetting)
    )
    return Example("0123456789abcdef", 1, "8", "10", 2, forgetting[0] - forgetting[-1], 0.1, classes)


def bounds(found: Picture) -> tuple[float, float]:
    """What the ends of the scale stand for."""
    (first, zero), (last, text) = found.ticks[0], found.ticks[-1]
    values = [float(one.replace("−", "-").removesuffix("%").strip()) / 100 for one in (zero, text)]
    unit = (values[1] - values[0]) / (last - first)
    return values[0] - first * unit, values[1] + (100 - last) * unit


def span(bar: Bar, low: float, high: float) -> tuple[float, float]:
    return tuple(low + at / 100 * (high - low) for at in (bar.start, bar.start + bar.length))  # type: ignore[return-value]
