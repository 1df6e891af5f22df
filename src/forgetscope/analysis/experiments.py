"""Data frames of one experiment, and of all experiments in a store, from the records of their steps."""

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from forgetscope.analysis.inputs.recognised import (
    accuracies,
    barely_learned_in,
    barely_learned_of,
    recognised_if_whole,
    seen_by,
)
from forgetscope.analysis.statistics.estimates import PERFECT, Estimate, correlation_estimate, mean_estimate
from forgetscope.analysis.statistics.noise import (
    Recognised,
    ceiling_estimate,
    noise_of_step,
    reliability_estimate,
    sampling_variances,
    spread_estimate,
)
from forgetscope.analysis.statistics.pooling import per_experiment
from forgetscope.analysis.statistics.prediction import absolute_error, coverage_estimate, covered
from forgetscope.analysis.statistics.rank_correlation import shared_spearman, spearman
from forgetscope.characters import counted
from forgetscope.errors import StoreError
from forgetscope.measuring.forgetting import forgetting as forgotten, forgetting_half_gap, forgetting_range
from forgetscope.measuring.quantities import FORECAST
from forgetscope.spec import PROTOCOL
from forgetscope.store import (
    Recording,
    Setting,
    Store,
    StoredCalibration,
    StoredStep,
    StoredTables,
    TableName,
    TellLeftOut,
    calibrations_of,
    counting,
    leaving_out,
    past_rows,
    told_apart,
)
from forgetscope.store.tablefiles import usual_columns

Values = NDArray[np.float64]
Names = dict[tuple[str, str | None], str]  # by name and digest of own code or data
USUAL = ("protocol", PROTOCOL)  # said of other steps only
AVERAGED = {
    **{"accuracy_when_learned": "accuracy when learned", "accuracy_of_past": "  now", "mean_forgetting": "mean FG"},
    **{"forgetting_range": "FG-R", "range_floor": "  by noise", "forgetting_half_gap": "FG-HG", "half_gap_floor": "  by noise"},
}
OF_LEARNED = (
    *("accuracy_when_learned", "accuracy_of_past", "mean_forgetting"),
    *("forgetting_range", "range_floor", "forgetting_half_gap", "half_gap_floor"),
)
BEYOND_NOISE = {"spread": "spread", "reliability": "reliability", "ceiling": "ρ, at most"}
FORESEEN = {
    **{"rho": "ρ forecast", "sic": "  SIC, same classes", "cic": "  CIC, same classes", "nic": "  NIC, same classes"},
    **{"ranked": "  so many classes", "error": "  mean error", "covered": "  in its interval"},
}
MEASURES = {"sic": "SIC", "cic": "CIC", "nic": "NIC", "all_nic": "ALL-NIC", "log_sim": "LOG-SIM"}


@dataclass(frozen=True)
class StepSummary:
    """How much the past classes were forgotten in one step, how unevenly, and what saw it coming."""

    step: int
    past_classes: int
    new_accuracy: float  # mean test accuracy of the classes that this step learned
    accuracy: float  # mean test accuracy of all classes seen so far
    mean_forgetting: float
    forgetting_range: float
    forgetting_half_gap: float
    worst_forgetting: float  # of the class that was forgotten most
    correlations: dict[str, float]  # Spearman's rho of each measure with forgetting
    accuracy_when_learned: float  # mean over the past classes
    accuracy_of_past: float  # likewise, now
    ranked_classes: int  # past classes whose forgetting is defined
    range_floor: float  # FG-R if all past classes had been forgotten alike, by the noise of the test images alone
    half_gap_floor: float  # FG-HG likewise
    true_variance: float  # of forgetting over classes without that noise: an estimate, which may be negative
    variance: float  # of forgetting over classes
    sampling: list[float]  # of each past class, the variance of its forgetting by that noise alone
    paired: bool  # whether the noise is known from pairs of the same images; from counts it is overstated
    forecast: dict[str, float]  # how good it was, as named in `FORESEEN`; empty where there is none
    barely_learned: int  # past classes that were hardly recognised when learned (`statistics.learned`)
    of_learned: dict[str, float]  # as named in `OF_LEARNED`, of the other past classes alone

    @cached_property
    def beyond_noise(self) -> dict[str, float]:
        """As `beyond_noise`, of this step alone."""
        return {name: estimate.value for name, estimate in beyond_noise([self]).items()}


