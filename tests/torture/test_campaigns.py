"""The fault campaigns at the size that continuous integration has time for. Nothing may be lost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from torture import crashes, crowds, damage, edits, hostile, kills, signals, space
from torture.harness import Bench, Lost, Outcome

pytestmark = pytest.mark.slow
SEED = 6


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("torture"))
    yield made
    made.close()


def assert_nothing_lost(outcome: Outcome, tried: int) -> None:
    assert outcome.lost == 0, "\n".join(outcome.details)
    assert not outcome.details
    assert outcome.tried >= tried


def test_what_is_lost_would_be_seen(bench: Bench) -> None:
    """The harness itself: a store that is whole in itself but differs in one bit, or holds one file more, is a loss."""
    store = bench.new_store(like=bench.reference().store)
    bench.demand_same_bytes(store)
    state, manifest = (next((store / "steps").glob(f"*/{name}")) for name in ("state.safetensors", "manifest.json"))
    content, digest = state.read_bytes(), hashlib.sha256(state.read_bytes()).hexdigest()
    state.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    manifest.write_text(manifest.read_text().replace(digest, hashlib.sha256(state.read_bytes()).hexdigest()))
    bench.demand_whole(store)
    with pytest.raises(Lost, match=r"state\.safetensors differs"):
        bench.demand_same_bytes(store)
    state.write_bytes(content)
    (store / "steps" / "more").write_text("")
    with pytest.raises(Lost, match="steps/more differs"):
        bench.demand_same_bytes(store)


def test_every_change_of_a_run_is_seen(bench: Bench) -> None:
    """Each step commits nine files: opened, written and synced one by one; and each snapshot takes its name once."""
    places = bench.reference().places()
    commits = [place for place in places if "/commit-" in place]
    assert [sum(place.startswith(kind) for place in commits) for kind in ("open", "write", "mkdir")] == [27, 27, 3]
    assert sum(place.startswith("rename /steps/") for place in places) == 3
    assert sum(place.startswith("replace") and "/snapshot-" in place for place in places) == 6


def test_killed_at_random_instants(bench: Bench) -> None:
    assert_nothing_lost(kills.campaign(bench, 10, SEED), 10)


def test_a_crash_before_every_change_of_an_epoch(bench: Bench) -> None:
    assert_nothing_lost(crashes.one_epoch(bench), 40)


def test_a_power_cut_at_several_changes_of_a_run(bench: Bench) -> None:
    assert_nothing_lost(crashes.campaign(bench, 8, SEED, power=True), 8)


def test_a_crash_before_every_change_of_a_calibration(bench: Bench) -> None:
    assert_nothing_lost(crashes.calibration(bench, 0, SEED), 20)


def test_a_power_cut_at_several_changes_of_a_calibration(bench: Bench) -> None:
    assert_nothing_lost(crashes.calibration(bench, 6, SEED, power=True), 5)  # about six, at equal distances


def test_two_that_calibrate_at_once(bench: Bench) -> None:
    before = bench.reference(**crashes.TWO_STEPS).store
    assert_nothing_lost(crowds.calibrating(bench, before, **crashes.CALIBRATED), 1)


def test_damage_is_noticed_and_made_good(bench: Bench) -> None:
    assert_nothing_lost(damage.campaign(bench, 50, SEED, runs=6), 106)


def test_a_full_disk(bench: Bench) -> None:
    assert_nothing_lost(space.campaign(bench, 3, SEED), 3)


@pytest.mark.parametrize("error", ["EIO", "EACCES", "EROFS", "ENOSPC"])
def test_a_disk_that_refuses_from_the_middle_on(bench: Bench, error: str) -> None:
    assert_nothing_lost(space.refused(bench, error, number=40), 1)


def test_a_disk_that_is_read_only(bench: Bench) -> None:
    if not space.can_mount():
        pytest.skip("no file system may be mounted here")
    assert_nothing_lost(space.read_only(bench), 1)


def test_eight_at_once_and_the_one_that_works_is_killed(bench: Bench) -> None:
    assert_nothing_lost(crowds.campaign(bench, 1, SEED), 1)


def test_a_polite_stop_in_the_middle_of_an_epoch(bench: Bench) -> None:
    assert_nothing_lost(signals.campaign(bench, 4, SEED), 4)


def test_locks_that_fail_or_hold_nothing(bench: Bench) -> None:
    assert_nothing_lost(crowds.unlocked(bench, 2, SEED, crowd=3), 2)


def test_code_and_data_that_are_replaced_during_a_run_and_a_benchmark(bench: Bench) -> None:
    assert_nothing_lost(edits.campaign(bench, 4, SEED, benchmarks=1), 5)


def test_hostile_files(bench: Bench) -> None:
    """The first of the mutations that `make torture ONLY=hostile` makes."""
    assert_nothing_lost(hostile.campaign(bench, 80, hostile.SEED), 80)
