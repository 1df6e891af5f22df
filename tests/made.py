"""Experiments without training, for tests of pages."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from forgetscope.analysis.experiments import Experiment
from forgetscope.experiment.course import measurements
from forgetscope.measuring.coefficients import Coefficients
from forgetscope.measuring.measurement import Measurement
from forgetscope.measuring.sums import Sums
from forgetscope.spec import AugmentationSpec, RunSpec, step_id, step_specs
from forgetscope.store import StepRecord, Store
from forgetscope.store.tables import ClassFacts, class_table, confusion_table, pairs_table, probes_table, rehearsal_table

HOSTILE = "</script><img src=x onerror=\"window.hacked=1\"><a href='javascript:window.hacked=1'>click</a> & <b>bold</b>"
PROBES = 4


def strips() -> dict[int, bytes]:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 2), (200, 80, 40)).save(buffer, "PNG")
    return dict.fromkeys(range(100), buffer.getvalue())


def small(store: Store) -> Experiment:
    return make_experiment(store, steps=3)


def make_experiment(
    store: Store,
    *,
    steps: int,
    classes: int = 2,
    probes: int = PROBES,
    names: dict[int, str] | None = None,
    learned: dict[int, float] | None = None,
    vanished: Sequence[int] = (),
    simulated: dict[str, object] | None = None,
    seed: int = 0,
    policy: str = "uniform",
    source: str | None = None,
    network_source: str | None = None,
    data_classes: int | None = None,
    forecast: bool = False,
    unforecast: Sequence[int] = (),
    retention: float = 0.08,
) -> Experiment:
    """A chain of steps without training. Class 0 is forgotten most, and SIC falls from class to class as forgetting does.

    learned: accuracies when learned, where they are not 0.8. vanished: classes whose gradient is zero at every probe. source:
    SHA-256 of an own policy. data_classes: as the records say it; None is what older versions wrote. unforecast: past classes
    without. forecast: whether there are some, off by a normal deviate of 0.1, as drawn from the seed, with intervals of as much
    to either side."""
    sequence = [range(classes * i, classes * (i + 1)) for i in range(steps)]
    run = RunSpec(
        **{"sequence": [list(part) for part in sequence], "epochs": PROBES - 1, "probe_every": 1 if probes else 0},
        **{"seed": seed, "policy": policy, "forecast": forecast, "retention": retention},
    )
    data = {"name": "toy", "image_size": None, "shape": [8, 8], "digest": "digest"}
    sources = {name: digest for name, digest in ((policy, source), (run.network, network_source)) if digest}
    parent, committed = None, []
    for spec in step_specs(run, sequence, AugmentationSpec(), sources):
        past = classes * (spec.step - 1)
        ids = list(range(past + classes))
        when_learned = np.array([(learned or {}).get(id, 0.8) for id in ids])
        accuracy = when_learned.copy()
        accuracy[:past] *= 1 - np.linspace(0.75, 0, past) if past else 1
        facts = ClassFacts(
            ids=ids,
            names=[(names or {}).get(id, f"class {id}") for id in ids],
            introduced=[id // classes + 1 for id in ids],
            train_images=[50] * len(ids),
            when_learned=when_learned,
            accuracy=accuracy,
        )
        measured = Sums()
        for probe in range(probes if past else 0):
            measured.add(measurement(past, classes, vanished), probe * 10)
        rehearsal = {id: np.arange(4) for id in ids[:past]}
        made = forecasts(1 - accuracy[:past] / when_learned[:past], probes, seed) if forecast and past else None
        if made is not None:
            made[:, :, list(unforecast)] = np.nan
        id = step_id(parent, spec, "digest")
        record = StepRecord(
            id=id,
            parent=parent,
            spec=spec,
            data=data if data_classes is None else {**data, "classes": data_classes},
            environment={"device": "cpu", "torch": "2.99.0+test"},
            timings={"seconds": 1.5, "probe_seconds": 0.5},
            history=[{"epoch": 1, "loss": 0.9, "accuracy": 0.7}],
            tables={
                "classes": class_table(facts, rehearsal, measurements(measured), forecasts=made),
                "probes": probes_table(measurements(measured), ids[:past], made),
                "pairs": pairs_table(measurements(measured), ids, past),
                "rehearsal": rehearsal_table(rehearsal),
                "confusion": confusion_table(100 * np.eye(len(ids), dtype=np.int64), ids),
            },
            network="resnet8",
            state={"weight": np.zeros(1, np.float32)},
            simulated=simulated,
        )
        committed.append(store.commit(record, committed="2026-01-01T00:00:00+00:00"))
        parent = id
    return Experiment(committed)


def forecasts(forgetting: NDArray[np.float64], probes: int, seed: int) -> NDArray[np.float64]:
    """[probes, forecast, P]."""
    generator = np.random.default_rng(seed)
    made = np.minimum(forgetting + 0.1 * generator.standard_normal((probes, len(forgetting))), 1)
    estimates = generator.standard_normal((probes, 3, len(forgetting)))
    return np.concatenate([np.stack([made, made - 0.1, np.minimum(made + 0.1, 1)], axis=1), estimates], axis=1)


def measurement(past: int, new: int, vanished: Sequence[int]) -> Measurement:
    """Terms that are consistent with their pairs: the diagonal falls from class to class, the rest wavers."""
    pairs = 0.01 * torch.cos(torch.arange(past * (past + new), dtype=torch.float64)).reshape(past, past + new).abs()
    pairs[:, :past].diagonal().copy_(torch.linspace(0.5, 0.1, past, dtype=torch.float64))
    norms = torch.ones(past, dtype=torch.float64)
    norms[list(vanished)] = 0
    pairs[list(vanished)] = torch.nan
    sic, nic = pairs.diagonal(), pairs[:, past:].sum(dim=1)
    terms = Coefficients(sic=sic, cic=pairs[:, :past].sum(dim=1) - sic, nic=nic, all_nic=-nic)
    return Measurement(
        terms=terms,
        pairs=pairs,
        gradient_norm=norms,
        bias_norm=norms,
        loss_full=norms,
        rounding=torch.zeros_like(norms),
        loss_rehearsal=norms,
        new_logits=torch.cos(torch.arange(past, dtype=torch.float64)),
        released_nic=nic,
    )
