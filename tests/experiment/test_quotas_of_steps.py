"""Quotas by the spread of gradients in runs: what they are, that they shrink as they must, and that unequal shares of the
memory reach whatever is made of them."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import safetensors.numpy
import torch
from torch.nn import functional as F

import forgetscope as fs
from conftest import TINY, run_experiment
from forgetscope.errors import DamagedStep
from forgetscope.experiment.forecast import StepForecast
from forgetscope.experiment.observation import _probe_data
from forgetscope.experiment.preparation import Prepared, prepare
from forgetscope.experiment.settings import choose_settings
from forgetscope.learning.budgets import allocated
from forgetscope.learning.networks import head_of
from forgetscope.learning.sampling import rehearsal_batches
from forgetscope.measuring.subsampled.drawing import subsampled
from forgetscope.spec import RunSpec
from forgetscope.store import STATE, Store, StoredStep, parquet_bytes
from rehearsed import literal_coefficients
from strangers import put

SETTINGS = choose_settings("cpu", 1)
PLAIN = {name: value for name, value in TINY.items() if name != "retention"}
NEYMAN = {**PLAIN, "epochs": 1, "sequence": ((0, 1, 2), (3, 4), (5, 6)), "retention": 0.08, "quota": "neyman"}


def run(store: Store, **options: Any) -> list[StoredStep]:
    return list(run_experiment(RunSpec(**options), store, device="cpu", threads=1).steps)


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[StoredStep]:
    """Three steps; do not write to their store."""
    return run(Store(tmp_path_factory.mktemp("neyman") / "store"), **NEYMAN, forecast=True)


def prepared(steps: list[StoredStep], number: int) -> Prepared:
    return prepare(steps[number - 2], steps[number - 1].spec, fs.load_data("glyphs", 8), SETTINGS)


def kept(step: StoredStep) -> dict[int, list[int]]:
    table = step.table("rehearsal").to_pandas()
    return {int(label): rows["image"].tolist() for label, rows in table.groupby("class_id", sort=False)}


def counts(step: StoredStep) -> list[int]:
    return [len(images) for images in kept(step).values()]


def spread_by_autograd(step: Prepared, label: int) -> float:
    """Root of the trace of the covariance of single images' gradients, of the head as the parent left it."""
    weight, bias = (tensor.detach().double() for tensor in step.network.head.parameters())
    images = torch.from_numpy(step.data.train.images[step.images_of[label]])
    old = len(step.past)
    gradients = []
    with torch.no_grad():
        features = step.network.eval().features(step.normalise(images)).double()
    for one in features:
        head = [weight[:old].clone().requires_grad_(), bias[:old].clone().requires_grad_()]
        loss = F.cross_entropy((head[0] @ one + head[1])[None], torch.tensor([step.past.index(label)]))
        gradients.append(torch.cat([part.flatten() for part in torch.autograd.grad(loss, head)]))
    matrix = torch.stack(gradients).numpy()
    return math.sqrt(np.trace(np.cov(matrix, rowvar=False, ddof=0)))


def test_a_class_gets_images_by_their_number_and_the_spread_of_their_gradients(steps: list[StoredStep]) -> None:
    for number, learned, total in ((2, (0, 1, 2), 48), (3, (3, 4), 32)):
        step = prepared(steps, number)
        spreads = [200 * spread_by_autograd(step, label) for label in learned]
        expected = allocated(total, spreads, [200] * len(learned))
        assert counts(steps[number - 1])[-len(learned) :] == expected
        assert len(set(expected)) > 1
        np.testing.assert_allclose(np.array(expected), total * np.array(spreads) / sum(spreads), atol=1)


def test_with_a_retention_older_classes_keep_what_they_have(steps: list[StoredStep]) -> None:
    before, after = kept(steps[1]), kept(steps[2])
    assert {label: after[label] for label in before} == before