def _frame(name: TableName, doc: str) -> cached_property[pd.DataFrame]:
    def read(experiment: "StepFrames[Any]") -> pd.DataFrame:
        frames = []
        for step in experiment.steps:
            frame: pd.DataFrame = step.table(name).to_pandas()
            frame.insert(0, "step", step.number)
            frames.append(frame)
        empty = pa.schema([("step", pa.int64()), *usual_columns(name).items()]).empty_table().to_pandas()
        whole: pd.DataFrame = pd.concat([f for f in frames if len(f)] or frames[:1] or [empty], ignore_index=True)
        return experiment.completed(name, whole)

    read.__doc__ = doc
    return cached_property(read)


Step = TypeVar("Step", bound=StoredTables)


class StepFrames(ABC, Generic[Step]):
    """Steps that follow one another, as data frames: planned ones, or what a monitor saw. Frames have a column `step`; every
    row is as the store holds it."""

    chain: list[Step]  # all of them,
    steps: list[Step]  # and those that came to their end

    @property
    @abstractmethod
    def label(self) -> str:
        """What it is called wherever it is shown."""

    @property
    @abstractmethod
    def network(self) -> str: ...

    @property
    @abstractmethod
    def summaries(self) -> list[StepSummary]:
        """One summary per step with past classes."""

    def completed(self, name: TableName, frame: pd.DataFrame) -> pd.DataFrame:
        """A frame with what stands beside the steps' own columns."""
        return frame

    classes = _frame("classes", "Per step and class: accuracy, forgetting, coefficients.")
    probes = _frame("probes", "Per step, probe and past class: the terms that add up to the coefficients, norms and losses.")
    pairs = _frame("pairs", "Per step, past class and source class: who interfered with whom.")
    rehearsal = _frame("rehearsal", "Per step and past class: which training images were rehearsed, in order of selection.")
    confusion = _frame("confusion", "Per step: counts of true and predicted classes on the test images.")

    def numbered(self, number: int) -> Step:
        """The step of this number."""
        return next(step for step in self.steps if step.number == number)

    def past_classes(self, step: int | None = None) -> pd.DataFrame:
        """The past classes of one step (default: the last), most forgotten first; beside what the store holds, whether each
        was `barely_learned`, so that its forgetting says nothing."""
        number = max((own.number for own in self.steps), default=0) if step is None else step
        rows = self.classes[self.classes["step"] == number]
        rows = rows[past_rows(rows, number)]
        barely = barely_learned_in(self.numbered(number)) if len(rows) else {}
        rows = rows.assign(barely_learned=rows["class_id"].map(barely).astype(bool))
        return rows.sort_values("forgetting", ascending=False, kind="stable", na_position="last").reset_index(drop=True)

    @property
    def forecasts(self) -> bool:
        """Whether forgetting was predicted of any class."""
        return "forecast" in self.classes.columns and bool(self.classes["forecast"].notna().any())

    def _repr_html_(self) -> str:
        """A notebook shows the past classes of the last step, most forgotten first."""
        from forgetscope.report.words.notebook import shown_in_a_notebook  # looking upward: words are the report's

        return shown_in_a_notebook(self)


