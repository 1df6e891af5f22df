"""The monitor: in anybody's training loop, a few lines for which a store holds what `run` would have left there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

from torch import nn

from forgetscope.characters import counted
from forgetscope.errors import InputError, StoreError
from forgetscope.foreign import TEXT
from forgetscope.measuring.gradients import Loss
from forgetscope.measuring.keepsakes import Spread
from forgetscope.monitor.sampling.probing import checked_probe_images, checked_probes
from forgetscope.monitor.states import check_state
from forgetscope.monitor.step import Given, MonitoredStep, Told
from forgetscope.monitor.streams import Data
from forgetscope.monitor.telling import said_here
from forgetscope.monitor.trackers import tracker
from forgetscope.store import Store
from forgetscope.store.observed import MONITOR, Settings, StoredObserved
from forgetscope.underway.alarms import Alarm, Raised


class Monitor:
    """Watches the steps of a training that is not forgetscope's, and keeps them in a store; opened again, it continues.

    settings: what you want to tell trainings apart by, {"lr": 0.1}; names: of classes by label. log: a function of
    {series: value} and the count of epochs, or a run, writer or logger (`trackers`); tell: a function of a text, such as print,
    which is given the classes at risk after each epoch. keepsake: what is kept of each class when it was learned, "variance" or
    "covariance" of its features beside their mean, or "none": from it later steps predict forgetting without past images.
    probe_images: of each past class, others at each probe: estimates with standard errors; "auto" is 100, or all where the
    network is such that some cannot stand for the others; None: all, exactly. probes: so many in a step whose epochs are told,
    spread evenly, in place of one after each epoch. strict: errors of the monitor are raised; otherwise they never end the
    training. alarms: {"forecast > 0.5": function} or {"bird: sic >= 1": function}, each called once for each class of which it
    holds after a probe, with what `forgetscope.underway.alarms.Raised` has.

    >>> import torch, forgetscope as fs
    >>> draws = torch.Generator().manual_seed(0)
    >>> images, labels = torch.randn(40, 8, generator=draws), torch.arange(40) % 4
    >>> past, new = (images[labels < 2], labels[labels < 2]), (images[labels >= 2], labels[labels >= 2])
    >>> memory = (past[0][:6], past[1][:6])
    >>> network = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
    >>> monitor = fs.Monitor("results", "example", names={0: "owl", 1: "wren"})
    >>> with monitor.step(network, past=past, memory=memory, new=new, alpha=0.5) as step:
    ...     step.epoch_ended()  # after each epoch of your training
    ...     step.evaluate((images, labels))
    >>> step
    MonitoredStep(example/2: 2 probes, 1 epoch. 2 past classes, 20 images, 6 rehearsed; 2 new classes, 20 images. Measured: \
cross-entropy in closed form in Linear, 4 nodes. Alpha 0.5, given.)
    >>> len(step.at_risk(1)), list(step.to_frame().columns[:4])
    (1, ['name', 'sic', 'cic', 'nic'])
    >>> [stored.number for stored in fs.Monitor("results", "example").steps]  # what came before counts as step 1
    [2]
    """

    def __init__(
        self,
        store: str | Path | Store,
        name: str,
        *,
        settings: Settings | None = None,
        names: Mapping[int, str] | None = None,
        keepsake: Literal["variance", "covariance", "none"] = "variance",
        probe_images: int | Literal["auto"] | None = "auto",
        probes: int | None = None,
        strict: bool = False,
        log: Any = None,
        tell: Callable[[str], object] | None = None,
        alarms: Mapping[str, Callable[[Raised], object]] | None = None,
    ) -> None:
        if not isinstance(name, str) or not MONITOR.fullmatch(name):
            raise InputError(f"name = {name!r} is no name of a monitor. Use letters, digits, '.', '_' and '-', at most 100.")
        if tell is not None and not callable(tell):
            raise InputError(f"tell = {tell!r:.60} is no function of a text. Pass print, for example.")
        if keepsake not in (*get_args(Spread), "none"):
            raise InputError(f"keepsake = {keepsake!r:.60} is none of 'variance', 'covariance' and 'none'.")
        if not isinstance(store, str | Path | Store):
            raise InputError(f"store = {store!r:.60} is no folder. Give the path of one, such as 'results', or an fs.Store.")
        self.name = name
        self.store = store if isinstance(store, Store) else Store(store)
        try:
            self.store.prepare()
        except StoreError as error:
            raise StoreError(said_here(error)) from error
        self._told = Told(
            store=self.store,
            name=name,
            settings=_settings(settings),
            names=_names(names),
            keepsake=None if keepsake == "none" else keepsake,
            probe_images=checked_probe_images(probe_images),
            probes=checked_probes(probes),
            strict=bool(strict),
            log=None if log is None else tracker(log),
            tell=tell,
            alarms=_alarms(alarms),
        )
        self._running: MonitoredStep | None = None
        self._state: Mapping[str, Any] | None = None

    def step(
        self,
        network: nn.Module,
        *,
        past: Data | None = None,
        memory: Data | None = None,
        new: Data,
        alpha: float | None = None,
        nodes: Mapping[int, int] | None = None,
        loss: Loss | None = None,
        head: nn.Module | None = None,
        epochs: int | None = None,
    ) -> MonitoredStep:
        """The next step, to be used in `with`.

        past: all training images of the past classes, those in memory included; memory: those that are rehearsed; new: the
        training images of the new classes. Each is a pair of tensors, a Dataset, a DataLoader, or a function that returns an
        iterator of (inputs, labels). alpha: the share of rehearsal in a batch, else counted by `step.batch(labels)`. nodes:
        {label: head node}, where labels are not nodes. loss and head: as of `fs.Probe`. epochs: how many will be trained, which
        only `probes` of the monitor asks for.
        """
        if self._running is not None and self._running.is_running:
            self._running.give_way()
        state, self._state = self._state, None
        numbers = set[int]()
        with suppress(Exception):  # opening the step meets it again, and tells
            numbers = {stored.number for stored in self.store.observed(self.name) if _keeps_its_number(stored)}
        number = max(numbers, default=int(past is not None or memory is not None)) + 1
        if state is not None and state["number"] not in numbers:
            number = int(state["number"])
        given = Given(network, past, memory, new, alpha, nodes, loss, head, epochs)
        self._running = MonitoredStep(self._told, given, number, state)
        return self._running

    @property
    def steps(self) -> list[StoredObserved]:
        """Those that ended, as they are read from the store."""
        return self.store.observed(self.name)

    def state_dict(self) -> dict[str, Any]:
        """Of the step that runs, for your own checkpoint; empty between steps."""
        running = self._running
        return running.state_dict() if running is not None and running.is_running else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Before the step is begun again: it goes on from there, without another probe on entry."""
        if not isinstance(state, Mapping) or (state and "number" not in state):
            raise InputError(f"{state!r:.100} is not the state of a monitor. Load what monitor.state_dict() gave.")
        if state:
            check_state(state)
        self._state = state or None

    def __repr__(self) -> str:
        return f"Monitor({str(self.store.path)!r}, {self.name!r}: {counted(len(self.steps), 'step')})"


