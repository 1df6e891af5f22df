"""What was found, on a terminal: an analysis, variants of a run, controlled experiments, and what approximations cost."""

import math
from collections.abc import Sequence

import pandas as pd
from rich.console import RenderableType

from forgetscope.analysis.experiments import BEYOND_NOISE, MEASURES
from forgetscope.analysis.questions.approximations import Approximations, Contrast, Cost, Thinning
from forgetscope.analysis.questions.controlled import ControlledStep
from forgetscope.analysis.questions.variants import FORGETTING, VariantComparison
from forgetscope.analysis.rows import records
from forgetscope.characters import counted
from forgetscope.report.exhibited import Shown
from forgetscope.report.terminal.columns import apart, make_table, plain, titled
from forgetscope.report.typeset.layout import lay_out
from forgetscope.report.words.captions import EMPTY, caption
from forgetscope.report.words.notation import PLAIN
from forgetscope.store import ALL_LAYERS, EVERY_ITERATION, OF_METHOD, RELEASED

FORMS = {  # of coefficients: a title, and what the two forms are called, the paper's first
    ALL_LAYERS: ("All layers against the last, at the same probes", "last layer", "all layers"),
    EVERY_ITERATION: ("Sums over every iteration against sums over epochs", "epochs", "every iteration"),
    OF_METHOD: ("A method's own loss against plain cross-entropy, at the same probes", "cross-entropy", "own loss"),
    RELEASED: ("NIC as released against NIC as the paper defines it", "as defined", "as released"),
}
SHOWN = ("SIC", "CIC", "NIC")


def exhibit_view(shown: Shown) -> RenderableType:
    """One table of an analysis: the columns that say something, as they are in its file."""
    frame = shown.frame
    if shown.exhibit.layout == "noise" and len(frame):
        return _laid_out(shown)
    blank = frame.isna() | frame.astype(str).isin(["", "False"])
    columns = [name for name in frame.columns if name != "table" and not (len(frame) and blank[name].all())]
    texts = [name for name in columns if not pd.api.types.is_numeric_dtype(frame[name])]
    numbers = [name for name in columns if name not in texts]
    table = make_table(texts, numbers)
    for row in records(frame):
        cells = (PLAIN.significant(x) if isinstance(x, float) else str(x) for x in (row[name] for name in numbers))
        table.add_row(*(str(row[name]) for name in texts), *cells)
    return titled(shown.exhibit.title, table, *([] if len(frame) else [EMPTY]))


def _laid_out(shown: Shown) -> RenderableType:
    """As it is in documents."""
    head, *others = lay_out(shown, PLAIN).lines
    texts = [cell.text for cell in head.cells]
    table = make_table(texts[:2], texts[2:])
    for line in others:
        table.add_row(*(cell.text.replace("\n", " ") for cell in line.cells))
    return titled(shown.exhibit.title, table, *caption(shown).removeprefix(f"{shown.exhibit.title}. ").split(". "))


def variants_view(rows: Sequence[VariantComparison]) -> RenderableType:
    """Means over pairs, and below them the paired differences to the run as it is."""
    parts: list[RenderableType] = []
    for step in sorted({row.step for row in rows}):
        here = [row for row in rows if row.step == step]
        parts += [_means(step, here), _differences(here)]
    return apart(*parts)


def _means(step: int, rows: Sequence[VariantComparison]) -> RenderableType:
    heads = FORGETTING | {name: f"ρ {title}" for name, title in MEASURES.items()} | BEYOND_NOISE
    table = make_table(("variant",), ("pairs", *heads.values()))
    for row in rows:
        pairs = f"{row.pairs}" + (f" (and {row.diverged} diverged)" if row.diverged else "")
        table.add_row(row.variant, pairs, *(PLAIN.estimate(row.means[name]) for name in heads))
    return titled(f"Step {step}: means over pairs with 95 % intervals (ρ: rank correlation with forgetting)", table)


def _differences(rows: Sequence[VariantComparison]) -> RenderableType:
    table = make_table(("variant", "from"), (*FORGETTING.values(), *(f"z {name}" for name in MEASURES.values())))
    for row in rows[1:]:
        start = "a common parent" if row.common_parent else "its own"
        cells = (PLAIN.estimate(row.differences[name].estimate, signed=True) for name in (*FORGETTING, *MEASURES))
        table.add_row(row.variant, start, *cells)
    return titled("Differences to the run as it is, within pairs (z: Fisher's, of the correlations)", table)


def controlled_view(steps: Sequence[ControlledStep]) -> RenderableType:
    """A line per picked step: the spread of its classes' correlations."""
    numbers = ("runs", "classes", "median", "quartiles", "range", "ρ > 0", "mean", "sd")
    table = make_table((), ("step", "increment", "retention", *numbers))
    for found in steps:
        runs, spread = str(found.runs) if found.runs == found.planned else f"{found.runs} of {found.planned}", found.spread
        middle = (PLAIN.number(spread.median), _between(spread.quartiles), _between(spread.extremes))
        others = (PLAIN.percent(spread.positive), PLAIN.number(spread.mean), PLAIN.number(spread.deviation))
        shares = (f"{100 * share:g} %" for share in (found.increment, found.retention))
        table.add_row(str(found.step), *shares, runs, str(spread.classes), *middle, *others)
    diverged, missing, unproved = (sum(getattr(s, name) for s in steps) for name in ("diverged", "missing", "unproved"))
    left_out = f"Left out: {counted(diverged, 'run')} that diverged, {counted(missing, 'that is/that are')} not in the store"
    proof = "Parent, seed, specification, rehearsal set and initial weights are equal in all runs of a step: checked"
    if unproved:
        proof = f"Of {counted(unproved, 'run')} the initial weights were not recorded: that they are equal is not proved"
    return titled(
        "Spearman's ρ of NIC and SIC over runs that differ in their new classes alone, over the past classes of each step",
        table,
        "ρ > 0: where the new classes push a class down more, its own rehearsal images mislead it more",
        *([left_out, proof] if diverged or missing else [proof]),
    )


def _between(values: tuple[float, float]) -> str:
    return PLAIN.missing if math.isnan(values[0]) else " to ".join(map(PLAIN.number, values))


def approximations_view(found: Sequence[Approximations]) -> RenderableType:
    parts: list[RenderableType] = []
    for group in found:
        parts.append(plain(f"Step {group.step}: {group.setting} (n = {group.steps})", "bold"))
        by_form = {form: [contrast for contrast in group.contrasts if contrast.form == form] for form in FORMS}
        parts += [_contrasts(*FORMS[form], rows) for form, rows in by_form.items() if rows]
        parts += [_thinnings(group.thinnings)] if group.thinnings else []
        parts += [_costs(group.costs)] if group.costs else []
    return apart(*parts)


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
