"""How fast this machine trains, probes, evaluates and saves, measured in well under a minute: plans tell the time from it."""

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from forgetscope.benchmark.costs import Rates
from forgetscope.data.images import DataSet
from forgetscope.data.preprocessing import Normalisation
from forgetscope.experiment.chain import run_chain
from forgetscope.experiment.preparation import Inherited, assemble
from forgetscope.experiment.settings import Settings
from forgetscope.files import replace_durably
from forgetscope.learning.networks import build_network
from forgetscope.learning.plugins import blaming_own_code
from forgetscope.learning.rsgd import EpochSoFar, make_optimiser, train_step
from forgetscope.learning.snapshots import Snapshot, save_snapshot
from forgetscope.measuring.measurement import ProbeData, measure
from forgetscope.randomness import Streams
from forgetscope.spec import RunSpec, StepSpec, step_specs
from forgetscope.store import Store

PATIENCE = 4.0  # seconds for each rate; training that is slower is measured on smaller batches
CLASSES, IMAGES = 4, 250  # of each class, at most
FEW = 4  # images of each class that the smallest step learns and is tested on


@blaming_own_code()
def measure_rates(
    run: RunSpec, data: DataSet, store: Store, settings: Settings, sources: Mapping[str, str] | None = None
) -> Rates:
    """On a few real images, with the run's own network, options and store. sources: SHA-256 of a user's own code, by name."""
    with settings.applied():
        scene = _Scene(run, data, settings, sources or {})
        first, image = (scene.training(spec) for spec in scene.specs)
        images = max(32, int(PATIENCE / image))  # a forward pass takes a third of what training takes
        measured, evaluated = scene.measuring(images), scene.evaluating(images)
        with tempfile.TemporaryDirectory(prefix="speed-", dir=store.path / "working") as folder:
            epoch, step = scene.saving(Path(folder)), scene.smallest_step(Store(folder))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Rates(first, image, measured, evaluated, epoch, step, peak, scene.state_bytes, scene.features)


class _Enough(Exception):
    pass


