"""What the paper's approximations cost, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType

from forgetscope.analysis.questions.approximations import Approximations, Contrast, Cost, Thinning
from forgetscope.report.terminal.tables import make_table, plain, titled
from forgetscope.report.words.notation import PLAIN
from forgetscope.store import ALL_LAYERS, EVERY_ITERATION, RELEASED

TITLES = {  # and what the two forms are called, the paper's first
    ALL_LAYERS: ("All layers against the last, at the same probes", "last layer", "all layers"),
    EVERY_ITERATION: ("Sums over every iteration against sums over epochs", "epochs", "every iteration"),
    RELEASED: ("NIC as released against NIC as the paper defines it", "as defined", "as released"),
}
SHOWN = ("SIC", "CIC", "NIC")


def approximations_view(found: Sequence[Approximations]) -> RenderableType:
    parts: list[RenderableType] = []
    for group in found:
        parts.append(plain(f"Step {group.step}: {group.setting} (n = {group.steps})", "bold"))
        for form in TITLES:
            rows = [contrast for contrast in group.contrasts if contrast.form == form]
            if rows:
                parts += [plain(""), _contrasts(*TITLES[form], rows)]
        if group.thinnings:
            parts += [plain(""), _thinnings(group.thinnings)]
        if group.costs:
            parts += [plain(""), _costs(group.costs)]
        parts.append(plain(""))
    return Group(*parts[:-1])


def _contrasts(title: str, usual: str, other: str, rows: Sequence[Contrast]) -> RenderableType:
    with_error = any(row.error is not None for row in rows)
    numbers = [f"ρ, {usual}", f"ρ, {other}", "difference in z", "ρ between the two", *["distance"] * with_error]
    table = make_table(("",), numbers)
    for row in rows:
        cells = [PLAIN.estimate(row.usual), PLAIN.estimate(row.other), PLAIN.estimate(row.difference.estimate, signed=True)]
        cells += [PLAIN.estimate(row.agreement), *([] if row.error is None else [PLAIN.estimate(row.error)])]
        table.add_row(row.coefficient, *cells)
    remarks = ["ρ: rank correlation with forgetting over the past classes; means over steps with 95 % intervals"]
    if with_error:
        remarks.append("distance: of the values per iteration, relative to those over every iteration (Euclidean over classes)")
    return titled(title, table, *remarks)


def _thinnings(rows: Sequence[Thinning]) -> RenderableType:
    columns = [f"{name}{what}" for what in (": as all", ": distance", ": ρ") for name in SHOWN]
    table = make_table(("measured before",), ("probes", *columns))
    by_spacing: dict[str, dict[str, Thinning]] = {}
    for row in rows:
        by_spacing.setdefault(row.spacing, {})[row.coefficient] = row
    for spacing, of in by_spacing.items():
        cells = [f"{of[SHOWN[0]].probes.value:.0f}"]
        cells += [PLAIN.estimate(of[name].agreement) for name in SHOWN]
        cells += [PLAIN.number(of[name].error.value) for name in SHOWN]
        cells += [PLAIN.estimate(of[name].rho) for name in SHOWN]
        table.add_row(spacing, *cells)
    return titled(
        "How many iterations, spaced how, are enough",
        table,
        "as all: rank correlation with the sum over every iteration; distance: of the values, relative to it",
        "ρ: rank correlation with forgetting",
    )


def _costs(rows: Sequence[Cost]) -> RenderableType:
    table = make_table(("measure",), ("probes", "all of them / training", "one / an epoch of training"))
    for row in rows:
        table.add_row(row.measure, f"{row.probes.value:.0f}", PLAIN.estimate(row.share), PLAIN.estimate(row.epoch))
    return titled("What it took, as a multiple of the training", table)