class Experiment(StepFrames[StoredStep]):
    """One experiment: a chain of steps. Frames have a column `step`; every row is as the store holds it.

    `steps` came to their end. A last step that diverged is in `diverged` and in no frame: it is excluded from statistics.
    summaries: of these steps, where they are known already. calibration: whose accuracy and forgetting stand beside those as
    trained, in columns of their own; by default the only one that these steps have. left_out: is told of damaged
    calibrations; without it, the first is an error.

    >>> import forgetscope as fs
    >>> result = fs.run(fs.RunSpec(image_size=8, sequence=((0, 1, 2), (3, 4)), epochs=1), "results", progress=False)
    >>> result.past_classes()[["class_id", "forgetting", "sic"]].shape  # most forgotten first
    (3, 3)
    >>> result.pairs.columns.tolist()  # who interfered with whom
    ['step', 'class_id', 'source_class_id', 'source_is_new', 'term']
    """

    def __init__(
        self,
        chain: Sequence[StoredStep],
        summaries: list[StepSummary] | None = None,
        calibration: str | None = None,
        left_out: TellLeftOut | None = None,
    ) -> None:
        self.chain = list(chain)
        self._summaries, self._calibration, self._left_out = summaries, calibration, left_out
        self.diverged = self.chain[-1] if self.chain[-1].divergence is not None else None
        self.steps = self.chain[:-1] if self.diverged else self.chain

    @property
    def id(self) -> str:
        return self.chain[-1].id

    @property
    def label(self) -> str:
        return self.id[:8]

    @property
    def data(self) -> dict[str, Any]:
        """Name, requested image size, shape and digest of the data set."""
        facts: dict[str, Any] = self.chain[0].info["data"]
        return facts

    @property
    def data_title(self) -> str:
        """The data set in two words, for example `glyphs 16x16`; and whether only its shape was used."""
        return f"{self.chain[0].setting.data}{' (simulated)' if self.simulated else ''}"

    @property
    def simulated(self) -> dict[str, Any] | None:
        """Seed and truth, if nothing was trained."""
        return next((step.simulated for step in self.chain if step.simulated is not None), None)

    @property
    def network(self) -> str:
        return str(self.chain[0].info["network"])

    @cached_property
    def calibrations(self) -> dict[str, list[StoredCalibration]]:
        """By name, of each step that has it."""
        found: dict[str, list[StoredCalibration]] = {}
        store = Store(self.chain[0].store)
        for step in self.steps[1:] if (store.path / "calibrated").is_dir() else ():
            for one in calibrations_of(store, step, self._left_out):
                with leaving_out(self._left_out):
                    if self._left_out is not None:
                        one.verify()
                    found.setdefault(one.calibration, []).append(one)
        return found

    @property
    def calibration(self) -> str | None:
        """The one whose numbers stand in `classes`."""
        only = [*self.calibrations] if len(self.calibrations) == 1 else [None]
        return only[0] if self._calibration is None else self._calibration

    @cached_property
    def calibrated(self) -> pd.DataFrame:
        """Per calibration, step and class: scale and offset of its logit, and accuracy and forgetting with them."""
        frames = [pd.DataFrame(columns=["calibration", "step", *usual_columns("calibration")])]
        for name, of in self.calibrations.items():
            for one in of:
                frame = one.table("calibration").to_pandas()
                frame.insert(0, "calibration", name)
                frame.insert(1, "step", one.number)
                frames.append(frame)
        return pd.concat(frames[1:] or frames, ignore_index=True)

    def completed(self, name: TableName, frame: pd.DataFrame) -> pd.DataFrame:
        """Classes with their accuracy and forgetting under the calibration, in columns of their own."""
        if name != "classes" or self.calibration not in self.calibrations:
            return frame
        own = self.calibrated[self.calibrated["calibration"] == self.calibration]
        columns = ["step", "class_id", "calibrated_accuracy", "calibrated_forgetting"]
        return frame.merge(own[columns], how="left", on=["step", "class_id"], validate="one_to_one")

    @cached_property
    def calibrated_summaries(self) -> dict[str, list[StepSummary]]:
        """By calibration, of each step that has it."""
        return {name: [summarise(one, self.steps[: one.number - 1]) for one in of] for name, of in self.calibrations.items()}

    @property
    def summaries(self) -> list[StepSummary]:
        """One summary per step from the second on."""
        if self._summaries is None:
            self._summaries = [summarise(step, self.steps[:i]) for i, step in enumerate(self.steps) if i]
        return self._summaries

    def __repr__(self) -> str:
        seed, steps = self.chain[0].spec.seed, counted(len(self.steps), "step")
        made = ", simulated" if self.simulated else ""
        return f"Experiment({self.id[:8]}: {self.data['name']}{made}, {self.network}, {steps}, seed {seed})"