def _keeps_its_number(stored: StoredObserved) -> bool:
    """An incomplete step gives way to the one that is begun again. Of what cannot be read nobody knows."""
    with suppress(Exception):
        return stored.incomplete is None
    return True


def _alarms(alarms: Mapping[str, Callable[[Raised], object]] | None) -> dict[Alarm, Callable[[Raised], object]]:
    if alarms is not None and not isinstance(alarms, Mapping):
        raise InputError(f"alarms = {alarms!r:.60} is no mapping. Give {{'forecast > 0.5': function}}.")
    for text, function in (alarms or {}).items():
        if not callable(function):
            raise InputError(f"alarms[{text!r:.60}] = {function!r:.60} is no function. Pass print, for example.")
    return {Alarm.parse(text): function for text, function in (alarms or {}).items()}


def _settings(settings: Settings | None) -> dict[str, str | int | float | bool]:
    if settings is not None and not isinstance(settings, Mapping):
        raise InputError(f"settings = {settings!r:.60} is no mapping. Give names and values: {{'lr': 0.1}}.")
    for key, value in (settings or {}).items():
        for text in (key, value):
            _check_text("settings", text)
        finite = not isinstance(value, float) or math.isfinite(value)
        if not isinstance(key, str) or not isinstance(value, str | int | float | bool) or not finite:
            raise InputError(
                f"settings[{key!r}] = {value!r:.60}. Names are texts; values texts, finite numbers or truth values."
            )
    return dict(settings or {})


def _check_text(of: str, text: object) -> None:
    """What readers of the store refuse is refused before training."""
    if isinstance(text, str) and (len(text) > TEXT or (not text.isascii() and text != text.encode(errors="replace").decode())):
        raise InputError(
            f"{of} has the text {text!r:.60}, of {len(text):,} characters. At most {TEXT:,} are kept, and only "
            "such as UTF-8 has."
        )


def _names(names: Mapping[int, str] | None) -> dict[int, str]:
    if names is None:
        return {}
    given = names if isinstance(names, Mapping) else dict(enumerate(names))
    odd = [label for label in given if isinstance(label, bool) or not hasattr(label, "__index__")]
    if odd:
        raise InputError(f"names has {odd[0]!r}, which is no label. Give {{label: name}}, or a list.")
    for name in given.values():
        _check_text("names", str(name))
    return {int(label): str(name) for label, name in given.items()}