def test_only_how_many_is_different_not_which_come_first(steps: list[StoredStep], tmp_path: Path) -> None:
    balanced = run(Store(tmp_path), **{**NEYMAN, "quota": "balanced", "sequence": NEYMAN["sequence"][:2]})
    assert balanced[0].id == steps[0].id
    assert balanced[1].id != steps[1].id
    for label, images in kept(balanced[1]).items():
        common = min(len(images), len(kept(steps[1])[label]))
        assert images[:common] == kept(steps[1])[label][:common]


SQUARES = {"dataset": "squares", "epochs": 1, "first_batch": 16, "batch": 16, "learning_rate": 0.05, "probe_every": 0}


@pytest.mark.parametrize(
    "budget", [{"memory": 30}, {"memory_bytes": 30 * 192}, {"memory_bytes": 7_000, "method": "dark-logits"}]
)
def test_a_memory_that_shrinks_keeps_its_sums_and_the_first_of_each_class(
    budget: dict[str, Any], squares: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(squares))
    sequence = ((0, 1, 2), (3, 4), (5,), (6,))
    both = {
        quota: run(Store(tmp_path), **SQUARES, **budget, sequence=sequence, quota=quota) for quota in ("balanced", "neyman")
    }
    ends = (3, 5, 6)
    for number in (1, 2, 3):
        ours, theirs = counts(both["neyman"][number]), counts(both["balanced"][number])
        for start, end in zip((0, *ends), ends[:number], strict=False):  # the classes of each step keep as many as balanced
            assert sum(ours[start:end]) == sum(theirs[start:end])
        assert both["neyman"][number].kept_bytes == both["balanced"][number].kept_bytes
        before = kept(both["neyman"][number - 1]) if number > 1 else {}
        for label, images in kept(both["neyman"][number]).items():
            assert images == before.get(label, images)[: len(images)]
    first, last = (np.array(counts(both["neyman"][number])[:3]) for number in (1, 3))
    np.testing.assert_allclose(last, first * last.sum() / first.sum(), atol=1.5)  # cut in proportion, rounded twice
    assert len(set(first)) > 1


def test_unequal_shares_reach_the_probe_as_the_paper_has_them(steps: list[StoredStep]) -> None:
    """The first probe of a third step against the definitions, from gradients by autograd."""
    step, sizes = prepared(steps, 3), np.array(counts(steps[2]))
    assert len(set(sizes)) > 2
    np.testing.assert_array_equal(steps[2].table("classes").to_pandas()["share"].dropna(), sizes / sizes.sum())

    def gradient(images: np.ndarray) -> np.ndarray:
        weight, bias = (tensor.detach().double().requires_grad_() for tensor in step.network.head.parameters())
        with torch.no_grad():
            pixels = torch.from_numpy(step.data.train.images[images])
            features = step.network.eval().features(step.normalise(pixels)).double()
        nodes = torch.tensor([step.classes.index(label) for label in step.data.train.labels[images]])
        parts = torch.autograd.grad(F.cross_entropy(features @ weight.T + bias, nodes), [weight, bias])
        return torch.cat([parts[0], parts[1][:, None]], dim=1).numpy()

    full, rehearsal = (np.stack([gradient(of[label]) for label in step.past]) for of in (step.images_of, step.rehearsal))
    new = gradient(np.concatenate([step.images_of[label] for label in step.spec.classes]))
    expected = literal_coefficients(full, rehearsal, new, 0.5, sizes / sizes.sum())
    probes = steps[2].table("probes").to_pandas()
    for name, values in expected.items():
        np.testing.assert_allclose(probes[probes["probe"] == 0][name], values, rtol=1e-5, atol=1e-7)


