"""The state of a step, for a checkpoint: its form, and whether something is one."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from forgetscope.errors import InputError

STATE: dict[str, Any] = {
    **{"number": int, "epoch": int, "head_nodes": int, "network": str, "incomplete": str, "said": list},
    **{"labels": list, "batches": Tensor, "sums": Mapping, "passes": Mapping, "prospects": Mapping},
    **{"probing": Mapping, "probed": list},
}
LATER: dict[str, Any] = {"prospects": {}, "probing": {}, "probed": []}  # what states of earlier versions lack


def check_state(state: Mapping[str, Any]) -> None:
    """That it is one, before anything is taken from it."""
    names = set(state) if isinstance(state, Mapping) else {type(state).__name__}
    if names | set(LATER) != set(STATE):
        raise InputError(f"{sorted(map(str, names))} is not the state of a step. Load what step.state_dict() gave.")
    for name, kind in STATE.items():
        value = state.get(name, LATER[name]) if name in LATER else state[name]
        fits = isinstance(value, kind) and not isinstance(value, bool) and not (kind is int and value < (name == "number"))
        if not fits or (kind is Tensor and (value.shape != (4,) or value.is_floating_point())):
            raise InputError(f"{name} of the state is {value!r:.60}. Load what step.state_dict() gave.")
