"""Arms of a comparison on a terminal: a table and a sentence for each, and how many pairs a difference takes."""

import math
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType

from forgetscope.analysis.questions.arms import MEASURES, OF_COST, OF_OWN_LOSS, ArmMeasure, PairsNeeded
from forgetscope.benchmark.arms import AGAIN
from forgetscope.characters import counted
from forgetscope.report.terminal.columns import apart, make_table, plain, titled
from forgetscope.report.words.arms import arm_sentence, arm_sentences, barely_learned, by_measure, diverged, extension
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
        mine = by_measure(rows, arm, step)
        parts.append(_table(mine))
        if first := by_measure(planned, arm, step):
            there = [one["accuracy"].n + one["accuracy"].diverged for one in (first, mine)]
            parts.append(plain(f"{extension(*there)}. With the former alone: {arm_sentence(first)}"))
    more = ["again: the baseline with other draws of memory and batches, so that what differs is noise"]
    own = [OWN_LOSS] if any(row.measure in OF_OWN_LOSS for row in rows) else []
    remarks = (*(more if any(row.arm == AGAIN for row in rows) else []), *REMARKS, *own)
    return apart(*parts, Group(*(plain(remark, "dim") for remark in remarks)))


def _table(mine: Mapping[str, ArmMeasure]) -> RenderableType:
    arm = mine["accuracy"]
    table = make_table(("",), ("baseline", "arm", "difference", "at matched mean FG"))
    for measure, words in (MEASURES | OF_OWN_LOSS).items():
        if measure not in mine or not arm.n:
            continue  # what a method's own loss does, which was not measured; or no pair at all
        row = mine[measure]
        if measure in OF_COST:
            table.add_row(words, *_cost(row))
            continue
        differences = (PLAIN.estimate(one, 3, signed=True) for one in (row.as_trained, row.matched))
        table.add_row(words, *_both(row.baseline_value, row.value), *differences)
        if not math.isnan(row.noise_floor):
            table.add_row("  by noise", *_both(row.baseline_noise_floor, row.noise_floor), "", "")
        if measure == "true_variance":
            table.add_row("true spread", *_both(row.baseline_true_spread, row.true_spread), "", "")
    lost = f" ({diverged(arm)})" if diverged(arm) else ""
    title = f"Step {arm.step}: {arm.arm} against {arm.baseline}, {counted(arm.n, 'pair') if arm.n else 'no pair'}{lost}"
    caution = [plain(text) for text in (barely_learned(arm),) if text]
    return apart(*caution, titled(title, table) if arm.n else plain(title, "bold"), *map(plain, arm_sentences(mine)))


def _both(baseline: float, arm: float) -> tuple[str, str]:
    return PLAIN.number(baseline, 3), PLAIN.number(arm, 3)


def _cost(row: ArmMeasure) -> tuple[str, str, str, str]:
    if row.measure == "bytes":
        change = round(row.difference)
        sign = "" if not change else "+" if change > 0 else "−"
        own, usual = (size_text(round(number)) for number in (row.value, row.baseline_value))
        return usual, own, sign + size_text(abs(change)), ""
    change_in_seconds = PLAIN.estimate(row.as_trained, 1, signed=True)
    return PLAIN.number(row.baseline_value, 1), PLAIN.number(row.value, 1), change_in_seconds, ""


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
        arms = {row.arm: row for row in rows if row.step == step}
        parts += [plain(f"{arm}: {said}") for arm, row in arms.items() if (said := barely_learned(row))]
        parts.append(titled(f"Step {step}: how many pairs a difference takes", table))
        lost = {arm: counted(row.diverged, "further pair") for arm, row in arms.items() if row.diverged}
        parts += [plain(f"{arm} diverged in {pairs}, of which nothing here tells.") for arm, pairs in lost.items()]
    remark = (
        "sd: of the difference within pairs, in this store; show: the difference that these pairs find in four of five "
        "comparisons (paired two-sided t test at 5 %); needed: pairs that find the last column's difference so often"
    )
    return apart(*parts, plain(remark, "dim"))
