"""The place of a step while it runs: who else observes it, and what was left there."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

from forgetscope.characters import counted
from forgetscope.errors import ForgetscopeError
from forgetscope.files import locked_if_free
from forgetscope.monitor.telling import warn
from forgetscope.store import Store
from forgetscope.store.observed import running_key


class Held:
    """The advisory lock on a step while it runs. A copy holds none, so that steps can be copied."""

    def __init__(self, path: Path | None = None) -> None:
        self._stack = ExitStack()
        self.was_free = path is None or self._stack.enter_context(locked_if_free(path))

    def release(self) -> None:
        self._stack.close()

    def __reduce__(self) -> tuple[type[Held], tuple[()]]:
        return Held, ()


def take_place(store: Store, name: str, number: int, *, resumed: bool) -> Held:
    """Tells of another that observes the same step now, or, unless it is resumed, of what an unfinished one has left."""
    key = running_key(name, number)
    lock = Held(store.lock_file(key))
    if not lock.was_free:
        warn(
            f"forgetscope: Step {number} of {name!r} is observed already, by another process or by a step that was not closed "
            "here. Both write to the same place: give each training a name of its own."
        )
    elif not resumed:
        with suppress(ForgetscopeError):  # what cannot be read is written anew
            running = [left for left in store.observing() if left.key == key]
            kept = [left for left in store.observed(name) if left.number == number]  # it is incomplete: done ones stay
            for left in (*running, *kept):
                if left.info["epochs"]:
                    epochs = counted(left.info["epochs"], "epoch")
                    warn(
                        f"forgetscope: An unfinished step {number} of {name!r} with {epochs} is here, and its state was not "
                        "loaded: it begins anew. monitor.load_state_dict(...) goes on."
                    )
    return lock
