"""Alarms on classes of running steps, and the commands that they run."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from forgetscope.errors import InputError
from forgetscope.store import Store
from forgetscope.underway.alarms import MEASURES, Alarm, Alarms, Raised
from forgetscope.underway.commands import AlarmCommands, environment_of
from forgetscope.underway.running import Lookout, UnderWay
from underway.cut import cut_off, second_steps

RAISED = Raised("forecast > 0.8", "f" * 32, 2, 7, 12, 3, "bird", "forecast", 0.91, 0.91, 0.8, 1.0)


@pytest.fixture
def one(replicated: Path, tmp_path: Path) -> UnderWay:
    store = Store(tmp_path / "store")
    store.prepare()
    cut_off(second_steps(Store(replicated))[0], 11, store)
    return Lookout(store).look()[0]


@pytest.mark.parametrize(
    ("text", "of", "measure", "how", "bound"),
    [
        ("forecast > 0.8", None, "forecast", ">", 0.8),
        ("forecast>=.8", None, "forecast", ">=", 0.8),
        (" rank<=1 ", None, "rank", "<=", 1),
        ("bird: sic < -1e-3", "bird", "sic", "<", -0.001),
        ("a: b > 2: loss_all > 3", "a: b > 2", "loss_all", ">", 3),
    ],
)
def test_an_alarm_is_a_measure_a_comparison_and_a_number(
    text: str, of: str | None, measure: str, how: str, bound: float
) -> None:
    found = Alarm.parse(text)
    assert (found.of, found.measure, found.how, found.bound) == (of, measure, how, bound)


@pytest.mark.parametrize(
    "text",
    ["", "forecast", "forecast >", "forecast = 1", "forget > 1", "sic > nan", "sic > inf", "sic > x", "0.8 < sic", 3, None],
)
def test_anything_else_is_refused_with_what_is_allowed(text: object) -> None:
    with pytest.raises(InputError, match=r"is no alarm.*forecast > 0.8.*loss_rehearsed"):
        Alarm.parse(text)


def test_each_class_sets_an_alarm_off_once_whether_it_is_shown_or_not(one: UnderWay) -> None:
    values = sorted(row.forecast for row in one.classes)
    bound = values[1]
    alarms = Alarms([Alarm.parse(f"forecast > {bound!r}"), Alarm.parse("rank <= 2")])
    found = alarms.raised([one])
    assert {raised.class_id for raised in found if raised.measure == "forecast"} == {
        row.risk.label for row in one.classes if row.forecast > bound
    }
    assert len(one.at_risk) < len(one.classes) - 1 > 0
    assert [raised.value for raised in found if raised.measure == "rank"] == [1, 2]
    assert alarms.raised([one]) == []
    other = replace(one, progress=one.progress.model_copy(update={"step": "birds/3"}))
    assert len(alarms.raised([other])) == len(found)


@pytest.mark.parametrize("measure", MEASURES)
def test_every_measure_that_rows_have_can_be_asked_for(one: UnderWay, measure: str) -> None:
    known = [value for row in one.classes if (value := MEASURES[measure](row)) is not None and math.isfinite(value)]
    off = Alarms([Alarm.parse(f"{measure} > -1e9")]).raised([one])
    assert [raised.value for raised in off] == known
    assert bool(known) == (measure != "so_far")


def test_what_is_silent_sets_off_nothing(one: UnderWay) -> None:
    assert Alarms([Alarm.parse("rank > 0")]).raised([replace(one, silent=1e6)]) == []


def test_an_alarm_for_a_class_is_for_no_other_and_a_name_that_no_step_has_is_told_once(one: UnderWay) -> None:
    name = one.classes[3].risk.name
    alarms = Alarms([Alarm.parse(f"{name}: rank > 0"), Alarm.parse("brid: rank > 0")])
    assert [raised.class_name for raised in alarms.raised([one])] == [name]
    (said,) = alarms.unknown([one])
    assert "has no class 'brid'" in said
    assert alarms.unknown([one]) == []


def test_a_line_says_who_where_when_and_what_and_cannot_control_a_terminal() -> None:
    said = str(replace(RAISED, class_name="\x1b[31mbird"))
    assert said == "\\x1b[31mbird in step 2 (ffffffff), epoch 7 of 12: forecast 0.91 (0.80, 1.00); alarm forecast > 0.8"


def test_a_command_gets_the_facts_as_they_are_and_no_shell_sees_them(tmp_path: Path) -> None:
    """The name of a class is somebody else's text."""
    strange, told = "$(touch /tmp/x); 'a\n\"b\0", list[str]()
    script = (
        "import json, os; json.dump({k: v for k, v in os.environ.items() if k.startswith('FORGETSCOPE_')}, open('out', 'w'))"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        commands = AlarmCommands(f'python3 -c "{script}"', tmp_path, told.append)
        commands.add([replace(RAISED, class_name=strange, forecast_low=math.nan)])
        commands.wait()
    found = json.loads((tmp_path / "out").read_text(encoding="utf-8"))
    assert told == []
    assert found["FORGETSCOPE_CLASS_NAME"] == strange.replace("\0", "\ufffd")
    assert (found["FORGETSCOPE_VALUE"], found["FORGETSCOPE_FORECAST_LOW"], found["FORGETSCOPE_CLASS_ID"]) == ("0.91", "", "3")
    assert found["FORGETSCOPE_STORE"] == str(tmp_path)
    assert found["FORGETSCOPE_TEXT"].endswith("alarm forecast > 0.8")


def test_a_command_that_fails_or_hangs_is_said_and_the_others_are_run(tmp_path: Path) -> None:
    told: list[str] = []
    other = "touch $FORGETSCOPE_STORE/$FORGETSCOPE_CLASS_NAME"
    script = f"case $FORGETSCOPE_CLASS_NAME in fails) exit 3;; hangs) sleep 600;; *) {other};; esac"
    commands = AlarmCommands(f"sh -c '{script}'", tmp_path, told.append, seconds=1.5)
    commands.add([replace(RAISED, class_name=name) for name in ("hangs", "fails", "a", "b", "c", "d")])
    commands.wait()
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b", "c", "d"}
    assert sorted(told) == [
        "The command for 'fails' and 'forecast > 0.8' ended with exit code 3.",
        "The command for 'hangs' and 'forecast > 0.8' had not ended after 1.5 seconds, and was killed.",
    ]


def test_what_was_not_begun_is_told_at_the_end(tmp_path: Path) -> None:
    told: list[str] = []
    commands = AlarmCommands("sleep 0.3", tmp_path, told.append)
    commands.add([RAISED] * 6)
    commands.leave()
    assert told == ["2 commands were not run."]
    commands.wait()


@pytest.mark.parametrize("command", ["", "   ", "no-such-program x", "echo 'open"])
def test_a_command_that_cannot_be_is_refused_at_once(tmp_path: Path, command: str) -> None:
    with pytest.raises(InputError, match="--exec"):
        AlarmCommands(command, tmp_path, print)


def test_halves_of_characters_do_not_stop_a_command(tmp_path: Path) -> None:
    assert environment_of(replace(RAISED, class_name="a\ud800"), tmp_path)["FORGETSCOPE_CLASS_NAME"] == "a?"
