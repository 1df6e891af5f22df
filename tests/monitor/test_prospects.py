"""Keepsakes and forecasts of monitored steps: without past images, found again in the next step, never in its way."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import forgetscope as fs
from forgetscope.errors import DamagedStep, InputError, SpecError
from forgetscope.forecasting.accuracy import leave_one_out
from forgetscope.forecasting.choice import marks
from forgetscope.forecasting.forecaster import FEWEST, UNTRAINED, Forecaster, KnownClass
from forgetscope.housekeeping.exporting import export_steps
from forgetscope.housekeeping.importing import import_steps
from forgetscope.housekeeping.sql import query
from forgetscope.measuring.quantities import ESTIMATES, FORECAST
from forgetscope.monitor.step import MonitoredStep
from forgetscope.randomness import Streams
from forgetscope.store import Store, commit_observed
from forgetscope.store.tables import manifest_bytes, parquet_bytes
from measuring.test_heads import Cosine, made
from observed_steps import observed_record

Pair = tuple[Tensor, Tensor]
STEPS, PER_CLASS, KEPT, WIDTH = ((0, 1, 2), (3, 4), (5, 6)), 14, 5, 8


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.fc = nn.Sequential(nn.Linear(6, WIDTH), nn.ReLU()), nn.Linear(WIDTH, 7)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.body(images))


def network() -> Net:
    torch.manual_seed(1)
    return Net().double()


def images(classes: tuple[int, ...], per_class: int = PER_CLASS) -> Pair:
    draws = torch.Generator().manual_seed(7 + classes[0])
    labels = torch.tensor(classes).repeat_interleave(per_class)
    return torch.randn(len(labels), 6, generator=draws).double() + 2 * F.one_hot(labels % 6, 6), labels


def memory(steps: int) -> Pair:
    """Of the classes of so many steps."""
    parts = [images(classes) for classes in STEPS[:steps]]
    inputs, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    chosen = torch.cat([torch.nonzero(labels == c)[:KEPT, 0] for c in labels.unique().tolist()])
    return inputs[chosen], labels[chosen]


def train(net: nn.Module, *parts: Pair, rate: float = 0.3) -> None:
    """One epoch of full batches."""
    inputs, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    for _ in range(20):
        loss = F.cross_entropy(net(inputs), labels)
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(net.parameters(), gradients, strict=True):
                parameter -= rate * gradient


def watched(
    folder: Path, steps: int = 2, epochs: int = 2, name: str = "own", **named: Any
) -> Iterator[tuple[MonitoredStep, nn.Module]]:
    """Steps of one monitor without past images, each as its training has ended and before it is closed."""
    net, monitor = network(), fs.Monitor(folder, name, strict=True, **named)
    for number in range(1, steps + 1):
        new = images(STEPS[number - 1])
        given = {"memory": memory(number - 1), "alpha": 0.5} if number > 1 else {}
        with monitor.step(net, new=new, **given) as step:
            for _ in range(epochs):
                train(net, new, *([given["memory"]] if given else []))
                step.epoch_ended()
            yield step, net


def done(folder: Path, steps: int = 2, **named: Any) -> list[MonitoredStep]:
    return [step for step, _ in watched(folder, steps, **named)]


def test_a_step_keeps_mean_and_variance_of_what_it_learned(tmp_path: Path) -> None:
    for _, net in watched(tmp_path, 1):
        inputs, labels = images(STEPS[0])
        features = net.body(inputs).detach()
        logits = net(inputs).detach()[:, :3]
    (stored,) = fs.Monitor(tmp_path, "own").steps
    head = [part.detach().numpy()[:3] for part in (net.fc.weight, net.fc.bias)]
    alone = leave_one_out(features.numpy(), labels.numpy(), *head)
    for label, kept in stored.keepsakes().items():
        of = labels == label
        assert kept is not None
        assert (kept.features_step, kept.images, kept.probability) == (1, PER_CLASS, None)
        assert_allclose(kept.mean, features[of].mean(dim=0), rtol=1e-6)
        assert_allclose(kept.spread, features[of].var(dim=0, correction=0), rtol=1e-5, atol=1e-8)
        assert kept.training_accuracy == pytest.approx(float((logits.argmax(dim=1) == labels)[of].double().mean()))
        assert kept.accuracy == pytest.approx(alone[of].mean())
    assert stored.carried() == {}


def test_forecast_is_that_of_the_arrays(tmp_path: Path) -> None:
    """By the function of arrays, on features of the same images in whatever order of their own."""
    net, monitor = network(), fs.Monitor(tmp_path, "own", strict=True)
    with monitor.step(net, new=images(STEPS[0])):
        train(net, images(STEPS[0]))
    kept, held, new = monitor.steps[0].keepsakes(), memory(1), images(STEPS[1])
    inputs, labels = (torch.cat(part) for part in zip(held, new, strict=True))
    is_new = torch.arange(len(labels)) >= len(held[1])
    order = torch.from_numpy(np.lexsort((marks(inputs)[:, 0].numpy(), labels.numpy(), is_new.numpy())))
    inputs, labels, is_new = inputs[order], labels[order], is_new[order]

    def seen(nodes: int) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
        parts = net.body(inputs), net.fc.weight[:nodes], net.fc.bias[:nodes]
        features, weight, bias = (part.detach().numpy().copy() for part in parts)
        return features, (weight, bias)

    known = {c: KnownClass(one.mean, one.spread, "variance", one.images, one.accuracy) for c, one in kept.items()}
    before, head = seen(3)
    oracle = Forecaster(
        known, before, labels.numpy(), is_new.numpy(), dict.fromkeys(known, KEPT), head, lambda c: Streams(0, 2)("forecast", c)
    )
    with monitor.step(net, new=DataLoader(TensorDataset(*new), 4, shuffle=True), memory=held, alpha=0.3) as step:
        for _ in range(2):
            train(net, new, held)
            step.epoch_ended()
        found = oracle.forecast(*seen(5))
        assert_allclose(step.forecast["forecast"], found.forgetting, rtol=1e-6)
        assert_allclose(step.forecast["forecast_low"], found.low, rtol=1e-6)
        assert_allclose(step.forecast["forecast_high"], found.high, rtol=1e-6)
    assert step.forecast["missing"].isna().all()
    assert np.isfinite(step.forecast[list(FORECAST)]).all(axis=None)
    second = monitor.steps[1]
    second.verify()
    assert_allclose([one.probability for one in list(second.keepsakes().values())[:3]], list(oracle.probabilities.values()))
    carried = oracle.carried(*seen(5))
    for c, one in second.carried().items():
        assert_allclose(one.mean, carried[c].mean, rtol=1e-5)
        assert one.error == pytest.approx(carried[c].error)


def test_past_images_or_not_the_forecast_is_the_same(tmp_path: Path) -> None:
    net = network()
    for name in ("with", "without"):
        monitor, own = fs.Monitor(tmp_path, name, strict=True), copy.deepcopy(net)
        with monitor.step(own, new=images(STEPS[0])):
            train(own, images(STEPS[0]))
        past = {"past": images(STEPS[0])} if name == "with" else {}
        with monitor.step(own, **past, memory=memory(1), new=images(STEPS[1]), alpha=0.5) as step:
            train(own, memory(1), images(STEPS[1]))
            step.epoch_ended()
        frame = step.to_frame()
        if name == "with":
            expected = frame
    assert_allclose(expected[list(FORECAST)], frame[list(FORECAST)], rtol=1e-12)
    assert np.isfinite(expected[["sic", "cic", "nic"]]).all(axis=None)
    assert np.isnan(frame[["sic", "cic", "nic", "all_nic"]]).all(axis=None)
    assert expected["sic"].corr(expected["sic_estimate"], method="spearman") > 0


def test_test_images_enter_no_forecast_no_keepsake_and_no_offset(tmp_path: Path) -> None:
    """Other test images in both steps, and so other accuracies when learned: not a bit changes."""
    predicted, learned = list[tuple[object, ...]](), list[list[float]]()
    for name in ("none", "some", "others"):
        for step, _ in watched(tmp_path / name):
            inputs, labels = images((0, 1, 2, 3, 4))
            if name != "none":
                step.evaluate((inputs, labels if name == "some" else (labels + 1) % 5))
        values = step.forecast[list(FORECAST)].to_numpy()
        assert np.isfinite(values).all()
        kept = [(one.folder / "keepsakes.parquet").read_bytes() for one in fs.Monitor(tmp_path / name, "own").steps]
        stored = fs.Monitor(tmp_path / name, "own").steps[1]
        carried = (stored.folder / "carried.parquet").read_bytes()
        predicted.append((values.tobytes(), step.evening(strength=1, shrinkage=1).offsets, kept, carried))
        learned.append(stored.table("classes")["accuracy_when_learned"].to_pylist()[:3])
    assert learned[1] != learned[2]
    assert predicted[0] == predicted[1] == predicted[2]


def test_estimates_agree_with_what_past_images_say(tmp_path: Path) -> None:
    """NIC has its direction from the memory and draws; on classes that are learned alike it is close."""
    net, monitor = network(), fs.Monitor(tmp_path, "own", strict=True)
    with monitor.step(net, new=images(STEPS[0])):
        train(net, images(STEPS[0]))
    with monitor.step(net, past=images(STEPS[0]), memory=memory(1), new=images(STEPS[1]), alpha=0.3) as step:
        pass
    frame = step.to_frame()
    assert_allclose(frame["nic_estimate"], frame["nic"], rtol=0.2)


def test_classes_of_two_steps_ago_are_carried_on(tmp_path: Path) -> None:
    *_, third = done(tmp_path, 3)
    assert np.isfinite(third.forecast[list(FORECAST)]).all(axis=None)
    first, second, last = fs.Monitor(tmp_path, "own").steps
    assert list(last.keepsakes()) == [0, 1, 2, 3, 4, 5, 6]
    assert list(last.carried()) == [0, 1, 2, 3, 4]
    for label, one in first.keepsakes().items():
        assert np.array_equal(last.keepsakes()[label].mean, one.mean)
        assert last.keepsakes()[label].probability == second.keepsakes()[label].probability
    stored = last.table("classes").to_pandas()[:5]
    assert_allclose(stored[list(FORECAST)], third.to_frame()[list(FORECAST)])
    probes = last.table("probes").to_pandas()
    assert_allclose(probes.groupby("class_id")[list(ESTIMATES)].sum(), stored[list(ESTIMATES)])
    assert "Forgetting predicted from keepsakes of 5 past classes." in repr(third)


def test_ranks_and_series_are_those_of_the_forecast(tmp_path: Path) -> None:
    logged: dict[str, float] = {}
    for step, _ in watched(tmp_path, 2, log=lambda values, _: logged.update(values), names={0: "owl"}):
        found = step.at_risk(3)
    frame = step.forecast.sort_values("forecast", ascending=False)
    assert [row.label for row in found] == frame.index.tolist()
    assert found.to_frame()["forecast"].tolist() == frame["forecast"].tolist()
    assert repr(found).startswith("Most at risk of 3 past classes, as predicted without their images:\n  1. ")
    worst = frame.iloc[0]
    low, high = worst["forecast_low"], worst["forecast_high"]
    assert found.rows[0].cause.startswith(f"predicted forgetting {worst['forecast']:.2f} ({low:.2f} to {high:.2f})")
    assert logged["forgetscope/forecast/owl"] == frame["forecast"][0]
    assert logged["forgetscope/mean_forecast"] == pytest.approx(frame["forecast"].mean())
    assert "forgetscope/mean_nic" not in logged


def test_before_training_nothing_is_predicted_and_ranks_are_those_of_estimates(tmp_path: Path) -> None:
    (_, net), *_ = list(watched(tmp_path, 1))
    logged: dict[str, float] = {}
    monitor = fs.Monitor(tmp_path, "own", strict=True, log=lambda values, _: logged.update(values))
    with monitor.step(net, memory=memory(1), new=images(STEPS[1]), alpha=0.5) as step:
        frame = step.forecast
        assert frame[["forecast", "forecast_low", "forecast_high"]].isna().all(axis=None)
        assert np.isfinite(frame[list(ESTIMATES)]).all(axis=None)
        assert frame["missing"].tolist() == [UNTRAINED] * 3
        found = step.at_risk(3)
        assert [row.label for row in found] == frame["nic_estimate"].sort_values(ascending=False).index.tolist()
        assert found.rows[0].cause.startswith("no forecast; most from ")
        assert "forgetscope/mean_forecast" not in logged
        assert "forgetscope/mean_nic_estimate" in logged
        assert step.evening().said.startswith("Nothing tells how much any past class was forgotten")
        train(net, memory(1), images(STEPS[1]))
        step.epoch_ended()
        assert np.isfinite(step.forecast["forecast"]).all()
        assert step.forecast["missing"].isna().all()
        assert "forgetscope/mean_forecast" in logged
    table = monitor.steps[-1].table("probes").to_pandas()
    assert table["forecast"].isna().tolist() == [True] * 3 + [False] * 3
    monitor.steps[-1].verify()


def test_a_step_that_trains_nothing_says_why_there_is_no_forecast(tmp_path: Path) -> None:
    (_, net), *_ = list(watched(tmp_path, 1))
    monitor = fs.Monitor(tmp_path, "own", strict=True)
    with monitor.step(net, memory=memory(1), new=images(STEPS[1]), alpha=0.5) as step:
        step.epoch_ended()
    assert f"No forecast of 0, 1, 2: {UNTRAINED}." in repr(step)
    missing = monitor.steps[-1].table("classes")["missing"].to_pylist()
    assert all((why or "").endswith(f"no forecast: {UNTRAINED}") for why in missing[:3])
    assert missing[3:] == [None, None]


def test_resumed_in_a_store_without_the_earlier_steps_it_says_what_is_unknown(tmp_path: Path) -> None:
    (_, net), *_ = list(watched(tmp_path / "here", 1))
    monitor = fs.Monitor(tmp_path / "here", "own", strict=True)
    step = monitor.step(net, memory=memory(1), new=images(STEPS[1]), alpha=0.5).open()
    train(net, memory(1), images(STEPS[1]))
    step.epoch_ended()
    state = monitor.state_dict()
    step._lock.release()
    monitor = fs.Monitor(tmp_path / "elsewhere", "own", strict=True)
    monitor.load_state_dict(state)
    with monitor.step(net, memory=memory(1), new=images(STEPS[1]), alpha=0.5) as again:
        train(net, memory(1), images(STEPS[1]))
        again.epoch_ended()
        again.evaluate(images((*STEPS[0], *STEPS[1])))
    said = "Resumed in a store without the earlier steps of 'own': what was forgotten is unknown, and there is no forecast"
    assert said in repr(again)
    assert np.isnan(again.to_frame()["forgetting"]).all()
    (stored,) = monitor.steps
    assert any(said in sentence for sentence in stored.info["said"])
    for why in (again.forecast["missing"].tolist(), stored.table("classes")["missing"].to_pylist()[:3]):
        assert all("the step that learned it is in the store that this one was begun in" in text for text in why)
    stored.verify()


def test_a_class_at_another_node_than_it_was_learned_with_is_refused(tmp_path: Path) -> None:
    net, monitor = network(), fs.Monitor(tmp_path, "own", strict=True)
    with monitor.step(net, new=images(STEPS[0])):
        train(net, images(STEPS[0]))
    swapped = {**{label: label for label in range(7)}, 0: 1, 1: 0}
    message = r"Class 0 is node 1, and in step 1 of 'own', which learned it, it was node 0\. A class keeps its node"
    with pytest.raises(InputError, match=message):
        monitor.step(net, memory=memory(1), new=images(STEPS[1]), nodes=swapped, alpha=0.5).open()


def test_a_head_that_does_not_know_the_classes_has_no_forecast(tmp_path: Path) -> None:
    (_, net), *_ = list(watched(tmp_path, 1, epochs=6))
    with torch.no_grad():
        for part in net.fc.parameters():
            part[:3] = part[[1, 2, 0]].clone()
    monitor = fs.Monitor(tmp_path, "own", strict=True)
    with monitor.step(net, memory=memory(1), new=images(STEPS[1]), alpha=0.5) as step:
        train(net, memory(1), images(STEPS[1]))
        step.epoch_ended()
    assert np.isnan(step.forecast["forecast"]).all()
    assert "the head does not recognise it: as the step begins it takes" in repr(step)
    kept = monitor.steps[-1].keepsakes()
    assert [kept[label].probability for label in STEPS[0]] == [None] * 3
    monitor.steps[-1].verify()
    with monitor.step(net, memory=memory(2), new=images(STEPS[2]), alpha=0.5) as third:
        train(net, memory(2), images(STEPS[2]))
        third.epoch_ended()
    assert np.isfinite(third.forecast["forecast"]).tolist() == [False] * 3 + [True] * 2
    assert third.forecast["missing"][0] == "step 2 did not carry its keepsake on"


def test_killed_and_resumed_it_predicts_the_same(tmp_path: Path) -> None:
    whole = done(tmp_path / "whole", 2)[-1]
    net, monitor = network(), fs.Monitor(tmp_path / "killed", "own", strict=True)
    held, new = memory(1), images(STEPS[1])
    with monitor.step(net, new=images(STEPS[0])) as first:
        for _ in range(2):
            train(net, images(STEPS[0]))
            first.epoch_ended()
    step = monitor.step(net, memory=held, new=new, alpha=0.5).open()
    train(net, held, new)
    step.epoch_ended()
    torch.save({"net": net.state_dict(), "monitor": monitor.state_dict()}, tmp_path / "checkpoint.pt")
    step._lock.release()  # as the process that was killed did
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    monitor = fs.Monitor(tmp_path / "killed", "own", strict=True)
    monitor.load_state_dict(saved["monitor"])
    shuffled = DataLoader(TensorDataset(*new), 3, shuffle=True)
    with monitor.step(net, memory=held, new=shuffled, alpha=0.5) as again:
        train(net, held, new)
        again.epoch_ended()
    assert_allclose(again.forecast[list(FORECAST)], whole.forecast[list(FORECAST)], rtol=1e-12)
    steps = [fs.Monitor(tmp_path / folder, "own").steps[-1] for folder in ("killed", "whole")]
    for one, other in zip(*(step.carried().values() for step in steps), strict=True):
        assert_allclose(one.mean, other.mean, rtol=1e-6)


def test_a_state_from_before_forecasts_goes_on_without(tmp_path: Path) -> None:
    (_, net), *_ = list(watched(tmp_path, 1))
    monitor = fs.Monitor(tmp_path, "own", strict=True)
    step = monitor.step(net, memory=memory(1), new=images(STEPS[1]), alpha=0.5).open()
    state = {name: part for name, part in monitor.state_dict().items() if name != "prospects"}
    step._lock.release()
    monitor = fs.Monitor(tmp_path, "own", strict=True)
    monitor.load_state_dict(state)
    with monitor.step(net, memory=memory(1), new=images(STEPS[1]), alpha=0.5) as again:
        again.epoch_ended()
    assert "No forecast: The step was begun by a version that made no forecasts." in repr(again)
    assert np.isnan(again.forecast["forecast"]).all()
    monitor.steps[-1].verify()
    with pytest.raises(InputError, match=r"\['begun'\] is not the state of a forecast"):
        again._prospects.load_state_dict({"begun": {}})


def test_a_head_that_is_not_linear_has_no_forecast_and_the_step_goes_on(tmp_path: Path) -> None:
    net, monitor = made(Cosine), fs.Monitor(tmp_path, "cosine", strict=True)
    from watched import pairs

    given = pairs()
    with monitor.step(net, new=given["past"]) as first:
        pass
    why = "The last layer of Cosine is CosineLinear, which does not give features @ weight.T + bias"
    assert f"No keepsakes: {why}" in repr(first)
    with monitor.step(net, memory=given["memory"], new=given["new"], alpha=0.5) as second:
        pass
    assert monitor.steps[0].keepsakes() == {}
    assert "No forecast without a keepsake: 0, 1, 2." in repr(second)
    assert second.forecast["missing"].tolist() == ["no keepsake of it is here"] * 3
    assert np.isfinite(second.forecast["nic_estimate"]).all()
    assert [step.incomplete for step in monitor.steps] == [None, None]


def test_without_keepsakes_nothing_is_kept_or_predicted(tmp_path: Path) -> None:
    *_, second = done(tmp_path, 2, keepsake="none")
    assert second.forecast["missing"][0] == "nothing is predicted with keepsake='none'"
    assert [step.kept_kind for step in fs.Monitor(tmp_path, "own").steps] == [None, None]
    assert np.isfinite(second.forecast["nic_estimate"]).all()
    with pytest.raises(InputError, match="keepsake = 'mean' is none of 'variance', 'covariance' and 'none'"):
        fs.Monitor(tmp_path, "own", keepsake="mean")  # type: ignore[arg-type]


def test_covariances_are_kept_and_do_not_mix_with_variances(tmp_path: Path) -> None:
    *_, second = done(tmp_path, 2, keepsake="covariance")
    assert np.isfinite(second.forecast["forecast"]).all()
    stored = fs.Monitor(tmp_path, "own").steps[-1]
    assert stored.kept_kind == "covariance"
    assert len(stored.carried()[0].spread) == WIDTH * (WIDTH + 1) // 2
    monitor = fs.Monitor(tmp_path, "own", strict=True)
    with monitor.step(network(), memory=memory(2), new=images(STEPS[2]), alpha=0.5) as third:
        pass
    assert "No forecast: Step 2 kept the covariance of features, and this monitor keeps the variance." in repr(third)
    assert list(monitor.steps[-1].keepsakes().values())[:5] == [None] * 5


def test_no_memory_at_all_is_predicted_too(tmp_path: Path) -> None:
    net, monitor = network(), fs.Monitor(tmp_path, "own", strict=True)
    for classes in STEPS:
        with monitor.step(net, new=images(classes)) as step:
            for _ in range(3):
                train(net, images(classes))
                step.epoch_ended()
            step.evaluate(images(STEPS[0]))
    frame = step.forecast
    assert (frame["forecast"] > 0.5).all()
    assert np.isnan(frame["sic_estimate"]).all()
    assert np.isnan(frame["cic_estimate"]).all()
    assert np.isfinite(frame["nic_estimate"]).all()
    stored = monitor.steps[-1]
    stored.verify()
    assert stored.table("probes").num_rows == 4 * 5
    assert len(step.at_risk(5)) == 5


def test_labels_that_are_no_nodes_and_a_class_of_one_image(tmp_path: Path) -> None:
    net, monitor, nodes = network(), fs.Monitor(tmp_path, "own", strict=True), {30: 2, 10: 0, 20: 1, 50: 3, 40: 4}
    inputs, labels = images(STEPS[0])
    labels = torch.tensor([10, 20, 30])[labels]
    alone = torch.ones_like(labels, dtype=torch.bool)
    alone[labels == 20] = False
    alone[torch.nonzero(labels == 20)[0]] = True
    with monitor.step(net, new=(inputs[alone], labels[alone]), nodes=nodes) as step:
        step.evaluate((inputs, labels))
    new = images(STEPS[1])
    other = (new[0], torch.tensor([0, 0, 0, 50, 40])[new[1]])
    with monitor.step(net, memory=(inputs[labels == 20][:1], torch.tensor([20])), new=other, nodes=nodes, alpha=0.5) as step:
        train(net, new)
        step.epoch_ended()
    assert step.forecast.index.tolist() == [10, 20, 30]
    kept = monitor.steps[0].keepsakes()
    assert kept[20].images == 1
    assert (kept[20].spread == 0).all()
    known = [one.accuracy * one.images > FEWEST - 0.5 for one in kept.values()]
    assert np.isfinite(step.forecast["forecast"]).tolist() == known
    monitor.steps[-1].verify()


def test_a_head_that_grows_between_steps_is_the_usual_case(tmp_path: Path) -> None:
    net, monitor = network(), fs.Monitor(tmp_path, "own", strict=True)
    net.fc = nn.Linear(WIDTH, 3).double()
    with monitor.step(net, new=images(STEPS[0])):
        train(net, images(STEPS[0]))
    old, net.fc = net.fc, nn.Linear(WIDTH, 5).double()
    with torch.no_grad():
        net.fc.weight[:3], net.fc.bias[:3] = old.weight, old.bias
    with monitor.step(net, memory=memory(1), new=images(STEPS[1]), alpha=0.5) as step:
        train(net, memory(1), images(STEPS[1]))
        step.epoch_ended()
    assert np.isfinite(step.forecast["forecast"]).all()


def test_another_network_is_refused_and_the_step_goes_on(tmp_path: Path) -> None:
    done(tmp_path, 1)
    other = nn.Sequential(nn.Linear(6, 3), nn.ReLU(), nn.Linear(3, 7)).double()
    monitor = fs.Monitor(tmp_path, "own", strict=True)
    with monitor.step(other, memory=memory(1), new=images(STEPS[1]), alpha=0.5) as step:
        step.epoch_ended()
    assert "No forecast: The keepsake of class 0 is of 8 features, and the network has 3" in repr(step)
    assert monitor.steps[-1].incomplete is None


def test_another_network_of_the_same_width_is_recognised(tmp_path: Path) -> None:
    done(tmp_path, 1)
    torch.manual_seed(5)
    other, monitor = Net().double(), fs.Monitor(tmp_path, "own", strict=True)
    train(other, images(STEPS[0]))
    assert monitor.steps[0].mark is not None
    with monitor.step(other, memory=memory(1), new=images(STEPS[1]), alpha=0.5) as step:
        train(other, memory(1), images(STEPS[1]))
        step.epoch_ended()
    assert "No forecast: The network is not the one that the keepsakes are of: it makes other features" in repr(step)
    assert np.isnan(step.forecast["forecast"]).all()
    assert step.forecast["missing"][0].startswith("The network is not the one that the keepsakes are of")
    assert monitor.steps[-1].incomplete is None
    with monitor.step(other, memory=memory(2), new=images(STEPS[2]), alpha=0.5) as third:
        train(other, images(STEPS[2]))
        third.epoch_ended()
    assert np.isfinite(third.forecast["forecast"]).tolist() == [False] * 3 + [True] * 2


def test_an_incomplete_step_loses_nothing(tmp_path: Path) -> None:
    (_, net), *_ = list(watched(tmp_path, 1))
    monitor = fs.Monitor(tmp_path, "own")
    with pytest.raises(ValueError, match="mine"), monitor.step(net, memory=memory(1), new=images(STEPS[1]), alpha=0.5):
        raise ValueError("mine")
    assert monitor.steps[-1].kept_kind is None
    with monitor.step(net, memory=memory(1), new=images(STEPS[1]), alpha=0.5) as again:
        train(net, images(STEPS[1]))
        again.epoch_ended()
    assert again.number == 2
    assert np.isfinite(again.forecast["forecast"]).all()


def test_damaged_keepsakes_are_told_and_the_step_goes_on(tmp_path: Path) -> None:
    (_, net), *_ = list(watched(tmp_path, 1))
    (tmp_path / "observed/own/1/keepsakes.parquet").write_bytes(b"nothing")
    monitor = fs.Monitor(tmp_path, "own", strict=True)
    with monitor.step(net, memory=memory(1), new=images(STEPS[1]), alpha=0.5) as step:
        pass
    assert "No forecast: Observed step own/1 is damaged: " in repr(step)
    assert monitor.steps[-1].incomplete is None


def test_the_training_cannot_tell_that_something_is_predicted(tmp_path: Path) -> None:
    def left(folder: Path | None) -> dict[str, Any]:
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Linear(6, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Dropout(0.3), nn.Linear(WIDTH, 7)
        ).double()
        monitor = None if folder is None else fs.Monitor(folder, "own", strict=True)
        for number, classes in enumerate(STEPS):
            held = {"memory": memory(number), "alpha": 0.5} if number else {}
            step = None if monitor is None else monitor.step(net, new=images(classes), **held).open()
            for _ in range(2):
                train(net, images(classes), *([held["memory"]] if held else []))
                if step is not None:
                    step.epoch_ended()
            if step is not None:
                step.close()
        return {
            "weights": net.state_dict(),
            "stream": torch.get_rng_state(),
            "modes": [part.training for part in net.modules()],
        }

    torch.testing.assert_close(left(tmp_path), left(None), rtol=0, atol=0)


def test_keepsakes_travel_and_are_asked_for_and_strange_ones_are_refused(tmp_path: Path) -> None:
    *_, (_, net) = watched(tmp_path / "here", 2)
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    export_steps([], tmp_path / "steps.tar", observed=here.observed())
    import_steps(tmp_path / "steps.tar", there)
    kept = query(there, "SELECT class_id, accuracy, probability FROM observed_keepsakes WHERE step = 2").to_pydict()
    assert kept["class_id"] == [0, 1, 2, 3, 4]
    assert [one is None for one in kept["probability"]] == [False] * 3 + [True] * 2
    assert len(query(there, "SELECT mean, error FROM observed_carried")) == 3
    monitor = fs.Monitor(there, "own", strict=True)
    with monitor.step(net, memory=memory(2), new=images(STEPS[2]), alpha=0.5) as third:
        train(net, images(STEPS[2]))
        third.epoch_ended()
    assert np.isfinite(third.forecast["forecast"]).all()
    second = here.observed("own")[1]
    table = second.table("keepsakes")
    record = replace(observed_record(1), tables={**observed_record(1).tables, "keepsakes": table})
    with pytest.raises(SpecError, match=r"keepsakes.parquet: not mean and variance of the classes .*: classes 0, 1, 2, 3, 4"):
        commit_observed(there, record)
    forged = second.table("classes")
    at = forged.column_names.index("forecast")
    forged = forged.set_column(at, "forecast", pa.array([0.5, 0.5, 0.5, None, None]))
    (second.folder / "classes.parquet").write_bytes(parquet_bytes(forged, "classes"))
    contents = {name: (second.folder / name).read_bytes() for name in second.manifest}
    (second.folder / "manifest.json").write_bytes(manifest_bytes(contents))
    with pytest.raises(DamagedStep, match=r"forecast of class 0 is 0.5, and by probes.parquet "):
        here.observed("own")[1].verify()


def test_probes_that_runs_choose_are_refused_with_what_to_say_instead(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r'probes = "auto" is for runs.* Give a number of probes, with epochs='):
        fs.Monitor(tmp_path, "own", probes="auto")  # type: ignore[arg-type]
