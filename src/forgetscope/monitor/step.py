"""One step of somebody's own training, watched: a probe on entry and after each epoch, accuracies at the end, and a record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from forgetscope.calibrating.evening import STRENGTH, Level
from forgetscope.calibrating.own import Evened
from forgetscope.characters import counted
from forgetscope.errors import InputError
from forgetscope.forecasting.written import demand_as_trained
from forgetscope.learning.environment import environment
from forgetscope.measuring.coefficients import Coefficients
from forgetscope.measuring.forgetting import class_accuracy, forgetting, forgetting_range
from forgetscope.measuring.gradients import Loss
from forgetscope.measuring.heads import unwrapped
from forgetscope.measuring.keepsakes import Spread
from forgetscope.measuring.measurement import AllNeededError, Measurement, html_of, measure
from forgetscope.measuring.quantities import FORECAST, QUANTITIES
from forgetscope.measuring.sums import Sums
from forgetscope.measuring.watching import device_of, kind_of, logits_of, undisturbed
from forgetscope.monitor.evaluation import evaluate
from forgetscope.monitor.passes import NothingPastError, Passes
from forgetscope.monitor.place import Held, take_place
from forgetscope.monitor.prospects import Prospects, of_classes
from forgetscope.monitor.record import Classes, Learned, learned_before, tables_of
from forgetscope.monitor.risk import AtRisk, at_risk, at_risk_by_forecast
from forgetscope.monitor.sampling.probing import AUTOMATIC, Probing, checked_epochs
from forgetscope.monitor.sampling.sampled import Selection
from forgetscope.monitor.states import check_state
from forgetscope.monitor.streams import Data, Stream, checked_nodes
from forgetscope.monitor.telling import said_here, storable, told_as, warn
from forgetscope.monitor.trackers import CLASSES, Log, series
from forgetscope.monitor.weighting import Alpha, weighted
from forgetscope.store import Store
from forgetscope.store.observed import ObservedRecord, Settings, commit_observed, running_key, write_running
from forgetscope.store.tables import Predictions
from forgetscope.underway.alarms import Alarm, Alarms, Raised
from forgetscope.underway.progress import Beacon, Facts
from forgetscope.underway.running import Lookout

if TYPE_CHECKING:
    import pandas as pd

P = ParamSpec("P")
T = TypeVar("T")
BEGUN_ELSEWHERE = (
    "Resumed in a store without the earlier steps of {name!r}: what was forgotten is unknown, and there is no forecast; in the "
    "store that it was begun in they are known."
)


@dataclass(frozen=True)
class Told:
    """What a monitor says of all of its steps."""

    store: Store
    name: str
    settings: Settings
    names: Mapping[int, str]
    keepsake: Spread | None
    probe_images: int | Literal["auto"] | None
    probes: int | None
    strict: bool
    log: Log | None
    tell: Callable[[str], object] | None
    alarms: Mapping[Alarm, Callable[[Raised], object]]


@dataclass(frozen=True)
class Given:
    """What a step is given: as `Monitor.step` describes it."""

    network: nn.Module
    past: Data | None
    memory: Data | None
    new: Data
    alpha: object
    nodes: Mapping[int, int] | None
    loss: Loss | None
    head: nn.Module | None
    epochs: object


class NotOpenError(InputError):
    """A step is asked for something before or after its block."""


def _guarded(method: Callable[Concatenate[MonitoredStep, P], T]) -> Callable[Concatenate[MonitoredStep, P], T | None]:
    """Whatever fails in here does not end the training: it is told once, and nothing more is done. Strict: it is raised."""

    @wraps(method)
    def call(self: MonitoredStep, /, *args: P.args, **named: P.kwargs) -> T | None:
        if self.incomplete is not None or self.is_elsewhere:
            return None
        try:
            return method(self, *args, **named)
        except NotOpenError as error:  # too early or too late: that spoils nothing of the step
            if self._told.strict:
                raise
            warn(f"forgetscope: {error}")
            return None
        except Exception as error:  # anything: this is not what the training is about
            self._fail(error)
            if self._told.strict:
                raise
            return None

    return call


class MonitoredStep:
    """Made by `Monitor.step`; a context manager, whose block is the training of the step."""

    def __init__(self, told: Told, given: Given, number: int, state: Mapping[str, Any] | None) -> None:
        self.number, self.epoch = number, 0
        self.incomplete: str | None = None
        self._told, self._given = told, given
        self._state = state
        self._is_open = self._is_closed = False
        self._raw = Sums()
        self._probing = Probing(None)
        self._selection: Selection | None = None
        self._probed: list[int] = []  # after which epochs
        self._before: dict[int, Learned] = {}
        self._classes = Classes()
        self._prospects = Prospects((), None, number)
        self._predictions: Predictions | None = None
        self._said: tuple[str, ...] = ()
        self._also: list[str] = []
        self._begun_elsewhere = False  # in another store, where the earlier steps are
        self._is_alpha_missed = False
        self._lock = Held()
        self._beacon: Beacon | None = None  # lit when the classes are known
        self._refusing: set[str] = set()  # which of log, tell and alarms failed
        self._alarms, self._lookout = Alarms(told.alarms), Lookout(told.store)
        self._head_nodes, self._network = 0, kind_of(given.network)
        self._began, self._probe_seconds, self._earlier_probes = time.monotonic(), 0.0, 0

    @property
    def is_elsewhere(self) -> bool:
        """Of several processes that train together the first one observes."""
        distributed = torch.distributed
        return distributed.is_available() and distributed.is_initialized() and distributed.get_rank() > 0

    @property
    def is_running(self) -> bool:
        return self._is_open and not self._is_closed

    def open(self) -> Self:
        """The probe before training; `with` does this."""
        self._open()
        return self

    @_guarded
    def _open(self) -> None:
        if self._is_open:
            return
        self._is_open = True
        self._lock = take_place(self._told.store, self._told.name, self.number, resumed=self._state is not None)
        given, steps = self._given, self._told.store.observed(self._told.name)
        earlier = [step for step in steps if step.number < self.number and step.incomplete is None]
        self._before = learned_before(earlier)
        self._prospects = Prospects(earlier, self._told.keepsake, self.number, self._told.strict)
        self._earlier_probes = sum(int(step.info["epochs"]) + 1 for step in earlier)
        nodes = checked_nodes(given.nodes)
        sources = {"past": given.past, "memory": given.memory, "new": given.new}
        past, memory, new = (None if data is None else Stream(which, data) for which, data in sources.items())
        if new is None:
            raise InputError("new= is None. Give the training images of the new classes.")
        self._alpha = Alpha(given.alpha, rehearsing=memory is not None)
        self._passes = Passes(past, memory, new, nodes=nodes, loss=given.loss, names=self._told.names)
        self._passes.choose(self._prospects.wanted)
        self._probing = self._chosen_probing()
        if self._state is not None:
            self._take_over(self._state)
            self._begun_elsewhere = self.number > 1 and not earlier
        else:
            self._probe()
            if self._passes.outside:
                warn(f"forgetscope: {self._passes.outside_said}")

    def _chosen_probing(self) -> Probing:
        """As it is begun; one that goes on is probed as it was begun."""
        told, epochs = self._told, checked_epochs(self._given.epochs)
        if told.probes is not None and epochs is None and self._state is None and self.number > 1:
            warn(
                f"forgetscope: probes = {told.probes} are spread over the epochs of a step, and step {told.name}/{self.number} "
                "was not told how many there are, so it is probed after each one. Use monitor.step(..., epochs=...)."
            )
        automatic = told.probe_images == "auto"
        images = AUTOMATIC if told.probe_images == "auto" else told.probe_images
        return Probing(images, automatic, told.probes if epochs else None, epochs, told.name)

    def give_way(self) -> None:
        """To a step that begins before this one was closed: kept whole if it was evaluated, for then its training was over."""
        kept = "as incomplete" if self._predictions is None else "as it is"
        warn(
            f"forgetscope: Step {self._told.name}/{self.number} was not closed when another began, and is kept {kept}. Use "
            "`with`, or call step.close() when its training is over."
        )
        self.close(InputError("Another step began before this one was closed.") if self._predictions is None else None)

    @_guarded
    def epoch_ended(self) -> None:
        """One probe."""
        self._demand_open()
        if self._measures:
            self._alpha.check()
        self.epoch += 1
        if self._probing.is_due(self.epoch):
            self._probe()
        elif self._beacon is not None:
            self._beacon.epoch_ended(self.epoch)
        if self._measures and self.alpha is None and not self._is_alpha_missed:
            self._is_alpha_missed = True
            warn(f"forgetscope: {self._alpha.said} An epoch of step {self._told.name}/{self.number} has ended.")

    @_guarded
    def batch(self, labels: object) -> None:
        """Of one batch of the training: where alpha was not given, it is the share of past classes in these."""
        self._demand_open()
        self._alpha.count(labels, self._classes.past, self._classes.new)
        if self._beacon is not None:
            self._beacon.beat()

    def evaluate(self, test: Data) -> None:
        """Accuracy per class on test images, and so forgetting from the second step on. To be called when training is done.

        If it fails, what was measured stays, and it can be called again."""
        if self.incomplete is not None or self.is_elsewhere:
            return
        try:
            self._evaluate(test)
        except Exception as error:  # anything, as in `_guarded`
            if self._told.strict:
                raise
            self._also = [*self._also, f"Not evaluated: {told_as(error)}"] if self._predictions is None else self._also
            warn(
                f"forgetscope: {told_as(error)} Step {self._told.name}/{self.number} is not evaluated by this. What was "
                "measured is kept; step.evaluate(...) can be called again. fs.Monitor(..., strict=True) raises instead."
            )

    def _evaluate(self, test: Data) -> None:
        self._demand_open()
        demand_as_trained(self._given.network)  # offsets are no part of what a step has learned
        classes = self._classes
        found, left_out = evaluate(self._given.network, Stream("test", test), classes.seen, len(classes.past), classes.nodes)
        self._predictions = found
        out = f"{counted(left_out, 'test image')} of classes not seen so far left out."
        self._also = [out] if left_out else []
        frame = self.to_frame()
        fg = frame["forgetting"].to_numpy(dtype=np.float64)
        known = fg[np.isfinite(fg)]
        accuracy = class_accuracy(found.confusion(len(classes.seen)))
        means = {"accuracy": float(np.nanmean(accuracy))}  # over classes, as `show` has it
        if len(known):
            means |= {"mean_forgetting": float(known.mean()), "fg_r": forgetting_range(known)}
        self._log(means)

    def at_risk(self, most: int = 5) -> AtRisk:
        """The past classes most at risk by what was measured so far, with rank, trend and cause."""
        return self._at_risk(most) or AtRisk(())

    @_guarded
    def _at_risk(self, most: int) -> AtRisk | None:
        classes, names, found = self._classes, self._told.names, self._forecasts()
        if found is not None and (self._only_memory or not len(self._raw)):
            raw = self._prospects.forecasts(0.5, len(self._probed))
            assert raw is not None
            return at_risk_by_forecast(raw, found, classes.past, names, most)
        if not len(self._raw):
            return None
        sources = (*classes.measured, *classes.new)
        return at_risk(self._raw, self.sums, classes.measured, sources, names, most)

    def close(self, error: BaseException | None = None) -> None:
        """Keep the step in the store; `with` does this. error: what ended the training before its time."""
        if self._is_closed or not self._is_open or self.is_elsewhere:
            return
        self._is_closed = True
        if error is not None and self.incomplete is None:
            self.incomplete = f"The training ended early: {type(error).__name__}: {str(error)[:1000]}".rstrip(": ")
        try:
            self._keep(error)
        finally:
            self._lock.release()

    def _keep(self, error: BaseException | None) -> None:
        strange: Exception | None = None
        try:
            self._check_batches()
            self._probe_the_end()
        except Exception as refused:  # strict: raised when the step is kept
            strange = refused
        try:
            record = self._record("incomplete") if self.incomplete is not None else self._whole_record()
            commit_observed(self._told.store, record)
        except Exception as failure:  # anything, as in `_guarded`
            self._fail(failure, told=self.incomplete is None, where=self._put_aside())
            with suppress(Exception):  # what cannot be kept is left out; that the step failed is kept
                commit_observed(self._told.store, self._record("incomplete", bare=True))
            if self._told.strict and error is None:
                raise
        if strange is not None and error is None:
            raise strange

    def _whole_record(self) -> ObservedRecord:
        """With keepsakes, for which the network is looked at once more."""
        with self._timed():
            kept = self._prospects.keep(self._given.network, self._given.head, self._passes, self._classes)
        record = self._record("done")
        mark = self._prospects.mark
        return replace(record, tables={**record.tables, **kept}, mark=None if mark is None else mark.numbers())

    @_guarded
    def _probe_the_end(self) -> None:
        """Where the last epoch had no probe, because the training was shorter or longer than was said."""
        if self._probed and self._probed[-1] < self.epoch:
            self._probe()

    @_guarded
    def _check_batches(self) -> None:
        if self._measures:
            self._alpha.check()

    def __enter__(self) -> Self:
        try:
            return self.open()
        except BaseException as error:  # then nobody leaves the block
            self.close(error)
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)

    @property
    def alpha(self) -> float | None:
        """The share of rehearsal in a batch, as far as it is known now."""
        return self._alpha.value if hasattr(self, "_alpha") else None

    @property
    def sums(self) -> Sums:
        """What the probes so far add up to, weighted by alpha as it is known now."""
        return weighted(self._raw, self.alpha, only_memory=self._only_memory, weight=self._weight)

    @property
    def _weight(self) -> float:
        """Of a probe, in sums: as of the epoch of the last one."""
        return self._probing.weight(self._probed[-1], len(self._probed)) if self._probed else 1.0

    @property
    def _only_memory(self) -> bool:
        return len(self._raw) > 0 and self._passes.only_memory

    @property
    def forecast(self) -> pd.DataFrame:
        """A row per past class, named by its label: predicted forgetting so far, as of the last probe, and its interval; sums
        of estimates of SIC, CIC and NIC over the probes so far; and why there is no forecast.

        From keepsakes, memory and new images alone, whether past images were given or not. The interval is meant for 95 %;
        in tests it held 68 to 94 % of classes at the end of training, and 51 to 85 % after a tenth of it (docs/forecast.md)."""
        import pandas as pd

        labels = self._classes.past
        frame = pd.DataFrame(index=pd.Index(list(labels), name="label"))
        frame["name"] = [self._told.names.get(label, str(label)) for label in labels]
        found = self._forecasts()
        unknown = dict.fromkeys(FORECAST, np.full(len(labels), np.nan))
        columns = unknown if found is None else of_classes(found, self._weight)
        reasons = pd.Series([self._prospects.missing(label) for label in labels], frame.index, dtype=object)
        return frame.assign(**columns, missing=reasons)

    def evening(self, *, strength: float = STRENGTH, shrinkage: float | None = None, level: Level = "forgetting") -> Evened:
        """Offsets under which past classes would be forgotten alike, as far as keepsakes of earlier steps tell: `fs.evening`
        of the network as it is now. By label. Raises where there is no forecast.

        For predictions, when the block has ended: what the step measures, evaluates and keeps is without, and while offsets
        are written it is refused."""
        if not self._is_open or self.is_elsewhere:
            where = "is observed in the first process alone: ask there" if self.is_elsewhere else "has not begun"
            raise NotOpenError(f"Step {self._told.name}/{self.number} {where}.")
        if self.incomplete is not None:
            raise InputError(f"Step {self._told.name}/{self.number} is incomplete: {self.incomplete}")
        of = self._given.network, self._given.head, self._passes, self._classes, self._told.names
        return self._prospects.evening(*of, strength=strength, shrinkage=shrinkage, level=level)

    def _forecasts(self) -> NDArray[np.float64] | None:
        return self._prospects.forecasts(self.alpha, len(self._probed))

    @property
    def coefficients(self) -> Coefficients:
        """SIC, CIC, NIC and ALL-NIC so far, in the order of `past`; missing while alpha is not known."""
        if not len(self._raw):
            return Coefficients(*torch.empty(4, 0, dtype=torch.float64))
        return self.sums.coefficients

    @property
    def past(self) -> tuple[int, ...]:
        """Labels of the past classes that are measured."""
        return self._classes.measured

    def to_frame(self) -> pd.DataFrame:
        """A row per past class, named by its label: name, sums of its terms, images that are stored; what `forecast` has, if
        anything; then its accuracies."""
        import pandas as pd

        classes, frame = self._classes, pd.DataFrame(index=pd.Index(list(self._classes.past), name="label"))
        frame["name"] = [self._told.names.get(label, str(label)) for label in classes.past]
        if len(self._raw):
            sums = self.sums.to_frame()
            sums.index = pd.Index(list(classes.measured), name="label")
            frame = frame.join(sums)
            frame["stored"] = pd.Series(self._passes.kept.numpy().astype(int), sums.index).reindex(frame.index, fill_value=0)
        if (found := self._forecasts()) is not None:
            frame = frame.assign(**of_classes(found, self._weight))
        if self._predictions is not None:
            accuracy = class_accuracy(self._predictions.confusion(len(classes.seen)))[: len(classes.past)]
            learned = [self._before[label].accuracy if label in self._before else np.nan for label in classes.past]
            frame["accuracy_when_learned"], frame["accuracy"] = learned, accuracy
            frame["forgetting"] = forgetting(np.array(learned), accuracy)
        return frame

    def __repr__(self) -> str:
        return f"MonitoredStep({' '.join(self._sentences())})"

    def _repr_html_(self) -> str:
        return html_of(self._sentences(), self.to_frame() if self._classes.past else None)

    def state_dict(self) -> dict[str, Any]:
        """Plain tensors, numbers and texts, for your own checkpoint."""
        ready = self._is_open and hasattr(self, "_passes")
        return {
            "number": self.number,
            "epoch": self.epoch,
            "head_nodes": self._head_nodes,
            "network": self._network,
            "incomplete": self.incomplete or "",
            "said": list(self._said),
            "labels": [*self._classes.measured, *self._classes.new],
            "batches": self._alpha.counts.cpu() if ready else torch.zeros(4, dtype=torch.long),
            "sums": self._raw.state_dict(),
            "passes": self._passes.state_dict() if ready else {},
            "prospects": self._prospects.state_dict(),
            "probing": self._probing.state,
            "probed": list(self._probed),
        }

    @_guarded
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave. Before the step is opened: then there is no probe on entry."""
        check_state(state)
        if self._is_open:
            self._take_over(state)
        else:
            self._state = state

    def _take_over(self, state: Mapping[str, Any]) -> None:
        check_state(state)
        self._passes.load_state_dict(state["passes"])
        self._know_classes()
        labels = [*self._classes.measured, *self._classes.new]
        if labels != state["labels"]:
            raise InputError(
                f"The state is of a step with classes {str(state['labels'])[:100]}; with this nodes= they would be "
                f"{str(labels)[:100]}. Give the nodes= that the step was begun with."
            )
        with undisturbed(self._given.network):
            self._passes.look()
        raw = self._empty_sums() if state["sums"] else Sums()  # a first step has none
        raw.load_state_dict(state["sums"])
        self._raw, self.epoch = raw, int(state["epoch"])
        self._probing, self._selection = Probing.from_state(state.get("probing", {})), None
        self._probed = list(state.get("probed", range(self.epoch + 1)))
        self._prospects.load_state_dict(state.get("prospects", {}))
        self._head_nodes, self._network, self._said = int(state["head_nodes"]), str(state["network"]), tuple(state["said"])
        self._alpha.counts = state["batches"].cpu().long()
        self.incomplete = state["incomplete"] or None

    def _probe(self) -> None:
        passes = self._passes
        demand_as_trained(self._given.network)
        with self._timed():
            passes.device = device_of(self._given.network)
            try:
                if self._measures:
                    self._measure()
                elif not passes.known:
                    self._look_around()
                    self._know_new()
            except NothingPastError:
                self._know_new()
            if self._classes.past:
                self._predict()
        self._probed.append(self.epoch)
        write_running(self._told.store, self._record("running"))
        self._signal()
        if self._told.alarms:
            self._trying("alarms=", self._raise_alarms)
        found = self._forecasts()
        self._log(series(self.coefficients, self.at_risk(CLASSES), {} if found is None else of_classes(found, self._weight)))
        if self._told.tell is not None and (self._measures or found is not None) and self.epoch:
            self._hand_on("tell", lambda tell: tell(f"Epoch {self.epoch}. {self.at_risk()!r}"))

    def _signal(self) -> None:
        """How far the step is, for whoever looks on."""
        if self._beacon is None:
            told, classes = self._told, self._classes
            names = [storable(told.names.get(label, str(label))) for label in classes.seen]
            title, epochs = f"{told.name}/{self.number}", checked_epochs(self._given.epochs)
            facts = Facts(title, self.number, len(classes.past), classes.seen, names, epochs)
            self._beacon = Beacon(told.store.working(running_key(told.name, self.number)), facts, epoch=self.epoch)
        self._beacon.epoch_ended(self.epoch)

    def _raise_alarms(self) -> None:
        """By what somebody who looks on would see."""
        one = self._lookout.at(running_key(self._told.name, self.number))
        functions = {alarm.text: function for alarm, function in self._told.alarms.items()}
        found = [] if one is None else [one]
        for said in self._alarms.unknown(found):
            warn(f"forgetscope: {said}")
        for raised in self._alarms.raised(found):
            self._trying(f"alarms[{raised.alarm!r}]", partial(functions[raised.alarm], raised))

    def _predict(self) -> None:
        nic = self._raw.values[-1][QUANTITIES.index("nic")].tolist() if len(self._raw) and self._passes.only_memory else []
        of_memory = dict(zip(self._classes.measured, nic, strict=False))
        self._prospects.probe(self._given.network, self._given.head, self._passes, self._classes, of_memory)

    @property
    def _measures(self) -> bool:
        """Whether there are images of past classes, as far as that is known."""
        given = self._given.past is not None or self._given.memory is not None
        return given and not (self._passes.known and not len(self._passes.past_nodes))

    def _measure(self) -> None:
        try:
            measurement = self._measurement()
        except NothingPastError:
            raise
        except InputError as error:
            raise InputError(said_here(error)) from error
        self._know_classes()
        if not len(self._raw):
            self._raw = self._empty_sums()
        self._raw.add_probe(measurement, self.epoch)
        self._head_nodes, self._said = measurement.head_nodes, measurement.said

    def _measurement(self) -> Measurement:
        network, passes, head, images = self._given.network, self._passes, self._given.head, self._probing.images
        if images is not None:
            if self._selection is None:
                passes.make_lists()
                self._look_around()
                passes.demand_past()
                self._selection = Selection(passes, images)
            try:
                if not self._selection.is_everything:
                    draws = f"{self._probing.draws}/{self.number}/{self.epoch}"
                    return measure(network, self._selection.drawn(draws), head=head)
            except AllNeededError:
                if not self._probing.automatic:
                    raise
            self._probing = replace(self._probing, images=None)
        return measure(network, passes, head=head)

    def _look_around(self) -> None:
        """Pass over everything, before anything is measured."""
        network, passes = self._given.network, self._passes
        with undisturbed(network):
            run = unwrapped(network)
            passes.check_nodes(logits_of(run(passes.few(1)), kind_of(run)).shape[1])
            passes.survey()

    def _know_new(self) -> None:
        """Of a step without images of past classes only what is new is known."""
        self._know_classes()
        self._head_nodes = self._passes.head_nodes
        self._said = (f"{self._passes.about} Nothing is measured without images of past classes.",)

    def _know_classes(self) -> None:
        classes = Classes.of(self._passes, self._before)
        again = [label for label in classes.new if label in self._before]
        if again:
            raise InputError(
                f"Class {again[0]} was learned in step {self._before[again[0]].introduced} of {self._told.name!r} already. A "
                "new training needs a name of its own: fs.Monitor(store, 'another')."
            )
        for label, known in self._before.items():
            if (node := classes.nodes.get(label, known.node)) != known.node:
                raise InputError(
                    f"Class {label} is node {node}, and in step {known.introduced} of {self._told.name!r}, which learned it, "
                    f"it was node {known.node}. A class keeps its node as the head grows: see nodes=."
                )
            others = [other for other in classes.seen if other != label and classes.nodes[other] == classes.nodes.get(label)]
            if others:
                raise InputError(
                    f"Class {others[0]} is node {classes.nodes[label]}, which is that of class {label}, learned in step "
                    f"{known.introduced} of {self._told.name!r}. Each class has a node of its own: see nodes=."
                )
        self._classes = classes
        if self._passes.known:
            self._alpha.rehearsing = self._passes.rehearses

    def _empty_sums(self) -> Sums:
        return Sums(tuple(self._passes.past_nodes.tolist()))

    def _record(self, status: str, *, bare: bool = False) -> ObservedRecord:
        """bare: without anything that was measured."""
        told, passes = self._told, None if bare else getattr(self, "_passes", None)
        weight = self._alpha if passes is not None and self._measures else None
        tables: dict[Any, Any] = {}
        if passes is not None:
            why = None if weight is None or weight.value is not None else "alpha is unknown: no batch was told"
            of = (self.number, self._classes, passes, self.sums, self._predictions, told.names, self._before, why)
            tables = tables_of(*of, self._forecasts(), self._probed, self._prospects.unforecast(self._classes.past))
            if status == "running":
                tables = {name: tables[name] for name in ("probes", "pairs") if name in tables}
        past = "none" if passes is None or not len(self._raw) else "memory" if passes.only_memory else "all"
        seconds = {"seconds": round(time.monotonic() - self._began, 3), "probe_seconds": round(self._probe_seconds, 3)}
        device = device_of(self._given.network).type
        return ObservedRecord(
            name=told.name,
            number=self.number,
            status=status,
            reason=storable(self.incomplete or "") if status == "incomplete" else None,
            settings=told.settings,
            alpha=None if weight is None else weight.value,
            alpha_from=None if weight is None else weight.source,
            past=past,
            epochs=self.epoch,
            network=self._network,
            head_nodes=self._head_nodes,
            probe_images=self._probing.images,
            probes=self._probing.probes,
            said=tuple(map(storable, self._sentences()[1:])),
            environment={"device": device, "threads": torch.get_num_threads(), **environment()},
            timings=seconds,
            tables=tables,
        )

    def _sentences(self) -> tuple[str, ...]:
        probes = f"{self._told.name}/{self.number}: {counted(len(self._raw), 'probe')}, {counted(self.epoch, 'epoch')}."
        incomplete = (f"Incomplete: {self.incomplete}",) if self.incomplete else ()
        weight = (self._alpha.said,) if len(self._raw) else ()
        without = self._only_memory or not len(self._raw)  # past images: then a forecast is what there is
        prospects = self._prospects.said(self._classes.past, self._told.names, wanted=without)
        elsewhere = (BEGUN_ELSEWHERE.format(name=self._told.name),) if self._begun_elsewhere else ()
        return (probes, *incomplete, *self._said, *weight, *elsewhere, *prospects, *self._also)

    def _log(self, values: dict[str, float]) -> None:
        finite = {f"forgetscope/{name}": value for name, value in values.items() if np.isfinite(value)}
        if self._told.log is not None and finite:
            self._hand_on("log", lambda log: log(finite, self._earlier_probes + self.epoch))

    def _hand_on(self, name: str, work: Callable[[Any], object]) -> None:
        """What a tracker cannot take is no reason not to measure: told once, and it is left alone from then on."""
        self._trying(f"{name}=", lambda: work(getattr(self._told, name)))

    def _trying(self, name: str, work: Callable[[], object]) -> None:
        if name in self._refusing:
            return
        try:
            work()
        except Exception as error:  # anything: this is a user's code
            if self._told.strict:
                raise
            self._refusing.add(name)
            warn(f"forgetscope: {name} failed ({type(error).__name__}: {error}) and is not called again in this step.")

    @contextmanager
    def _timed(self) -> Iterator[None]:
        begin = time.monotonic()
        yield
        self._probe_seconds += time.monotonic() - begin

    def _demand_open(self) -> None:
        if not self._is_open or self._is_closed:
            when = "has ended" if self._is_closed else "has not begun"
            raise NotOpenError(f"Step {self._told.name}/{self.number} {when}. Use it in `with monitor.step(...) as step:`.")

    def _put_aside(self) -> str:
        """What was kept while the step ran, when it cannot be kept as a step: where it is, in a sentence."""
        working = self._told.store.working(running_key(self._told.name, self.number))
        if not working.is_dir():
            return ""
        with suppress(Exception):  # then it stays where it is
            working = self._told.store.quarantine(working)
        return f" What was measured until the last probe is in {working}."

    def _fail(self, error: Exception, told: bool = True, where: str = "") -> None:
        """Told once."""
        why = told_as(error) + where
        self.incomplete = self.incomplete or why[:5000]
        if self._told.strict or not told:
            return
        warn(
            f"forgetscope: {why} The training goes on, and step {self._told.name}/{self.number} is incomplete: nothing more is "
            "measured in it. fs.Monitor(..., strict=True) raises instead."
        )
