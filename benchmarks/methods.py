"""What docs/methods.md shows: methods and calibrations against uniform replay, in pairs.

    python benchmarks/methods.py run STORE FILE          # examples/methods-cifar100.toml, examples/methods-glyphs.toml
    python benchmarks/methods.py run STORE FILE --arms uniform,distillation --steps 2      # a part of it, first
    python benchmarks/methods.py judge STORE FILE        # calibrations of whole pairs, and their numbers into methods.csv
    python benchmarks/methods.py tables                  # what benchmarks/methods.csv shows so far

Each pair is judged by itself and its numbers are kept, so that pairs can be trained on several days and machines. Tables say
how many of the planned pairs there are.

Fixed before anything was trained. Pairs: 20 of second steps, 10 of third steps, seeds as in the files; the second steps of the
first ten pairs are the same steps. All images that a calibration may hold out are left out of training in every arm
(validation = 0.04 of each class). The baseline is uniform replay without keepsakes that keeps two images more of each class
than the other arms: at least the bytes of a keepsake and of what a third step carries of it. Calibrations without a method act
on `replay`, which is the baseline with as many images as the other arms. Defaults of all methods and calibrations were found
without any of these seeds and without test images.

The primary comparison is distillation with evening against the baseline, second steps on CIFAR-100: as trained, the lower 95 %
limit of the difference in accuracy over all classes; at matched mean FG, the differences of true spread and of FG-R. Evening is
also put on top of the other one of herding, dark-logits and ace that has the highest accuracy in second steps on CIFAR-100.
"""

import argparse
import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

import forgetscope as fs
from forgetscope.analysis.questions.arms import EVENLY, LESS, MEASURES, OF_COST, compare_arms, verdict_of
from forgetscope.analysis.statistics.estimates import Estimate, mean_estimate
from forgetscope.benchmark.arms import AGAIN, chains_by_arm, changed, member_of
from forgetscope.report.words.notation import PLAIN

PAIRS = {2: 20, 3: 10}  # by the number of steps
TWO_MORE = {"cifar100": 0.0834, "glyphs": 0.0886}  # retention of 40 and of 17 images, where the other arms have 38 and 15
TRAINED: dict[str, dict[str, object]] = {
    "distillation": {"method": "distillation", "forecast": True},
    "replay": {"forecast": True},
    "herding": {"policy": "herding", "forecast": True},
    "dark-logits": {"method": "dark-logits", "forecast": True},
    "ace": {"method": "ace", "forecast": True},
}

CALIBRATED = {  # by the arm that is trained
    "distillation": ("evening",),
    "replay": ("evening", "offset", "bias-correction", "weight-aligning"),
    "herding": ("evening",),
    "dark-logits": ("evening",),
    "ace": ("evening",),
}
KEPT = Path(__file__).with_suffix(".csv")
COLUMNS = ("dataset", "step", "pair", "arm", "measure", "value", "difference", "matched")
Key = tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, command in (("run", run), ("judge", judge)):
        one = commands.add_parser(name)
        one.add_argument("store")
        one.add_argument("file")
        one.add_argument("--arms", type=lambda text: text.split(","), default=["uniform", *TRAINED, AGAIN])
        one.add_argument("--steps", type=int, action="append", choices=PAIRS)
        one.set_defaults(command=command)
    commands.add_parser("tables").set_defaults(command=tables)
    given = vars(parser.parse_args(arguments))
    given.pop("command")(**given)


def run(store: str, file: str, arms: Sequence[str], steps: Sequence[int] | None) -> None:
    """What is missing of these arms, pair by pair, so that what is stopped leaves whole pairs."""
    for number in steps or PAIRS:
        for pair in range(PAIRS[number]):
            print(f"{number} steps, pair {pair + 1} of {PAIRS[number]}", flush=True)
            fs.run(one_pair(comparison(file, number, arms), pair), store, on=fs.Local(jobs=1))