def test_unequal_shares_reach_batches_cheap_probes_forecasts_and_methods(steps: list[StoredStep]) -> None:
    step, sizes = prepared(steps, 3), np.array(counts(steps[2]))
    shares = sizes / sizes.sum()
    memory = step.objective.memory
    assert memory is not None
    np.testing.assert_array_equal(memory.class_sizes, sizes)
    np.testing.assert_allclose(step.objective.shares, [*(0.5 * shares), 0.25, 0.25])
    exact = _probe_data(step, lambda: None)
    assert exact is not None
    np.testing.assert_allclose(exact.shares, shares)
    cheap = subsampled(exact, 40, lambda node: np.random.default_rng(node))
    np.testing.assert_allclose(cheap.shares, shares)
    forecast = StepForecast(step)
    in_memory = forecast._forecaster.outlook(forecast._features(), head_of(step.network)).shares
    np.testing.assert_allclose([*in_memory.values()], sizes / 200)


def test_draws_of_the_memory_follow_its_shares(steps: list[StoredStep]) -> None:
    step, sizes = prepared(steps, 3), np.array(counts(steps[2]))
    drawn = np.concatenate(rehearsal_batches("iid", step.streams, 0, 4000, 10, sizes))
    found = np.bincount(np.searchsorted(np.cumsum(sizes), drawn, side="right"), minlength=len(sizes)) / len(drawn)
    np.testing.assert_allclose(found, sizes / sizes.sum(), atol=4 * 0.5 / math.sqrt(len(drawn)))


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        ("an image more", "49 images of the classes of step 1, where this step rehearsed 48, and some of each"),
        ("an image less", "47 images of the classes of step 1, where this step rehearsed 48, and some of each"),
        ("a class without", "48 images of the classes of step 1, where this step rehearsed 48, and some of each"),
        ("an image twice", "images of class 0 that this step rehearsed"),
        ("an image of another class", "images of class 0 that this step rehearsed"),
        ("another order", "images of class 0 that this step rehearsed"),
    ],
)
def test_what_can_be_known_of_a_parent_s_memory_is_checked(
    harm: str, reason: str, steps: list[StoredStep], tmp_path: Path
) -> None:
    store = Store(shutil.copytree(steps[0].folder.parents[1], tmp_path / "store"))
    shutil.rmtree(store.step(steps[2].id).folder)
    parent = store.step(steps[1].id)
    table = parent.table("rehearsal")
    columns = {name: array.to_numpy().copy() for name, array in zip(table.column_names, table.columns, strict=True)}
    labels, images, positions = (columns[name] for name in ("class_id", "image", "position"))
    first, others, free = (labels == 0).sum(), (labels == 1).sum(), np.setdiff1d(np.arange(200, 400), images)
    if harm == "an image more":
        columns = {"class_id": [*labels, 1], "image": [*images, free[0]], "position": [*positions, others]}
    elif harm == "an image less":
        columns = {name: np.delete(array, first - 1) for name, array in columns.items()}
    elif harm == "a class without":  # and another with as many more
        positions[:first] = others + np.arange(first)
        labels[:first], images[:first] = 1, free[:first]
    elif harm == "an image twice":
        images[1] = images[0]
    elif harm == "an image of another class":
        images[0] = free[0]
    else:
        positions[:2] = [1, 0]
    forged = pa.table({name: pa.array(columns[name], table.schema.field(name).type) for name in columns})
    put(parent, "rehearsal.parquet", parquet_bytes(forged))
    with pytest.raises(DamagedStep) as error:
        run(store, **NEYMAN, forecast=True)
    assert reason in str(error.value)


def test_a_budget_in_bytes_cannot_be_checked_with_a_head_of_another_form(tmp_path: Path) -> None:
    store, options = Store(tmp_path), {**PLAIN, "epochs": 1, "memory_bytes": 9000, "keepsake": "variance"}
    parent = run(store, **{**options, "sequence": PLAIN["sequence"][:2]})[1]
    state = parent.state()
    for shape, reason in (((3,), "no head.weight"), ((4, 9999), "a head of 9999 features")):
        put(parent, STATE, safetensors.numpy.save({**state, "head.weight": np.zeros(shape, np.float32)}))
        with pytest.raises(DamagedStep, match=reason):
            run(store, **options)
