"""Other draws: another memory and other batches from the second step on, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from conftest import TINY, run_experiment
from forgetscope.analysis.experiments import Experiment
from forgetscope.data.library import load_data
from forgetscope.experiment.preparation import Prepared, prepare
from forgetscope.experiment.settings import choose_settings
from forgetscope.learning.sampling import new_batches
from forgetscope.randomness import Streams
from forgetscope.spec import RunSpec
from forgetscope.store import Store


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Experiment]:
    store = Store(tmp_path_factory.mktemp("draws"))
    options = {**TINY, "epochs": 1, "probe_every": 0}
    return [run_experiment(RunSpec(**options, draws=draws), store, device="cpu", threads=1) for draws in (0, 1, 2)]


def test_first_steps_are_shared_and_later_ones_are_others(found: list[Experiment]) -> None:
    assert len({e.steps[0].id for e in found}) == 1
    for number in (1, 2):
        assert len({e.steps[number].id for e in found}) == 3
        assert {e.steps[number].spec.classes for e in found} == {found[0].steps[number].spec.classes}


def test_memories_differ_and_initial_weights_do_not(found: list[Experiment]) -> None:
    kept = [tuple(e.rehearsal[e.rehearsal["step"] == 2]["image"]) for e in found]
    assert len({*kept}) == 3
    assert len({e.steps[1].start_weights for e in found}) == 1


def test_no_draws_are_those_of_before(found: list[Experiment]) -> None:
    assert found[0].steps[1].info["spec"]["rehearsal"]["draws"] is None
    assert found[1].steps[1].info["spec"]["rehearsal"]["draws"] == 1


def test_batches_and_augmentation_are_drawn_anew(found: list[Experiment]) -> None:
    one, other = (_prepared(e) for e in found[:2])
    batches = [np.concatenate(new_batches("iid", step.streams, 0, 32, 100)) for step in (one, other)]
    assert not np.array_equal(*batches)
    for purpose in ("policy", "rehearsal-counts", "rehearsal-images", "crop", "brightness"):
        assert one.streams(purpose).random() != other.streams(purpose).random()  # type: ignore[arg-type]
    assert one.streams == Streams(0, 2)


def _prepared(experiment: Experiment) -> Prepared:
    first, second = experiment.steps[:2]
    return prepare(first, second.spec, load_data("glyphs", 8), choose_settings("cpu", 1))
