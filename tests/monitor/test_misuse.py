"""What is easily given otherwise than it is meant: told with its value, and never a number that looks right."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from watched import loaders, pairs

import forgetscope as fs
from forgetscope.errors import InputError, StoreError
from measuring.test_heads import ALPHA, Base, SeveralHeads, images_of, made

TEST = images_of((0, 1, 2, 3, 4), 3)


def test_past_images_that_are_but_the_memory_say_nothing_of_the_others(tmp_path: Path) -> None:
    given, monitor = pairs(), fs.Monitor(tmp_path, "buffer", strict=True)
    shuffled = DataLoader(TensorDataset(*given["memory"]), 2, shuffle=True)
    with monitor.step(made(Base), past=shuffled, memory=given["memory"], new=given["new"], alpha=ALPHA) as step:
        step.epoch_ended()
    found = step.coefficients
    assert torch.isnan(torch.stack([found.sic, found.cic, found.nic])).all()
    assert np.isfinite(step.forecast["nic_estimate"]).all()
    assert "SIC, CIC and NIC are unknown, not 0: past images are those in memory" in repr(step)
    (stored,) = monitor.steps
    assert stored.info["past"] == "memory"
    assert stored.table("classes")["missing"][0].as_py() == "SIC, CIC and NIC are unknown: past images are those in memory"


def test_a_memory_that_is_no_part_of_past_is_told(tmp_path: Path) -> None:
    given, monitor = pairs(), fs.Monitor(tmp_path, "normalised")
    images, labels = given["memory"]
    other = torch.cat([images[:2], images[2:] * 2])
    told = r"7 of 9 images in memory are not among past=, bit for bit: if they are prepared in another way, SIC and CIC compare"
    step = monitor.step(made(Base), **{**loaders(), "memory": (other, labels)}, alpha=ALPHA)
    with pytest.warns(RuntimeWarning, match=told) as warned:
        step.open()
    step.epoch_ended()
    state = step.state_dict()
    step.close()
    assert len(warned) == 1
    assert step.incomplete is None
    assert sum("7 of 9 images" in sentence for sentence in monitor.steps[0].info["said"]) == 1
    resumed = fs.Monitor(tmp_path / "resumed", "normalised", strict=True)
    resumed.load_state_dict(state)
    with resumed.step(made(Base), **{**loaders(), "memory": (other, labels)}, alpha=ALPHA) as again:
        again.epoch_ended()
    assert "7 of 9 images" in repr(again)


def test_images_in_memory_of_new_classes_are_not_sought_in_past(tmp_path: Path) -> None:
    given = pairs()
    both = tuple(torch.cat([given["memory"][i], given["new"][i]]) for i in range(2))
    with fs.Monitor(tmp_path, "both", strict=True).step(made(Base), **{**given, "memory": both}, alpha=ALPHA) as step:
        pass
    assert "bit for bit" not in repr(step)


@pytest.mark.parametrize("memory", [None, "new"])
def test_without_a_memory_of_past_classes_alpha_is_0_and_only_nic_is_measured(tmp_path: Path, memory: str | None) -> None:
    given, monitor = pairs(), fs.Monitor(tmp_path, "bare", strict=True)
    kept = None if memory is None else given[memory]
    with monitor.step(made(Base), past=given["past"], memory=kept, new=given["new"], alpha=0.5) as step:
        pass
    with fs.Monitor(tmp_path, "without", strict=True).step(made(Base), past=given["past"], new=given["new"]) as plain:
        pass
    assert step.alpha == 0
    assert torch.isnan(torch.stack([step.coefficients.sic, step.coefficients.cic])).all()
    assert torch.equal(step.coefficients.nic, plain.coefficients.nic)
    assert "Nothing is rehearsed: alpha is 0. The alpha that was given, 0.5, does not apply without memory=." in repr(step)
    (stored,) = monitor.steps
    assert stored.info["alpha"] == 0
    assert stored.table("classes")["missing"][0].as_py() == "SIC and CIC are missing: nothing is rehearsed"


def learn_twice(folder: Path, *, strict: bool = False) -> fs.Monitor:
    """A script of two steps, as it is begun."""
    monitor = fs.Monitor(folder, "mine", strict=strict)
    with monitor.step(made(Base), new=pairs()["past"]) as step:
        step.evaluate(TEST)
    with monitor.step(made(Base), **loaders(), alpha=ALPHA) as step:
        step.epoch_ended()
        step.evaluate(TEST)
    return monitor


def test_the_same_script_again_needs_a_name_of_its_own(tmp_path: Path) -> None:
    learn_twice(tmp_path, strict=True)
    told = r"Class 0 was learned in step 1 of 'mine' already. A new training needs a name of its own: fs.Monitor\(store, 'ano"
    with pytest.raises(InputError, match=told):
        learn_twice(tmp_path, strict=True)
    with pytest.warns(RuntimeWarning) as warned:
        monitor = learn_twice(tmp_path)
    assert [str(one.message).split(" already")[0] for one in warned] == [
        "forgetscope: Class 0 was learned in step 1 of 'mine'",
        "forgetscope: Class 3 was learned in step 2 of 'mine'",
    ]
    assert [(stored.number, stored.info["status"]) for stored in monitor.steps] == [(1, "done"), (2, "done"), (3, "incomplete")]
    assert len(list((tmp_path / "quarantine").iterdir())) == 2  # those that failed before: kept, not in the way
    for stored in monitor.steps:
        stored.verify()


def test_an_incomplete_step_does_not_use_up_its_number(tmp_path: Path) -> None:
    monitor = fs.Monitor(tmp_path, "broken")
    with pytest.raises(KeyboardInterrupt), monitor.step(made(Base), **loaders(), alpha=ALPHA):
        raise KeyboardInterrupt
    assert [(stored.number, stored.info["status"]) for stored in monitor.steps] == [(2, "incomplete")]
    with monitor.step(made(Base), **loaders(), alpha=ALPHA) as step:
        pass
    assert step.number == 2
    assert [(stored.number, stored.info["status"]) for stored in monitor.steps] == [(2, "done")]


def test_an_evaluation_that_fails_can_be_made_again_and_leaves_the_step_whole(tmp_path: Path) -> None:
    monitor = fs.Monitor(tmp_path, "tested")
    with monitor.step(made(Base), **loaders(), alpha=ALPHA) as step:
        step.epoch_ended()
        with pytest.warns(RuntimeWarning, match=r"test= is a int.* Step tested/2 is not evaluated by this. .* called again"):
            step.evaluate(3)
        assert "Not evaluated: test= is a int" in repr(step)
        step.evaluate(TEST)
        assert "Not evaluated" not in repr(step)
    other = fs.Monitor(tmp_path, "untested")
    with (
        other.step(made(Base), **loaders(), alpha=ALPHA) as step,
        pytest.warns(RuntimeWarning, match="None of 7 test images is of a class that was seen so far"),
    ):
        step.evaluate(images_of((7,), 3))
    assert step.incomplete is None
    infos = [stored.info for stored in (monitor.steps[0], *other.steps)]
    assert [info["status"] for info in infos] == ["done", "done"]
    assert "Not evaluated: None of 7 test images" in infos[1]["said"][-1]
    assert len(monitor.steps[0].table("predictions")) == len(TEST[1])
    assert other.steps[0].table("probes").num_rows == 3


def test_that_alpha_is_missing_is_told_after_the_first_epoch(tmp_path: Path) -> None:
    with fs.Monitor(tmp_path, "untold").step(made(Base), **loaders()) as step:
        with pytest.warns(RuntimeWarning, match="Alpha is unknown, because no batch was told.* give alpha=, or call") as warned:
            step.epoch_ended()
        step.epoch_ended()
    assert len(warned) == 1
    with fs.Monitor(tmp_path, "first").step(made(Base), new=pairs()["new"]) as first:
        first.epoch_ended()  # there is nothing to weigh


def test_a_warning_is_of_the_line_that_led_to_it(tmp_path: Path) -> None:
    def train() -> None:
        fs.Monitor(tmp_path, "lines").step(made(SeveralHeads), **loaders(), alpha=ALPHA).open()
        with fs.Monitor(tmp_path, "line").step(made(Base), **loaders()) as step:
            step.epoch_ended()
            step.evaluate(3)

    with pytest.warns(RuntimeWarning) as warned:
        train()
    assert {one.filename for one in warned} == {__file__}
    assert len({one.lineno for one in warned}) == 3


def test_a_store_that_is_none_is_refused_in_a_sentence() -> None:
    nothing: Any = None
    with pytest.raises(InputError, match=r"store = None is no folder. Give the path of one"):
        fs.Monitor(nothing, "x")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            torch.eye(3),
            r"was given tensor\(\[\[1., 0., 0.\].*, of shape \(3, 3\). Give one whole number .* labels.argmax\(dim=1\)",
        ),
        (torch.tensor([[1], [3]]), r"of shape \(2, 1\). Give one whole number for each image"),
        (torch.tensor([1.0, 3.0]), r"was given tensor\(\[1., 3.\]\), of type torch.float32"),
        (torch.tensor([True]), r"was given tensor\(\[True\]\), of type torch.bool"),
        (["owl", "wren"], r"was given \['owl', 'wren'\], a list, which is no list of labels"),
        ([[1], [2, 3]], r"was given \[\[1\], \[2, 3\]\], a list, which is no list of labels"),
        (None, r"was given None, a NoneType"),
    ],
)
def test_labels_of_a_batch_that_are_none_are_refused_with_their_value(tmp_path: Path, labels: Any, message: str) -> None:
    with fs.Monitor(tmp_path, "batches", strict=True).step(made(Base), **loaders()) as step:
        with pytest.raises(InputError, match=message):
            step.batch(labels)
        assert step.incomplete


def test_a_label_of_no_class_of_the_step_is_refused_when_the_epoch_or_the_step_ends(tmp_path: Path) -> None:
    message = r"label 7, which is of no class in past=, memory= or new=, and 1 image like this of 3"
    monitor = fs.Monitor(tmp_path, "strange", strict=True)
    with monitor.step(made(Base), **loaders()) as step:
        step.batch([0, 3, 7])
        with pytest.raises(InputError, match=message):
            step.epoch_ended()
    step = monitor.step(made(Base), **loaders()).open()
    step.batch(torch.tensor([0, 3, 7], dtype=torch.int32))
    with pytest.raises(InputError, match=message):
        step.close()
    assert monitor.steps[0].info["status"] == "incomplete"
    assert monitor.steps[0].table("probes").num_rows == 3
    with monitor.step(made(Base), **loaders(), alpha=ALPHA) as given:
        given.batch([0, 3, 7])
        given.batch([])
        given.epoch_ended()
    assert given.incomplete is None


def test_what_a_killed_training_left_is_told_unless_its_state_is_loaded(tmp_path: Path) -> None:
    killed = fs.Monitor(tmp_path, "mine", strict=True).step(made(Base), **loaders(), alpha=ALPHA).open()
    for _ in range(2):
        killed.epoch_ended()
    state = killed.state_dict()
    killed._lock.release()  # as the system does when a process ends
    step = fs.Monitor(tmp_path, "mine").step(made(Base), **loaders(), alpha=ALPHA)
    told = r"An unfinished step 2 of 'mine' with 2 epochs is here, and its state was not loaded: it begins anew. monitor.load_s"
    with pytest.warns(RuntimeWarning, match=told):
        step.open()
    other = fs.Monitor(tmp_path, "mine").step(made(Base), **loaders(), alpha=ALPHA)
    with pytest.warns(RuntimeWarning, match="Step 2 of 'mine' is observed already, by another process or by a step that was"):
        other.open()
    step._lock.release()
    resumed = fs.Monitor(tmp_path, "mine", strict=True)
    resumed.load_state_dict(state)
    with resumed.step(made(Base), **loaders(), alpha=ALPHA) as again:
        copy.deepcopy(again._lock).release()
        assert again.epoch == 2
    assert not list((tmp_path / "working").glob("observed-*"))


def test_what_to_do_is_said_as_it_is_done_with_a_monitor(tmp_path: Path) -> None:
    given, monitor = pairs(), fs.Monitor(tmp_path, "words", strict=True)

    def refused(network: Any, **named: Any) -> str:
        with pytest.raises(InputError) as error:
            monitor.step(network, **{**given, "alpha": ALPHA, **named}).open()
        return str(error.value)

    assert refused(made(SeveralHeads)).endswith("monitor.step(..., head=...).")
    assert refused(made(Base), head=5).endswith("Pass the last layer: monitor.step(..., head=...).")
    images, labels = given["past"]
    assert refused(made(Base), past=(images.float(), labels)).endswith("Give images as the network takes them.")
    assert refused(made(Base), new=(images[:0], labels[:0])) == "new= gives no images. Give those of at least one class."
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"Choose another folder: fs.Monitor\(folder, name\)"):
        fs.Monitor(tmp_path / "file", "words")
