"""Arms whose effect is known, against scipy and calculations by hand; and nothing where there is nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console, RenderableType
from scipy import stats

from drawn_arms import IMAGES, NEW, PAST, Logits, drawn_again, fill
from forgetscope.analysis.experiments import Experiment
from forgetscope.analysis.questions.arms import MEASURES, OF_COST, ArmMeasure, compare_arms, pairs_needed, verdict_of
from forgetscope.analysis.statistics.estimates import Estimate, mean_estimate
from forgetscope.benchmark.arms import chains_by_arm
from forgetscope.benchmark.pairs import Comparison, comparison_plan
from forgetscope.benchmark.plans import Chain
from forgetscope.data.library import load_data
from forgetscope.report.terminal.arms import arms_view, power_view
from forgetscope.report.words.arms import arm_sentence, by_measure
from forgetscope.spec import RunSpec
from forgetscope.store import Store

RUN = RunSpec(image_size=8, sequence=[list(range(PAST)), list(range(PAST, PAST + NEW))], epochs=1, probe_every=0)
PAIRS = 8


def with_offset(base: Logits, losses: Logits, rng: np.random.Generator) -> Logits:
    moved = base.copy()
    moved[:, :PAST] += 1.0
    return moved


def evened(base: Logits, losses: Logits, rng: np.random.Generator) -> Logits:
    return drawn_again(losses.mean() + 0.2 * (losses - losses.mean()), rng)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, dict[str, list]]:
    load_data("glyphs", 8)
    arms = {"plain": {}, "offset": {"retention": 0.1}, "evened": {"retention": 0.2}}
    plan, store = comparison_plan(Comparison(RUN, arms=arms, pairs=PAIRS)), Store(tmp_path_factory.mktemp("arms"))
    fill(store, plan, {"offset": with_offset, "evened": evened})
    return store, chains_by_arm(plan)


@pytest.fixture(scope="module")
def rows(made: tuple[Store, dict[str, list]]) -> list[ArmMeasure]:
    return compare_arms(*made)


def test_there_is_a_row_of_every_measure_the_baseline_s_first(rows: list[ArmMeasure]) -> None:
    assert [row.measure for row in rows] == [*MEASURES] * 4
    assert [*dict.fromkeys(row.arm for row in rows)] == ["plain", "again", "offset", "evened"]
    assert {(row.step, row.n) for row in rows} == {(2, PAIRS)}
    plain = by_measure(rows, "plain", 2)
    assert all(math.isnan(row.difference) and math.isnan(row.matched_high) and row.verdict is None for row in plain.values())
    assert not math.isnan(plain["forgetting_range"].noise_floor)
    assert math.isnan(plain["mean_forgetting"].noise_floor)


@pytest.mark.parametrize("measure", [name for name in MEASURES if name not in OF_COST])
def test_differences_are_those_of_pairs(measure: str, rows: list[ArmMeasure], made: tuple[Store, dict[str, list]]) -> None:
    store, chains = made
    mine, base = (
        [getattr(Experiment([store.step(id) for id in c.steps]).summaries[0], measure) for c in chains[name]]
        for name in ("evened", "plain")
    )
    change = np.array(mine) - base
    low, high = stats.t.interval(0.95, PAIRS - 1, change.mean(), stats.sem(change)) if change.any() else (0, 0)
    row = by_measure(rows, "evened", 2)[measure]
    assert row.value == pytest.approx(np.mean(mine))
    assert (row.difference, row.low, row.high) == pytest.approx((change.mean(), low, high))


def test_an_offset_forgets_less_and_is_nothing_at_matched_mean_forgetting(rows: list[ArmMeasure]) -> None:
    found = by_measure(rows, "offset", 2)
    assert found["accuracy"].verdict == "less"
    assert found["mean_forgetting"].high < 0
    assert found["forgetting_range"].difference != 0
    for measure in MEASURES.keys() - OF_COST.keys():
        assert found[measure].matched_difference == pytest.approx(0, abs=1e-12)  # the same predictions as the baseline's


def test_losses_that_are_more_alike_are_more_even(rows: list[ArmMeasure]) -> None:
    found = by_measure(rows, "evened", 2)
    assert found["accuracy"].verdict == "more evenly"
    assert abs(found["mean_forgetting"].matched_difference) < 1 / (PAST * IMAGES * 0.5)
    assert found["true_variance"].matched_high < 0
    assert found["true_variance"].true_spread < by_measure(rows, "plain", 2)["true_variance"].true_spread


def test_again_is_neither(rows: list[ArmMeasure]) -> None:
    assert by_measure(rows, "again", 2)["accuracy"].verdict == "neither"


def test_the_price_is_counted(rows: list[ArmMeasure]) -> None:
    plain = by_measure(rows, "plain", 2)
    assert plain["bytes"].value == 4 * PAST * 8 * 8 * 3
    assert plain["seconds"].value == 2.0
    said = {arm: arm_sentence(by_measure(rows, arm, 2)) for arm in ("again", "offset", "evened")}
    assert said["again"].startswith("again forgets neither less nor more evenly than plain as far as can be told (mean FG ")
    assert said["offset"].startswith("offset forgets less than plain, but not more evenly")
    assert said["evened"].startswith("evened forgets more evenly than plain, but not less")
    assert said["evened"].endswith("as many bytes (6.1 kB), 1.00 times the time.")
    assert "Price: accuracy " in said["offset"]


def test_pairs_in_which_no_constant_reaches_the_baseline_are_left_out_and_counted(tmp_path: Path) -> None:
    def lost(base: Logits, losses: Logits, rng: np.random.Generator) -> Logits:
        """In every other pair, as the largest loss tells, past classes are taken for one another."""
        return drawn_again(losses if losses[0] < 2 else losses + 20, rng)

    plan, store = comparison_plan(Comparison(RUN, arms={"plain": {}, "lost": {"retention": 0.1}}, pairs=PAIRS)), Store(tmp_path)
    fill(store, plan, {"lost": lost})
    rows = compare_arms(store, chains_by_arm(plan))
    found = by_measure(rows, "lost", 2)["true_variance"]
    assert (found.n, 2 <= found.matched_n < PAIRS) == (PAIRS, True)
    sentence = arm_sentence(by_measure(rows, "lost", 2))
    assert f"at matched mean FG of {found.matched_n} pairs true variance" in sentence


def test_one_pair_has_no_verdict(made: tuple[Store, dict[str, list]]) -> None:
    rows = compare_arms(made[0], {name: ids[:1] for name, ids in made[1].items()})
    assert {row.verdict for row in rows} == {None}
    found = by_measure(rows, "offset", 2)
    assert "of one pair nothing can be said" in arm_sentence(found)
    assert pairs_needed(rows) == []


def test_what_is_not_there_is_in_no_pair(made: tuple[Store, dict[str, list]]) -> None:
    store, chains = made
    lost = [replace(chain, steps=(chain.steps[0], "0" * 32)) for chain in chains["evened"][3:]]
    gone = {**chains, "evened": [*chains["evened"][:3], *lost]}
    found = {row.arm: row.n for row in compare_arms(store, gone)}
    assert found == {"plain": PAIRS, "again": PAIRS, "offset": PAIRS, "evened": 3}
    nowhere = Chain(steps=("0" * 32, "1" * 32), policy="uniform")
    assert compare_arms(store, {"plain": chains["plain"], "evened": [nowhere] * PAIRS}) == []


def made_of(tmp_path: Path, arms: dict[str, dict], pairs: int, drawn: dict | None = None, **named: Any) -> list[ArmMeasure]:
    load_data("glyphs", 8)
    plan, store = comparison_plan(Comparison(RUN, arms=arms, pairs=pairs, again=False)), Store(tmp_path)
    fill(store, plan, drawn or {}, **named)
    return compare_arms(store, chains_by_arm(plan))


TWO = {"plain": {}, "x": {"retention": 0.1}}


def test_an_arm_that_diverged_in_some_pairs_is_judged_on_the_others_and_says_so(tmp_path: Path) -> None:
    rows = made_of(tmp_path, TWO, 5, {"x": with_offset}, diverging={("x", 1), ("x", 3)})
    mine = by_measure(rows, "x", 2)
    assert {(row.n, row.diverged, row.baseline_diverged) for row in mine.values()} == {(3, 2, 0)}
    assert arm_sentence(mine).startswith("x diverged in 2 pairs. Of the other 3 pairs alone: x forgets less than plain")
    assert " (x diverged in 2 pairs)" in shown(rows)


def test_an_arm_that_diverged_in_every_pair_is_named(tmp_path: Path) -> None:
    rows = made_of(tmp_path, TWO, 2, diverging={("x", 0), ("x", 1)})
    mine = by_measure(rows, "x", 2)
    assert {*mine} == {*MEASURES}
    assert {(row.n, row.diverged, row.verdict) for row in mine.values()} == {(0, 2, None)}
    assert all(math.isnan(row.value) and math.isnan(row.difference) for row in mine.values())
    said = "x diverged in 2 pairs, so that no pair is left to compare x with plain."
    assert arm_sentence(mine) == said
    assert said in shown(rows)
    assert "Step 2: x against plain, no pair" in shown(rows)


def test_a_baseline_that_diverged_is_named(tmp_path: Path) -> None:
    rows = made_of(tmp_path, TWO, 3, diverging={("plain", 0), ("x", 2)})
    assert arm_sentence(by_measure(rows, "x", 2)).startswith(
        "x diverged in 1 pair, plain diverged in 1 pair. Of the other pair"
    )
    assert by_measure(rows, "plain", 2)["accuracy"].diverged == 1


def test_the_baseline_is_over_the_pairs_of_the_arm(tmp_path: Path) -> None:
    arms = {**TWO, "y": {"retention": 0.2}}
    rows = made_of(tmp_path, arms, 5, diverging={("x", 0), ("x", 1), ("y", 4)})
    for arm in ("x", "y"):
        for row in by_measure(rows, arm, 2).values():
            assert row.value - row.baseline_value == pytest.approx(row.difference, abs=1e-12)
    assert {row.arm: row.n for row in rows} == {"plain": 5, "x": 3, "y": 4}
    x = by_measure(rows, "x", 2)
    assert x["accuracy"].baseline_value != by_measure(rows, "plain", 2)["accuracy"].value
    line = next(line for line in shown(rows).splitlines() if line.startswith("accuracy"))
    assert line.split()[1:3] == [f"{x['accuracy'].baseline_value:.3f}", f"{x['accuracy'].value:.3f}"]


def test_evenness_that_is_not_judged_is_told_from_evenness_that_is_not_seen(tmp_path: Path) -> None:
    def lost(base: Logits, losses: Logits, rng: np.random.Generator) -> Logits:
        return drawn_again(losses + 20, rng)

    def sometimes(base: Logits, losses: Logits, rng: np.random.Generator) -> Logits:
        """The baseline in one pair, lost in the others."""
        seen.append(len(seen))
        return lost(base, losses, rng) if seen[-1] else base

    seen: list[int] = []
    rows = made_of(tmp_path, {**TWO, "y": {"retention": 0.2}}, 3, {"x": lost, "y": sometimes})
    x, y = by_measure(rows, "x", 2), by_measure(rows, "y", 2)
    assert {row.verdict for row in x.values()} == {"not less; evenness not judged"}
    assert "x forgets not less than plain as far as can be told; whether more evenly is not judged" in arm_sentence(x)
    assert "mean FG could be matched in no pair, and evenness takes two" in arm_sentence(x)
    assert y["true_variance"].matched_n == 1
    assert "mean FG could be matched in 1 of 3 pairs only, and evenness takes two" in arm_sentence(y)
    assert verdict_of(Estimate(-1, -2, -0.5, 3), Estimate(-1, math.nan, math.nan, 1)) == "less; evenness not judged"


def test_classes_that_were_barely_learned_are_told_beside_the_means(tmp_path: Path) -> None:
    rows = made_of(tmp_path, TWO, 3, loss=5)
    row = by_measure(rows, "x", 2)["accuracy"]
    assert (row.past_classes, row.barely_pairs) == (3 * PAST, 3)
    assert row.barely_learned > 0
    said = f"{row.barely_learned} of {3 * PAST} past classes were barely learned, in 3 of 3 pairs: "
    assert said in shown(rows)
    assert shown(rows).index(said) < shown(rows).index("Step 2: x against plain")
    assert "x: nothing is concluded of whether it forgets less" in arm_sentence(by_measure(rows, "x", 2))
    assert row.verdict is not None
    needed = pairs_needed(rows)
    assert {one.barely_learned for one in needed} == {row.barely_learned}
    assert f"x: {said}" in " ".join(printed(power_view(needed)).split())


def printed(view: RenderableType) -> str:
    console = Console(width=500, file=StringIO())
    console.print(view)
    return console.file.getvalue()  # type: ignore[attr-defined]


def shown(rows: list[ArmMeasure]) -> str:
    return printed(arms_view(rows))


def test_how_many_pairs_it_would_take(rows: list[ArmMeasure]) -> None:
    needed = {(row.arm, row.measure, row.matched): row for row in pairs_needed(rows)}
    row = by_measure(rows, "again", 2)["forgetting_range"]
    found = needed["again", "forgetting_range", False]
    sd = (row.high - row.low) / 2 / stats.t.ppf(0.975, PAIRS - 1) * math.sqrt(PAIRS)
    assert (found.sd, found.n, found.difference) == (pytest.approx(sd), PAIRS, 0.1)
    assert found.pairs is not None
    assert (found.pairs > PAIRS) == (found.smallest > 0.1)


def test_chance_alone_is_called_neither_in_nineteen_of_twenty_comparisons() -> None:
    rng = np.random.default_rng(0)
    found = [verdict_of(*(mean_estimate(values) for values in rng.normal(size=(2, 8)))) for _ in range(4000)]
    assert found.count("neither") / 4000 == pytest.approx(0.95, abs=0.012)


@pytest.mark.slow
def test_an_arm_that_differs_in_draws_alone_is_neither_in_most_comparisons(tmp_path: Path) -> None:
    """Thirty comparisons of six pairs: more than six that find something are as rare as one in two hundred, if one in twenty
    does."""
    load_data("glyphs", 8)
    plan, store = comparison_plan(Comparison(RUN, arms={"plain": {}}, pairs=180)), Store(tmp_path)
    fill(store, plan, {})
    chains = chains_by_arm(plan)
    verdicts = [
        compare_arms(store, {name: ids[start : start + 6] for name, ids in chains.items()})[-1].verdict
        for start in range(0, 180, 6)
    ]
    assert stats.binom.sf(5, 30, 0.05) < 0.005
    assert verdicts.count("neither") >= 25
