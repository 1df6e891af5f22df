"""What a running step says of itself: `progress.json` in its working folder, beside the tables of its probes so far.

Written by whoever trains, every few seconds and after each epoch, for whoever looks on: nothing is computed from it, so a disk
that refuses it is no reason to stop, and nobody waits until the disk has it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from forgetscope.files import read_regular, replace_soon
from forgetscope.foreign import Count, StrictRecord, Text, first_problem, strict_json
from forgetscope.store.tables import json_bytes

PROGRESS = "progress.json"
PROGRESS_SCHEMA = 1
PROGRESS_BYTES = 2**22
BEAT_SECONDS = 5.0  # between two signs of life within an epoch
PATIENCE = 60.0  # seconds of silence that mean nothing: the end of a step, say, is evaluated in one go

State = Literal["running", "stopped"]


class Progress(StrictRecord):
    """How far a step is. Classes are in the order of the head's nodes, past ones first."""

    schema_: Annotated[int, Field(alias="schema", ge=1)]
    step: Text  # its id, or `name/number` of a monitor's
    number: Annotated[int, Field(ge=1, lt=2**31)]
    state: State
    epoch: Count  # that ended
    epochs: Count | None  # in all; None: nobody said
    loss: float | None  # mean over the last epoch; None: unknown
    seconds_left: Annotated[float, Field(ge=0)] | None  # until training ends
    heartbeat: Text  # when this was written, UTC
    patience: Annotated[float, Field(ge=0)]  # seconds of silence that mean nothing
    past: Count  # how many of the classes are
    classes: Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=100_000)]
    names: Annotated[list[Text], Field(max_length=100_000)]
    losses: Annotated[list[float], Field(max_length=100_000, default_factory=list)]  # of each epoch so far; none: unknown
    made: dict[str, Any] | None = (
        None  # `spec`, `data` and `network` as in the step.json to come; None: somebody else's training
    )


@dataclass(frozen=True)
class Facts:
    """Of a step, that do not change while it runs."""

    step: str
    number: int
    past: int
    classes: Sequence[int]
    names: Sequence[str]
    epochs: int | None
    made: Mapping[str, object] | None = None  # as in `Progress`


class Beacon:
    """Says how far a step is, in its working folder."""

    def __init__(self, folder: Path, facts: Facts, *, epoch: float = 0.0, losses: Sequence[float] = ()) -> None:
        """epoch: how far the step had come before this process took it up; losses: of the epochs until then."""
        self._path, self._facts = folder / PROGRESS, facts
        self._began_at, self._began = epoch, time.monotonic()
        self._at, self._told = epoch, self._began - BEAT_SECONDS
        self._loss: float | None = None
        self._losses = list(losses)

    def beat(self, at: float | None = None) -> None:
        """A sign of life, if the last one is a while ago. at: how many epochs are done, and what part of the next."""
        self._at = self._at if at is None else at
        if time.monotonic() - self._told >= BEAT_SECONDS:
            self._tell()

    def epoch_ended(self, epoch: int, loss: float | None = None) -> None:
        """loss: its mean over the epoch, where it is known."""
        self._at, self._loss = float(epoch), loss
        self._losses += [] if loss is None else [loss]
        self._tell()

    def stopped(self) -> None:
        """By somebody who asked for it; the same command goes on from here."""
        self._tell("stopped")

    def _tell(self, state: State = "running") -> None:
        self._told, facts = time.monotonic(), self._facts
        content = {
            **{"schema": PROGRESS_SCHEMA, "step": facts.step, "number": facts.number, "state": state},
            **{"epoch": int(self._at), "epochs": facts.epochs, "loss": self._loss, "seconds_left": self._left()},
            **{"heartbeat": datetime.now(UTC).isoformat(timespec="seconds"), "patience": self._patience()},
            **{"past": facts.past, "classes": list(facts.classes), "names": list(facts.names), "losses": self._losses},
            **({} if facts.made is None else {"made": dict(facts.made)}),
        }
        with suppress(OSError, ValueError):  # ValueError: a loss that is not finite, which ends the step anyway
            replace_soon(self._path, json_bytes(content))

    def _patience(self) -> float:
        """Whoever trains in a loop of their own may say something after each epoch and never in between."""
        done, elapsed = self._at - self._began_at, time.monotonic() - self._began
        return round(max(PATIENCE, 3 * elapsed / done if done > 0 else 0.0), 1)

    def _left(self) -> float | None:
        """By the pace of this process, probes included; None before there is one."""
        done, elapsed = self._at - self._began_at, time.monotonic() - self._began
        if self._facts.epochs is None or done <= 0:
            return None
        return round(max(0.0, elapsed * (self._facts.epochs - self._at) / done), 1)


def read_progress(folder: Path) -> Progress:
    """What the step in this working folder says of itself; OSError where it says nothing, ValueError where that is none."""
    content = strict_json(read_regular(folder / PROGRESS, PROGRESS_BYTES))
    try:
        found = Progress.model_validate(content)
    except ValidationError as error:
        raise ValueError(f"{folder / PROGRESS}: {first_problem(error)}") from None
    if found.schema_ > PROGRESS_SCHEMA:
        raise ValueError(f"{folder / PROGRESS} is of version {found.schema_}; this forgetscope reads up to {PROGRESS_SCHEMA}")
    if not found.past <= len(found.classes) == len(found.names) == len(set(found.classes)):
        raise ValueError(
            f"{folder / PROGRESS}: {found.past} past classes, {len(found.classes)} classes, {len(found.names)} names"
        )
    return found
