"""Alarms: conditions on past classes of running steps, in words such as `forecast > 0.8` or `bird: sic >= 1`.

Each goes off once for each step and class; of a value that is unknown nothing is said.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from forgetscope.characters import visible
from forgetscope.errors import InputError
from forgetscope.underway.running import UnderWay, Watched

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    **{">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
}
MEASURES: dict[str, Callable[[Watched], float | None]] = {
    "forecast": lambda row: row.forecast,
    "forecast_low": lambda row: row.forecast_low,
    "forecast_high": lambda row: row.forecast_high,
    "so_far": lambda row: row.so_far,
    "sic": lambda row: row.risk.sic,
    "cic": lambda row: row.risk.cic,
    "nic": lambda row: row.risk.nic,
    "rank": lambda row: row.risk.rank,
    "moved": lambda row: row.risk.moved,
    "loss_all": lambda row: row.loss_all,
    "loss_rehearsed": lambda row: row.loss_rehearsed,
}
_FORM = re.compile(r"\s*(?:(?P<of>.*\S)\s*:)?\s*(?P<measure>\w+)\s*(?P<how>>=|<=|>|<)\s*(?P<bound>\S+)\s*", re.DOTALL)


@dataclass(frozen=True)
class Alarm:
    """of: the name of the class; None: any."""

    text: str
    of: str | None
    measure: str
    how: str
    bound: float

    @classmethod
    def parse(cls, text: object) -> Alarm:
        """
        >>> Alarm.parse("bird: forecast > 0.8").measure
        'forecast'
        """
        found = _FORM.fullmatch(text) if isinstance(text, str) else None
        bound = math.nan
        if found is not None and found["measure"] in MEASURES:
            try:
                bound = float(found["bound"])
            except ValueError:
                bound = math.nan
        if found is None or not math.isfinite(bound):
            raise InputError(
                f"{text!r:.200} is no alarm. Write a measure, one of >, >=, <, <=, and a number, such as 'forecast > 0.8', or "
                f"of one class 'bird: forecast > 0.8'. Measures are {', '.join(MEASURES)}."
            )
        return cls(" ".join(found[0].split()), found["of"], found["measure"], found["how"], bound)

    def value(self, row: Watched) -> float | None:
        """Of what it is on, where that is known and the condition holds."""
        if self.of is not None and row.risk.name != self.of:
            return None
        value = MEASURES[self.measure](row)
        if value is None or not math.isfinite(value) or not COMPARISONS[self.how](value, self.bound):
            return None
        return float(value)


@dataclass(frozen=True)
class Raised:
    """An alarm that went off, for a class of a step. value: of what it is on."""

    alarm: str
    step: str  # id, or `name/number` of a monitor's
    number: int
    epoch: int
    epochs: int | None
    class_id: int
    class_name: str
    measure: str
    value: float
    forecast: float
    forecast_low: float
    forecast_high: float

    def __str__(self) -> str:
        """In one line, which cannot control a terminal."""
        step = self.step if "/" in self.step else f"step {self.number} ({self.step[:8]})"
        when = f"epoch {self.epoch}" + (f" of {self.epochs}" if self.epochs is not None else "")
        ends = f" ({self.forecast_low:.2f}, {self.forecast_high:.2f})" if self.measure == "forecast" else ""
        return visible(f"{self.class_name} in {step}, {when}: {self.measure} {self.value:.3g}{ends}; alarm {self.alarm}")


class Alarms:
    """Which have gone off: of each step and class, each alarm once."""

    def __init__(self, alarms: Iterable[Alarm]) -> None:
        self.alarms = tuple(alarms)
        self._raised: set[tuple[str, str, int]] = set()
        self._unknown: set[tuple[str, str]] = set()

    def raised(self, found: Sequence[UnderWay]) -> list[Raised]:
        """Those that go off now, in steps that are alive."""
        new = []
        for one in found:
            for alarm in self.alarms if one.is_alive else ():
                for row in one.classes:
                    key = alarm.text, one.progress.step, row.risk.label
                    if key not in self._raised and (value := alarm.value(row)) is not None:
                        self._raised.add(key)
                        new.append(_raised(alarm, one, row, value))
        return new

    def unknown(self, found: Sequence[UnderWay]) -> list[str]:
        """Of alarms on a class: running steps that have none of that name, past or new, each told once."""
        said = []
        for progress in (one.progress for one in found if one.is_alive):
            for alarm in self.alarms:
                key = alarm.text, progress.step
                if alarm.of is not None and alarm.of not in progress.names and key not in self._unknown:
                    self._unknown.add(key)
                    said.append(f"Step {progress.step[:40]} has no class {alarm.of!r:.100}, for which there is an alarm.")
        return said


def _raised(alarm: Alarm, one: UnderWay, row: Watched, value: float) -> Raised:
    progress = one.progress
    return Raised(
        alarm=alarm.text,
        step=progress.step,
        number=progress.number,
        epoch=progress.epoch,
        epochs=progress.epochs,
        class_id=row.risk.label,
        class_name=row.risk.name,
        measure=alarm.measure,
        value=value,
        forecast=row.forecast,
        forecast_low=row.forecast_low,
        forecast_high=row.forecast_high,
    )
