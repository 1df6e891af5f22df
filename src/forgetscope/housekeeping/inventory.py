"""What a store holds, and how much space each kind of file takes."""

from dataclasses import dataclass
from pathlib import Path

from forgetscope.files import is_locked, size_of
from forgetscope.housekeeping.freeing import freeable
from forgetscope.store import STATE, Store, TellLeftOut, calibrations_of


@dataclass(frozen=True)
class Folder:
    """A working folder, or a step in quarantine. `in_use`: a process holds its step's lock."""

    path: Path
    bytes: int
    in_use: bool = False


@dataclass(frozen=True)
class Inventory:
    steps: int
    experiments: int
    calibrations: int  # of these steps
    observed: int  # observed steps,
    monitors: int  # of so many monitors
    bytes: dict[str, int]  # of tables, states and records, of calibrations and of observed steps
    states: int  # steps that still have theirs
    working: list[Folder]
    quarantine: list[Folder]
    freeable: int  # bytes that `gc` would free,
    freeable_with_all: int  # and with every state


def take_inventory(store: Store, left_out: TellLeftOut | None = None) -> Inventory:
    """Count and measure; reads every step's record. A damaged one is told to `left_out`, and an error without it."""
    steps = store.readable(left_out)
    sizes = {"tables": 0, "states": 0, "records": 0}
    states = 0
    for step in steps:
        for path in step.folder.iterdir():
            kind = "tables" if path.suffix == ".parquet" else "states" if path.name == STATE else "records"
            sizes[kind] += size_of(path)
            states += path.name == STATE
    beside = [one for step in steps for one in calibrations_of(store, step, left_out)]
    sizes["calibrations"] = sum(size_of(one.folder) for one in beside)
    observed = store.readable_observed(left_out)
    sizes["observed"] = sum(size_of(step.folder) for step in observed)
    parents = {step.parent for step in steps}
    found = freeable(store, every_state=True)
    working, quarantine = (sorted((store.path / name).glob("*/")) for name in ("working", "quarantine"))
    return Inventory(
        steps=len(steps),
        experiments=sum(step.id not in parents for step in steps),
        calibrations=len(beside),
        observed=len(observed),
        monitors=len({step.name for step in observed}),
        bytes=sizes,
        states=states,
        working=[Folder(path, size_of(path), is_locked(store.lock_file(path.name))) for path in working],
        quarantine=[Folder(path, size_of(path)) for path in quarantine],
        freeable=sum(item.bytes for item in found if item.kind != "state" or item.id not in parents),
        freeable_with_all=sum(item.bytes for item in found),
    )
