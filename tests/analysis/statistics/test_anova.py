from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from scipy import stats

from forgetscope.analysis.statistics.anova import Coding, _test, anova, benjamini_hochberg, explained, holm

Array = NDArray[np.float64]


def design(seed: int, shape: tuple[int, int] = (3, 3), most: int = 9) -> pd.DataFrame:
    """Cells of unequal size, mean and variance."""
    rng = np.random.default_rng(seed)
    rows = []
    for a in range(shape[0]):
        for b in range(shape[1]):
            n = int(rng.integers(2, most))
            y = 0.1 * a - 0.2 * b + 0.1 * a * b + (1 + a) * rng.normal(size=n)
            rows += list(zip([a] * n, [b] * n, y, rng.integers(0, 8, n), strict=True))
    return pd.DataFrame(rows, columns=["a", "b", "y", "cluster"])


def statsmodels_table(frame: pd.DataFrame, coding: Coding) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from statsmodels.formula.api import ols
        from statsmodels.stats.anova import anova_lm

        kind = ", Sum" if coding == "sum" else ""
        return anova_lm(ols(f"y ~ C(a{kind}) * C(b{kind})", frame).fit(), typ=3, robust="hc3").iloc[1:-1]


@pytest.mark.parametrize("coding", ["sum", "treatment"])
@pytest.mark.parametrize("shape", [(3, 3), (2, 3), (2, 2)])
def test_tests_are_statsmodels_with_hc3_for_cells_of_unequal_size(coding: Coding, shape: tuple[int, int]) -> None:
    frame = design(sum(shape), shape)
    found, expected = anova(frame["y"], frame["a"], frame["b"], coding=coding), statsmodels_table(frame, coding)
    np.testing.assert_allclose([e.f for e in found.values()], expected["F"], rtol=1e-8)
    np.testing.assert_allclose([e.p for e in found.values()], expected["PR(>F)"], rtol=1e-7, atol=1e-14)
    assert [e.df1 for e in found.values()] == expected["df"].tolist()
    for effect in found.values():
        assert effect.df2 == len(frame) - shape[0] * shape[1]
        assert effect.partial_eta_squared == pytest.approx(effect.f * effect.df1 / (effect.f * effect.df1 + effect.df2))


