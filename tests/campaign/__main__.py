"""`python -m campaign [STORES] [FIRST-SEED]`: the table of docs/evidence/verdicts.md. Fails if verdicts are wrong too often."""

import sys
import time
from collections import Counter

from campaign.stores import verdicts
from campaign.worlds import OFTEN, TRIALS, WORLDS, Trial

STORES = 200  # of each world
ALLOWED = 0.05  # of the verdicts on a claim under one truth
WRONG = ("contested", "confirmed", "confirmed")  # where the claim holds, where its opposite does, and where there is nothing

Counts = dict[str, dict[str, Counter[str]]]  # by world and claim


def counted(stores: int, first: int = 0) -> Counts:
    """Verdicts of the claims that are tried, in each world."""
    found: Counts = {}
    for number, (name, (shape, world)) in enumerate(WORLDS.items(), start=1):
        began, tried = time.monotonic(), {trial.claim for trial in TRIALS if name in trial[1:]}
        found[name] = {claim: Counter() for claim in tried}
        for told in verdicts(shape, world, range(first, first + stores * OFTEN.get(name, 1))):
            for claim in tried & told.keys():
                found[name][claim][told[claim]] += 1
        print(f"{number} of {len(WORLDS)} worlds: {name}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return found


def wrong(counts: Counts, trial: Trial) -> list[float]:
    """The share of wrong verdicts under each of a claim's three truths; of the stores that answer."""
    places = zip((counts[world][trial.claim] for world in trial[1:]), WRONG, strict=True)
    return [count[word] / max(1, count.total()) for count, word in places]


def table(counts: Counts) -> str:
    """In Markdown."""
    lines = ["| claim | where it holds | where its opposite does | where there is nothing |", "|---|---|---|---|"]
    for trial in TRIALS:
        cells = [counts[world][trial.claim] for world in trial[1:]]
        told = (f"{count['confirmed']} / {count['contested']} / {count['undecided']}" for count in cells)
        lines.append(f"| {trial.claim} | {' | '.join(told)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    counts = counted(*map(int, sys.argv[1:])) if sys.argv[1:] else counted(STORES)
    print(table(counts))
    shares = {trial: wrong(counts, trial) for trial in TRIALS}
    print(f"\nThe most wrong verdicts under one truth: {100 * max(map(max, shares.values())):.1f} %")
    bad = [f"{trial.claim}: {share}" for trial, share in shares.items() if max(share) >= ALLOWED]
    sys.exit("\n".join(("Wrong too often:", *bad)) if bad else 0)
