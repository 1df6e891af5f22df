"""Which source of interference a method takes away: its own loss against replay's, in the same network at the same moment."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.statistics.estimates import Estimate, mean_estimate
from forgetscope.store import StoredTables

Values = NDArray[np.float64]

SOURCES = {"sic": "SIC", "cic": "CIC", "nic": "NIC"}


@dataclass(frozen=True)
class OwnLoss:
    """Of one step, by source: means over the past classes of which both are known."""

    replay: Mapping[str, float]  # of plain cross-entropy and the images that were kept, as the paper has it
    own: Mapping[str, float]  # of the method's loss and the images that it trains on
    differences: Mapping[str, Estimate]  # own minus replay's within classes, with 95 % t intervals over classes


def own_loss(step: StoredTables) -> OwnLoss | None:
    """None where the method's own interference was not measured."""
    if not measures_own(step):
        return None
    paper, own = _columns(step, ""), _columns(step, "method_")
    differences = {name: own[name] - paper[name] for name in SOURCES}
    both = {name: ~np.isnan(of) for name, of in differences.items()}
    return OwnLoss(
        replay={name: mean_estimate(paper[name][both[name]]).value for name in SOURCES},
        own={name: mean_estimate(own[name][both[name]]).value for name in SOURCES},
        differences={name: mean_estimate(of) for name, of in differences.items()},
    )


def measures_own(step: StoredTables) -> bool:
    """Whether it measured what its method's own loss does."""
    own = {f"method_{name}" for name in SOURCES}
    return own <= set(step.table("classes", ["introduced_step", *own]).column_names)


def own_means(step: StoredTables, *, is_replay: bool) -> dict[str, float]:
    """By measure, means over the past classes: of what the method's own loss does, `method_sic`, and of what that changes
    against replay's in the same network, `changed_sic`. Replay changes nothing. Empty where they are not known."""
    if measures_own(step):
        found = own_loss(step)
    elif is_replay:
        paper = {name: float(mean_estimate(values).value) for name, values in _columns(step, "").items()}
        found = OwnLoss(paper, paper, dict.fromkeys(SOURCES, Estimate(0.0, 0.0, 0.0, 1)))
    else:
        found = None
    if found is None or np.isnan([*found.own.values()]).any():
        return {}
    own = {f"method_{name}": value for name, value in found.own.items()}
    return own | {f"changed_{name}": one.value for name, one in found.differences.items()}


def _columns(step: StoredTables, prefix: str) -> dict[str, Values]:
    """By source, of each past class."""
    found = step.past_classes(*(f"{prefix}{name}" for name in SOURCES))
    return {name.removeprefix(prefix): values.astype(np.float64) for name, values in found.items()}
