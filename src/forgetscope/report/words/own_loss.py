"""Which of SIC, CIC and NIC a method takes away, in a sentence; and class by class, wherever a step is shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from forgetscope.analysis.experiments import Experiment
from forgetscope.analysis.questions.own_loss import SOURCES, own_loss
from forgetscope.analysis.statistics.estimates import Estimate
from forgetscope.report.words.findings import Shown
from forgetscope.report.words.notation import PLAIN

TITLE = "what the method's own loss does, beside replay's"
HEADS = tuple(head for source in SOURCES.values() for head in (source, f"own {source}"))
UNCHANGED = 0.0005  # a mean and its interval below this are written as 0
REMARK = (
    "own: of the method's loss and the images that it trains on; beside it of plain cross-entropy and the images that were "
    "kept, in the same network at the same probes (docs/methods.md)"
)


@dataclass(frozen=True)
class OwnLossTable:
    """By class name, the most forgotten first, the cells under `HEADS`; then their means, and what they say."""

    rows: list[tuple[str, ...]]
    said: str


def own_loss_table(experiment: Shown, step: int) -> OwnLossTable | None:
    """Of one step; None where the method's own interference was not measured."""
    stored = experiment.numbered(step)
    found = own_loss(stored)
    if found is None or not isinstance(experiment, Experiment):
        return None
    rows = []
    for row in experiment.past_classes(step).to_dict("records"):
        pairs = ((row[name], row[f"method_{name}"]) for name in SOURCES)
        rows.append((str(row["class_name"]), *(PLAIN.number(value, 3) for pair in pairs for value in pair)))
    means = (PLAIN.number(of[name], 3) for name in SOURCES for of in (found.replay, found.own))
    method = experiment.numbered(step).setting.method[0]
    return OwnLossTable(
        [*rows, ("mean", *means)], f"{takes_away(method, found.differences)} Means over past classes, with 95 % intervals."
    )


def takes_away(name: str, differences: Mapping[str, Estimate]) -> str:
    """name: of a method or arm; differences: by source, of its loss minus those of replay's in the same network."""
    whose = f"{name}: its own loss, against replay's in the same network,"
    if all(math.isnan(one.high) for one in differences.values()):
        return f"{whose} was measured once; of one class or pair nothing can be said."
    parts: dict[str, list[str]] = {"takes away {}": [], "adds {}": [], "leaves {} as it was": [], "may change {}": []}
    for source, one in differences.items():
        kind = "takes away {}" if one.high < 0 else "adds {}" if one.low > 0 else "may change {}"
        if max(abs(one.low), abs(one.high)) < UNCHANGED:
            parts["leaves {} as it was"].append(SOURCES[source])
        else:
            parts[kind].append(f"{SOURCES[source]} {PLAIN.estimate(one, 3, signed=True)}")
    return f"{whose} {'; '.join(kind.format(_listed(of)) for kind, of in parts.items() if of)}."


def _listed(parts: list[str]) -> str:
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"