class _Scene:
    """A network, and a few images of a few classes: the first half of them past, the others new."""

    def __init__(self, run: RunSpec, data: DataSet, settings: Settings, sources: Mapping[str, str]) -> None:
        device, self.settings = settings.device, settings
        labels = np.unique(data.train.labels)[:CLASSES].tolist()
        self.sequence = [labels[: len(labels) // 2], labels[len(labels) // 2 :]]
        of = {label: np.flatnonzero(data.train.labels == label)[:IMAGES] for label in labels}
        self.specs = step_specs(run, self.sequence, data.augmentation, sources)
        self.data = replace(data, train=data.train.first(FEW, labels), test=data.test.first(FEW, labels))
        self.normalise = Normalisation.of(data, device, settings.channels_last)
        network = build_network(run.network, len(self.sequence[0]), np.random.default_rng(0), sources.get(run.network))
        inherited = Inherited.of_first_step({label: of[label] for label in self.sequence[0]})
        step = assemble(_plainly(self.specs[1]), run.network, network.to(device), data, self.normalise, inherited, of)
        self.network, self.new, self.past = step.network, step.new_set, step.full_past()
        self.features = float(step.network.head.in_features)  # type: ignore[arg-type, union-attr]
        self.state_bytes = float(sum(tensor.nbytes for tensor in self.network.state_dict().values()))

    def training(self, spec: StepSpec) -> float:
        """Seconds per image."""
        whole = spec.training.batch
        slowly = self._trained(spec, min(whole, 8), 0.0)
        return self._trained(spec, min(whole, max(8, int(PATIENCE / 2 / slowly))), PATIENCE)

    def _trained(self, spec: StepSpec, batch: int, patience: float) -> float:
        # Without end and with a learning rate at which nothing diverges.
        training = spec.training.model_copy(update={"epochs": 10**6, "batch": batch, "learning_rate": 1e-4})
        past, alpha = (None, 0.0) if spec.rehearsal is None else (self.past, spec.rehearsal.alpha)
        ends: list[float] = []

        def iteration_ended(so_far: EpochSoFar) -> None:
            ends.append(self._now())
            if len(ends) > 1 and ends[-1] - ends[0] >= patience:  # the first iteration warms up
                raise _Enough

        optimiser, streams = make_optimiser(self.network, training), Streams(0, spec.step)
        try:
            for _ in train_step(
                self.network, optimiser, self.new, past, self.normalise, training, alpha, streams, on_iteration=iteration_ended
            ):
                pass
        except _Enough:
            pass
        return (ends[-1] - ends[0]) / (len(ends) - 1) / batch

    def measuring(self, images: int) -> float:
        """Seconds per image of a probe of about so many."""
        (past, past_nodes), (new, new_nodes) = (
            (s.images[: images // 2], s.nodes[: images // 2]) for s in (self.past, self.new)
        )
        marks = torch.arange(len(past)) % 2 == 0
        probed = ProbeData(past, past_nodes, marks, new, new_nodes, prepare=self.normalise)
        return self._repeated(lambda: measure(self.network, probed, trusted=True)) / (len(past) + len(new))

    def evaluating(self, images: int) -> float:
        """Seconds per image."""
        self.network.eval()
        pixels = self.new.images[:images]
        with torch.no_grad():
            return self._repeated(lambda: self.network(self.normalise(pixels))) / len(pixels)

    def saving(self, folder: Path) -> float:
        """Seconds for a snapshot."""
        weights = [parameter.detach().clone() for parameter in self.network.parameters()]
        state, images = self.network.state_dict(), torch.zeros(1, dtype=torch.int16)
        snapshot = Snapshot(0, 1, 0, self.settings.recorded(), [], state, weights, {}, {}, images)
        return self._repeated(lambda: save_snapshot(folder, snapshot, replace_durably))

    def smallest_step(self, store: Store) -> float:
        """Seconds of a step that learns and measures next to nothing: what each step costs besides that."""
        store.prepare()
        steps = run_chain([_smallest(spec) for spec in self.specs], self.data, store, self.settings)
        return float(np.mean([step.info["timings"]["seconds"] for step in steps]))

    def _repeated(self, work: Callable[[], object]) -> float:
        """Median seconds of a few runs; the first of them warms up."""
        times: list[float] = []
        while len(times) < 2 or (sum(times) < PATIENCE / 2 and len(times) < 50):
            begin = self._now()
            work()
            times.append(self._now() - begin)
        return float(np.median(times[1:]))

    def _now(self) -> float:
        """When all that was asked of the device is done."""
        if self.settings.device.type == "cuda":
            torch.cuda.synchronize()
        elif self.settings.device.type == "mps":
            torch.mps.synchronize()
        return time.perf_counter()


def _smallest(spec: StepSpec) -> StepSpec:
    """One epoch, and of probes that are given by number no more than it can have: one before it and one after it."""
    training, rehearsal = spec.training.model_copy(update={"epochs": 1, "batch": 8}), spec.rehearsal
    if rehearsal is not None and rehearsal.probes is not None:
        rehearsal = rehearsal.model_copy(update={"probes": 2})
    return spec.model_copy(update={"training": training, "rehearsal": rehearsal})


def _plainly(spec: StepSpec) -> StepSpec:
    """With policy, quota and method that cost nothing, no keepsakes, no forecast: what these cost is part of the smallest
    step."""
    assert spec.rehearsal is not None  # a second step has one
    plain = {
        "policy": "uniform",
        "policy_source": None,
        "method": None,
        "method_source": None,
        "quota": None,
        "keepsake": None,
        "forecast": None,
    }
    return spec.model_copy(update={"rehearsal": spec.rehearsal.model_copy(update=plain)})
