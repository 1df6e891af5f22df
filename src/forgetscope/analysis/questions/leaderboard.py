"""Methods, policies and calibrations of a store side by side: which forget less, which more evenly, and at what price.

Whatever was trained on the same classes with the same seed from the same first step is a pair, in whatever plan it was run.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from forgetscope.analysis.experiments import Experiment, summarise
from forgetscope.analysis.inputs.class_pairs import ClassPair, class_pairs
from forgetscope.analysis.inputs.samples import kept_of
from forgetscope.analysis.questions.arms import EVENLY, ArmMeasure, ArmStep, measured
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
        """By evenness at matched mean FG, the most even first, the baseline as if it differed by nothing; unknown ones last."""
        at = {row.arm: row.matched_difference for row in self.rows if row.measure == EVENLY} | {self.baseline: 0.0}
        return sorted(at, key=lambda arm: (math.isnan(at[arm]), at[arm]))


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
    groups: dict[tuple[Setting, ...], dict[Name, dict[Hashable, dict[int, ArmStep]]]] = {}
    opened = store if isinstance(store, Store) else Store.existing(store)
    for chain in opened.experiments(left_out):
        experiment = Experiment(chain)
        if experiment.simulated is None and experiment.steps[1:]:
            _add(groups, experiment)
    boards = []
    for setting, found in groups.items():
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


def _sides(
    arms: Mapping[str, Mapping[Hashable, Mapping[int, ArmStep]]], baseline: str, number: int
) -> dict[str, list[tuple[ArmStep, ArmStep]]]:
    """Of each arm but the baseline its steps with this number, each with the one that it is compared with."""
    base = {pair: sides[number] for pair, sides in arms[baseline].items() if number in sides}
    return {
        arm: [(sides[number], base[pair]) for pair, sides in of.items() if number in sides and pair in base]
        for arm, of in arms.items()
        if arm != baseline
    }


def _add(groups: dict[tuple[Setting, ...], dict[Name, dict[Hashable, dict[int, ArmStep]]]], experiment: Experiment) -> None:
    steps, last = experiment.steps, experiment.steps[-1].setting
    if len({step.setting.method + step.setting.policy for step in steps[1:]}) > 1:
        return  # it changed its method on the way
    setting = tuple(step.setting.but_for(*POLICY, *METHOD, "quota", *BESIDE_IMAGES, "draws", *BESIDE) for step in steps[:2])
    pair = (steps[0].id, steps[0].spec.seed, tuple(step.new_classes for step in steps))
    draws, besides = last.options.get("draws") or 0, last.options.get("keepsake")
    besides = f"{besides} and forecast" if besides and last.options.get("forecast") else besides
    for calibration in (None, *experiment.calibrations):
        own = {one.number: one for one in experiment.calibrations.get(calibration or "", [])}
        for number, (step, summary) in enumerate(zip(steps[1:], experiment.summaries, strict=True), start=2):
            before, one = steps[: number - 1], own.get(number)
            if calibration is None or one is not None:
                # What is kept beside images is for calibrations, but where it takes their place.
                lent = calibration is None and besides is None
                side = ArmStep(step, before, summary if one is None else summarise(one, before), one, lent=lent)
                name = Name(last.method, last.policy, last.options.get("quota"), besides, draws, calibration)
                arm = groups.setdefault(setting, {}).setdefault(name, {})
                arm.setdefault((pair[0], pair[1], pair[2][:number]), {}).setdefault(number, side)


def _names(found: dict[Name, dict[Hashable, dict[int, ArmStep]]]) -> dict[Name, str]:
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
    return f"{last.data}, {last.network}, {classes} classes, {share}, {last.options['epochs']} epochs"