@pytest.mark.parametrize("coding", ["sum", "treatment"])
def test_clusters_are_statsmodels_too(coding: Coding) -> None:
    frame = design(5, (2, 3), most=20)
    found = anova(frame["y"], frame["a"], frame["b"], coding=coding, clusters=frame["cluster"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from statsmodels.formula.api import ols

        kind = ", Sum" if coding == "sum" else ""
        fitted = ols(f"y ~ C(a{kind}) * C(b{kind})", frame).fit(
            cov_type="cluster", cov_kwds={"groups": frame["cluster"]}, use_t=True
        )
    identity = np.eye(6)
    for effect, columns in zip(found.values(), [[1], [2, 3], [4, 5]], strict=True):
        expected = fitted.f_test(identity[columns])
        assert effect.f == pytest.approx(float(np.squeeze(expected.fvalue)), rel=1e-8)
        assert effect.p == pytest.approx(float(expected.pvalue), rel=1e-7)
        assert effect.df2 == expected.df_denom == frame["cluster"].nunique() - 1


@given(st.integers(0, 10**6), st.floats(0.1, 10), st.floats(-5, 5))
@settings(max_examples=25, deadline=None)
def test_order_scale_and_names_of_levels_change_nothing(seed: int, scale: float, shift: float) -> None:
    frame = design(seed, (2, 3))
    plain = anova(frame["y"], frame["a"], frame["b"])
    moved = frame.sample(frac=1, random_state=seed % 1000)
    other = anova(scale * moved["y"] + shift, moved["a"].map({0: "z", 1: "c"}), 10 - moved["b"])
    np.testing.assert_allclose([e.f for e in other.values()], [e.f for e in plain.values()], rtol=1e-6)
    swapped = anova(frame["y"], frame["b"], frame["a"], names=("increment", "retention", "interaction"))
    assert swapped["retention"].f == pytest.approx(plain["retention"].f)
    assert swapped["interaction"].f == pytest.approx(plain["interaction"].f)


def test_the_paper_s_coding_tests_one_factor_at_the_first_level_of_the_other() -> None:
    frame = design(3)
    whole, subset = (anova(f["y"], f["a"], f["b"], coding="treatment")["retention"].f for f in (frame, frame[frame["b"] < 2]))
    assert whole == pytest.approx(subset)
    main = [anova(f["y"], f["a"], f["b"])["retention"].f for f in (frame, frame[frame["b"] < 2])]
    assert main[0] != pytest.approx(main[1])


def test_a_factor_with_one_level_leaves_a_one_way_analysis() -> None:
    frame = design(4, (3, 1))
    found = anova(frame["y"], frame["a"], frame["b"])
    assert list(found) == ["retention"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from statsmodels.formula.api import ols
        from statsmodels.stats.anova import anova_lm

        expected = anova_lm(ols("y ~ C(a, Sum)", frame).fit(), typ=3, robust="hc3")["F"].iloc[1]
    assert found["retention"].f == pytest.approx(expected)


def test_what_cannot_be_tested_says_why() -> None:
    frame = design(6, (2, 2))
    empty = frame[~((frame["a"] == 1) & (frame["b"] == 0))]
    found = anova(empty["y"], empty["a"], empty["b"])
    assert {e.reason for e in found.values()} == {"no value in cell (1, 0)"}
    assert all(math.isnan(e.f) and math.isnan(e.p) for e in found.values())
    single = pd.concat([empty, frame[(frame["a"] == 1) & (frame["b"] == 0)][:1]])
    assert anova(single["y"], single["a"], single["b"])["retention"].reason == "one value in cell (1, 0)"
    assert anova(frame["a"], frame["a"], frame["b"])["retention"].reason == "no variation within cells"
    assert anova([], [], []) == {}
    alone = anova(frame["y"], frame["a"], frame["b"], clusters=np.zeros(len(frame)))
    assert alone["retention"].reason == "fewer than two clusters"
    two = anova(frame["y"], [0, 1] * (len(frame) // 2) + [0] * (len(frame) % 2), frame["b"], clusters=frame["a"])
    assert math.isnan(two["retention"].f) or two["retention"].df2 == 1


def test_unknown_values_are_left_out() -> None:
    frame = design(7)
    unknown = pd.concat([frame, pd.DataFrame({"a": [9], "b": [0], "y": [math.nan], "cluster": [0]})])
    assert anova(unknown["y"], unknown["a"], unknown["b"]) == anova(frame["y"], frame["a"], frame["b"])


def test_adjusted_p_values_are_statsmodels() -> None:
    from statsmodels.stats.multitest import multipletests

    for p in ([0.5], [0.01, 0.01, 0.04], np.random.default_rng(0).random(9) ** 3):
        np.testing.assert_allclose(holm(p), multipletests(p, method="holm")[1], atol=1e-12)
        np.testing.assert_allclose(benjamini_hochberg(p), multipletests(p, method="fdr_bh")[1], atol=1e-12)


def test_a_missing_test_is_not_counted() -> None:
    np.testing.assert_allclose(holm([0.01, math.nan, 0.04]), [0.02, math.nan, 0.04])
    np.testing.assert_allclose(benjamini_hochberg([[0.01, 0.03], [math.nan, 0.04]]), [[0.03, 0.04], [math.nan, 0.04]])
    assert holm([]).shape == (0,)


@pytest.mark.parametrize(("f", "df1", "df2", "n"), [(2.06, 2, 351, 360), (8.0, 4, 60, 69), (30.0, 1, 19, 240)])
def test_what_an_effect_explains_lies_between_noncentralities_that_scipy_finds_as_unlikely(
    f: float, df1: int, df2: int, n: int
) -> None:
    found = explained(f, df1, df2, n)
    assert found.value == pytest.approx(f * df1 / (f * df1 + n))
    noncentral = [n * share / (1 - share) for share in (found.low, found.high)]
    assert stats.ncf.cdf(f, df1, df2, noncentral[1]) == pytest.approx(0.025, abs=1e-4)
    if found.low > 0:
        assert stats.ncf.cdf(f, df1, df2, noncentral[0]) == pytest.approx(0.975, abs=1e-3)
    else:
        assert stats.f.cdf(f, df1, df2) < 0.975


def test_what_effects_explain_is_held_by_its_interval_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    a, b = np.repeat([0, 1, 2], 40), np.tile(np.repeat([0, 1], 20), 3)
    shift = np.array([-0.3, 0.0, 0.3])
    truth = 120 * np.mean(shift**2) / (120 * np.mean(shift**2) + 120)
    held = []
    for _ in range(300):
        effect = anova(shift[a] + rng.normal(size=120), a, b)["retention"]
        found = explained(effect.f, effect.df1, effect.df2, 120)
        held.append(found.low <= truth <= found.high)
    assert 0.9 < np.mean(held) < 0.99


def test_a_variance_that_rounding_leaves_below_zero_is_too_little_and_no_warning() -> None:
    contrast, covariance = np.array([[1.0, -1.0]]), np.array([[1.0, 1.0 + 1e-16], [1.0 + 2e-16, 1.0 - 1e-15]])
    assert (contrast @ covariance @ contrast.T)[0, 0] < 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        effect = _test(contrast, np.array([1.0, 2.0]), covariance, 5, "")
    assert effect.reason == "too little variation to tell the levels apart"
