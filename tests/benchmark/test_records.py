"""What a journal says happened last, whatever the clock said."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forgetscope.benchmark import records
from forgetscope.benchmark.records import Journal
from forgetscope.errors import DamagedPlan
from strangers import no_plain_file

STEP = "0" * 32


class Clock:
    """Stands still until it is set."""

    year = 2026

    def now(self, zone: object) -> datetime:
        return datetime(self.year, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(records, "datetime", clock)
    return clock


def lines(path: Path, *events: tuple[int, str]) -> None:
    """A journal as it was written before events had numbers."""
    facts = [{"time": f"{year}-01-01T00:00:00+00:00", "event": event, "step": STEP, "message": ""} for year, event in events]
    path.write_text("\n" + "\n".join(map(json.dumps, facts)))


@pytest.mark.parametrize("years", [(2030, 2026), (2026, 2030), (2026, 2026)])
def test_a_retry_cancels_a_failure_and_a_later_one_counts_whatever_the_clock_says(
    years: tuple[int, int], clock: Clock, tmp_path: Path
) -> None:
    for year in years * 2:
        clock.year = year
        Journal(tmp_path).write("failed", step=STEP, message="")
        assert set(Journal(tmp_path).failures(set())) == {STEP}
        clock.year = years[0] + years[1] - year
        Journal(tmp_path).retry([STEP])
        assert Journal(tmp_path).failures(set()) == {}


@pytest.mark.parametrize("year", [1999, 2050])
def test_a_retry_cancels_failures_of_parts_that_were_run_elsewhere(year: int, clock: Clock, tmp_path: Path) -> None:
    """Each machine has its own store, clock and journal; then their journals are put together, and the plan is gone on with."""
    merged = tmp_path / "merged"
    merged.mkdir()
    for part, then in (("-1-of-2", 2050), ("-2-of-2", 1999)):
        (tmp_path / part).mkdir()
        clock.year, journal = then, Journal(tmp_path / part, part)
        for number in range(3):
            journal.write("done", step=f"{number}{part}")
        journal.write("failed", step=part, message="")
        (tmp_path / part / f"journal{part}.jsonl").rename(merged / f"journal{part}.jsonl")
    clock.year = year
    assert set(Journal(merged).failures(set())) == {"-1-of-2", "-2-of-2"}
    Journal(merged).retry(["-1-of-2"])
    assert set(Journal(merged).failures(set())) == {"-2-of-2"}
    Journal(merged, "-1-of-2").write("failed", step="-1-of-2", message="")
    assert set(Journal(merged).failures(set())) == {"-1-of-2", "-2-of-2"}


def test_a_journal_without_numbers_is_read_in_the_order_of_its_file(clock: Clock, tmp_path: Path) -> None:
    lines(tmp_path / "journal.jsonl", (2050, "failed"), (2040, "retry"))
    assert Journal(tmp_path).failures(set()) == {}
    lines(tmp_path / "journal.jsonl", (2050, "failed"), (2060, "retry"), (2030, "failed"))
    assert set(Journal(tmp_path).failures(set())) == {STEP}
    Journal(tmp_path).retry([STEP])
    assert Journal(tmp_path).failures(set()) == {}


def test_parts_without_numbers_are_read_in_order_of_time(tmp_path: Path) -> None:
    lines(tmp_path / "journal.jsonl", (2027, "retry"))
    lines(tmp_path / "journal-1-of-2.jsonl", (2026, "failed"))
    assert Journal(tmp_path).failures(set()) == {}
    lines(tmp_path / "journal-1-of-2.jsonl", (2026, "failed"), (2028, "failed"))
    assert set(Journal(tmp_path).failures(set())) == {STEP}


def test_what_an_older_version_adds_follows_what_was_there(clock: Clock, tmp_path: Path) -> None:
    """It writes no numbers, and its clock may be behind."""
    path = tmp_path / "journal.jsonl"
    Journal(tmp_path).write("done", step="another")
    Journal(tmp_path).write("retry", step=STEP)
    Journal(tmp_path, "-1-of-2").write("done", step="of another part")
    before = path.read_text()
    lines(path, (2020, "failed"))
    path.write_text(before + path.read_text())
    assert set(Journal(tmp_path).failures(set())) == {STEP}
    Journal(tmp_path).retry([STEP])
    assert Journal(tmp_path).failures(set()) == {}
    assert [event["event"] for event in Journal(tmp_path).own_events()] == ["done", "retry", "failed", "retry"]
    steps = [event["step"] for event in Journal(tmp_path).events()]
    assert steps == ["another", STEP, STEP, "of another part", STEP]


def test_a_step_that_is_done_all_the_same_has_not_failed(tmp_path: Path) -> None:
    Journal(tmp_path).write("failed", step=STEP, message="")
    assert Journal(tmp_path).failures({STEP}) == {}


def test_lines_that_are_no_events_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text(
        '\n{"event": 5}\n[1]\n{"time": "x"}\n{"event": "failed", "step": "a", "message": ""}\n{"ev'
    )
    journal = Journal(tmp_path)
    journal.write("retry", step="b")
    assert [(event["event"], event.get("number")) for event in journal.events()] == [("failed", None), ("retry", 1)]


@pytest.mark.parametrize(
    "facts",
    [
        '"step": "a"',
        '"message": ""',
        '"step": 5, "message": ""',
        '"step": ["a"], "message": ""',
        '"step": "a", "message": null',
        '"step": "a", "message": "", "number": "b"',
        '"step": "a", "message": "", "number": 1' + "0" * 4000,
        '"step": "a", "message": "", "time": 5',
        '"step": "a", "message": "", "deep": ' + "[" * 100_000,
    ],
)
def test_an_event_of_another_form_is_passed_over(facts: str, tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text(f'{{"event": "failed", {facts}}}')
    assert Journal(tmp_path).failures(set()) == {}
    Journal(tmp_path).write("failed", step="b", message="")
    assert set(Journal(tmp_path).failures(set())) == {"b"}


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "large"])
def test_a_journal_that_is_no_plain_file_is_named(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    no_plain_file(path, kind)
    for read in (Journal(tmp_path).events, Journal(tmp_path).own_events):
        with pytest.raises(DamagedPlan, match=r"journal\.jsonl cannot be read \(.*\)\. Delete it"):
            read()


@pytest.mark.parametrize("number", [2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1])
def test_no_number_of_a_stranger_keeps_a_failure_from_being_forgotten(number: int, tmp_path: Path) -> None:
    event = {"time": "", "event": "failed", "step": STEP, "message": "", "number": number}
    (tmp_path / "journal.jsonl").write_text(json.dumps(event))
    for _ in range(3):
        Journal(tmp_path).write("failed", step=STEP, message="")
        assert set(Journal(tmp_path).failures(set())) == {STEP}
        Journal(tmp_path).retry([STEP])
        assert Journal(tmp_path).failures(set()) == {}


def test_a_line_of_more_than_a_megabyte_is_no_event(tmp_path: Path) -> None:
    line = json.dumps({"event": "done", "step": STEP, "more": [[]] * 400_000})
    (tmp_path / "journal.jsonl").write_text(line + "\n" + json.dumps({"event": "done", "step": STEP}))
    assert Journal(tmp_path).events() == [{"event": "done", "step": STEP}]
