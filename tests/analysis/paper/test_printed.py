"""The paper's printed values beside a store's."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from forgetscope.analysis.exhibits.tables import TABLES
from forgetscope.analysis.inputs.cache import Cache
from forgetscope.analysis.inputs.measured_steps import read_steps
from forgetscope.analysis.inputs.samples import collect
from forgetscope.analysis.paper.printed import beside_paper, deviations, overlap
from forgetscope.analysis.results import Analysis
from forgetscope.analysis.rows import matching
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.store import Store

ends = st.integers(-50, 50)


@given(ends, ends, ends, ends)
def test_intervals_overlap_if_some_point_lies_in_both(a: int, b: int, c: int, d: int) -> None:
    first, second = (min(a, b), max(a, b)), (min(c, d), max(c, d))
    common = set(range(first[0], first[1] + 1)) & set(range(second[0], second[1] + 1))
    assert overlap(first, second) == overlap(second, first) == bool(common)


def test_an_unknown_end_leaves_it_open() -> None:
    assert overlap((0.1, math.nan), (0.0, 1.0)) is None


def test_a_store_of_the_papers_settings_is_set_beside_it(same: Analysis) -> None:
    assert deviations(same.collection.samples[0]) == ()
    beside = beside_paper(same.tables, same.collection)
    assert set(beside) == set(TABLES) - {"controlled_experiments"}  # nothing was run again
    ours = matching(same.tables["FG-R_FG-HSG_overall"], subset="2", quantity="FG-R")
    row = beside["FG-R_FG-HSG_overall"].loc[ours.index[0]]
    assert (row["paper"], row["paper_lo"], row["paper_hi"], row["paper_sd"]) == (0.59, 0.57, 0.60, 0.15)  # as printed
    assert row["difference"] == pytest.approx(ours["mean"].iloc[0] - 0.59)
    apart = ours["mean_hi"].iloc[0] < 0.57 or ours["mean_lo"].iloc[0] > 0.60
    assert row["overlap"] == ("no" if apart else "yes")


def test_of_an_anova_partial_eta_squared_is_compared(same: Analysis) -> None:
    ours = matching(same.tables["anova_SIC"], subset="2", response="rho", factor="rehearsal")
    row = beside_paper(same.tables, same.collection)["anova_SIC"].loc[ours.index[0]]
    assert (row["paper"], row["paper_p"], row["overlap"]) == (0.06, 2.67e-5, "")
    assert row["difference"] == pytest.approx(ours["eta2p"].iloc[0] - 0.06)


def test_other_settings_are_named_and_not_compared(analysed: Analysis) -> None:
    told = deviations(analysed.collection.samples[0])
    assert told is not None
    assert any(text.startswith("epochs = ") and text.endswith("(paper: 170)") for text in told)
    assert beside_paper(analysed.tables, analysed.collection) == {}


def differing(folder: Path, **options: Any) -> tuple[str, ...] | None:
    shape = {"experiments": 1, "increments": [0.5], "retentions": [0.08], "steps": 2}
    store = Store(folder)
    simulate(BenchmarkSpec.load("cifar100", {**shape, **options}), store, reruns=0)
    (sample,) = collect(store, read_steps(store, Cache(None), lambda what, done, total: None)).samples
    return deviations(sample)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("validation", 0.1, "validation = 0.1 (paper: not set)"),
        ("crop", 3, "crop = 3 (paper: 4)"),
        ("flip", False, "flip = False (paper: True)"),
        ("brightness", 0.5, f"brightness = 0.5 (paper: {63 / 255})"),
        ("brightness_rounded", True, "brightness_rounded = True (paper: not set)"),
        ("probe_every", 10, "probe_every = 10 (paper: 1)"),
        ("probes", 6, "probes = 6 (paper: not set)"),
        ("probe_images", 50, "probe_images = 50 (paper: not set)"),
        ("first_batch", 32, "first_batch = 32 (paper: 64)"),
        ("precision", "bfloat16", "precision = bfloat16 (paper: not set)"),
        ("normalisation", "cifar10", "normalisation = cifar10 (paper: not set)"),
        ("initialisation", "fan-out", "initialisation = fan-out (paper: not set)"),
        ("initial_weights", "unseeded", "initial_weights = unseeded (paper: not set)"),
        ("image_size", 16, "image_size = 16 (paper: 32)"),
    ],
)
def test_every_setting_that_can_change_numbers_counts(tmp_path: Path, name: str, value: object, told: str) -> None:
    assert told in (differing(tmp_path, **{name: value}) or ())


@pytest.mark.parametrize("options", [{}, {"script_behaviour": "released"}, {"keepsake": "variance", "released_nic": True}])
def test_the_text_and_the_scripts_are_both_the_paper_and_what_is_beside_changes_nothing(
    tmp_path: Path, options: dict[str, object]
) -> None:
    assert differing(tmp_path, **options) == ()


def test_a_mixture_of_text_and_scripts_is_neither(tmp_path: Path) -> None:
    found = differing(tmp_path, script_behaviour="released", sampling="iid")
    assert found == ("sampling = iid (paper: reshuffled-short)",)
