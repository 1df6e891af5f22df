"""A monitored step, seen from outside while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from watched import loaders

import forgetscope as fs
from forgetscope.store import Store
from forgetscope.underway.running import Lookout
from measuring.test_heads import ALPHA, Base, made


def test_somebody_else_sees_what_the_step_knows(tmp_path: Path) -> None:
    monitor, lookout = fs.Monitor(tmp_path, "birds", probe_images=None), Lookout(Store(tmp_path))
    with monitor.step(made(Base), **loaders(), alpha=ALPHA, epochs=2) as step:
        step.epoch_ended()
        (one,) = lookout.look()
        assert one.is_alive
        assert (one.progress.step, one.progress.epoch, one.progress.epochs, one.probes) == ("birds/2", 1, 2, 2)
        assert one.progress.loss is None
        assert [row.risk.label for row in one.at_risk] == [row.label for row in step.at_risk()]
        assert [row.risk.cause for row in one.at_risk] == [row.cause for row in step.at_risk()]
        frame = step.to_frame()
        for row in one.at_risk:
            assert row.risk.sic == pytest.approx(frame.loc[row.risk.label, "sic"], nan_ok=True)
    assert lookout.look() == []
    assert [(one.step, one.number) for one in lookout.finished()] == [("birds/2", 2)]


def test_an_epoch_without_a_probe_is_a_sign_of_life(tmp_path: Path) -> None:
    monitor, lookout = fs.Monitor(tmp_path, "birds", probe_images=None, probes=2), Lookout(Store(tmp_path))
    with monitor.step(made(Base), **loaders(), alpha=ALPHA, epochs=4) as step:
        for epoch in (1, 2, 3):
            step.epoch_ended()
            (one,) = lookout.look()
            assert (one.progress.epoch, one.probes) == (epoch, 1)
