"""The page of steps that are under way: what it is at first, and what it asks for again and again.

Names come from files of others: they reach the page as JSON, and its script makes text nodes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from forgetscope.characters import visible
from forgetscope.report.document import watch_document
from forgetscope.report.pages.packing import asset, number, page, script_digest
from forgetscope.report.underway import SHOWN, lack_of, line_of, pace_of, silence_of, title_of
from forgetscope.underway.risk import trend
from forgetscope.underway.running import Finished, UnderWay

POINTS = 300  # of a curve; of a longer one so many, the last among them

STYLES = ("base.css", "explorer.css", "terms.css", "live.css")
SCRIPTS = ("core.js", "terms.js", "live.js")


def render_live(store: str, every: float) -> tuple[str, str]:
    """The page, which asks anew every so many seconds, and its Content-Security-Policy."""
    css, script = "".join(map(asset, STYLES)), "\n".join(map(asset, SCRIPTS))
    own = "; ".join(f"{kind}-src 'sha256-{script_digest(text)}'" for kind, text in (("style", css), ("script", script)))
    shown = {
        "store": visible(store),
        "every": every,
        "css": css,
        "packs": {},
        "scripts": [script],
        "digests": [script_digest(script)],
    }
    return page("live.html.j2", **shown), f"default-src 'none'; img-src data:; {own}; connect-src 'self'"


def live_document(
    found: Sequence[UnderWay], finished: Sequence[Finished], problems: Sequence[str], lost: str
) -> dict[str, Any]:
    """What `watch --json` has, in words too, and what each class was at every probe.

    lost: why there is no store to look at, or empty. Nothing in it changes because time passes, but the words that say how long
    a step has been silent: a page is sent nothing that it has."""
    alive, quiet = [one for one in found if one.is_alive], [one for one in found if not one.is_alive]
    told = watch_document([*alive[:SHOWN], *quiet[:SHOWN]], finished)
    for name, steps in (("running", alive), ("silent", quiet)):
        told[name] = [_in_words(line, one) for line, one in zip(told[name], steps, strict=False)]
    more = [*map(line_of, alive[SHOWN:]), *map(silence_of, quiet[SHOWN:])]
    return {**told, "alive": len(alive), "more": more, "problems": [*map(visible, problems)], "lost": visible(lost)}


def state_bytes(document: dict[str, Any]) -> bytes:
    return json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()


def _in_words(line: dict[str, Any], one: UnderWay) -> dict[str, Any]:
    line.pop("silent_seconds", None)
    kept = _thinned(len(one.probed_at))
    rows = []
    for row, watched in zip(line["at_risk"], one.at_risk, strict=True):
        curves = {name: [number(curve[i]) for i in kept] for name, curve in watched.curves.items()}
        rows.append({**row, "trend": trend(watched.risk.moved), "curves": curves})
    losses = one.progress.losses
    return {
        **line,
        **{"key": visible(one.key), "title": title_of(one), "pace": pace_of(one), "lack": lack_of(one)},
        **{"said": "" if one.is_alive else silence_of(one), "past": one.progress.past, "probes": one.probes},
        **{"counted": "epoch" if "/" in one.progress.step else "iteration", "probed_at": [one.probed_at[i] for i in kept]},
        **{"losses": [(i + 1, number(losses[i])) for i in _thinned(len(losses))], "at_risk": rows},
    }


def _thinned(length: int) -> list[int]:
    """Which of so many points are shown."""
    if length <= POINTS:
        return list(range(length))
    return [round(i * (length - 1) / (POINTS - 1)) for i in range(POINTS)]
