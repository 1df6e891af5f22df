"""On the same training the monitor finds what `run` finds, and leaves the same tables."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import forgetscope as fs
from conftest import TINY
from forgetscope.experiment.course import Course
from forgetscope.experiment.observation import Observer
from forgetscope.experiment.preparation import prepare
from forgetscope.experiment.settings import choose_settings
from forgetscope.learning.rsgd import make_optimiser, train_step
from forgetscope.measuring.measurement import ProbeData, measure
from forgetscope.measuring.quantities import COEFFICIENTS
from forgetscope.measuring.sums import Sums
from forgetscope.spec import RunSpec, StepSpec
from forgetscope.store import Store
from forgetscope.store.observed import OBSERVED_TABLES


def trained(store: Path) -> Iterator[tuple[nn.Module, Any, Course]]:
    """The second step of the tiny experiment, epoch by epoch, with the run's own probes: network, step and course so far."""
    spec = RunSpec(**{**TINY, "sequence": TINY["sequence"][:2]})
    result = fs.run(spec, store, progress=False)
    first, second = Store(store).chain(result.id)
    data, settings = fs.load_data("glyphs", 8), choose_settings("cpu", 1)
    step = prepare(first, StepSpec(**second.info["spec"]), data, settings)
    course = Course(torch.zeros(len(step.new_set.nodes), dtype=torch.int16))
    observer = Observer(step, None, course, store / "so-far", lambda: None)
    observer.epoch_ended(0, 0)
    yield step.network, step, course
    assert step.spec.rehearsal is not None
    for end in train_step(
        step.network,
        make_optimiser(step.network, step.spec.training),
        step.new_set,
        step.objective.memory,
        step.normalise,
        step.spec.training,
        step.spec.rehearsal.alpha,
        step.streams,
        course.image_history,
    ):
        observer.epoch_ended(end.epoch, end.iteration)
        yield step.network, step, course


def as_loader(images: Tensor, labels: Tensor, batch: int) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(images, labels), batch, shuffle=True)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-4)])
def test_coefficients_are_those_of_run(tmp_path: Path, dtype: torch.dtype, tolerance: float) -> None:
    """In float64 the run's own function measures beside it, on a network and images of that type."""
    monitor, watched, double = fs.Monitor(tmp_path / "watched", "same", strict=True), None, Sums()
    for network, step, ran in trained(tmp_path / "run"):
        if watched is None:
            parts = [(step.normalise(part.images).to(dtype), part.nodes) for part in (step.full_past(), step.new_set)]
            kept = np.concatenate([np.isin(step.images_of[label], step.rehearsal[label]) for label in step.past])
            mask, alpha, own = torch.from_numpy(kept), step.spec.rehearsal.alpha, copy.deepcopy(network).to(dtype)
            held = ProbeData(*parts[0], mask, *parts[1], alpha)
            past, memory, new = parts[0], (parts[0][0][mask], parts[0][1][mask]), parts[1]
            data = {"past": as_loader(*past, 37), "memory": as_loader(*memory, 5), "new": as_loader(*new, 64)}
            watched = monitor.step(own, **data, alpha=alpha).open()
        else:
            own.load_state_dict(network.state_dict())
            watched.epoch_ended()
        course = ran
        double.add(measure(own, held, trusted=True))
    assert watched is not None
    test = torch.from_numpy(np.array(step.data.test.images)), torch.from_numpy(np.array(step.data.test.labels))
    watched.evaluate((step.normalise(test[0]).to(dtype), test[1]))
    watched.close()
    expected, found = (double if dtype == torch.float64 else course.measured).coefficients, watched.coefficients
    for name in COEFFICIENTS:
        one, other = getattr(expected, name), getattr(found, name)
        assert torch.allclose(one, other, rtol=tolerance, atol=0)
        assert torch.equal(getattr(course.measured.coefficients, name).argsort(), other.argsort())
    (stored,), planned = monitor.steps, next(one for one in Store(tmp_path / "run").steps() if one.number == 2)
    stored.verify()
    for name in OBSERVED_TABLES:
        assert stored.table(name).schema == planned.table(name).schema
    classes = stored.table("classes").to_pandas()
    assert np.allclose(classes["sic"][:2], found.sic, rtol=1e-15)
    assert np.allclose(classes["accuracy"], planned.table("classes").to_pandas()["accuracy"])
