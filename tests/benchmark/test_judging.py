"""The statistics of `benchmarks/forecast.py`, against scipy, counting by hand, and simulations in which the truth is known."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats


def _loaded() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "judging.py"
    spec = importlib.util.spec_from_file_location("judging", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["judging"] = module  # where its dataclass looks for annotations
    spec.loader.exec_module(module)
    return module


judging = _loaded()


def judged(score: Any, forgetting: Any, *, experiment: str = "a", variance: float = 0.0, half: float = 0.0) -> Any:
    forgetting = np.asarray(forgetting, np.float64)
    variances = np.full(len(forgetting), variance)
    return judging.Judged(
        partition=("glyphs", "uniform", "8", 2),
        experiment=experiment,
        forgetting=forgetting,
        variances=variances,
        true_variance=0.01,
        so_far=forgetting[None],
        so_far_variances=variances[None],
        scores={"score": np.asarray(score, np.float64)[None], "other": -np.asarray(score, np.float64)[None]},
        halves={"score": np.full((1, len(forgetting)), half)},
    )


def test_correlations_are_spearmans_in_fishers_z_over_the_classes_that_are_known() -> None:
    draws = np.random.default_rng(0)
    score, forgetting = draws.normal(size=12), draws.normal(size=12)
    score[3] = np.nan
    known = ~np.isnan(score)
    expected = np.arctanh(stats.spearmanr(score[known], forgetting[known]).statistic)
    assert judging.correlation(judged(score, forgetting), "score", 0) == pytest.approx(expected)


def test_the_worst_quarter_is_found_as_counting_says() -> None:
    draws = np.random.default_rng(1)
    for classes, k in ((10, 2), (20, 5)):
        score, forgetting = draws.normal(size=classes), draws.normal(size=classes)
        worst, chosen = set(np.argsort(-forgetting)[:k].tolist()), set(np.argsort(-score)[:k].tolist())
        step = judged(score, forgetting)
        assert judging.precision(step, "score", 0) == pytest.approx(len(worst & chosen) / k)
        wins = [score[bad] > score[good] for bad, good in itertools.product(worst, set(range(classes)) - worst)]
        assert judging.area(step, "score", 0) == pytest.approx(np.mean(wins))


def test_errors_by_hand() -> None:
    step = judged([0.5, 0.2, np.nan], [0.4, 0.4, 0.9], variance=0.01)
    assert judging.bias(step, "score", 0) == pytest.approx(-0.05)
    assert judging.absolute(step, "score", 0) == pytest.approx(0.15)
    assert judging.squared(step, "score", 0) == pytest.approx((0.01 + 0.04) / 2)
    assert judging.squared_without_noise(step, "score", 0) == pytest.approx((0.01 + 0.04) / 2 - 0.01)


def test_an_interval_with_the_noise_of_test_images_added_is_as_wide_as_both_together() -> None:
    reach = np.hypot(0.3, 1.96 * 0.2)
    inside, outside = (
        judged([reach - 1e-9], [0.0], variance=0.04, half=0.3),
        judged([reach + 1e-9], [0.0], variance=0.04, half=0.3),
    )
    assert judging.covered(inside, "score", 0) == 1
    assert judging.covered(outside, "score", 0) == 0


def test_intervals_of_the_right_size_cover_and_errors_without_noise_are_those_of_the_truth() -> None:
    draws, error, noise, classes = np.random.default_rng(2), 0.08, 0.05, 20_000
    truth = draws.normal(0.4, 0.2, classes)
    forecast, measured = truth + draws.normal(0, error, classes), truth + draws.normal(0, noise, classes)
    step = judged(forecast, measured, variance=noise**2, half=1.96 * error)
    assert judging.covered(step, "score", 0) == pytest.approx(0.95, abs=0.005)
    assert judging.squared_without_noise(step, "score", 0) == pytest.approx(error**2, rel=0.03)
    assert judging.estimated([step], judging.squared_without_noise, "score", 0).value == pytest.approx(error, rel=0.02)


def test_steps_of_one_experiment_count_once() -> None:
    steps = [judged([0, 1, 2], [0, 1, 2], experiment=name) for name in "aabc"]
    found = judging.over_experiments(steps, [0.0, 1.0, 0.7, 0.3])
    low, high = stats.t.interval(0.95, 2, loc=0.5, scale=stats.sem([0.5, 0.7, 0.3]))
    assert (found.value, found.low, found.high, found.n) == pytest.approx((0.5, low, high, 3))


def test_differences_are_within_steps() -> None:
    draws = np.random.default_rng(3)
    steps = [judged(draws.normal(size=10), draws.normal(size=10), experiment=str(i)) for i in range(6)]
    z = [2 * np.arctanh(stats.spearmanr(step.scores["score"][0], step.forgetting).statistic) for step in steps]
    assert judging.difference(steps, "score", "other", 0).value == pytest.approx(np.mean(z))
    assert judging.difference(steps, "score", "score", 0).high == 0
