"""Against scipy on numbers that are put into a store by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from typer.testing import CliRunner

from forgetscope.analysis.questions.approximations import Approximations, approximations, spacings
from forgetscope.analysis.statistics.estimates import fisher_z
from forgetscope.cli.app import app
from forgetscope.errors import StoreError
from forgetscope.spec import AugmentationSpec, RunSpec, step_id, step_specs
from forgetscope.store import ALL_LAYERS, EVERY_ITERATION, RELEASED, StepRecord, Store
from forgetscope.store.tables import (
    QUANTITIES,
    ClassFacts,
    Measurements,
    class_table,
    confusion_table,
    extra_table,
    pairs_table,
    probes_table,
    rehearsal_table,
)

PAST, EPOCHS, PER_EPOCH, STEPS = 6, 4, 5, 5
PROBES, EVERY = np.arange(EPOCHS + 1) * PER_EPOCH, np.arange(EPOCHS * PER_EPOCH)
Array = NDArray[np.float64]


class Made:
    """One step: terms [probes, quantities, classes] of every measure, and forgetting."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.forgetting = rng.uniform(0, 1, PAST)
        drift = self.forgetting + rng.normal(size=(len(QUANTITIES), PAST))
        self.every, self.all_layers, self.released = (
            drift + rng.normal(size=(count, len(QUANTITIES), PAST)) for count in (len(EVERY), 3, len(PROBES))
        )
        self.probes = np.concatenate([self.every[::PER_EPOCH], drift[None]])

    def commit(self, store: Store, seed: int) -> None:
        run = RunSpec(image_size=8, epochs=EPOCHS, seed=seed, all_layers_every=2, every_iteration=True, released_nic=True)
        spec = step_specs(run, [range(PAST), [PAST]], AugmentationSpec())[1]
        classes, past = tuple(range(PAST + 1)), tuple(range(PAST))
        facts = ClassFacts(
            classes, [str(c) for c in classes], [1] * PAST + [2], [9] * 7, np.ones(7), np.append(1 - self.forgetting, 1)
        )
        measured = Measurements(
            PROBES.tolist(), self.probes, self.probes.sum(axis=0)[:4], np.zeros((PAST, PAST + 1)), np.zeros(PAST)
        )
        rehearsal = {label: np.arange(1) for label in past}
        series = {
            ALL_LAYERS: ([0, 10, 20], self.all_layers),
            EVERY_ITERATION: (EVERY.tolist(), self.every),
            RELEASED: (PROBES.tolist(), self.released),
        }
        tables = {
            "classes": class_table(facts, rehearsal, measured),
            "probes": probes_table(measured, past),
            "pairs": pairs_table(measured, classes, PAST),
            "rehearsal": rehearsal_table(rehearsal),
            "confusion": confusion_table(np.zeros((7, 7), np.int64), classes),
            "extra": extra_table(series, past),
        }
        timings = {"seconds": 16.0, "probe_seconds": 2.0, "all_layers_seconds": 6.0, "every_iteration_seconds": 4.0}
        data = {"name": "made", "image_size": 8, "shape": [8, 8], "digest": "none"}
        parent = "0" * 32
        record = StepRecord(
            step_id(parent, spec, "none"),
            parent,
            spec,
            data,
            {},
            timings,
            [],
            tables,
            "resnet8",
            {},  # type: ignore[arg-type]
        )
        store.prepare()
        store.commit(record, "2026-01-01T00:00:00+00:00")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, list[Made]]:
    store, steps = Store(tmp_path_factory.mktemp("made")), [Made(seed) for seed in range(STEPS)]
    for seed, step in enumerate(steps):
        step.commit(store, seed)
    return store, steps


@pytest.fixture
def found(made: tuple[Store, list[Made]]) -> Approximations:
    (group,) = approximations(made[0])
    return group


def rho(x: Array, y: Array) -> float:
    return float(stats.spearmanr(x, y).statistic)


def fisher_mean(values: list[float]) -> float:
    return float(np.tanh(fisher_z(values, PAST).mean()))


def test_all_layers_are_compared_at_the_probes_that_both_have(made: tuple[Store, list[Made]], found: Approximations) -> None:
    (contrast,) = [c for c in found.contrasts if (c.form, c.coefficient) == (ALL_LAYERS, "CIC")]
    pairs = [(step.probes[[0, 2, 4], 1].sum(axis=0), step.all_layers[:, 1].sum(axis=0), step.forgetting) for step in made[1]]
    usual, other = ([rho(pair[side], pair[2]) for pair in pairs] for side in (0, 1))
    assert contrast.usual.value == pytest.approx(fisher_mean(usual))
    assert contrast.other.value == pytest.approx(fisher_mean(other))
    assert contrast.agreement.value == pytest.approx(fisher_mean([rho(a, b) for a, b, _ in pairs]))
    change = fisher_z(other, PAST) - fisher_z(usual, PAST)
    assert contrast.difference.estimate.value == pytest.approx(change.mean())
    assert contrast.difference.p == pytest.approx(stats.ttest_1samp(change, 0).pvalue)
    assert (contrast.steps, contrast.error) == (STEPS, None)


