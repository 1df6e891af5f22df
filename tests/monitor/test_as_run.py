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
from forgetscope.experiment.forecast import StepForecast
from forgetscope.experiment.observation import Observer
from forgetscope.experiment.preparation import prepare
from forgetscope.experiment.settings import choose_settings
from forgetscope.learning.rsgd import make_optimiser, train_step
from forgetscope.measuring.measurement import ProbeData, measure
from forgetscope.measuring.quantities import COEFFICIENTS, ESTIMATES
from forgetscope.measuring.sums import Sums
from forgetscope.spec import RunSpec, StepSpec
from forgetscope.store import Store
from forgetscope.store.observed import OBSERVED_TABLES


def trained(store: Path, **options: Any) -> Iterator[tuple[nn.Module, Any, Course]]:
    """The second step of the tiny experiment, epoch by epoch, with the run's own probes: network, step and course so far."""
    spec = RunSpec(**{**TINY, "sequence": TINY["sequence"][:2], **options})
    result = fs.run(spec, store, progress=False)
    first, second = Store(store).chain(result.id)
    data, settings = fs.load_data("glyphs", 8), choose_settings("cpu", 1)
    step = prepare(first, StepSpec(**second.info["spec"]), data, settings)
    course = Course(torch.zeros(len(step.new_set.nodes), dtype=torch.int16))
    forecast = StepForecast(step) if spec.forecast else None
    observer = Observer(step, forecast, course, store, lambda: None)
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
    monitor, watched, double = fs.Monitor(tmp_path / "watched", "same", probe_images=None, strict=True), None, Sums()
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


def test_forecasts_are_those_of_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fitted on all images, for otherwise each chooses its own; without past images here, with none looked at there."""
    for module in ("experiment.forecast", "monitor.prospects"):
        monkeypatch.setattr(f"forgetscope.{module}.IMAGES", 10_000)
    monitor, watched = fs.Monitor(tmp_path / "watched", "same", strict=True), None
    for network, step, ran in trained(tmp_path / "run", forecast=True, seed=0):
        if watched is None:
            past, new = ((step.normalise(part.images), part.nodes) for part in (step.full_past(), step.new_set))
            kept = np.concatenate([np.isin(step.images_of[label], step.rehearsal[label]) for label in step.past])
            nodes = {label: node for node, label in enumerate(step.classes)}  # random streams are those of labels
            labels = torch.tensor(step.classes)
            with monitor.step(network, new=(past[0], labels[past[1]]), nodes=nodes):
                pass  # the network is that of the parent, whose head has grown
            memory = (past[0][torch.from_numpy(kept)], labels[past[1]][torch.from_numpy(kept)])
            data = {"memory": memory, "new": as_loader(new[0], labels[new[1]], 64)}
            watched = monitor.step(network, **data, nodes=nodes, alpha=step.spec.rehearsal.alpha).open()
        else:
            watched.epoch_ended()
        own = watched._prospects.forecasts(watched.alpha, len(ran.forecasts))[-1]
        assert np.allclose(own, ran.forecasts[-1], 1e-4, 1e-5, equal_nan=True)
    assert watched is not None
    watched.close()
    assert np.isfinite(watched.forecast[list(ESTIMATES)]).all(axis=None)
    assert np.isfinite(watched.forecast["forecast"]).tolist() == [True, False]  # the other was hardly learned
    planned = next(one for one in Store(tmp_path / "run").steps() if one.number == 2)
    for label, one in planned.carried().items():
        other = monitor.steps[-1].carried()[label]
        assert np.allclose(one.mean, other.mean, 0.01, 1e-3)  # which were fitted on fifty images of a class
        assert np.isclose(one.error, other.error, 0.02, equal_nan=True)
