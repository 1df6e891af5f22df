"""Methods side by side on a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType

from forgetscope.analysis.questions.arms import EVENLY, ArmMeasure
from forgetscope.analysis.questions.leaderboard import Leaderboard
from forgetscope.characters import counted
from forgetscope.report.terminal.columns import apart, make_table, plain, titled
from forgetscope.report.words.arms import arm_sentences, barely_learned, by_measure
from forgetscope.report.words.notation import PLAIN
from forgetscope.report.words.units import size_text

REMARKS = (
    "Most even first: by the true variance of forgetting between classes at matched mean FG, minus the baseline's, with a 95 % "
    "interval (matched). spread: its root as trained, without the noise of test images. worst: forgetting of the worst class.",
    "matched: in each pair one constant on all past logits, set on the test images, gives the arm the baseline's mean FG. What "
    "could not be matched in two pairs has no interval and is not ranked.",
    "kept: bytes kept of past classes: images, logits and keepsakes. time: over the baseline's, of training and calibration "
    "without probes and forecasts; other work of the machine is in it, too.",
    "n: pairs with the baseline. Pairs in which training diverged are in no other number. Where an arm has fewer pairs than "
    "the baseline, the line below it has the baseline over the same pairs.",
)


def leaderboard_view(boards: Sequence[Leaderboard]) -> RenderableType:
    """A table for each setting and step, and a sentence for each arm."""
    parts: list[RenderableType] = []
    for board in boards:
        own = {arm: by_measure(board.rows, arm, board.step) for arm in board.arms}
        table = make_table(("",), ("n", "accuracy", "mean FG", "spread", "worst", "kept", "time", "matched"))
        for arm in board.arms:
            row = own[arm]["accuracy"]
            table.add_row(arm, _pairs(row), *_values(own[arm]), _matched(board, own[arm][EVENLY]))
            if arm != board.baseline and 0 < row.n < own[board.baseline]["accuracy"].n:
                table.add_row(f"  {board.baseline} there", str(row.n), *_values(own[arm], of_baseline=True), style="dim")
        said = [sentence for arm in board.arms if arm != board.baseline for sentence in arm_sentences(own[arm])]
        barely: dict[str, list[str]] = {}
        for arm, rows in own.items():
            barely.setdefault(barely_learned(rows[EVENLY]), []).append(arm)
        cautions = [f"{'; '.join(arms)}: {sentence}" for sentence, arms in barely.items() if sentence]
        parts.append(apart(*map(plain, cautions), titled(f"Step {board.step}: {board.setting}", table), *map(plain, said)))
    return apart(*parts, Group(*(plain(remark, "dim") for remark in REMARKS)))


def _values(own: Mapping[str, ArmMeasure], *, of_baseline: bool = False) -> tuple[str, ...]:
    """From accuracy to time; of the baseline over the same pairs, if so."""
    values = {name: row.baseline_value if of_baseline else row.value for name, row in own.items()}
    spread, seconds = own[EVENLY].baseline_true_spread if of_baseline else own[EVENLY].true_spread, own["seconds"]
    shown = (values["accuracy"], values["mean_forgetting"], spread, values["worst_forgetting"])
    kept = PLAIN.missing if math.isnan(values["bytes"]) else size_text(round(values["bytes"]))
    time = values["seconds"] / seconds.baseline_value if seconds.baseline_value > 0 else math.nan
    return *(PLAIN.number(value, 2) for value in shown), kept, PLAIN.number(time, 2)


def _pairs(row: ArmMeasure) -> str:
    return f"{row.n}, {row.diverged} diverged" if row.diverged else str(row.n)


def _matched(board: Leaderboard, even: ArmMeasure) -> str:
    if even.arm == board.baseline:
        return "baseline"
    known = PLAIN.estimate(even.matched, 3, signed=True)
    return known if even.arm in board.ranked else "not ranked" if not even.matched_n else f"{known}, not ranked"


def nothing_to_rank(experiments: int) -> str:
    """Why there is no table."""
    return (
        f"Of {counted(experiments, 'experiment')} no two differ in method, policy or calibration from a common first step. Run "
        "some: forgetscope compare FILE --arm 'plain:' --arm 'distilled: method=distillation'"
    )
