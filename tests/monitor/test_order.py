"""States of something else, calls out of order, names by label, and one definition of what is shown and logged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from watched import loaders, pairs

import forgetscope as fs
from forgetscope.errors import InputError
from measuring.test_heads import ALPHA, Base, images_of, made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"number": [1]}, r"number of the state is \[1\]"),
        ({"number": 0}, "number of the state is 0"),
        ({"epoch": "two"}, "epoch of the state is 'two'"),
        ({"batches": torch.zeros(2)}, r"batches of the state is tensor\(\[0., 0.\]\)"),
        ({"passes": None}, "passes of the state is None"),
    ],
)
def test_a_state_that_is_none_is_refused_at_once(tmp_path: Path, change: Any, message: str) -> None:
    monitor = fs.Monitor(tmp_path, "state")
    with monitor.step(made(Base), **loaders(), alpha=ALPHA):
        state = monitor.state_dict()
    with pytest.raises(InputError, match=message):
        monitor.load_state_dict({**state, **change})
    with pytest.raises(InputError, match=r"\['number'\] is not the state"):
        monitor.load_state_dict({"number": [1]})


def test_a_state_of_other_classes_or_nodes_is_refused_on_entry(tmp_path: Path) -> None:
    monitor = fs.Monitor(tmp_path, "state", strict=True)
    with monitor.step(made(Base), **loaders(), alpha=ALPHA):
        state = monitor.state_dict()
    given = pairs()
    cases: list[tuple[dict[str, Any], str]] = [
        (
            {"nodes": {c + 10: c for c in range(5)}},
            r"with classes \[0, 1, 2, 3, 4\]; with this nodes= .* \[10, 11, 12, 13, 14\]",
        ),
        ({"new": images_of((4, 4), 2), "past": images_of((0, 1, 3), 1)}, "past= now gives images of class 3, and gave none"),
    ]
    for i, (case, message) in enumerate(cases):
        other = fs.Monitor(tmp_path / str(i), "state", strict=True)
        other.load_state_dict(state)
        with pytest.raises(InputError, match=message):
            other.step(made(Base), **{**given, **case}, alpha=ALPHA).open()


def test_what_comes_before_the_block_or_after_it_is_told_and_spoils_nothing(tmp_path: Path) -> None:
    monitor = fs.Monitor(tmp_path, "early")
    step = monitor.step(made(Base), **loaders(), alpha=ALPHA)
    with pytest.warns(RuntimeWarning, match="Step early/2 has not begun. Use it in `with"):
        step.epoch_ended()
    with step:
        step.epoch_ended()
    with pytest.warns(RuntimeWarning, match="Step early/2 has ended"):
        step.epoch_ended()
    assert (monitor.steps[0].info["status"], monitor.steps[0].info["epochs"], step.incomplete) == ("done", 1, None)


def test_names_are_by_label_also_where_nodes_are_others(tmp_path: Path) -> None:
    given = {name: (images, labels + 10) for name, (images, labels) in pairs().items()}
    images, labels = given["memory"]
    given["memory"] = (images[labels > 11], labels[labels > 11])
    monitor = fs.Monitor(tmp_path, "named", names={0: "wrong", 1: "wrong", 10: "owl"}, strict=True)
    with monitor.step(made(Base), **given, nodes={10 + c: c for c in range(5)}, alpha=ALPHA) as step:
        pass
    assert "without a stored image: owl, 11." in repr(step)
    assert monitor.steps[0].table("classes")["class_name"].to_pylist() == ["owl", "11", "12", "13", "14"]


def test_what_is_logged_is_the_mean_over_classes_that_is_shown(tmp_path: Path) -> None:
    logged: dict[str, float] = {}
    monitor = fs.Monitor(tmp_path, "logged", strict=True, log=lambda values, _: logged.update(values))
    images, labels = images_of((0, 1, 2, 3, 4), 3)
    uneven = (torch.cat([images, images[labels == 0]]), torch.cat([labels, labels[labels == 0]]))
    with monitor.step(made(Base), **loaders(), alpha=ALPHA) as step:
        step.evaluate(uneven)
    accuracy = monitor.steps[0].table("classes").to_pandas()["accuracy"]
    assert logged["forgetscope/accuracy"] == pytest.approx(accuracy.mean())


def test_images_of_a_class_are_those_it_was_trained_on_and_none_stored_is_0(tmp_path: Path) -> None:
    given, monitor = pairs(), fs.Monitor(tmp_path, "images", strict=True)
    with monitor.step(made(Base), new=given["past"]):
        pass
    images, labels = given["memory"]
    with monitor.step(made(Base), memory=(images[labels > 0], labels[labels > 0]), new=given["new"], alpha=ALPHA) as step:
        pass
    assert monitor.steps[1].table("classes")["train_images"].to_pylist() == [7] * 5
    stored = step.to_frame()["stored"]
    assert stored.tolist() == [0, *(int((labels == c).sum()) for c in (1, 2))]
    assert np.issubdtype(stored.dtype, np.integer)


def test_a_first_step_goes_on_from_its_state(tmp_path: Path) -> None:
    network, given = made(Base), loaders()
    monitor = fs.Monitor(tmp_path, "first", strict=True)
    first = monitor.step(network, new=given["past"])
    first.open()
    first.epoch_ended()
    state = monitor.state_dict()
    first.close(KeyboardInterrupt())
    again = fs.Monitor(tmp_path, "first", strict=True)
    again.load_state_dict(state)
    with again.step(network, new=given["past"]) as step:
        step.epoch_ended()
        step.evaluate(given["past"])
    (stored,) = again.steps
    assert (stored.number, stored.incomplete, stored.info["epochs"]) == (1, None, 2)


def test_a_step_that_was_evaluated_and_not_closed_is_kept_whole_when_another_begins(tmp_path: Path) -> None:
    network, given = made(Base), loaders()
    monitor = fs.Monitor(tmp_path, "open", strict=True)
    first = monitor.step(network, new=given["past"])
    first.open()
    first.evaluate(given["past"])
    with pytest.warns(RuntimeWarning, match=r"Step open/1 was not closed when another began, and is kept as it is\."):
        second = monitor.step(network, **given, alpha=ALPHA)
    with second:
        second.evaluate(given["past"])
    assert [(stored.number, stored.incomplete) for stored in monitor.steps] == [(1, None), (2, None)]
    assert not second.to_frame()["forgetting"].isna().any()


def test_a_step_that_was_interrupted_and_begins_without_its_state_is_told(tmp_path: Path) -> None:
    monitor = fs.Monitor(tmp_path, "stopped", strict=True)
    stopped = monitor.step(made(Base), **loaders(), alpha=ALPHA).open()
    stopped.epoch_ended()
    stopped.close(KeyboardInterrupt())
    told = r"An unfinished step 2 of 'stopped' with 1 epoch is here, and its state was not loaded: it begins anew"
    with pytest.warns(RuntimeWarning, match=told), monitor.step(made(Base), **loaders(), alpha=ALPHA):
        pass
