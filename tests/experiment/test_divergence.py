"""A step whose loss is not finite: kept with its iteration, built on by nothing, in no statistic."""

from __future__ import annotations

import io
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from conftest import TINY, run_experiment
from forgetscope.analysis.experiments import Experiment, overview
from forgetscope.analysis.index import glance
from forgetscope.analysis.questions.policies import compare_policies
from forgetscope.errors import Diverged, StoreError
from forgetscope.experiment import step as step_module
from forgetscope.learning.rsgd import Divergence
from forgetscope.report.pages.experiment import render_page
from forgetscope.report.terminal.experiments import overview_view, store_view
from forgetscope.spec import RunSpec
from forgetscope.store import Store

HUGE = 1e20  # as a learning rate, so that the second forward pass overflows
TWO_STEPS = {**TINY, "sequence": TINY["sequence"][:2]}


def run(store: Store, **changes: Any) -> None:
    spec = RunSpec(**TWO_STEPS).model_copy(update=changes)  # unchecked: nobody may ask for such a learning rate
    run_experiment(spec, store, device="cpu", threads=1)


@pytest.fixture
def second_steps_diverge(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the third loss of every second step were NaN; first steps train as usual."""
    original = step_module.train_step

    def train(network: Any, *args: Any, **options: Any) -> Any:
        if network.head.out_features == 4:
            return iter([Divergence(epoch=1, iteration=3, loss=math.nan)])
        return original(network, *args, **options)

    monkeypatch.setattr(step_module, "train_step", train)


def test_a_first_step_that_diverges_is_kept_and_ends_the_experiment(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for _ in range(2):  # the second time nothing is computed, and the same is said
        with pytest.raises(Diverged, match=r"Step 1 diverged.*iteration 2 .*learning_rate \(now 1e\+20\)"):
            run(store, learning_rate=HUGE)
        (step,) = store.steps()
    step.verify()
    assert step.info["status"] == "diverged"
    assert step.divergence == {"epoch": 1, "iteration": 2, "loss": "nan"}
    assert step.state() == {}
    (found,) = glance(store)
    assert (found.diverged, found.steps, len(found.classes), found.summaries) == (step, [], 0, [])
    assert overview([found, found]) == []
    with pytest.raises(StoreError, match=r"nothing to show\. No step came to its end"):
        render_page(found, {})


@pytest.mark.usefixtures("second_steps_diverge")
def test_a_later_step_that_diverges_leaves_its_probes_and_no_coefficient(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with pytest.raises(Diverged, match=r"Step 2 diverged: the loss became nan at iteration 3 \(epoch 1\)"):
        run(store)
    (step,) = (step for step in store.steps() if step.divergence)
    classes = step.table("classes").to_pandas()
    assert classes["accuracy"].isna().all()
    assert classes["accuracy_when_learned"].notna().tolist() == [True, True, False, False]
    assert classes["sic"].isna().all()
    assert set(classes["missing"].dropna()) == {"diverged at iteration 3"}
    assert step.table("probes").num_rows == 2  # two past classes, before training
    assert step.table("confusion").num_rows == step.table("pairs").num_rows == 0
    assert step.table("predictions").num_rows == 0
    assert step.unpredicted == "diverged"
    found = Experiment(store.chain(step.id))
    assert [s.spec.step for s in found.steps] == [1]
    assert "Step 2 diverged at iteration 3" in render_page(found, {})


@pytest.fixture
def mixed(tmp_path: Path, tiny_store: Path, request: pytest.FixtureRequest) -> Store:
    """Two experiments that came to their end and, under the same settings, a third that did not."""
    store = Store(shutil.copytree(tiny_store, tmp_path / "store"))
    run(store, seed=1)
    request.getfixturevalue("second_steps_diverge")
    for changes in ({"seed": 2}, {"policy": "herding"}):
        with pytest.raises(Diverged):
            run(store, **changes)
    return store


def test_statistics_leave_it_out_and_count_it(mixed: Store) -> None:
    found = glance(mixed)
    assert sum(experiment.diverged is not None for experiment in found) == 2
    assert [(row.step, row.experiments, row.diverged) for row in overview(found)] == [(2, 2, 1)]
    assert compare_policies(found) == []  # herding has no pair left
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(store_view(found))
    console.print(overview_view(overview(found)))
    text = console.export_text()
    assert "the last step diverged and is excluded from all statistics (2)" in text
    assert "n = 2 (and 1 diverged)" in text