def summarise(step: StoredTables, ancestors: Iterable[StoredStep] = (), offset: float = 0.0) -> StepSummary:
    """One step, from the second on, that came to its end. Without pandas: a store may have ten thousand of them.

    ancestors: to compare test images with when their class was learned; without them the noise is from counts. offset: as if
    this had been added to all past logits, of a step whose single test images are known."""
    moved = seen_by(step, offset) if offset else None
    images, paired = recognised_if_whole(step, {before.number: before for before in ancestors}, moved)
    noise = noise_of_step(images)
    names = ("class_id", "accuracy", "accuracy_when_learned", "forgetting")
    as_trained = moved is None and not isinstance(step, StoredCalibration)
    table = step.table("classes", ["introduced_step", *names, *MEASURES, *(FORECAST[:2] if as_trained else ())])
    ids, accuracy, when_learned, forgetting = (table[name].to_numpy() for name in names)
    past = past_rows(table, step.number)
    measures, forgetting = np.stack([table[name].to_numpy()[past] for name in MEASURES]), forgetting[past]
    if moved is not None:
        accuracy = accuracies(moved, ids)
        forgetting = forgotten(when_learned[past], accuracy[past])
    variances, barely = sampling_variances(images), barely_learned_of(step, images.learned, images.images)
    foreseen = [table[name].to_numpy()[past] for name in FORECAST[:2] if name in table.column_names]
    return StepSummary(
        step=step.number,
        past_classes=int(past.sum()),
        new_accuracy=_mean(accuracy[~past]),
        accuracy=_mean(accuracy),
        mean_forgetting=_mean(forgetting),
        forgetting_range=forgetting_range(forgetting),
        forgetting_half_gap=forgetting_half_gap(forgetting),
        worst_forgetting=float(np.fmax.reduce(forgetting, initial=np.nan)),
        correlations=dict(zip(MEASURES, spearman(measures, forgetting).tolist(), strict=True)),
        accuracy_when_learned=_mean(when_learned[past]),
        accuracy_of_past=_mean(accuracy[past]),
        ranked_classes=int((~np.isnan(forgetting)).sum()),
        range_floor=noise.range_floor,
        half_gap_floor=noise.half_gap_floor,
        true_variance=noise.variance,
        variance=noise.observed,
        sampling=variances.tolist(),
        paired=bool(paired.all()),
        forecast=_judged(foreseen, measures, forgetting, variances)
        if len(foreseen) == 2 and np.isfinite(foreseen[0]).any()
        else {},
        barely_learned=int(barely.sum()),
        of_learned=_of(Recognised(*(column[~barely] for column in images)), accuracy[past][~barely], forgetting[~barely]),
    )


def _of(found: Recognised, accuracy: Values, forgetting: Values) -> dict[str, float]:
    noise = noise_of_step(found)
    values = (
        *(_mean(found.learned), _mean(accuracy), _mean(forgetting)),
        *(forgetting_range(forgetting), noise.range_floor, forgetting_half_gap(forgetting), noise.half_gap_floor),
    )
    return dict(zip(OF_LEARNED, values, strict=True))


def _judged(foreseen: Sequence[Values], measures: Values, forgetting: Values, variances: Values) -> dict[str, float]:
    """measures [measures, P]: ranked over the classes that forecast, SIC, CIC and NIC all know, to be compared with it."""
    forecast, low = foreseen
    rivals = {name: values for name, values in zip(MEASURES, measures, strict=True) if name in FORESEEN}
    found, ranked = shared_spearman(forgetting, forecast, *rivals.values())
    return {
        **dict(zip(("rho", *rivals), found, strict=True)),
        "ranked": ranked,
        "error": absolute_error(forecast, forgetting),
        "covered": covered(forecast, forecast - low, forgetting, variances),  # the upper end stops at 1
    }


