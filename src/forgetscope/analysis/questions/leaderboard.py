"""Methods, policies and calibrations of a store side by side: which forget less, which more evenly, and at what price.

Whatever was trained on the same classes with the same seed from the same first step is a pair, in whatever plan it was run.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

from forgetscope.analysis.experiments import Experiment, summarise
from forgetscope.analysis.inputs.class_pairs import ClassPair, class_pairs
from forgetscope.analysis.inputs.samples import kept_of
from forgetscope.analysis.questions.arms import EVENLY, ArmMeasure, ArmStep, Sides, measured
from forgetscope.benchmark.records import Askings, recorded_plans
from forgetscope.characters import counted
from forgetscope.choices import needs_forecast
from forgetscope.store import BESIDE_IMAGES, METHOD, POLICY, PROBING, Setting, Store, TellLeftOut, told_apart

USUAL = "replay"
BESIDE = (*PROBING, "all_layers_every", "every_iteration", "released_nic", "method_interference")  # change no network


class Name(NamedTuple):
    """What an arm is told apart by."""

    method: tuple[str, str | None]
    policy: tuple[str, str | None]
    quota: str | None
    besides: str | None  # images, if it takes their place
    draws: int
    calibration: str | None


class Pair(NamedTuple):
    """What arms have in common that are compared."""

    first: str  # id of the first step
    seed: int
    classes: tuple[tuple[int, ...], ...]  # of each step up to the one that is compared

    def until(self, number: int) -> Self:
        return self._replace(classes=self.classes[:number])


Arms = dict[Name, dict[Pair, dict[int, ArmStep | None]]]  # by step number; None: its training diverged


@dataclass(frozen=True)
class Leaderboard:
    """Of one setting and step number. rows: of each arm and measure, those of the baseline first."""

    setting: str  # in words
    step: int
    baseline: str
    rows: Sequence[ArmMeasure]
    sides: Mapping[str, Sequence[tuple[ArmStep, ArmStep]]] = field(
        default_factory=dict, compare=False, repr=False
    )  # pairs of it

    def classes(self, arm: str) -> list[ClassPair]:
        """Of an arm beside the baseline."""
        return class_pairs((mine.predicting, base.predicting, base.step.id) for mine, base in self.sides.get(arm, ()))

    @property
    def arms(self) -> list[str]:
        """By evenness at matched mean FG, the most even first, the baseline as if it differed by nothing; those that are not
        `ranked` last, in order of their names."""
        at = {row.arm: row.matched_difference for row in self.rows if row.measure == EVENLY} | {self.baseline: 0.0}
        return sorted(at, key=lambda arm: (arm not in self.ranked, at[arm] if arm in self.ranked else 0.0, arm))

    @property
    def ranked(self) -> set[str]:
        """Arms whose evenness has an interval, and the baseline: one matched pair alone is chance."""
        found = {row.arm for row in self.rows if row.measure == EVENLY and not math.isnan(row.matched_high)}
        return {*found, self.baseline}


def leaderboards(store: str | Path | Store, left_out: TellLeftOut | None = None) -> list[Leaderboard]:
    """Of every setting in which something is in pairs with replay, or else with whatever has most experiments.

    left_out: is told of damaged steps; without it, the first is an error.

    >>> import forgetscope as fs
    >>> spec = fs.RunSpec(image_size=8, sequence=((0, 1, 2), (3, 4)), epochs=1)
    >>> arms = {"plain": {}, "moved": {"calibration": "offset"}}
    >>> rows = fs.compare(fs.Comparison(spec, arms=arms, pairs=1, again=False), "ranked", progress=False)
    >>> [sorted(board.arms) for board in fs.leaderboards("ranked")]
    [['replay', 'replay + offset']]
    """
    groups: dict[tuple[Setting, ...], Arms] = {}
    opened = store if isinstance(store, Store) else Store.existing(store)
    askings = Askings.of(recorded_plans(opened, left_out=lambda problem: None))
    for chain in opened.experiments(left_out):
        experiment = Experiment(chain, left_out=left_out)
        if experiment.simulated is None and experiment.chain[1:]:
            _add(groups, experiment, askings)
    boards = []
    for setting, found in groups.items():
        _spread_divergence(found)
        names = _names(found)
        arms = {names[name]: pairs for name, pairs in found.items()}
        plain = [names[name] for name in found if name.draws == 0 and name.calibration is None]
        baseline = USUAL if USUAL in arms else max(plain or arms, key=lambda arm: len(arms[arm]))
        rows = measured({baseline: arms[baseline], **arms}, baseline)
        for number in sorted({row.step for row in rows}):
            of_step = [row for row in rows if row.step == number]
            if len({row.arm for row in of_step}) > 1:
                boards.append(Leaderboard(_said(setting), number, baseline, of_step, _sides(arms, baseline, number)))
    return boards


def _sides(arms: Mapping[str, Mapping[Pair, Sides]], baseline: str, number: int) -> dict[str, list[tuple[ArmStep, ArmStep]]]:
    """Of each arm but the baseline its steps with this number, each with the one that it is compared with."""
    base = {pair: side for pair, sides in arms[baseline].items() if (side := sides.get(number)) is not None}
    return {
        arm: [(side, base[pair]) for pair, sides in of.items() if pair in base and (side := sides.get(number)) is not None]
        for arm, of in arms.items()
        if arm != baseline
    }


def _add(groups: dict[tuple[Setting, ...], Arms], experiment: Experiment, askings: Askings) -> None:
    chain, steps, last = experiment.chain, experiment.steps, experiment.chain[-1].setting
    if len({step.setting.method + step.setting.policy for step in chain[1:]}) > 1:
        return  # it changed its method on the way
    setting = tuple(step.setting.but_for(*POLICY, *METHOD, "quota", *BESIDE_IMAGES, "draws", *BESIDE) for step in chain[:2])
    pair = Pair(chain[0].id, chain[0].spec.seed, tuple(step.new_classes for step in chain))
    draws, besides = last.options.get("draws") or 0, last.options.get("keepsake")
    besides = f"{besides} and forecast" if besides and last.options.get("forecast") else besides
    plain = Name(last.method, last.policy, last.options.get("quota"), besides, draws, None)
    arms = groups.setdefault(setting, {})
    for calibration in (None, *experiment.calibrations):
        own = {one.number: one for one in experiment.calibrations.get(calibration or "", [])}
        arm = arms.setdefault(plain._replace(calibration=calibration), {})
        spare = besides is None and (calibration is None or not needs_forecast(calibration))
        for number, (step, summary) in enumerate(zip(steps[1:], experiment.summaries, strict=True), start=2):
            before, one = steps[: number - 1], own.get(number)
            if calibration is None or one is not None:
                side = ArmStep(
                    step,
                    before,
                    summary if one is None else summarise(one, before),
                    one,
                    lent=spare and _is_lent((step.id, calibration), askings, experiment),
                )
                arm.setdefault(pair.until(number), {}).setdefault(number, side)
    if experiment.diverged is not None:
        arms[plain].setdefault(pair, {}).setdefault(len(chain), None)


def _is_lent(arm: tuple[str, str | None], askings: Askings, experiment: Experiment) -> bool:
    """Whether what this step and calibration keep beside images is there for another arm: a plan says so, or no plan says
    anything and another calibration of the experiment starts from it. Else the run asked for it itself."""
    return arm not in askings.asked and (arm in askings.lent or any(map(needs_forecast, experiment.calibrations)))


def _spread_divergence(arms: Arms) -> None:
    """Training that diverged is lost to every calibration of it, and so is every longer pair that begins like that."""
    every = {pair for of in arms.values() for pair in of}
    for name, of in arms.items():
        trained = arms.get(name._replace(calibration=None), {})
        for lost in [pair for pair, sides in trained.items() if None in sides.values()]:
            for pair in every:
                if pair.until(len(lost.classes)) == lost:
                    of.setdefault(pair, {}).setdefault(len(pair.classes), None)


def _names(found: Arms) -> dict[Name, str]:
    """`distillation, herding + evening`, with what is usual left out."""
    methods, policies = told_apart(name.method for name in found), told_apart(name.policy for name in found)
    named = {}
    for name in found:
        parts = [methods[name.method], *[policies[name.policy]] * (name.policy[0] != "uniform")]
        parts += [name.quota] if name.quota else []
        parts += [f"with {name.besides}"] if name.besides else []
        parts += [f"draws {name.draws}"] * (name.draws > 0)
        named[name] = ", ".join(parts) + (f" + {name.calibration}" if name.calibration else "")
    return named


def _said(setting: Sequence[Setting]) -> str:
    last = setting[-1]
    kept = last.options.get("retention")
    share = f"{100 * kept:g} % kept" if kept is not None else f"{kept_of(last.options)} kept"
    classes = "+".join(str(one.options["classes"]) for one in setting)
    return f"{last.data}, {last.network}, {classes} classes, {share}, {counted(last.options['epochs'], 'epoch')}"
