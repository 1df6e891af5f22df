"""Verdicts on claims, of stores in which they are true, false or empty. The whole campaign is `make claims`."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from campaign.__main__ import WRONG, counted
from campaign.coverage import errors
from campaign.stores import CACHE, Shape, _verdicts, silent, verdicts
from campaign.worlds import TRIALS, WORLDS, everywhere
from forgetscope.analysis.exhibits.exhibit import MODEL
from forgetscope.analysis.inputs.samples import Subset
from forgetscope.analysis.paper.claims import improvement
from forgetscope.analysis.paper.comparisons import per_experiment, within_steps
from forgetscope.analysis.paper.joint_model import JointModels
from forgetscope.analysis.paper.verdicts import Verdict, above, enough, near
from forgetscope.analysis.results import Analysis
from forgetscope.analysis.statistics.estimates import Estimate, mean_estimate
from forgetscope.benchmark.truth import Truth


def test_every_claim_is_tried_and_nothing_else(analysed: Analysis) -> None:
    assert {trial.claim for trial in TRIALS} == set(analysed.more["claims"]["claim"])
    assert {world for trial in TRIALS for world in trial[1:]} == WORLDS.keys()


@pytest.mark.slow
def test_verdicts_are_hardly_ever_wrong() -> None:
    """A fixed sample of the campaign: of 3 stores per truth, none or few of some 850 verdicts are wrong."""
    counts = counted(3, first=10_000)
    cells = [(counts[world][trial.claim], word) for trial in TRIALS for world, word in zip(trial[1:], WRONG, strict=True)]
    assert all(found.total() >= 3 for found, _ in cells)
    assert sum(found[word] for found, word in cells) / sum(found.total() for found, _ in cells) < 0.02
    right = [(counts[t.holds][t.claim]["confirmed"], counts[t.opposite][t.claim]["contested"]) for t in TRIALS]
    assert np.mean(np.array(right) / 3) > 0.8


def test_a_quarter_of_training_is_judged_by_sign_and_strength() -> None:
    strong, nothing, other = Estimate(0.6, 0.5, 0.7, 9), Estimate(0.0, -0.1, 0.1, 9), Estimate(-0.6, -0.7, -0.5, 9)
    small, none, large = Estimate(0.04, 0.01, 0.07, 9), Estimate(0.0, -0.01, 0.01, 9), Estimate(-0.3, -0.4, -0.2, 9)
    assert enough(strong, strong, none, 0.05) == "confirmed"
    assert enough(nothing, strong, large, 0.05) == "contested"
    assert enough(nothing, nothing, none, 0.05) == "undecided"  # nothing to know
    assert enough(other, other, none, 0.05) == "contested"  # of the other sign
    assert enough(nothing, small, none, 0.05) == "undecided"  # within the margin, but nothing is known early


@pytest.mark.parametrize("world", ["nothing", "early, of the other sign", "late"])
def test_a_quarter_of_training_is_not_enough_where_that_is_false(world: str) -> None:
    shape, truth = WORLDS[world]
    for found in verdicts(shape, truth, range(5)):
        told = [verdict for claim, verdict in found.items() if claim.startswith("A quarter")]
        assert len(told) == 5
        assert "confirmed" not in told


def test_three_steps_do_not_show_that_classes_seldom_improve() -> None:
    """It was confirmed in 17 of 60 such stores with the opposite truth."""
    few, half_improve = Shape(3), everywhere(spread=0.1, mean_forgetting=0.15)
    claim = "The least forgotten class improves in fewer than a quarter of the steps"
    assert all(told[claim] != "confirmed" for told in verdicts(few, half_improve, range(20)))
    sample = few.skeleton.drawn(everywhere(spread=0.05, mean_forgetting=0.5), 0).samples[0]
    share, _ = improvement(sample, Subset(2))
    assert (share.value, share.low, share.n) == (0, 0, 3)
    assert share.high == pytest.approx(1 - 0.025 ** (1 / 3))


def test_intervals_of_weights_hold_the_truth_for_few_steps_too() -> None:
    """With the normal distribution's reach, those of CIC held it in 0.92 of partitions with 8 steps."""
    away = errors(Truth(), steps=8, partitions=600)
    assert ((away < 1.96).mean(axis=0)[1], (away < stats.t.ppf(0.975, 7)).mean(axis=0).min() > 0.95) == (
        pytest.approx(0.92, abs=0.02),
        True,
    )


