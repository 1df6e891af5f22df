"""Steps that are under way, and the classes that they are losing, on a terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType

from forgetscope.characters import counted
from forgetscope.report.terminal.columns import apart, make_table, plain, titled
from forgetscope.report.words.notation import PLAIN
from forgetscope.report.words.units import duration
from forgetscope.underway.risk import trend
from forgetscope.underway.running import Finished, UnderWay

SHOWN = 8  # steps with their classes; of more, a line each
LATEST = 3  # finished steps


def watch_view(store: str, found: Sequence[UnderWay], finished: Sequence[Finished], problems: Sequence[str]) -> RenderableType:
    """Steps that are alive with their classes, what fell silent, and what finished last."""
    alive = [one for one in found if one.is_alive]
    quiet = [one for one in found if not one.is_alive]
    head = f"{counted(len(alive), 'step', 'is/are')} running in {store}" if alive else f"Nothing is running in {store}"
    parts = [plain(head, "bold"), *map(_step, alive[:SHOWN])]
    parts += [plain(line_of(one)) for one in alive[SHOWN:]]
    parts += [plain(silence_of(one)) for one in quiet]
    parts += [plain(problem, "dim") for problem in problems]
    if finished:
        parts.append(_finished(finished[:LATEST]))
    return apart(*parts)


def line_of(one: UnderWay) -> str:
    """`Step 2 (5283ad18): epoch 7 of 15 · loss 0.812 · about 3 minutes left`."""
    progress = one.progress
    epochs = f"epoch {progress.epoch}" + (f" of {progress.epochs}" if progress.epochs is not None else "")
    loss = "" if progress.loss is None else f"loss {PLAIN.number(progress.loss, 3)}"
    left = "" if progress.seconds_left is None else f"about {duration(progress.seconds_left)} left"
    return f"{title_of(one)}: {' · '.join(filter(None, (epochs, loss, left)))}"


def title_of(one: UnderWay) -> str:
    step = one.progress.step
    return f"Observed step {step}" if "/" in step else f"Step {one.progress.number} ({step[:8]})"


def silence_of(one: UnderWay) -> str:
    """What to think of a step that says nothing any more."""
    progress, ago = one.progress, duration(one.silent)
    where = f"after epoch {progress.epoch}"
    if progress.state == "stopped":
        return f"{title_of(one)} was stopped {where}, {ago} ago. The command that ran it goes on from there."
    told = f"{title_of(one)} has said nothing for {ago}, {where}:"
    if "/" in progress.step:
        return f"{told} its training ended without a word, or takes longer than it did."
    return f"{told} it was killed, or its machine stands still. The command that ran it goes on from its last snapshot."


def _step(one: UnderWay) -> RenderableType:
    if not one.at_risk:
        past = one.progress.past
        why = "No past classes yet: nothing can be forgotten." if not past else "No probe has ended yet, or none was asked for."
        return Group(plain(line_of(one), "bold"), plain(why, "dim"))
    table = make_table(("rank", "class"), ("moved", "SIC", "NIC", ("loss", "of all"), ("of", "kept")))
    table.add_column("why")
    for row in one.at_risk:
        risk = row.risk
        numbers = (PLAIN.significant(value) for value in (risk.sic, risk.nic, row.loss_all, row.loss_rehearsed))
        table.add_row(str(risk.rank), risk.name, trend(risk.moved), *numbers, risk.why)
    of = f"{len(one.at_risk)} of {counted(one.progress.past, 'past class')}, after {counted(one.probes, 'probe')}"
    return titled(line_of(one), table, of)


def _finished(found: Sequence[Finished]) -> RenderableType:
    table = make_table(("finished last",), ("step", "mean FG"))
    table.add_column("when (UTC)")
    for one in found:
        table.add_row(
            one.step[:40] if "/" in one.step else one.step[:8],
            str(one.number),
            PLAIN.number(one.mean_forgetting),
            one.committed[:19],
        )
    return table