def judge(store: str, file: str, arms: Sequence[str], steps: Sequence[int] | None) -> None:
    """Calibrations and numbers of every pair of which everything is trained; what is kept of other pairs stays."""
    kept = read()
    for number in steps or PAIRS:
        for pair, arm in whole_pairs(fs.Store(store), file, number, arms):
            for key, values in numbers(store, file, number, pair, arm).items():
                kept[key] = values
    with KEPT.open("w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([*key, *(f"{value:.6g}" for value in values)] for key, values in sorted(kept.items()))


def tables() -> None:
    """Of each data set and step: means, differences within pairs and at matched mean FG, and a verdict."""
    kept = read()
    for dataset, step in sorted({key[:2] for key in kept}):
        arms = dict.fromkeys(key[3] for key in sorted(kept) if key[:2] == (dataset, step))
        print(f"\n{dataset}, step {step} ({PAIRS[int(step)]} pairs planned)\n")
        print(f"| arm | pairs | {' | '.join(MEASURES.values())} | verdict |")
        print("| --- " * (len(MEASURES) + 3) + "|")
        for arm in arms:
            of = {m: pairs_of(kept, dataset, step, arm, m) for m in MEASURES}
            if arm == "uniform":
                cells, verdict = [number(of[m][:, 0].mean(), m) for m in MEASURES], "baseline"
            else:
                cells = [cell(of[m], m) for m in MEASURES]
                verdict = verdict_of(estimate(of[LESS][:, 1]), estimate(of[EVENLY][:, 2])) or PLAIN.missing
            print(f"| {arm} | {len(of[LESS])} | {' | '.join(cells)} | {verdict} |")


def cell(values: np.ndarray, measure: str) -> str:
    """Mean, difference as trained, and at matched mean FG."""
    parts = [number(values[:, 0].mean(), measure)]
    digits = 1 if measure in OF_COST else 3
    parts.append(PLAIN.estimate(estimate(values[:, 1]), digits, signed=True))
    if measure not in OF_COST and measure != LESS:
        parts.append(f"matched {PLAIN.estimate(estimate(values[:, 2]), digits, signed=True)}")
    return "; ".join(parts)


def number(value: float, measure: str) -> str:
    return PLAIN.number(value, 0 if measure == "bytes" else 1 if measure == "seconds" else 3)


def estimate(values: np.ndarray) -> Estimate:
    return mean_estimate(values[np.isfinite(values)])


def pairs_of(kept: Mapping[Key, tuple[float, ...]], dataset: str, step: str, arm: str, measure: str) -> np.ndarray:
    """[pairs, value, difference and matched difference]"""
    return np.array([v for key, v in sorted(kept.items()) if (*key[:2], *key[3:]) == (dataset, step, arm, measure)])


def read() -> dict[Key, tuple[float, ...]]:
    if not KEPT.exists():
        return {}
    with KEPT.open(newline="", encoding="utf-8") as file:
        return {tuple(row[:5]): tuple(map(float, row[5:])) for row in list(csv.reader(file))[1:]}


def whole_pairs(store: fs.Store, file: str, steps: int, arms: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Pairs of which the baseline and the arm have been trained."""
    chains = chains_by_arm(fs.plan(comparison(file, steps, arms)))
    for pair in range(PAIRS[steps]):
        there = [name for name, of in chains.items() if all(id in store for id in of[pair].steps)]
        if "uniform" in there:
            yield from ((pair, name) for name in there if name != "uniform")


def numbers(store: str, file: str, steps: int, pair: int, arm: str) -> dict[Key, tuple[float, ...]]:
    """Of the last step of one pair: the baseline, the arm, and the arm with each of its calibrations."""
    base = fs.RunSpec.from_toml(file, {"steps": steps})
    spec, found = comparison(file, steps, ["uniform", arm]), dict[Key, tuple[float, ...]]()
    one = member_of(base, pair)
    own = spec.all_arms[arm]
    named = {"uniform": spec.all_arms["uniform"], arm: own}
    named |= {f"{arm} + {name}": {**own, "calibration": name} for name in CALIBRATED.get(arm, ())}
    for options in named.values():
        fs.run(changed(one, options), store, threads=1, progress=False)  # trained already: calibrations alone are made
    plan = fs.plan(fs.Comparison(one, arms=named, pairs=1, baseline="uniform", again=False))
    for row in compare_arms(fs.Store(store), chains_by_arm(plan)):
        if row.step == steps and row.n:
            key = (base.dataset, str(steps), f"{pair:02d}", row.arm, row.measure)
            found[key] = (row.value, row.difference, row.matched_difference)
    return found


def one_pair(spec: fs.Comparison, pair: int) -> fs.Comparison:
    """Its steps are those of that pair in the whole comparison."""
    arms = {name: options for name, options in spec.all_arms.items() if name != AGAIN}
    return fs.Comparison(member_of(spec.run, pair), arms=arms, pairs=1, baseline=spec.baseline, again=spec.again)


def comparison(file: str, steps: int, arms: Sequence[str]) -> fs.Comparison:
    """On second steps, or on steps up to the third."""
    base = fs.RunSpec.from_toml(file, {"steps": steps})
    known = {"uniform": {"retention": TWO_MORE[base.dataset]}, **TRAINED}
    chosen = {name: options for name, options in known.items() if name in arms}
    return fs.Comparison(base, arms=chosen, pairs=PAIRS[steps], baseline="uniform", again="again" in arms)


if __name__ == "__main__":
    main()
