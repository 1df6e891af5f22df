"""What a monitored step predicts without past images, from what earlier ones kept of their classes; and what it keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from forgetscope.calibrating.evening import Level
from forgetscope.calibrating.own import Evened, evened_network
from forgetscope.characters import counted
from forgetscope.errors import ForgetscopeError, InputError
from forgetscope.forecasting.choice import Chosen, marks
from forgetscope.forecasting.features import Featured, featured
from forgetscope.forecasting.forecaster import IMAGES, UNTRAINED, KnownClass
from forgetscope.forecasting.kept import FEATURES_ROOM, made
from forgetscope.forecasting.predictor import Predictor, check_state
from forgetscope.forecasting.recognition import OTHER, Mark, mark_of
from forgetscope.measuring.keepsakes import Carried, Keepsake, Spread, spread_length
from forgetscope.measuring.quantities import ESTIMATES, FORECAST
from forgetscope.monitor.passes import Passes
from forgetscope.monitor.record import Classes
from forgetscope.monitor.telling import said_here, told_as
from forgetscope.randomness import Streams
from forgetscope.store import TableName
from forgetscope.store.observed import StoredObserved
from forgetscope.store.tablefiles import LIST_BYTES
from forgetscope.store.tables import carried_table, forecast_of_classes, keepsakes_table

Values = NDArray[np.float64]
UNKNOWN = "no keepsake of it is here"
ELSEWHERE = "the step that learned it is in the store that this one was begun in, and so is how well it was learned"
NAMED = 10  # classes that a sentence names


class Prospects:
    """Of one step. kind: of keepsakes; None: neither is anything kept nor predicted.

    Whatever cannot be predicted or kept has a reason, and is none to end a step. strict: a bug is raised."""

    def __init__(self, earlier: Sequence[StoredObserved], kind: Spread | None, number: int, strict: bool = False) -> None:
        self.kind, self.number, self._strict = kind, number, strict
        self.kept: dict[int, Keepsake | None] = {}  # by label, of classes that earlier steps learned
        self.known: dict[int, KnownClass] = {}  # by label: what a forecast starts from
        self.why: dict[int, str] = {}  # by label: why there is no forecast
        self.refused: str | None = None  # why there is none of any class
        self.unkept: str | None = None  # why nothing is kept of the new ones
        self.mark: Mark | None = None  # of the network that the step leaves
        self._begun_by: Mark | None = None  # of the one that the step before left
        self.rows: list[Values] = []  # of each probe [forecast, P], with alpha = 1/2
        self._predictor: Predictor | None = None
        self._nodes: Mapping[int, int] = {}  # of its past classes, by label
        self._state: Mapping[str, Tensor] | None = None  # to go on from
        if kind is not None and earlier:
            try:
                self._take_up(earlier[-1], kind)
            except ForgetscopeError as error:
                self.refused = str(error)

    def _take_up(self, step: StoredObserved, kind: Spread) -> None:
        """What the last step kept, under the network that it left."""
        if step.kept_kind not in (None, kind):
            self.refused = f"Step {step.number} kept the {step.kept_kind} of features, and this monitor keeps the {kind}."
            return
        self.kept, carried, self._begun_by = step.keepsakes(), step.carried(), Mark.from_numbers(step.mark)
        for label, one in self.kept.items():
            if one is None or one.mean is None or one.spread is None or one.accuracy is None:
                continue
            if one.features_step == step.number:
                facts = kind, one.images, one.accuracy
                self.known[label] = KnownClass(one.mean, one.spread, *facts, training_accuracy=one.training_accuracy)
            elif (moved := carried.get(label)) is not None and one.probability is not None:
                of = kind, one.images, one.accuracy, one.probability, moved.error, one.training_accuracy
                self.known[label] = KnownClass(moved.mean, moved.spread, *of)
            else:
                self.why[label] = f"step {step.number} did not carry its keepsake on"

    @property
    def wanted(self) -> int:
        """Images of a class that are to be held."""
        return IMAGES if self.known else 0

    def probe(
        self, network: nn.Module, head: nn.Module | None, passes: Passes, classes: Classes, nic: Mapping[int, float]
    ) -> None:
        """One more. nic: from the memory's own direction, by label, where past images are the memory."""
        row = np.full((len(FORECAST), len(classes.past)), np.nan)
        row[-1] = [nic.get(label, np.nan) for label in classes.past]
        if self.known and self.refused is None:
            try:
                with featured(network, passes.few(1), head) as net:
                    found = self._begun(net, passes.held(), classes).measure(net, 0.5).values
                row = np.where(np.isfinite(found), found, row)
            except Exception as error:  # anything: it is not what the step is about
                self.refused = self._reason(error)
        self.rows.append(row)

    def _reason(self, error: Exception) -> str:
        if self._strict and not isinstance(error, InputError):
            raise error
        return said_here(error) if isinstance(error, ForgetscopeError) else told_as(error)

    def _begun(self, net: Featured, chosen: Chosen, classes: Classes) -> Predictor:
        """At the first probe, or the first one after a state was loaded."""
        if self._predictor is None:
            known = {classes.nodes[label]: self.known.get(label) for label in classes.past}
            labels = {classes.nodes[label]: label for label in classes.past}
            self._nodes = {label: node for node, label in labels.items()}
            predictor = Predictor(known, chosen, lambda node: Streams(0, self.number)("forecast", labels[node]))
            if self._state is None:
                predictor.begin(net)
                if self._begun_by is not None and self._begun_by.is_of(net) is False:
                    raise InputError(f"{OTHER}.")
            else:
                predictor.load_state_dict(self._state)
            self._predictor = predictor
        return self._predictor

    def evening(
        self,
        network: nn.Module,
        head: nn.Module | None,
        passes: Passes,
        classes: Classes,
        names: Mapping[int, str],
        *,
        strength: float,
        shrinkage: float | None,
        level: Level,
    ) -> Evened:
        """From what is predicted of the network as it is now."""
        if self.refused is not None or not self.known:
            reasons = {self.missing(label) for label in classes.past} - {None}
            why = self.refused or "; ".join(sorted(map(str, reasons))) or "there is no past class"
            raise InputError(f"No evening without a forecast: {why.rstrip('.')}.")

        def look(network: nn.Module) -> AbstractContextManager[Featured]:
            return featured(network, passes.few(1), head)

        with look(network) as net:
            begun = self._begun(net, passes.held(), classes)
            found = evened_network(net, begun, strength=strength, shrinkage=shrinkage, level=level)
        return Evened(found, {label: classes.nodes[label] for label in classes.past}, names, look, "label")

    def keep(self, network: nn.Module, head: nn.Module | None, passes: Passes, classes: Classes) -> dict[TableName, pa.Table]:
        """When the step ends, keepsakes of all classes seen so far under the network as it is then: of the new ones, measured
        in one pass over them; of past ones, handed on, and carried to where they are believed to be."""
        if self.kind is None:
            return {}
        try:
            return self._kept(network, head, passes, classes, self.kind)
        except Exception as error:  # anything, as above
            self.unkept = self._reason(error)
            return {}

    def _kept(
        self, network: nn.Module, head: nn.Module | None, passes: Passes, classes: Classes, kind: Spread
    ) -> dict[TableName, pa.Table]:
        carried = dict[int, Carried]()
        with featured(network, passes.few(1), head) as net:
            features = Chosen(None, FEATURES_ROOM)
            for inputs, nodes, _ in passes.of_new_classes():
                marked = marks(inputs)
                features.add_each([(True, node) for node in nodes.tolist()], marked, net.features(inputs))
            if self.known and self.refused is None:
                carried = self._begun(net, passes.held(), classes).carried(net)
            of_head, mark = net.head([classes.nodes[label] for label in classes.seen]), mark_of(net)
        self._demand_room(of_head[0].shape[1], len(classes.seen), kind)
        found = made(features, of_head, {classes.nodes[label]: at for at, label in enumerate(classes.seen)}, kind, self.number)
        self.mark = mark
        past = {label: self._handed_on(label, classes.nodes[label], of_head[0].shape[1]) for label in classes.past}
        new = {label: found[classes.nodes[label]] for label in classes.new}
        return {
            "keepsakes": keepsakes_table({**past, **new}, kind, forecast=True),
            "carried": carried_table({label: carried.get(classes.nodes[label]) for label in classes.past}, kind),
        }

    def _handed_on(self, label: int, node: int, features: int) -> Keepsake | None:
        """What is kept of another network's features is of no use to the next step."""
        one = self.kept.get(label)
        if one is not None and one.mean is not None and len(one.mean) != features:
            return None
        if one is None or self._predictor is None or one.probability is not None:
            return one
        return replace(one, probability=self._predictor.handed_on.get(node))

    def _demand_room(self, features: int, classes: int, kind: Spread) -> None:
        if (size := 4 * (features + spread_length(kind, features)) * classes) > LIST_BYTES:
            raise InputError(
                f"The {kind} of {features} features of {classes} classes is {size:,} bytes, and a table holds {LIST_BYTES:,}. "
                'fs.Monitor(..., keepsake="variance") takes least.'
            )

    def forecasts(self, alpha: float | None, probes: int) -> Values | None:
        """[probes, forecast, P], with estimates weighted by alpha as it is known now; None where there are none."""
        if not any(np.isfinite(row).any() for row in self.rows):
            return None
        unseen = [np.full_like(self.rows[0], np.nan)] * (probes - len(self.rows))  # before a state without forecasts was loaded
        rehearsed, added = (np.nan, np.nan) if alpha is None else (2 * alpha, 2 * (1 - alpha))
        weights = dict.fromkeys(ESTIMATES[:2], rehearsed) | {ESTIMATES[2]: added}
        found: Values = np.stack([*unseen, *self.rows]) * np.array([weights.get(name, 1.0) for name in FORECAST])[:, None]
        return found

    def missing(self, label: int) -> str | None:
        """Why there is no forecast of a past class."""
        if self.kind is None:
            return "nothing is predicted with keepsake='none'"
        if self.refused is not None:
            return self.refused
        if label not in self.known:
            return self.why.get(label, ELSEWHERE if self._state and not self.known else UNKNOWN)
        always = self.known[label].unpredictable if self._predictor is None else self._predictor.missing(self._nodes[label])
        untrained = UNTRAINED if self.rows and not np.isfinite(self.rows[-1][0]).any() else None
        return always or untrained

    def unforecast(self, past: Sequence[int]) -> list[str | None] | None:
        """The same of each past class, for a table; None where nothing was to be predicted, as without any keepsake."""
        why = [self.missing(label) for label in past]
        if self.kind is None or {*why} == {UNKNOWN}:
            return None
        return [None if one is None else f"no forecast: {one.rstrip('.')}" for one in why]

    def said(self, past: Sequence[int], names: Mapping[int, str], *, wanted: bool) -> tuple[str, ...]:
        """In sentences. wanted: that there is no forecast is worth saying, because nothing else is known."""
        sentences = [f"No keepsakes: {self.unkept}"] if self.unkept else []
        if self.kind is None or not past:
            return tuple(sentences)
        if self.refused is not None:
            return (f"No forecast: {self.refused}", *sentences)
        why = {label: self.missing(label) for label in past}
        if found := sum(reason is None for reason in why.values()):
            sentences.append(f"Forgetting predicted from keepsakes of {counted(found, 'past class')}.")
        lost = [label for label in past if label not in self.known]
        if lost and wanted:
            sentences.append(f"No forecast without a keepsake: {_named(lost, names)}.")
        for reason, of in _by_reason({label: why[label] for label in past if label in self.known}).items():
            sentences.append(f"No forecast of {_named(of, names)}: {reason.rstrip('.?')}{'?' if reason.endswith('?') else '.'}")
        return tuple(sentences)

    def state_dict(self) -> dict[str, Any]:
        rows = torch.from_numpy(np.stack(self.rows)) if self.rows else torch.empty(0)
        begun = dict(self._state or {}) if self._predictor is None else self._predictor.state_dict()
        return {"rows": rows, "begun": begun, "refused": self.refused or ""}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Of a step of an earlier version it is empty: then there is no forecast."""
        if not state:
            self.refused = self.refused or "The step was begun by a version that made no forecasts."
            return
        if set(state) != {"rows", "begun", "refused"} or not isinstance(state["rows"], Tensor):
            raise InputError(f"{sorted(map(str, state))} is not the state of a forecast. Load what step.state_dict() gave.")
        if state["begun"]:
            check_state(state["begun"])
            self._state = state["begun"]
        elif self.known:
            self.refused = self.refused or "The step was begun without the keepsakes that are here now."
        self.rows = list(state["rows"].cpu().double().numpy()) if state["rows"].numel() else []
        self.refused = state["refused"] or self.refused


def _by_reason(why: Mapping[int, str | None]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for label, reason in why.items():
        if reason is not None:
            found.setdefault(reason, []).append(label)
    return found


def _named(labels: Sequence[int], names: Mapping[int, str]) -> str:
    more = f" and {len(labels) - NAMED:,} more" if len(labels) > NAMED else ""
    return ", ".join(names.get(label, str(label))[:100] for label in labels[:NAMED]) + more


def of_classes(forecasts: Values, probe_weight: float) -> dict[str, Values]:
    """[P] of each column, of forecasts [probes, forecast, P]: as the classes of a step have them."""
    return dict(zip(FORECAST, forecast_of_classes(forecasts, probe_weight), strict=True))