def test_the_released_nic_is_compared_at_every_probe(made: tuple[Store, list[Made]], found: Approximations) -> None:
    (contrast,) = [c for c in found.contrasts if c.form == RELEASED]
    assert contrast.coefficient == "NIC"
    agreement = [rho(step.probes[:, 2].sum(axis=0), step.released[:, 2].sum(axis=0)) for step in made[1]]
    assert contrast.agreement.value == pytest.approx(fisher_mean(agreement))


def test_epochs_are_compared_with_iterations_in_ranks_and_values(made: tuple[Store, list[Made]], found: Approximations) -> None:
    (contrast,) = [c for c in found.contrasts if (c.form, c.coefficient) == (EVERY_ITERATION, "SIC")]
    errors = []
    for step in made[1]:
        epochs, every = step.probes[:, 0].mean(axis=0), step.every[:, 0].mean(axis=0)
        errors.append(np.linalg.norm(epochs - every) / np.linalg.norm(every))
    assert contrast.error is not None
    assert contrast.error.value == pytest.approx(np.mean(errors))


def test_a_thinned_sum_is_the_sum_over_its_iterations(made: tuple[Store, list[Made]], found: Approximations) -> None:
    (row,) = [t for t in found.thinnings if (t.coefficient, t.spacing) == ("NIC", "uniform, 3")]
    chosen = [step.every[[0, 10, 19], 2].sum(axis=0) for step in made[1]]
    every = [step.every[:, 2].sum(axis=0) for step in made[1]]
    assert row.probes.value == 3
    assert row.agreement.value == pytest.approx(fisher_mean([rho(a, b) for a, b in zip(chosen, every, strict=True)]))
    strength = [rho(sums, step.forgetting) for sums, step in zip(chosen, made[1], strict=True)]
    assert row.rho.value == pytest.approx(fisher_mean(strength))
    (epochs,) = [t for t in found.thinnings if (t.coefficient, t.spacing) == ("SIC", "before each epoch")]
    assert epochs.probes.value == EPOCHS


def test_costs_are_multiples_of_the_training(found: Approximations) -> None:
    costs = {cost.measure: cost for cost in found.costs}  # of 16 seconds, 4 were training: one for each epoch
    assert {name: cost.share.value for name, cost in costs.items()} == {"probes": 0.5, ALL_LAYERS: 1.5, EVERY_ITERATION: 1.0}
    assert costs[ALL_LAYERS].epoch.value == pytest.approx(2.0)


@pytest.mark.parametrize(("iterations", "epochs"), [(640, 20), (12, 4), (5, 5), (2, 1)])
def test_spacings_stay_within_training_and_begin_at_its_start(iterations: int, epochs: int) -> None:
    for name, chosen in spacings(iterations, epochs).items():
        assert chosen[0] == 0, name
        assert (np.diff(chosen) > 0).all(), name
        assert chosen[-1] < (-(-iterations // 4) if "first quarter" in name and "epochs" not in name else iterations), name
    assert spacings(640, 20)["before each epoch"].tolist() == list(range(0, 640, 32))
    assert spacings(640, 20)["geometric, 3"].tolist() == [0, 24, 639]
    assert spacings(640, 20)["first quarter of the epochs"].tolist() == [0, 32, 64, 96, 128]


def test_the_command_prints_tables_and_json(made: tuple[Store, list[Made]]) -> None:
    told = CliRunner().invoke(app, ["approximations", str(made[0].path)])
    assert told.exit_code == 0, told.output
    for title in ("All layers against the last", "NIC as released", "How many iterations", "multiple of the training"):
        assert title in told.output
    document = json.loads(CliRunner().invoke(app, ["approximations", str(made[0].path), "--json"]).stdout)
    assert document["settings"][0]["steps"] == STEPS
    assert "Example: forgetscope approximations" in CliRunner().invoke(app, ["approximations", "--help"]).output


def test_a_store_without_such_steps_says_what_to_set(tiny_store: Path) -> None:
    with pytest.raises(StoreError, match="all_layers_every, every_iteration, released_nic or method_interference"):
        approximations(Store(tiny_store))
