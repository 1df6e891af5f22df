"""Damaged predictions are named where they are the step's own; those of an earlier step leave counts, and that is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from forgetscope.analysis.experiments import open_experiment
from forgetscope.analysis.inputs.cache import Cache
from forgetscope.analysis.inputs.measured_steps import ReadSteps, read_steps
from forgetscope.analysis.statistics.noise import rank_ceiling
from forgetscope.cli.app import app
from forgetscope.outputs import unheard
from forgetscope.store import Store, StoredStep, parquet_bytes
from strangers import put

HARMS = ("cut", "gone", "twice", "another", "cut and counted")
COUNTS, EARLIER = "Noise is from counts", "single test images of an earlier step are others, or damaged"


def harm(step: StoredStep, how: str) -> None:
    path, table = step.folder / "predictions.parquet", step.table("predictions")
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:900])
    elif how == "cut and counted":
        put(step, path.name, path.read_bytes()[:900])
    else:
        put(step, path.name, parquet_bytes(table.slice(0, 0) if how == "another" else table.take([0, *range(len(table) - 1)])))


def read(store: Store, tmp_path: Path) -> ReadSteps:
    return read_steps(store, Cache(tmp_path / "analysis"), unheard)


def show(store: Store) -> Result:
    return CliRunner().invoke(app, ["show", str(store.path)])


@pytest.mark.parametrize("how", HARMS)
def test_a_step_whose_own_predictions_are_damaged_is_named_and_left_out(
    store: Store, chain: list[str], tmp_path: Path, how: str
) -> None:
    harm(store.step(chain[2]), how)
    found = read(store, tmp_path)
    assert found.damaged == (chain[2],)
    assert found.measured[chain[1]].paired.all()
    shown = show(store)
    assert f"Left out: Step {chain[2][:8]} is damaged: {store.step(chain[2]).folder / 'predictions.parquet'}: " in shown.stderr
    assert COUNTS not in shown.stdout


@pytest.mark.parametrize("how", HARMS)
def test_damaged_predictions_of_an_earlier_step_leave_counts_for_its_classes(
    store: Store, chain: list[str], tmp_path: Path, how: str
) -> None:
    harm(store.step(chain[0]), how)
    found = read(store, tmp_path)
    assert found.damaged == ()
    assert not found.measured[chain[1]].paired.any()
    shown = " ".join(show(store).stdout.split())
    assert COUNTS in shown
    assert EARLIER in shown


def test_one_step_has_one_ceiling_wherever_it_is_shown(store: Store, tmp_path: Path) -> None:
    measured = {step.facts.step: step for step in read(store, tmp_path).measured.values()}
    for summary in open_experiment(store.path).summaries:
        step = measured[summary.step]
        np.testing.assert_equal(summary.beyond_noise["ceiling"], rank_ceiling(float(step.noise[2]), [step.variances]))
