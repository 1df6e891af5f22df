"""Controlled experiments on a terminal: a line per picked step, the spread of its classes' correlations."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import RenderableType

from forgetscope.analysis.questions.controlled import ControlledStep
from forgetscope.report.terminal.tables import make_table, titled
from forgetscope.report.words.notation import PLAIN


def controlled_view(steps: Sequence[ControlledStep]) -> RenderableType:
    numbers = ("runs", "classes", "median", "quartiles", "range", "ρ > 0", "mean", "sd")
    table = make_table((), ("step", "increment", "retention", *numbers))
    for found in steps:
        spread = found.spread
        table.add_row(
            str(found.step),
            f"{100 * found.increment:g} %",
            f"{100 * found.retention:g} %",
            str(found.runs) if found.runs == found.planned else f"{found.runs} of {found.planned}",
            str(spread.classes),
            PLAIN.number(spread.median),
            _between(spread.quartiles),
            _between(spread.extremes),
            PLAIN.percent(spread.positive),
            PLAIN.number(spread.mean),
            PLAIN.number(spread.deviation),
        )
    return titled(
        "Spearman's ρ of NIC and SIC over runs that differ in their new classes alone, over the past classes of each step",
        table,
        "ρ > 0: where the new classes push a class down more, its own rehearsal images mislead it more",
        *_remarks(steps),
    )


def _remarks(steps: Sequence[ControlledStep]) -> list[str]:
    diverged, missing, unproved = (sum(getattr(s, name) for s in steps) for name in ("diverged", "missing", "unproved"))
    remarks = []
    if diverged or missing:
        remarks.append(f"Left out: {diverged} runs that diverged, {missing} that are not in the store")
    if unproved:
        remarks.append(f"Of {unproved} runs the initial weights were not recorded: that they are equal is not proved")
    else:
        remarks.append(
            "Parent, seed, specification, rehearsal set and initial weights are equal in all runs of a step: checked"
        )
    return remarks


def _between(values: tuple[float, float]) -> str:
    return PLAIN.missing if math.isnan(values[0]) else " to ".join(map(PLAIN.number, values))
