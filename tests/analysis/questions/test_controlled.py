"""Correlations over re-runs, calculated by hand; and what makes a run no re-run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from forgetscope.analysis.questions.controlled import check_unchanged, controlled_results
from forgetscope.benchmark.plans import Reruns
from forgetscope.benchmark.space import Partition
from forgetscope.errors import StoreError
from forgetscope.spec import AugmentationSpec, RunSpec, StepSpec, step_id, step_specs
from forgetscope.store import TABLES, StepRecord, Store, StoredStep
from forgetscope.store.columns import SCHEMAS

PARTITION = Partition(0.1, 0.08)
PARENT = "f" * 32
SPEC = step_specs(RunSpec(), ((0, 1, 2), (3, 4)), AugmentationSpec())[1]

#        per run: NIC and SIC of the past classes 0, 1 and 2
RUNS: list[tuple[list[float | None], list[float | None]]] = [
    ([1.0, 0.1, 5.0], [10.0, 5.0, 1.0]),
    ([2.0, 0.2, 5.0], [20.0, 4.0, 2.0]),
    ([3.0, 0.3, 5.0], [15.0, 3.0, 3.0]),
    ([4.0, 0.4, 5.0], [40.0, 2.0, 4.0]),
    ([5.0, 0.5, 5.0], [30.0, None, 5.0]),
]
# Class 0: ranks 1 2 3 4 5 and 1 3 2 5 4, sum of squared differences 4: 1 - 6 * 4 / (5 * 24) = 0.8
# Class 1: falls without exception in the four runs in which both are known: -1
# Class 2: NIC is the same in every run, so there is nothing to rank


def tables(
    new: tuple[int, ...], nic: list[float | None], sic: list[float | None], images: tuple[int, ...]
) -> dict[Any, pa.Table]:
    past, count = len(nic), len(nic) + len(new)
    schemas = {name: pa.schema(SCHEMAS[name].items()) for name in TABLES}
    found = {name: schema.empty_table() for name, schema in schemas.items()}
    columns = {name: [None] * count for name in SCHEMAS["classes"]} | {
        "class_id": [*range(past), *new],
        "class_name": [*"abc"[:past], *(f"new {label}" for label in new)],
        "head_node": list(range(count)),
        "introduced_step": [1] * past + [2] * len(new),
        "train_images": [9] * count,
        "nic": [*nic, *[None] * len(new)],
        "sic": [*sic, *[None] * len(new)],
    }
    found["classes"] = pa.table(columns, schemas["classes"])
    kept = {"class_id": [0] * len(images), "image": list(images), "position": list(range(len(images)))}
    found["rehearsal"] = pa.table(kept, schemas["rehearsal"])
    return found


def commit(
    store: Store,
    classes: tuple[int, ...],
    run: tuple[list[float | None], list[float | None]],
    *,
    spec: StepSpec = SPEC,
    parent: str = PARENT,
    data: str = "d",
    images: tuple[int, ...] = (7, 8, 9),
    start: str | None = "5" * 64,
    diverged: bool = False,
) -> StoredStep:
    spec = spec.model_copy(update={"classes": classes})
    id = step_id(parent, spec, data)
    record = StepRecord(
        id=id,
        parent=parent,
        spec=spec,
        data={"name": "glyphs", "image_size": None, "shape": [16, 16], "digest": data},
        environment={},
        timings={"seconds": 1.0},
        history=[],
        tables=tables(classes, *run, images),
        network="resnet8",
        state={},
        divergence={"epoch": 1, "iteration": 3, "loss": "nan"} if diverged else None,
        start=None if start is None else {"weights": start},
    )
    return store.commit(record, "2026-01-01")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.prepare()
    return store


def five_runs(store: Store, **options: Any) -> list[StoredStep]:
    return [commit(store, (3, 4 + i), run, **options) for i, run in enumerate(RUNS)]


def reruns(steps: list[StoredStep], *more: str) -> Reruns:
    first, *others = (step.id for step in steps)
    return Reruns(first, 2, PARTITION, (*others, *more))


def test_correlations_by_hand(store: Store) -> None:
    (found,) = controlled_results(store, [reruns(five_runs(store))])
    assert [(row.class_id, row.class_name, row.runs) for row in found.classes] == [(0, "a", 5), (1, "b", 4), (2, "c", 5)]
    assert [row.correlation for row in found.classes[:2]] == pytest.approx([0.8, -1.0])
    assert math.isnan(found.classes[2].correlation)
    assert (found.planned, found.runs, found.diverged, found.missing, found.unproved) == (5, 5, 0, 0, 0)
    assert (found.step, found.increment, found.retention) == (2, 0.1, 0.08)
    spread = found.spread
    assert spread.classes == 2
    assert (spread.median, spread.deviation, spread.negative, spread.positive) == pytest.approx((-0.1, 0.9, 0.5, 0.5))
    assert spread.quartiles == pytest.approx((-0.55, 0.35))
    assert spread.extremes == pytest.approx((-1.0, 0.8))
    # A perfect correlation of four ranks counts as 1 - 6 / (4^3 - 4) = 0.9
    assert spread.mean == pytest.approx(math.tanh((math.atanh(0.8) - math.atanh(0.9)) / 2))


def test_runs_that_diverged_or_are_missing_are_left_out_and_counted(store: Store) -> None:
    steps = five_runs(store)
    broken = commit(store, (3, 40), ([99.0] * 3, [0.0] * 3), diverged=True)
    (found,) = controlled_results(store, [reruns([broken, *steps], "0" * 32, "1" * 32)])
    assert (found.planned, found.runs, found.diverged, found.missing) == (8, 5, 1, 2)
    assert found.classes[0].correlation == pytest.approx(0.8)


def test_without_any_run_there_is_no_correlation(store: Store) -> None:
    (found,) = controlled_results(store, [Reruns("0" * 32, 2, PARTITION, ("1" * 32,))])
    assert (found.runs, found.missing, found.classes, found.spread.classes) == (0, 2, [], 0)
    assert math.isnan(found.spread.median)


def test_weights_that_were_not_recorded_prove_nothing(store: Store) -> None:
    """Steps of versions that did not record them are compared in everything else, and the others with each other."""
    steps = [commit(store, (3, 60), RUNS[0], start=None), *five_runs(store)]
    (found,) = controlled_results(store, [reruns(steps)])
    assert found.unproved == 1
    odd = commit(store, (3, 61), RUNS[0], start="6" * 64)
    with pytest.raises(
        StoreError, match=f"Step {odd.id[:8]} is no re-run of step {steps[1].id[:8]}: its digest of the initial"
    ):
        controlled_results(store, [reruns([*steps, odd])])


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"parent": "e" * 32}, "parent"),
        ({"spec": SPEC.model_copy(update={"seed": 1})}, "seed"),
        ({"spec": SPEC.model_copy(update={"step": 3})}, "step"),
        ({"spec": SPEC.model_copy(update={"training": SPEC.training.model_copy(update={"epochs": 3})})}, "training"),
        ({"data": "other"}, "data"),
        ({"images": (7, 9, 8)}, "rehearsal set"),
        ({"start": "6" * 64}, "digest of the initial weights"),
    ],
)
def test_a_run_in_which_anything_else_differs_is_an_error(store: Store, changed: dict[str, Any], what: str) -> None:
    steps = five_runs(store)
    odd = commit(store, (3, 50), RUNS[0], **changed)
    with pytest.raises(StoreError, match=rf"Step {odd.id[:8]} is no re-run of step {steps[0].id[:8]}: its {what} differs"):
        controlled_results(store, [reruns([*steps, odd])])


def test_as_many_new_classes_in_each_run(store: Store) -> None:
    steps = [*five_runs(store), commit(store, (3, 50, 51), RUNS[0])]
    with pytest.raises(StoreError, match=r"number of new classes differs \(3, not 2\)"):
        check_unchanged(steps)


def test_a_tampered_record_is_noticed(store: Store) -> None:
    """Its checksums are made to fit, so that it is whole for everyone else."""
    steps = five_runs(store)
    alter(steps[2].folder, lambda info: info["start"].update(weights="7" * 64))
    store.step(steps[2].id).verify()
    with pytest.raises(
        StoreError, match=rf"Step {steps[2].id[:8]} is no re-run .*initial weights differs \(7{{64}}, not 5{{64}}\)"
    ):
        controlled_results(store, [reruns(steps)])


def alter(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    info = json.loads((folder / "step.json").read_bytes())
    change(info)
    content = json.dumps(info).encode()
    (folder / "step.json").write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["step.json"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
