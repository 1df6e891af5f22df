"""A monitor that calls a function when a class is being lost."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import forgetscope as fs
from forgetscope.errors import InputError
from forgetscope.underway.alarms import Raised
from forgetscope.underway.running import Lookout
from measuring.test_heads import ALPHA, Base, made
from monitor.watched import loaders


def test_a_function_is_called_once_for_each_class_with_what_an_onlooker_sees(tmp_path: Path) -> None:
    called: list[Raised] = []
    monitor = fs.Monitor(tmp_path, "birds", names={0: "owl"}, strict=True, alarms={"rank <= 2": called.append})
    with monitor.step(made(Base), **loaders(), alpha=ALPHA, epochs=2) as step:
        assert [raised.value for raised in called] == [1, 2]
        (seen,) = Lookout(fs.Store(tmp_path)).look()
        assert [raised.class_id for raised in called] == [row.risk.label for row in seen.classes[:2]]
        assert all(isinstance(raised.class_name, str) and raised.step == "birds/2" for raised in called)
        step.epoch_ended()
        assert len({raised.class_id for raised in called}) == len(called)


def test_a_function_that_fails_ends_neither_the_training_nor_the_measuring_nor_other_alarms(tmp_path: Path) -> None:
    called: list[Raised] = []

    def fail(raised: Raised) -> None:
        raise OSError("no telephone")

    monitor = fs.Monitor(tmp_path, "birds", alarms={"rank <= 2": fail, "loss_all > 0": called.append})
    step = monitor.step(made(Base), **loaders(), alpha=ALPHA)
    with pytest.warns(
        RuntimeWarning, match=r"alarms\['rank <= 2'\] failed \(OSError: no telephone\) and is not called"
    ) as told:
        step.open()
    step.epoch_ended()
    step.close()
    assert len(told) == 1
    assert len(called) == len(step.past)
    assert monitor.steps[0].info["status"] == "done"


def test_an_alarm_on_a_class_that_a_step_has_not_is_told_once(tmp_path: Path) -> None:
    monitor = fs.Monitor(
        tmp_path, "birds", names={0: "owl"}, alarms={"owl: rank > 0": lambda raised: None, "olw: rank > 0": print}
    )
    step = monitor.step(made(Base), **loaders(), alpha=ALPHA)
    with pytest.warns(RuntimeWarning, match="Step birds/2 has no class 'olw', for which there is an alarm") as told:
        step.open()
    assert len(told) == 1
    with warnings.catch_warnings(action="error"):
        step.epoch_ended()
        step.close()


def test_strict_raises_what_a_function_raises(tmp_path: Path) -> None:
    def fail(raised: Raised) -> None:
        raise OSError("no telephone")

    monitor = fs.Monitor(tmp_path, "birds", strict=True, alarms={"rank <= 2": fail})
    with pytest.raises(OSError, match="no telephone"):
        monitor.step(made(Base), **loaders(), alpha=ALPHA).open()


def test_alarms_that_are_none_are_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'forgetting > 1' is no alarm"):
        fs.Monitor(tmp_path, "birds", alarms={"forgetting > 1": print})
    with pytest.raises(InputError, match="is no function"):
        fs.Monitor(tmp_path, "birds", alarms={"sic > 1": 3})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="is no mapping"):
        fs.Monitor(tmp_path, "birds", alarms="sic > 1")  # type: ignore[arg-type]
