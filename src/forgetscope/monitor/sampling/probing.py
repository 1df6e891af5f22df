"""How a step is probed: on how many images, and after which epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from forgetscope.errors import InputError
from forgetscope.measuring.subsampled.quotas import FEWEST
from forgetscope.spec import is_spread

AUTOMATIC = 100  # images of each past class: what they cost and how well they agree is in docs/performance.md
Images = int | Literal["auto"] | None


@dataclass(frozen=True)
class Probing:
    """images: of each past class, others at each probe; None: all, exactly. automatic: nobody chose how many. probes: so many,
    spread evenly over `epochs`, the first before training; None: one after each epoch. draws: what the choice of images
    follows from, beside the images themselves and the epoch.

    >>> probing = Probing(None, probes=3, epochs=4)
    >>> [epoch for epoch in range(9) if probing.is_due(epoch)]  # a training that goes on longer than was said
    [0, 2, 4, 6, 8]
    >>> probing.weight(epoch=4, probes=3)
    1.6666666666666667
    """

    images: int | None
    automatic: bool = False
    probes: int | None = None
    epochs: int | None = None
    draws: str = ""

    def is_due(self, epoch: int) -> bool:
        """Whether a probe follows this epoch; 0: before the first."""
        if self.probes is None or self.epochs is None:
            return True
        within = (epoch - 1) % self.epochs + 1 if epoch else 0
        return is_spread(within, min(self.probes, self.epochs + 1), self.epochs)

    def weight(self, epoch: int, probes: int) -> float:
        """What each of so many probes counts for after this epoch: they stand for one after each, and one before."""
        return 1.0 if self.probes is None else (epoch + 1) / probes

    @property
    def state(self) -> dict[str, Any]:
        """Plain numbers and texts; 0 where there is none."""
        numbers = {name: getattr(self, name) or 0 for name in ("images", "probes", "epochs")}
        return {**numbers, "automatic": self.automatic, "draws": self.draws}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Probing:
        """Of a step that an earlier version began it is empty: that looked at all images after each epoch."""
        if not state:
            return cls(None)
        kinds = {"images": int, "automatic": bool, "probes": int, "epochs": int, "draws": str}
        if {name: type(value) for name, value in state.items()} != kinds:
            raise InputError(f"{dict(state)!r:.200} does not say how a step is probed. Load what step.state_dict() gave.")
        return cls(
            state["images"] or None, state["automatic"], state["probes"] or None, state["epochs"] or None, state["draws"]
        )


def checked_probe_images(given: object) -> Images:
    """A user's number of images of each past class."""
    if given is None or given == "auto":
        return given
    if isinstance(given, bool) or not isinstance(given, int) or given < FEWEST:
        raise InputError(
            f"probe_images = {given!r:.60} is no number of images of each past class, of which a probe needs {FEWEST} or more. "
            'Give one, or "auto", or None, which takes all.'
        )
    return given


def checked_probes(given: object) -> int | None:
    """A user's number of probes of a step."""
    if given == "auto":
        raise InputError(
            'probes = "auto" is for runs, which know their epochs. Give a number of probes, with epochs= of each step; '
            'probe_images="auto", the default, makes each of them cheap.'
        )
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 2):
        raise InputError(f"probes = {given!r:.60}: 2 or more in a step, the first before training and the last at its end.")
    return given


def checked_epochs(given: object) -> int | None:
    """A user's number of epochs of a step."""
    if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 1):
        raise InputError(f"epochs = {given!r:.60} is no number of epochs. Leave it out where it is not known.")
    return given
