"""What was measured is kept: what readers would refuse is told before training, and what fails at the end loses nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from watched import loaders, pairs

import forgetscope as fs
from forgetscope.errors import InputError
from measuring.test_heads import ALPHA, Base, made


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"settings": {"note": "x" * 1001}}, r"settings has the text 'xxx.*, of 1,001 characters. At most 1,000"),
        ({"settings": {"y" * 2000: 1}}, r"settings has the text 'yyy.*, of 2,000 characters"),
        ({"settings": {"note": "\ud800"}}, r"settings has the text '.ud800', of 1 characters. .* such as UTF-8 has"),
        ({"names": {0: "z" * 20_000}}, r"names has the text 'zzz.*, of 20,000 characters"),
    ],
)
def test_texts_that_no_reader_takes_are_refused_before_training(tmp_path: Path, named: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fs.Monitor(tmp_path, "long", **named)


def test_of_many_classes_without_a_stored_image_ten_are_named(tmp_path: Path) -> None:
    classes = 300
    images, labels = torch.randn(classes + 1, 4), torch.arange(classes + 1)
    past, new = (images[:classes], labels[:classes]), (images[classes:], labels[classes:])
    monitor = fs.Monitor(tmp_path, "many", names={c: f"{c} " + "long" * 200 for c in range(classes)}, strict=True)
    network = nn.Sequential(nn.Linear(4, classes + 1))
    with monitor.step(network, past=past, memory=(images[:2], labels[:2]), new=new, alpha=ALPHA):
        pass
    (stored,) = monitor.steps
    (said,) = (sentence for sentence in stored.info["said"] if "without a stored image" in sentence)
    assert said.endswith(" and 288 more.")
    stored.verify()


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ({2**40: 0}, r"nodes= has label 1099511627776. Labels are kept as integers from 0 to 2147483647"),
        ({0: 0.9}, r"nodes= has 0.9, which is no integer"),
        ({"owl": 0}, r"nodes= has 'owl', which is no integer"),
        ({0: True}, r"nodes= has True, which is no integer"),
    ],
)
def test_nodes_that_cannot_be_meant_are_refused_with_the_value(tmp_path: Path, nodes: Any, message: str) -> None:
    with (
        pytest.raises(InputError, match=message),
        fs.Monitor(tmp_path, "nodes", strict=True).step(made(Base), **loaders(), nodes=nodes),
    ):
        pass


def test_a_node_that_an_earlier_class_has_is_told_on_entry_with_both_classes(tmp_path: Path) -> None:
    given, monitor = pairs(), fs.Monitor(tmp_path, "twice", strict=True)
    with monitor.step(made(Base), new=given["past"]):
        pass
    new = (given["new"][0], given["new"][1] + 7)
    told = r"Class 10 is node 0, which is that of class 0, learned in step 1 of 'twice'"
    with pytest.raises(InputError, match=told):
        monitor.step(made(Base), new=new, nodes={10: 0, 11: 4}).open()


def test_a_commit_that_fails_says_where_what_was_measured_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monitor = fs.Monitor(tmp_path, "full")
    step = monitor.step(made(Base), **loaders(), alpha=ALPHA).open()
    monkeypatch.setattr("forgetscope.monitor.step.commit_observed", full)
    with pytest.warns(RuntimeWarning, match="No space left on device") as told:
        step.close()
    found = re.search(r"What was measured until the last probe is in (.*?)[.] The", str(told[0].message))
    assert found is not None
    assert {file.name for file in Path(found[1]).iterdir()} >= {"observed.json", "probes.parquet", "pairs.parquet"}


def test_an_error_whose_text_cannot_be_written_is_kept(tmp_path: Path) -> None:
    monitor = fs.Monitor(tmp_path, "halves")
    with pytest.raises(ValueError, match="half"), monitor.step(made(Base), **loaders(), alpha=ALPHA):
        raise ValueError("half \ud800")
    assert monitor.steps[0].info["reason"] == r"The training ended early: ValueError: half \ud800"
