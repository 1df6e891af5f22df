"""Variants of a run on a terminal: means over pairs, and below them the paired differences to the run as it is."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType

from forgetscope.analysis.experiments import MEASURES
from forgetscope.analysis.questions.variants import FORGETTING, VariantComparison
from forgetscope.report.terminal.tables import make_table, plain, titled
from forgetscope.report.words.notation import PLAIN


def variants_view(rows: Sequence[VariantComparison]) -> RenderableType:
    parts: list[RenderableType] = []
    for step in sorted({row.step for row in rows}):
        here = [row for row in rows if row.step == step]
        parts += [_means(step, here), plain(""), _differences(here), plain("")]
    return Group(*parts[:-1])


def _means(step: int, rows: Sequence[VariantComparison]) -> RenderableType:
    table = make_table(("variant",), ("pairs", *FORGETTING.values(), *(f"ρ {name}" for name in MEASURES.values())))
    for row in rows:
        pairs = f"{row.pairs}" + (f" (and {row.diverged} diverged)" if row.diverged else "")
        table.add_row(row.variant, pairs, *(PLAIN.estimate(row.means[name]) for name in (*FORGETTING, *MEASURES)))
    return titled(f"Step {step}: means over pairs with 95 % intervals (ρ: rank correlation with forgetting)", table)


def _differences(rows: Sequence[VariantComparison]) -> RenderableType:
    table = make_table(("variant", "from"), (*FORGETTING.values(), *(f"z {name}" for name in MEASURES.values())))
    for row in rows[1:]:
        start = "a common parent" if row.common_parent else "its own"
        cells = (PLAIN.estimate(row.differences[name].estimate, signed=True) for name in (*FORGETTING, *MEASURES))
        table.add_row(row.variant, start, *cells)
    return titled("Differences to the run as it is, within pairs (z: Fisher's, of the correlations)", table)
