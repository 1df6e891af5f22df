"""What a running step says of itself: written seldom, read strictly, and no reason to stop."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forgetscope.underway import progress
from forgetscope.underway.progress import BEAT_SECONDS, PATIENCE, PROGRESS, Beacon, Facts, read_progress

FACTS = Facts("a" * 32, 2, 2, (7, 3, 5), ("owl", "Ψ <b>", "new"), 10)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(progress, "time", found)
    return found


def test_it_tells_where_the_step_is_and_how_long_it_will_take(tmp_path: Path, clock: Clock) -> None:
    beacon = Beacon(tmp_path, FACTS)
    beacon.beat()
    found = read_progress(tmp_path)
    assert (found.epoch, found.epochs, found.loss, found.seconds_left, found.state) == (0, 10, None, None, "running")
    assert (found.past, found.classes, found.names) == (2, [7, 3, 5], ["owl", "Ψ <b>", "new"])
    clock.now += 30
    beacon.epoch_ended(3, 0.25)
    found = read_progress(tmp_path)
    assert (found.epoch, found.loss, found.seconds_left, found.patience) == (3, 0.25, 70.0, PATIENCE)
    clock.now += 300
    beacon.epoch_ended(4, 0.2)  # slow epochs: as long as three of them is no silence
    assert read_progress(tmp_path).patience == pytest.approx(3 * 330 / 4, abs=0.1)
    beacon.stopped()
    assert read_progress(tmp_path).state == "stopped"


def test_one_that_goes_on_counts_its_own_pace(tmp_path: Path, clock: Clock) -> None:
    beacon = Beacon(tmp_path, FACTS, epoch=6, losses=[0.9, 0.7])
    clock.now += 10
    beacon.epoch_ended(8, 0.1)
    assert read_progress(tmp_path).seconds_left == 10.0
    assert read_progress(tmp_path).losses == [0.9, 0.7, 0.1]


def test_within_an_epoch_it_is_written_every_few_seconds(tmp_path: Path, clock: Clock) -> None:
    beacon = Beacon(tmp_path, FACTS)
    beacon.beat(0.0)
    first = (tmp_path / PROGRESS).stat()
    for _ in range(100):
        clock.now += BEAT_SECONDS / 200
        beacon.beat(0.5)
    assert (tmp_path / PROGRESS).stat().st_ino == first.st_ino
    clock.now += BEAT_SECONDS
    beacon.beat(0.5)
    assert read_progress(tmp_path).seconds_left == pytest.approx(BEAT_SECONDS * 1.5 * 19, abs=0.1)


def test_a_disk_that_refuses_it_stops_nothing(tmp_path: Path) -> None:
    Beacon(tmp_path / "gone", FACTS).epoch_ended(1, 0.5)
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_is_no_number_is_not_told(tmp_path: Path) -> None:
    beacon = Beacon(tmp_path, FACTS)
    beacon.epoch_ended(1, 0.5)
    beacon.epoch_ended(2, float("nan"))
    assert read_progress(tmp_path).epoch == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"epoch": -1}, "epoch"),
        ({"epoch": "3"}, "epoch"),
        ({"seconds_left": -1.0}, "seconds_left"),
        ({"schema": 2}, "of version 2; this forgetscope reads up to 1"),
        ({"past": 4}, "4 past classes, 3 classes"),
        ({"names": ["owl"]}, "3 classes, 1 names"),
        ({"classes": [7, 7, 5]}, "3 classes"),
        ({"names": ["x" * 2000, "b", "c"]}, "names"),
    ],
)
def test_what_is_none_is_refused(tmp_path: Path, change: dict[str, object], told: str) -> None:
    Beacon(tmp_path, FACTS).epoch_ended(1, 0.5)
    content = json.loads((tmp_path / PROGRESS).read_text(encoding="utf-8"))
    (tmp_path / PROGRESS).write_text(json.dumps(content | change), encoding="utf-8")
    with pytest.raises(ValueError, match=told):
        read_progress(tmp_path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.json").write_text("{}")
    (tmp_path / PROGRESS).symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(OSError, match="a link"):
        read_progress(tmp_path)
