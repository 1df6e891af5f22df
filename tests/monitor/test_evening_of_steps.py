"""`step.evening`: that of the forecast of the step, by label; and nothing of the step is measured with offsets in the head."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

import forgetscope as fs
from forgetscope.errors import InputError
from forgetscope.monitor.step import MonitoredStep
from monitor.test_prospects import STEPS, Net, done, images, memory, network, train, watched


def test_it_evens_what_the_step_forecasts(tmp_path: Path) -> None:
    step = done(tmp_path, epochs=4)[1]
    found = step.evening(strength=1, shrinkage=1)  # when its block has ended
    frame = found.to_frame()
    assert frame.index.name == "label"
    assert_allclose(frame["forecast"], step.forecast["forecast"])
    assert np.ptp(frame["evened"]) < 0.01 < np.ptp(frame["forecast"])
    assert frame["evened"].mean() == pytest.approx(frame["forecast"].mean(), abs=1e-6)


def test_labels_need_not_be_nodes(tmp_path: Path) -> None:
    """Class 10 + c is at node c; offsets are by label, and are written where its node is."""
    net, monitor = network(), fs.Monitor(tmp_path, "own", strict=True, names={10: "owl"})
    nodes = {10 + node: node for node in range(7)}
    parts = [(inputs, labels + 10) for inputs, labels in (images(STEPS[0]), images(STEPS[1]), memory(1))]
    with monitor.step(net, new=parts[0], nodes=nodes):
        train(net, images(STEPS[0]))
    with monitor.step(net, new=parts[1], memory=parts[2], nodes=nodes, alpha=0.5) as step:
        train(net, images(STEPS[1]), memory(1))
    found, before = step.evening(strength=1, shrinkage=1), net.fc.bias.detach().clone()
    assert list(found.offsets) == [10, 11, 12]
    assert found.to_frame()["class"].tolist() == ["owl", "11", "12"]
    found.write(net)
    assert_allclose((net.fc.bias.detach() - before)[:5], [*found.offsets.values(), 0, 0], atol=1e-12)
    found.take_back(net)
    assert torch.equal(net.fc.bias, before)


def begun(folder: Path) -> tuple[MonitoredStep, Net, fs.Monitor]:
    """A second step whose training has ended, not closed, with offsets in the head."""
    net, monitor = network(), fs.Monitor(folder, "own")
    with monitor.step(net, new=images(STEPS[0])):
        train(net, images(STEPS[0]))
    step = monitor.step(net, new=images(STEPS[1]), memory=memory(1), alpha=0.5).open()
    train(net, images(STEPS[1]), memory(1))
    step.evening().write(net)
    return step, net, monitor


def test_a_head_with_offsets_is_not_evaluated(tmp_path: Path) -> None:
    step, _, _ = begun(tmp_path)
    with pytest.warns(RuntimeWarning, match="Offsets are written into the head of Net"):
        step.evaluate(images((0, 1, 2, 3, 4)))
    assert step.incomplete is None
    step.close()


def test_nothing_is_kept_of_a_head_with_offsets(tmp_path: Path) -> None:
    step, _, monitor = begun(tmp_path)
    step.close()
    assert any("No keepsakes: Offsets are written" in sentence for sentence in monitor.steps[1].info["said"])


def test_a_head_with_offsets_is_not_measured(tmp_path: Path) -> None:
    step, _, _ = begun(tmp_path)
    with pytest.warns(RuntimeWarning, match="Take them back first"):
        step.epoch_ended()
    assert step.incomplete is not None
    with pytest.raises(InputError, match="is incomplete: "):
        step.evening()
    step.close()


def test_training_and_store_are_what_they_are_without(tmp_path: Path) -> None:
    states = []
    for name in ("with", "without"):
        for step, net in watched(tmp_path / name):
            if name == "with" and step.past:
                found = step.evening()
                found.write(net)
                found.take_back(net)
        states.append(net.state_dict())
    assert all(torch.equal(one, other) for one, other in zip(*(state.values() for state in states), strict=True))
    tables = [fs.Monitor(tmp_path / name, "own").steps[1].keepsakes() for name in ("with", "without")]
    assert [one.accuracy for one in tables[0].values()] == [one.accuracy for one in tables[1].values()]


def test_where_nothing_was_kept_there_is_none(tmp_path: Path) -> None:
    first, second = done(tmp_path / "none", keepsake="none")
    with pytest.raises(InputError, match="No evening without a forecast: nothing is predicted with keepsake='none'"):
        second.evening()
    with pytest.raises(InputError, match="there is no past class"):
        first.evening()
    step = fs.Monitor(tmp_path / "later", "own").step(network(), new=images(STEPS[0]))
    with pytest.raises(InputError, match="own/1 has not begun"):
        step.evening()


def test_a_resumed_step_finds_the_same_offsets(tmp_path: Path) -> None:
    net, monitor = network(), fs.Monitor(tmp_path, "own", strict=True)
    with monitor.step(net, new=images(STEPS[0])):
        train(net, images(STEPS[0]))
    step = monitor.step(net, new=images(STEPS[1]), memory=memory(1), alpha=0.5).open()
    train(net, images(STEPS[1]), memory(1))
    step.epoch_ended()
    expected, state = step.evening().offsets, monitor.state_dict()
    step._lock.release()  # as a process that is killed does
    monitor = fs.Monitor(tmp_path, "own", strict=True)
    monitor.load_state_dict(state)
    with monitor.step(net, new=images(STEPS[1]), memory=memory(1), alpha=0.5) as again:
        pass
    assert again.evening().offsets == pytest.approx(expected, abs=1e-9)
