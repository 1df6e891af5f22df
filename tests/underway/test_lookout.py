"""What is seen of steps that run, by somebody who only looks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from conftest import TINY, run_experiment
from experiment.test_stopping import StopsAtLook
from forgetscope.errors import Interrupted
from forgetscope.spec import RunSpec
from forgetscope.store import Store
from forgetscope.underway.experience import by_probe
from forgetscope.underway.progress import PROGRESS
from forgetscope.underway.running import Lookout

TWO = {**TINY, "sequence": ((0, 1, 2), (3, 4)), "epochs": 3}


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose second step stands in the middle of its last epoch."""
    path = tmp_path_factory.mktemp("stopped") / "store"
    with contextlib.suppress(Interrupted):
        run_experiment(RunSpec(**TWO), Store(path), device="cpu", threads=1, stop=StopsAtLook(85))
    return path


@pytest.fixture
def halted(stopped: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stopped, tmp_path / "halted")


def say(store: Path, **change: Any) -> Path:
    """Change what the step says of itself."""
    (path,) = store.glob(f"working/*/{PROGRESS}")
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    return path


def everything(folder: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        found[str(path)] = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
    return found


def test_a_step_that_was_stopped_says_so_and_who_is_at_risk(halted: Path) -> None:
    (one,) = Lookout(Store(halted)).look()
    assert not one.is_alive
    assert (one.progress.state, one.progress.number, one.progress.past) == ("stopped", 2, 3)
    assert [row.risk.rank for row in one.at_risk] == [1, 2, 3]
    assert 1 <= one.probes <= 4
    assert all(np.isfinite([row.loss_all, row.loss_rehearsed]).all() for row in one.at_risk)
    assert all(row.risk.why for row in one.at_risk)


def test_the_rows_are_those_of_the_finished_step_s_tables(tmp_path: Path, stopped: Path) -> None:
    """The sums of the probes of a whole step are its coefficients."""
    from forgetscope.experiment import observation

    seen: list[Any] = []
    kept = observation.Observer.epoch_ended

    def look(self: Any, epoch: int, iteration: int) -> None:
        kept(self, epoch, iteration)
        if self._step.spec.step == 2:
            seen.append(Lookout(Store(tmp_path / "store")).look()[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observation.Observer, "epoch_ended", look)
        result = run_experiment(RunSpec(**TWO), Store(tmp_path / "store"), device="cpu", threads=1)
    assert [one.probes for one in seen] == [1, 2, 3, 4]
    assert all(one.is_alive for one in seen)
    frame = result.past_classes().set_index("class_id")
    assert len(seen[-1].at_risk) == len(frame) == 3
    for row in seen[-1].at_risk:
        for name in ("sic", "cic", "nic"):
            assert getattr(row.risk, name) == pytest.approx(frame.loc[row.risk.label, name], rel=1e-9, nan_ok=True)
        assert row.curves["sic"][-1] == pytest.approx(row.risk.sic, rel=1e-9)
        assert [len(curve) for curve in row.curves.values()] == [4] * 4
        assert (row.curves["loss_all"][-1], row.curves["loss_rehearsed"][-1]) == (row.loss_all, row.loss_rehearsed)
    assert list(seen[-1].probed_at) == result.numbered(2).partial_sums(frame.index.tolist())[0].tolist()
    assert seen[-1].progress.losses == [epoch["loss"] for epoch in result.numbered(2).info["history"]][:-1]
    assert Lookout(Store(tmp_path / "store")).look() == []  # done


def test_looking_leaves_no_trace(halted: Path) -> None:
    before, lookout = everything(halted), Lookout(Store(halted))
    for _ in range(3):
        lookout.look()
        lookout.finished()
    assert everything(halted) == before


def test_what_is_silent_for_longer_than_it_may_be_is_not_alive(halted: Path) -> None:
    say(halted, state="running", heartbeat="2020-01-01T00:00:00+00:00")
    lookout = Lookout(Store(halted))
    (one,) = lookout.look()
    assert not one.is_alive
    assert one.silent > 1e8
    path = say(halted, heartbeat="2020-01-01T00:00:05+00:00")  # a clock that is wrong, on a machine that is alive
    os.utime(path, (time.time() + 5, time.time() + 5))
    (one,) = lookout.look()
    assert one.is_alive
    assert one.silent < 5


def test_what_cannot_be_read_is_told_once_and_the_rest_is_shown(halted: Path) -> None:
    told: list[str] = []
    folder = next(path.parent for path in halted.glob(f"working/*/{PROGRESS}"))
    (folder / "probes.parquet").write_bytes(b"PAR1 nothing PAR1")
    (halted / "working" / "strange").mkdir()
    (halted / "working" / "strange" / PROGRESS).write_bytes(b"[" * 100_000)
    lookout = Lookout(Store(halted), told.append)
    for _ in range(3):
        (one,) = lookout.look()
        assert one.at_risk == ()
    assert len(told) == 2
    assert any("probes.parquet" in problem for problem in told)


def test_probes_of_classes_that_the_step_does_not_have_are_no_rows(halted: Path) -> None:
    told: list[str] = []
    say(halted, classes=[90, 91, 92, 93, 94])
    (one,) = Lookout(Store(halted), told.append).look()
    assert one.at_risk == ()
    assert "no past class" in told[0]


def test_a_hundred_thousand_classes_take_no_memory(halted: Path) -> None:
    told: list[str] = []
    say(halted, past=100_000, classes=[*range(100_000)], names=[""] * 100_000)
    (one,) = Lookout(Store(halted), told.append).look()
    assert one.at_risk == ()
    assert "100,000 x 100,000 numbers" in told[0]


def test_a_hundred_thousand_probes_take_no_memory() -> None:
    probes = pa.table({"class_id": np.zeros(100_000, np.int64), "probe": np.arange(100_000)})
    with pytest.raises(ValueError, match="100,000 x 1 x 5,000 numbers"):
        by_probe(probes, [*range(5000)], ["sic"])


def test_what_takes_the_place_of_a_finished_step_is_read(tiny_store: Path, tmp_path: Path) -> None:
    store = shutil.copytree(tiny_store, tmp_path / "store")
    lookout = Lookout(Store(store))
    gone = store / "steps" / lookout.finished()[0].step
    shutil.rmtree(gone)
    gone.mkdir()
    assert len(lookout.finished()) == 2


@pytest.mark.parametrize("strange", ["birds/copy", "birds/0", "birds/³", "no monitor/1", ".hidden/1"])
def test_what_lies_beside_observed_steps_is_none(tiny_store: Path, tmp_path: Path, strange: str) -> None:
    store = shutil.copytree(tiny_store, tmp_path / "store")
    (store / "observed" / strange).mkdir(parents=True)
    assert len(Lookout(Store(store)).finished()) == 3


def test_a_store_that_goes_away_shows_nothing(halted: Path) -> None:
    lookout = Lookout(Store(halted))
    assert len(lookout.look()) == 1
    halted.rename(halted.with_name("elsewhere"))
    assert lookout.look() == lookout.finished() == []


def test_finished_steps_the_latest_first(tiny_store: Path) -> None:
    found = Lookout(Store(tiny_store)).finished()
    assert sorted(one.number for one in found) == [1, 2, 3]
    assert np.isnan(next(one.mean_forgetting for one in found if one.number == 1))
    (chain,) = Store(tiny_store).experiments()
    lost = chain[2].past_classes("forgetting")["forgetting"]
    assert next(one.mean_forgetting for one in found if one.number == 3) == pytest.approx(np.nanmean(lost))
    assert Lookout(Store(tiny_store)).finished(1)[0].step in {step.id for step in chain}