def test_values_that_are_alike_by_chance_prove_nothing() -> None:
    alike = mean_estimate([0.6, 0.6])
    assert alike.low == alike.high
    assert above(alike) == near(alike, 1.0) == "undecided"


def test_an_effect_that_is_not_significant_is_not_shown_to_be_none() -> None:
    """With six steps per partition, neither retention nor increment can be said to have hardly any effect."""
    shape, truth = replace(WORLDS["NIC and SIC alike everywhere"][0], experiments=6), everywhere()
    (told,) = verdicts(shape, truth, [0])
    assert {told[claim] for claim in told if "hardly any effect" in claim} == {"undecided"}
    assert sum("hardly any effect" in claim for claim in told) == 3


def test_steps_that_share_an_experiment_count_once(analysed: Analysis) -> None:
    sample, subset, name = analysed.collection.samples[0], Subset(2), ("SIC", "rho")
    mask = sample.mask(subset)
    assert np.array_equal(per_experiment(sample, mask, sample.values[name]), sample.values[name][mask])
    positions = np.flatnonzero(mask)
    shared = replace(sample, root=[f"{i // 2}" for i in range(len(sample.steps))], values={})
    assert shared.paired
    found = per_experiment(shared, mask, sample.values[name])
    roots = [shared.root[i] for i in positions]
    assert found == pytest.approx(
        [np.mean([sample.values[name][i] for i in positions if shared.root[i] == r]) for r in dict.fromkeys(roots)]
    )
    assert within_steps(shared, subset, name, ("NIC", "rho")).n == len(found) < len(positions)


def _ranked_around(centre: float) -> dict[str, Verdict]:
    """Verdicts about the joint model where all that the paper says of it is so, but for how well it ranks on average."""
    shape = Shape(
        5,
        ((0.1, 0.2), (0.05, 0.1)),
        (0.08, 0.4),
        ("cifar100", "tiny-imagenet"),
        3,
        epochs=1,
        tables=("anova_all_coefficients",),
    )
    collection = shape.skeleton.drawn(everywhere(), 0)
    for sample in collection.samples:
        places = np.array(shape.skeleton._places(sample))
        away = places[:, :4] @ [-0.1, -0.2, -0.1, -0.12] + 0.46 + 0.01 * (places[:, 4] - 2)
        sample.values |= {(MODEL, "rho"): centre + away, ("SIC", "rho"): centre + 1.3 * away - 0.12}
        sample.values |= {("LOG-SIM", "rho"): centre + away - 0.1 + 0.01 * (-1) ** places[:, 4]}
        sample.values |= {(name, "mae"): np.full(len(places), 0.1) for name in (MODEL, "SIC_model")}
    fitted = {(sample.benchmark, sample.policy): list[NDArray[np.float64]]() for sample in collection.samples}
    found = _verdicts(shape, collection, JointModels(CACHE, silent, fitted))
    return {claim: verdict for claim, verdict in found.items() if re.search("ll (coefficients )?together (rank|gain)", claim)}


def test_how_well_all_together_rank_is_compared_only_where_something_ranks() -> None:
    """Each of these was confirmed at either centre, and some in up to 9 % of stores in which nothing ranks."""
    somewhere, nowhere = _ranked_around(0.5), _ranked_around(-0.5)
    assert len(somewhere) == 9
    assert set(somewhere.values()) == {"confirmed"}
    assert nowhere == dict.fromkeys(somewhere, "undecided")