def beyond_noise(summaries: Sequence[StepSummary], roots: Sequence[str] | None = None) -> dict[str, Estimate]:
    """Of these steps: the true spread of forgetting over classes, its reliability, and the ceiling of the mean rank correlation
    with it, which a predictor would reach that knows the true forgetting. roots: of which experiments they are; left out,
    each is one of its own."""
    roots = [str(i) for i in range(len(summaries))] if roots is None else roots
    parts = ([getattr(s, name) for s in summaries] for name in ("true_variance", "variance"))
    without, observed = (per_experiment(np.array(part, float), roots) for part in parts)
    variance = mean_estimate(without)
    noises = [np.array(s.sampling) for s in summaries]
    return {
        "spread": spread_estimate(variance),
        "reliability": reliability_estimate(without, observed),
        "ceiling": ceiling_estimate(variance, noises),
    }


def _mean(values: NDArray[np.float64]) -> float:
    """Of what is known; NaN if that is nothing."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else math.nan


def pick(store: Store, prefix: str | None, left_out: TellLeftOut | None = None) -> Experiment:
    """The experiment that ends in the step with this id, or the latest. left_out: as of `Experiment`."""
    if prefix is not None:
        return Experiment(store.chain(store.find(prefix).id), left_out=left_out)
    chains = store.experiments()
    if not chains:
        raise StoreError(f"The store {store.path} holds no finished step yet. Run an experiment with `forgetscope run`.")
    return Experiment(chains[-1], left_out=left_out)


def open_experiment(path: str | Path, prefix: str | None = None) -> Experiment:
    """An experiment from a store on disk: the latest, or the one whose id begins with `prefix`.

    >>> import forgetscope as fs
    >>> result = fs.run(fs.RunSpec(image_size=8, sequence=((0, 1, 2), (3, 4)), epochs=1), "results", progress=False)
    >>> fs.open_experiment("results", result.id[:6]).id == result.id
    True
    """
    return pick(Store.existing(path), prefix)


@dataclass(frozen=True)
class Overview:
    """One step number over experiments that differ only in seed and class sequence. Correlation means are Fisher-z means."""

    setting: tuple[str, ...]  # readable parts, such as `resnet8` and `epochs=20`
    step: int
    experiments: int
    diverged: int  # further experiments whose training diverged at this step; they are in no mean
    accuracy_when_learned: Estimate  # of the past classes, mean per experiment
    accuracy_of_past: Estimate  # likewise, now
    mean_forgetting: Estimate
    forgetting_range: Estimate
    range_floor: Estimate
    forgetting_half_gap: Estimate
    half_gap_floor: Estimate
    spread: Estimate  # of forgetting over classes, without the noise of test images
    reliability: Estimate  # the share of its variance in that of forgetting as it is
    correlations: dict[str, Estimate]
    ceiling: Estimate  # of these
    forecast: dict[str, Estimate]  # of those that have one, as named in `FORESEEN`; empty where none has
    perfect: int  # of all these correlations, how many are 1 or -1, which in a mean count as a little less (`fisher_z`)
    barely_learned: int  # past classes that were barely learned, over all these experiments


def overview(found: Sequence[Experiment]) -> list[Overview]:
    """Averages over seeds, per setting and step, for settings that occur more than once."""
    groups: dict[tuple[Setting, ...], list[Experiment]] = {}
    diverged: Counter[tuple[Setting, ...]] = Counter()
    counts, counted = counting(recordings(found)), set[str]()  # experiments can share steps; each step counts once
    for experiment in found:
        settings = tuple(step.setting for step in experiment.chain)
        for number, step in enumerate(experiment.steps[1:], start=2):
            if step.id not in counted and counts[step.id] == step.id:
                counted.add(step.id)
                groups.setdefault(settings[:number], []).append(experiment)
        if experiment.diverged is not None and counts[experiment.diverged.id] == experiment.diverged.id:
            diverged[settings] += 1
    names = told_apart((e.data_title, e.data["digest"]) for e in found if not e.simulated)
    names |= told_apart((e.network, e.chain[0].setting.network_source) for e in found) | policy_names(found)
    names |= told_apart(step.setting.method for experiment in found for step in experiment.chain[1:])
    return [_overview(settings, group, diverged[settings], names) for settings, group in groups.items() if len(group) > 1]


def recordings(found: Iterable[Experiment]) -> list[Recording]:
    """All steps of these experiments, as recordings of trainings."""
    steps = {step.id: step for experiment in found for step in experiment.chain}
    return [Recording.of(id, step.info) for id, step in steps.items()]


def recorded_again(found: Iterable[Experiment]) -> int:
    """How many steps record a training that another step of these experiments records more exactly, or once more."""
    return sum(id != counted for id, counted in counting(recordings(found), apart=False).items())


def policy_names(found: Iterable[Experiment]) -> Names:
    """What to call the policies of these experiments, wherever they are shown."""
    return told_apart(step.setting.policy for experiment in found for step in experiment.chain[1:])


def _overview(settings: tuple[Setting, ...], group: Sequence[Experiment], diverged: int, names: Names) -> Overview:
    step, own = len(settings), settings[0]
    data, network = (group[0].data_title, own.digest), (own.network, own.network_source)
    made = [own.digest[:18]] if group[0].simulated else []  # other seeds and truths are other settings
    summaries = [next(s for s in experiment.summaries if s.step == step) for experiment in group]
    setting = (names.get(data, data[0]), names[network], *made, *_readable(settings, names))
    return averaged(summaries, setting, diverged)


def averaged(summaries: Sequence[StepSummary], setting: tuple[str, ...], diverged: int) -> Overview:
    """Of steps with the same number and setting, here in words. diverged: how many more did not come to their end."""
    ranked = [s.ranked_classes for s in summaries]
    return Overview(
        setting=setting,
        step=summaries[0].step,
        experiments=len(summaries),
        diverged=diverged,
        **{name: mean_estimate([getattr(s, name) for s in summaries]) for name in AVERAGED},
        **beyond_noise(summaries),
        correlations={name: correlation_estimate([s.correlations[name] for s in summaries], ranked) for name in MEASURES},
        forecast=_foreseen([s for s in summaries if s.forecast]),
        barely_learned=sum(s.barely_learned for s in summaries),
        perfect=sum(abs(rho) > PERFECT for s in summaries for rho in (*s.correlations.values(), s.forecast.get("rho", 0.0))),
    )


def _foreseen(summaries: Sequence[StepSummary]) -> dict[str, Estimate]:
    of = {name: [s.forecast[name] for s in summaries] for name in FORESEEN}
    ranked = [int(number) for number in of["ranked"]]
    found = {name: mean_estimate(values) for name, values in of.items()} | {"covered": coverage_estimate(of["covered"])}
    found |= {name: correlation_estimate(of[name], ranked) for name in FORESEEN if name in ("rho", *MEASURES)}
    return found if summaries else {}


def _readable(settings: Sequence[Setting], names: Names) -> list[str]:
    """`epochs=20`; an option that changes between steps appears again."""
    parts: list[str] = []
    previous: dict[str, Any] = {}
    for setting in settings:
        current = {**setting.options, "policy": names.get(setting.policy), "policy_source": None, "method_source": None}
        current["method"] = None if setting.method[0] == "replay" else names.get(setting.method)
        current = {name: value for name, value in current.items() if value is not None and (name, value) != USUAL}
        parts += [f"{name}={json.dumps(value)}" for name, value in current.items() if previous.get(name) != value]
        previous = current
    return parts
