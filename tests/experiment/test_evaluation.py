"""What a step says of every test image, and that counts and margins say the same."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from conftest import TINY
from forgetscope.data.library import load_data
from forgetscope.data.preprocessing import Normalisation
from forgetscope.experiment.evaluation import evaluate
from forgetscope.experiment.preparation import prepare
from forgetscope.experiment.settings import choose_settings
from forgetscope.learning.networks import build_network
from forgetscope.store import Store, StoredStep
from forgetscope.store.tables import Predictions, best_nodes, confusion_table, predictions_table

# Numbers of 32 bits of every size, down to the smallest, many of them equal.
singles = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, -0.0, 1.0, 1e-45, -1e-45, 1e-38])
near = st.sampled_from([1.0, 1.0 + 1e-16, np.nextafter(1.0, 2.0), 5e-324, -5e-324, 0.0, 1e-60])


@pytest.fixture
def steps(tiny_store: Path) -> list[StoredStep]:
    (chain,) = Store(tiny_store).experiments()
    return chain


@given(st.data(), st.integers(1, 5), st.integers(1, 5), st.sampled_from([singles, near]))
def test_what_is_predicted_follows_from_the_margin(data: st.DataObject, past: int, new: int, values: st.SearchStrategy) -> None:
    """As torch decides it, of equal logits for the first, however close to each other or to zero they are."""
    logits = data.draw(arrays(np.float64, (4, past + new), elements=values))
    predicted, best_past, best_new, margin = best_nodes(logits, past)
    assert margin.dtype == np.float32
    assert predicted.tolist() == torch.from_numpy(logits).argmax(dim=1).tolist()
    for row, found in zip(logits.tolist(), zip(predicted, best_past, best_new, margin, strict=True), strict=True):
        old, recent = row[:past], row[past:]
        assert found[:3] == (row.index(max(row)), old.index(max(old)), past + recent.index(max(recent)))
        gap = max(old) - max(recent)
        if math.isnan(found[3]):
            assert abs(gap) > 3.4e38  # no number of 32 bits
        else:
            assert found[0] == (found[1] if found[3] >= 0 else found[2])
            assert found[3] == pytest.approx(gap, rel=1e-6, abs=1.2e-38)


@given(arrays(np.float32, (3, 4), elements=singles))
def test_a_difference_in_single_precision_has_the_sign_of_the_margin(logits: np.ndarray) -> None:
    """Gradual underflow: two different numbers of 32 bits never have the difference 0."""
    margin = best_nodes(logits.astype(np.float64), 2)[3]
    with np.errstate(over="ignore"):
        plain = logits[:, :2].max(axis=1) - logits[:, 2:].max(axis=1)
    assert (np.sign(plain) == np.sign(margin))[~np.isnan(margin)].all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_where_a_logit_is_not_finite_there_is_no_margin(value: float) -> None:
    logits = np.array([[1.0, value, 2.0, 3.0], [1.0, 2.0, 0.0, 1.0]])
    predicted, _, _, margin = best_nodes(logits, 2)
    assert predicted.tolist() == torch.from_numpy(logits).argmax(dim=1).tolist()  # as before
    assert np.isnan(margin).tolist() == [True, False]
    ids, zeros = np.arange(2), np.zeros(2, np.int64)
    found = Predictions(2, ids, zeros, predicted, *best_nodes(logits, 2)[1:])
    assert predictions_table(found, [5, 6, 7, 8])["margin"].to_pylist() == [None, 1.0]


def test_a_first_step_has_nothing_past_to_say() -> None:
    predicted, _, best_new, margin = best_nodes(np.array([[1.0, 3.0], [2.0, 2.0]]), 0)
    assert predicted.tolist() == best_new.tolist() == [1, 0]
    assert np.isnan(margin).all()


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(0, 40))
def test_the_confusion_is_counted_from_the_predictions(seed: int, classes: int, images: int) -> None:
    rng = np.random.default_rng(seed)
    true, predicted = rng.integers(classes, size=(2, images))
    found = Predictions(0, np.arange(images), true, predicted, predicted, predicted, np.zeros(images, np.float32))
    expected = np.zeros((classes, classes), np.int64)
    for i, j in zip(true, predicted, strict=True):
        expected[i, j] += 1
    np.testing.assert_array_equal(found.confusion(classes), expected)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_table_is_what_a_plain_loop_over_the_test_images_finds(steps: list[StoredStep], number: int) -> None:
    step, data = steps[number - 1], load_data("glyphs", 8)
    classes = [label for group in TINY["sequence"][:number] for label in group]
    past = len(classes) - 2
    network = build_network("resnet8", len(classes), None)
    network.load_state_dict({name: torch.from_numpy(a) for name, a in step.state().items() if name != "image_history"})
    network.eval()
    normalise = Normalisation.of(data, torch.device("cpu"), True)
    rows = []
    for label in classes:
        images = [i for i, other in enumerate(data.test.labels) if other == label]
        with torch.no_grad():
            logits = network(normalise(torch.from_numpy(data.test.images[images])))
        for image, row in zip(images, logits, strict=True):
            old, new = row[:past], row[past:]
            facts = (image, label, classes[int(row.argmax())])
            best = (classes[int(old.argmax())] if past else None, classes[past + int(new.argmax())])
            rows.append((*facts, *best, float(old.max() - new.max()) if past else None))
    table = step.table("predictions").to_pydict()
    assert list(zip(*table.values(), strict=True)) == rows
    assert step.unpredicted is None


def test_confusion_and_accuracy_follow_from_it(steps: list[StoredStep]) -> None:
    for step in steps:
        found, classes = step.table("predictions").to_pandas(), step.table("classes").to_pydict()
        if step.number > 1:
            chosen = np.where(found["margin"] >= 0, found["best_past"], found["best_new"])
            assert found["predicted"].tolist() == chosen.tolist()
            assert found["best_past"].isin(classes["class_id"][:-2]).all()
        assert found["best_new"].isin(classes["class_id"][-2:]).all()
        node = dict(zip(classes["class_id"], classes["head_node"], strict=True))
        counts = np.zeros((len(node), len(node)), np.int64)
        np.add.at(counts, (found["true"].map(node), found["predicted"].map(node)), 1)
        assert confusion_table(counts, classes["class_id"]).equals(step.table("confusion"))
        assert (np.diag(counts) / 100).tolist() == classes["accuracy"]


def test_the_network_sees_every_test_image_once(steps: list[StoredStep]) -> None:
    step = prepare(steps[0], steps[1].spec, load_data("glyphs", 8), choose_settings("cpu", 1))
    seen: list[int] = []
    step.network.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    assert len(evaluate(step).image) == sum(seen) == 400


def test_logits_of_half_precision_can_be_compared(steps: list[StoredStep]) -> None:
    """Of a network of somebody's own; numpy has no bfloat16."""
    step = prepare(steps[0], steps[1].spec, load_data("glyphs", 8), choose_settings("cpu", 1))
    plain = evaluate(step)
    step.network.register_forward_hook(lambda module, inputs, output: output.bfloat16())
    rounded = evaluate(step)
    assert [field.name for field in dataclasses.fields(rounded)][:2] == ["past", "image"]
    np.testing.assert_allclose(rounded.margin, plain.margin, atol=0.1)
