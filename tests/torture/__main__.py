"""The campaigns at full size: `python -m torture [ROW ...]`; prints a Markdown table, exits with 1 if anything was lost."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from torture import clusters, crashes, crowds, damage, edits, hostile, kills, signals, space
from torture.harness import Bench, Lost, Outcome, Progress, bench

Campaign = Callable[[Bench, Progress], Outcome]
SEED = 20261116
ONLY = int(os.environ["TORTURE_ONLY"]) if "TORTURE_ONLY" in os.environ else None  # one mutation of `hostile`, to look at

ROWS: dict[str, Campaign] = {
    "kills": lambda bench, progress: kills.campaign(bench, 200, SEED, progress),
    "crashes": lambda bench, progress: crashes.campaign(bench, 0, SEED, progress),
    "power": lambda bench, progress: crashes.campaign(bench, 0, SEED, progress, power=True),
    "refusals": lambda bench, progress: crashes.refusals(bench, 0, SEED, progress),
    "damage": lambda bench, progress: damage.campaign(bench, 300, SEED, progress, runs=40),
    "space": lambda bench, progress: space.campaign(bench, 20, SEED, progress),
    "crowds": lambda bench, progress: crowds.campaign(bench, 20, SEED, progress),
    "locks": lambda bench, progress: crowds.unlocked(bench, 21, SEED, progress),
    "edits": lambda bench, progress: edits.campaign(bench, 40, SEED, progress, benchmarks=10),
    "signals": lambda bench, progress: signals.campaign(bench, 20, SEED, progress),
    "hostile": lambda bench, progress: hostile.campaign(bench, 2400, hostile.SEED, progress, only=ONLY),
    "clusters": lambda bench, progress: clusters.campaign(bench, SEED, progress, workers=20, nodes=10, drivers=5),
}


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - set(ROWS))
    if unknown:
        print(f"There is no row {unknown[0]!r}. Rows: {', '.join(ROWS)}.", file=sys.stderr)
        return 2
    outcomes = []
    for name in names or ROWS:
        begin = time.monotonic()
        with bench(_roomy()) as made:
            try:
                outcome = ROWS[name](made, partial(_tell, name, begin))
            except Lost as loss:  # before or after the trials: the campaign itself did not hold
                outcome = Outcome(name, tried=1, details=[str(loss)])
        outcome.seconds = time.monotonic() - begin
        outcomes.append(outcome)
        print(file=sys.stderr)
        for line in outcome.details:
            print(f"LOST {name}: {line}", file=sys.stderr, flush=True)
        print(_row(outcome), file=sys.stderr, flush=True)
    print("\n| fault | tried | survived | lost | remarks |\n|---|---|---|---|---|")
    print("\n".join(_row(outcome) for outcome in outcomes))
    return 1 if any(outcome.lost or outcome.details for outcome in outcomes) else 0


def _row(outcome: Outcome) -> str:
    remarks = "; ".join([*outcome.remarks, f"{outcome.seconds / 60:.0f} min"])
    return f"| {outcome.fault} | {outcome.tried} | {outcome.survived} | {outcome.lost} | {remarks} |"


def _tell(name: str, begin: float, done: int, total: int) -> None:
    left = (time.monotonic() - begin) / max(1, done) * (total - done)
    text = f"{name}: {done} of {total}, {left / 60:.0f} min left"
    sys.stderr.write(f"\r{text:<60}" if sys.stderr.isatty() else f"{text}\n")
    sys.stderr.flush()


def _roomy() -> Path | None:
    """Where to work: TORTURE_FOLDER, else where temporary files go. Not a tmpfs if syncing is to mean anything."""
    named = os.environ.get("TORTURE_FOLDER")
    return Path(named) if named else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
