"""Methods side by side on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType

from forgetscope.analysis.questions.arms import EVENLY
from forgetscope.analysis.questions.leaderboard import Leaderboard
from forgetscope.characters import counted
from forgetscope.report.terminal.columns import apart, make_table, plain, titled
from forgetscope.report.words.arms import arm_sentences, by_measure
from forgetscope.report.words.notation import PLAIN
from forgetscope.report.words.units import size_text

REMARKS = (
    "Most even first: by the true variance of forgetting between classes at matched mean FG, minus the baseline's, with a 95 % "
    "interval (matched). spread: its root as trained, without the noise of test images. worst: forgetting of the worst class.",
    "matched: in each pair one constant on all past logits, set on the test images, gives the arm the baseline's mean FG.",
)


def leaderboard_view(boards: Sequence[Leaderboard]) -> RenderableType:
    """A table for each setting and step, and a sentence for each arm."""
    parts: list[RenderableType] = []
    for board in boards:
        base = by_measure(board.rows, board.baseline, board.step)
        table = make_table(("",), ("n", "accuracy", "mean FG", "spread", "worst", "kept", "time", "matched"))
        for arm in board.arms:
            own = by_measure(board.rows, arm, board.step)
            values = (PLAIN.number(own[name].value, 2) for name in ("accuracy", "mean_forgetting"))
            even, seconds = own[EVENLY], base["seconds"].value
            time = PLAIN.number(own["seconds"].value / seconds, 2) if seconds > 0 else PLAIN.missing
            matched = "baseline" if arm == board.baseline else PLAIN.estimate(even.matched, 3, signed=True)
            rest = (PLAIN.number(even.true_spread, 2), PLAIN.number(own["worst_forgetting"].value, 2))
            table.add_row(arm, str(even.n), *values, *rest, size_text(round(own["bytes"].value)), time, matched)
        said = [
            plain(sentence)
            for arm in board.arms
            if arm != board.baseline
            for sentence in arm_sentences(by_measure(board.rows, arm, board.step), base)
        ]
        parts.append(apart(titled(f"Step {board.step}: {board.setting}", table), *said))
    return apart(*parts, Group(*(plain(remark, "dim") for remark in REMARKS)))


def nothing_to_rank(experiments: int) -> str:
    """Why there is no table."""
    return (
        f"Of {counted(experiments, 'experiment')} no two differ in method, policy or calibration from a common first step. Run "
        "some: forgetscope compare FILE --arm 'plain:' --arm 'distilled: method=distillation'"
    )
