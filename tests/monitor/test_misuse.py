"""What is easily given otherwise than it is meant: told with its value, and never a number that looks right."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset
from watched import loaders, pairs

import forgetscope as fs
from measuring.test_heads import ALPHA, Base, made


def test_past_images_that_are_but_the_memory_say_nothing_of_the_others(tmp_path: Path) -> None:
    given, monitor = pairs(), fs.Monitor(tmp_path, "buffer", strict=True)
    shuffled = DataLoader(TensorDataset(*given["memory"]), 2, shuffle=True)
    with monitor.step(made(Base), past=shuffled, memory=given["memory"], new=given["new"], alpha=ALPHA) as step:
        step.epoch_ended()
    found = step.coefficients
    assert torch.isnan(torch.stack([found.sic, found.cic])).all()
    assert found.nic.isfinite().all()
    assert "SIC and CIC are unknown, not 0: past images are those in memory" in repr(step)
    (stored,) = monitor.steps
    assert stored.info["past"] == "memory"
    assert stored.table("classes")["missing"][0].as_py() == "SIC and CIC are unknown: past images are those in memory"


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
