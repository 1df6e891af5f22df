"""Steps that are under way, and the classes that they are losing, on a terminal."""

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType

from forgetscope.characters import counted, shortened
from forgetscope.report.terminal.columns import apart, make_table, plain, titled
from forgetscope.report.underway import SHOWN, lack_of, line_of, silence_of
from forgetscope.report.words.notation import PLAIN
from forgetscope.underway.alarms import Raised
from forgetscope.underway.risk import trend
from forgetscope.underway.running import Finished, UnderWay

LATEST = 3  # finished steps


def watch_view(
    store: str, found: Sequence[UnderWay], finished: Sequence[Finished], problems: Sequence[str], alarms: Sequence[Raised] = ()
) -> RenderableType:
    """Alarms that went off, steps that are alive with their classes, what fell silent, and what finished last."""
    alive = [one for one in found if one.is_alive]
    quiet = [one for one in found if not one.is_alive]
    head = f"{counted(len(alive), 'step', 'is/are')} running in {store}" if alive else f"Nothing is running in {store}"
    parts: list[RenderableType] = [plain(head, "bold")]
    parts += [Group(*(plain(f"Alarm: {one}", "bold") for one in alarms))] if alarms else []  # first: a low screen is cut off
    parts += map(_step, alive[:SHOWN])
    parts += [plain(line_of(one)) for one in alive[SHOWN:]]
    parts += [plain(silence_of(one)) for one in quiet]
    parts += [plain(problem, "dim") for problem in problems]
    if finished:
        parts.append(_finished(finished[:LATEST]))
    return apart(*parts)


def _step(one: UnderWay) -> RenderableType:
    if not one.at_risk:
        return Group(plain(line_of(one), "bold"), plain(lack_of(one), "dim"))
    foreseen = any(math.isfinite(row.forecast) for row in one.at_risk)
    heads = ("moved", "SIC", "NIC", ("loss", "of all"), ("of", "kept"), *((("final", "FG"),) if foreseen else ()))
    table = make_table(("rank", "class"), heads)
    if foreseen:
        table.add_column(("95 %", "interval"))
    table.add_column("why")
    for row in one.at_risk:
        risk = row.risk
        numbers = (PLAIN.significant(value) for value in (risk.sic, risk.nic, row.loss_all, row.loss_rehearsed))
        ends = PLAIN.interval(row.forecast_low, row.forecast_high)
        expected = (PLAIN.number(row.forecast), ends) if foreseen else ()
        table.add_row(str(risk.rank), shortened(risk.name), trend(risk.moved), *numbers, *expected, risk.why)
    of = f"{len(one.at_risk)} of {counted(one.progress.past, 'past class')}, after {counted(one.probes, 'probe')}"
    return titled(line_of(one), table, of, *filter(None, (one.forecasts_by,)))


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
