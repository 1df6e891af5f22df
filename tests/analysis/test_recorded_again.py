"""One training counts once, however often it was recorded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from conftest import TINY, run_experiment
from forgetscope.analysis.experiments import overview, recorded_again
from forgetscope.analysis.index import glance
from forgetscope.analysis.questions.approximations import approximations
from forgetscope.analysis.questions.policies import compare_policies
from forgetscope.analysis.results import Analysis, analyse
from forgetscope.cli.app import app
from forgetscope.spec import RunSpec
from forgetscope.store import Store

THREE = ((0, 1, 2), (3, 4, 5), (6, 7))


def run(store: Store, **options: Any) -> str:
    return run_experiment(RunSpec(**{**TINY, "sequence": THREE, **options}), store, device="cpu", threads=1).id


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One training, recorded four times: as it is, with forecasts, cheaply, and with more beside the probes."""
    store = Store(tmp_path_factory.mktemp("recorded"))
    for options in ({}, {"forecast": True}, {"probe_images": 8}, {"all_layers_every": 1}, {"all_layers_every": 2}):
        run(store, **options)
    return store


@pytest.fixture(scope="module")
def analysis(store: Store) -> Analysis:
    return analyse(store, resamples=10, cached=False)


def test_the_recordings_are_of_one_training(store: Store) -> None:
    of_second_steps = [step.state() for step in store.steps() if step.number == 2]
    assert len(of_second_steps) == 5
    first, *others = ({name: value.tobytes() for name, value in state.items()} for state in of_second_steps)
    assert all(other == first for other in others)


def test_no_mean_is_made_of_one_training(store: Store) -> None:
    found = glance(store)
    assert len(found) == 5
    assert overview(found) == []
    assert recorded_again(found) == 2 * 4


def test_two_trainings_are_two(store: Store, tmp_path: Path) -> None:
    again = Store(shutil.copytree(store.path, tmp_path / "store"))
    for options in ({"forecast": True}, {"probe_images": 8}):
        run(again, seed=1, sequence=THREE[:2], **options)
    rows = overview(glance(again))
    assert [(row.step, row.experiments) for row in rows] == [(2, 2), (2, 2)]  # as probed exactly, and as probed cheaply
    assert len({row.setting for row in rows}) == 2


def test_an_analysis_counts_each_step_of_a_training_once(analysis: Analysis) -> None:
    assert [[step.facts.step for step in sample.steps] for sample in analysis.collection.samples] == [[2, 3], [2, 3]]
    assert analysis.collection.reruns == []
    left_out = analysis.more["left_out"]
    assert sorted(left_out.groupby("benchmark")["recorded_again"].apply(sorted)) == [[0, 0], [3, 3]]
    assert "3 further recordings of trainings that count" in analysis.reading


def test_what_has_forecasts_is_what_counts(store: Store, analysis: Analysis) -> None:
    exact = next(sample for sample in analysis.collection.samples if "=" not in sample.benchmark)
    assert all(store.step(step.facts.id).forecasts for step in exact.steps)
    second, third = exact.steps
    assert third.facts.parent == second.facts.id


def test_policies_are_compared_over_trainings(store: Store, tmp_path: Path) -> None:
    again = Store(shutil.copytree(store.path, tmp_path / "store"))
    for options in ({}, {"probe_images": 8}):
        run(again, policy="herding", sequence=THREE[:2], **options)
    assert [(row.policy, row.pairs) for row in compare_policies(glance(again))] == [("uniform", 1), ("herding", 1)]


def test_what_is_measured_beside_the_probes_counts_once_as_well(store: Store) -> None:
    for found in approximations(store):
        assert found.steps == 1
        assert {one.steps for one in found.contrasts} == {1}


def test_the_command_says_it_once(store: Store) -> None:
    told = CliRunner().invoke(app, ["show", str(store.path)], catch_exceptions=False).stdout
    assert " ".join(told.split()).count("Of 8 steps the training is recorded by another step too") == 1
    assert "Means over experiments" not in told
    whole = json.loads(CliRunner().invoke(app, ["show", str(store.path), "--json"], catch_exceptions=False).stdout)
    assert (whole["overview"], whole["recorded_again"]) == ([], 8)
