"""Arms of a comparison on a terminal: a table and a sentence for each, and how many pairs a difference takes."""

import math
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType

from forgetscope.analysis.questions.arms import MEASURES, OF_COST, OF_OWN_LOSS, ArmMeasure, PairsNeeded
from forgetscope.benchmark.arms import AGAIN
from forgetscope.characters import counted
from forgetscope.report.terminal.columns import apart, make_table, plain, titled
from forgetscope.report.words.arms import arm_sentence, arm_sentences, by_measure, extension
from forgetscope.report.words.notation import PLAIN
from forgetscope.report.words.units import size_text

REMARKS = (
    "difference: arm minus baseline within pairs, with 95 % t intervals; where nothing differs, one in twenty excludes 0",
    "at matched mean FG: in each pair one constant on all past logits of the arm, set on the test images, gives it the "
    "baseline's mean FG; more evenly is said of the true variance there",
    "variance: the true one of forgetting over classes, without that noise; true spread: its root (0: none was found)",
)

OWN_LOSS = (
    "own loss: mean over past classes of what the method's own updates do, which of replay is SIC, CIC and NIC; changed: that "
    "minus what replay's would do in the same network (docs/methods.md)"
)


def arms_view(rows: Sequence[ArmMeasure], planned: Sequence[ArmMeasure] = ()) -> RenderableType:
    """Each arm against the first, step by step. planned: the same over the pairs planned at first, if there are more."""
    parts: list[RenderableType] = []
    baseline = rows[0].arm
    for step, arm in dict.fromkeys((row.step, row.arm) for row in rows if row.arm != baseline):
        mine, base = by_measure(rows, arm, step), by_measure(rows, baseline, step)
        parts.append(_table(mine, base))
        if first := by_measure(planned, arm, step):
            before = arm_sentence(first, by_measure(planned, baseline, step))
            parts.append(plain(f"{extension(first['accuracy'].n, mine['accuracy'].n)}. With the former alone: {before}"))
    more = ["again: the baseline with other draws of memory and batches, so that what differs is noise"]
    own = [OWN_LOSS] if any(row.measure in OF_OWN_LOSS for row in rows) else []
    remarks = (*(more if any(row.arm == AGAIN for row in rows) else []), *REMARKS, *own)
    return apart(*parts, Group(*(plain(remark, "dim") for remark in remarks)))


def _table(mine: Mapping[str, ArmMeasure], base: Mapping[str, ArmMeasure]) -> RenderableType:
    table = make_table(("",), ("baseline", "arm", "difference", "at matched mean FG"))
    for measure, words in (MEASURES | OF_OWN_LOSS).items():
        if measure not in mine or measure not in base:
            continue  # what a method's own loss does, which was not measured
        here, there = mine[measure], base[measure]
        if measure in OF_COST:
            table.add_row(words, *_cost(here, there))
            continue
        differences = (PLAIN.estimate(one, 3, signed=True) for one in (here.as_trained, here.matched))
        table.add_row(words, *(PLAIN.number(side.value, 3) for side in (there, here)), *differences)
        if not math.isnan(here.noise_floor):
            table.add_row("  by noise", *(PLAIN.number(side.noise_floor, 3) for side in (there, here)), "", "")
        if measure == "true_variance":
            table.add_row("true spread", *(PLAIN.number(side.true_spread, 3) for side in (there, here)), "", "")
    arm, baseline = mine["accuracy"], base["accuracy"].arm
    title = f"Step {arm.step}: {arm.arm} against {baseline}, {counted(arm.n, 'pair')}"
    return apart(titled(title, table), *(plain(said) for said in arm_sentences(mine, base)))


def _cost(here: ArmMeasure, there: ArmMeasure) -> tuple[str, str, str, str]:
    if here.measure == "bytes":
        change = round(here.difference)
        sign = "" if not change else "+" if change > 0 else "−"
        return size_text(round(there.value)), size_text(round(here.value)), sign + size_text(abs(change)), ""
    return PLAIN.number(there.value, 1), PLAIN.number(here.value, 1), PLAIN.estimate(here.as_trained, 1, signed=True), ""


def power_view(rows: Sequence[PairsNeeded]) -> RenderableType:
    """A table per step: what the pairs so far can show, and what a difference would take."""
    parts: list[RenderableType] = []
    for step in dict.fromkeys(row.step for row in rows):
        table = make_table(("arm", "measure", "mean FG"), ("sd", "pairs", "show", "needed", "difference"))
        for row in rows:
            if row.step == step:
                needed = PLAIN.missing if row.pairs is None else f"{row.pairs:,}"
                shown = (PLAIN.number(row.sd, 4), str(row.n), PLAIN.number(row.smallest, 3), needed, f"{row.difference:g}")
                table.add_row(row.arm, MEASURES[row.measure], "matched" if row.matched else "own", *shown)
        parts.append(titled(f"Step {step}: how many pairs a difference takes", table))
    remark = (
        "sd: of the difference within pairs, in this store; show: the difference that these pairs find in four of five "
        "comparisons (paired two-sided t test at 5 %); needed: pairs that find the last column's difference so often"
    )
    return apart(*parts, plain(remark, "dim"))
