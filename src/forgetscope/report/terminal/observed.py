"""What monitors saw, as tables on a terminal."""

from collections.abc import Sequence

from rich.console import RenderableType

from forgetscope.analysis.observed import Observed, ObservedAnalysis
from forgetscope.characters import counted, shortened
from forgetscope.report.terminal.columns import apart, make_table, plain, titled
from forgetscope.report.terminal.experiments import caution_view, experiment_view, overview_view
from forgetscope.report.words.findings import unanalysed, unfinished
from forgetscope.report.words.notation import PLAIN

LISTED = 20  # monitors, and steps of one, that are listed
NAMED = 3  # classes that were forgotten most


def monitors_view(found: Sequence[Observed]) -> RenderableType:
    """A table per monitor, by name, with a line per step; what is incomplete or running is named below it."""
    title = f"Observed: {counted(len(found), 'monitor')}"
    more = [plain(f"and {len(found) - LISTED} more; --json has all of them", "dim")] if len(found) > LISTED else []
    return apart(plain(title, "bold"), *map(_monitor, found[:LISTED]), *more)


def observed_view(observed: Observed, step: int | None = None) -> RenderableType:
    """The past classes of one step (default: the last that has some), and what was measured."""
    shown = [own for own in observed.chain if step in (None, own.number)]
    said = dict.fromkeys(sentence for own in shown[-1:] for sentence in own.info["said"])
    return apart(
        *caution_view(observed, step),
        _monitor(observed, remarks=False),
        experiment_view(observed, step, cautioned=True),
        *(plain(sentence, "dim") for sentence in said),
    )


def observed_analysis_view(analysis: ObservedAnalysis) -> RenderableType:
    """Means by settings and step, what they leave out, and what they cannot know."""
    title = "Means over monitors with equal settings, with 95 % intervals where there are several"
    means = (
        [overview_view(analysis.groups, title, "incomplete")] if analysis.groups else [plain("No step has past classes yet.")]
    )
    left_out = [plain(f"{one.name}: {sentence}") for one in analysis.monitors for sentence in unanalysed(one)]
    return apart(*means, *left_out, *(plain(sentence, "dim") for sentence in analysis.cannot_know))


def _monitor(observed: Observed, *, remarks: bool = True) -> RenderableType:
    table = make_table((), ("step", "epochs", "past", "new", "accuracy", "mean FG", "FG-R", "by noise"))
    table.add_column("most forgotten")
    summaries = {summary.step: summary for summary in observed.summaries}
    for step in observed.steps[-LISTED:]:
        rows = observed.classes[observed.classes["step"] == step.number]
        summary = summaries.get(step.number)
        accuracy = summary.accuracy if summary else float(rows["accuracy"].astype(float).mean())
        worst = observed.past_classes(step.number).dropna(subset="forgetting")[:NAMED]
        named = (
            f"{shortened(name)} {PLAIN.number(fg)}" for name, fg in zip(worst["class_name"], worst["forgetting"], strict=True)
        )
        counts = (step.number, step.info["epochs"], summary.past_classes if summary else 0, len(step.new_classes))
        names = ("mean_forgetting", "forgetting_range", "range_floor")
        forgotten = (getattr(summary, name) if summary else float("nan") for name in names)
        table.add_row(*map(str, counts), PLAIN.percent(accuracy), *map(PLAIN.number, forgotten), ", ".join(named))
    cut = f", the latest {LISTED} of {len(observed.steps)} steps" if len(observed.steps) > LISTED else ""
    last = [*observed.chain, *observed.running][-1]
    settings = " ".join(f"{name}={value}" for name, value in (*last.settings.items(), *last.probing.items()))
    heading = " · ".join(filter(None, [f"{observed.name}{cut}", observed.network, settings]))
    return titled(heading, table, *(unfinished(observed) if remarks else []))
