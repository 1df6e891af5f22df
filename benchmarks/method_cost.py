"""What methods and evening cost in time, as ratios to uniform replay: the processor time of second steps, in turns.

    python benchmarks/method_cost.py                      # 10 turns; --turns N for another number
    python benchmarks/method_cost.py --store FOLDER       # keeps the first step there, for the next time

The setting is that of docs/methods.md: CIFAR-100 at 16 x 16 (`forgetscope data get cifar100`), ResNet-8, 10 + 10 classes, 8 %
kept, one thread; with a seed that no result uses. There is one probe before training and one after it, and what is forecast
there counts. All sides start from one first step of 15 epochs, so that there is something to even out. Each is a process of its
own; in each turn each of them makes its second step once, from the parent's files to the committed step, and calibrates it.

Counted is the processor time of that process, which stands still while others run. The step has one epoch, which tells what an
iteration takes (their median) and what all else does: a step of 15 epochs takes all else and 15 times the iterations of an
epoch. Ratios are within turns; printed is their mean over turns with a 95 % t interval. `replay, again` is the baseline once
more, so its ratio is 1 but for noise.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

import forgetscope as fs
import forgetscope.experiment.step as step_module
from forgetscope.analysis.statistics.estimates import mean_estimate
from forgetscope.data.library import load_data
from forgetscope.experiment.calibration import calibrate_locked
from forgetscope.experiment.chain import run_chain, run_locked
from forgetscope.experiment.settings import choose_settings
from forgetscope.learning.rsgd import Divergence, EpochEnd, EpochSoFar, train_step
from forgetscope.spec import StepSpec, step_id
from forgetscope.store import Store
from forgetscope.threads import keep_memory
from interleaved import Remote, serve

EPOCHS = 15  # of the steps whose cost is told
SETTING: dict[str, object] = {
    **{"dataset": "cifar100", "image_size": 16, "network": "resnet8", "increment": 0.1, "steps": 2, "retention": 0.08},
    **{"validation": 0.04, "probes": 2, "seed": 950},
}
SIDES: dict[str, dict[str, object]] = {
    "replay": {},
    "replay, again": {},
    "distillation": {"method": "distillation"},
    "distillation + evening": {"method": "distillation", "calibration": "evening"},
    "dark-logits": {"method": "dark-logits"},
    "ace": {"method": "ace"},
}
Costs = Mapping[str, float]


def second_step(store: str, name: str) -> Callable[[], str]:
    """Answers with the processor seconds of an epoch's iterations, of all else in the step, and of its calibration."""
    data, settings = load_data("cifar100", 16), choose_settings("cpu", 1)
    spec = fs.RunSpec(**SETTING | SIDES[name], epochs=1)
    first, last = specs_of(fs.RunSpec(**SETTING, epochs=EPOCHS))[0], specs_of(spec)[1]
    ends: list[float] = []

    def timed(*given: Any, on_iteration: Callable[[EpochSoFar], None], **more: Any) -> Iterator[EpochEnd | Divergence]:
        def ended(so_far: EpochSoFar) -> None:
            ends.append(time.process_time())
            on_iteration(so_far)

        return train_step(*given, on_iteration=ended, **more)

    step_module.train_step = timed  # type: ignore[assignment]

    def run() -> str:
        ends.clear()
        with tempfile.TemporaryDirectory() as folder:
            here = Store(shutil.copytree(store, Path(folder) / "store"))
            begin = time.process_time()
            (parent,) = here.steps()
            step = run_locked(step_id(parent.id, last, data.digest), last, parent, data, here, settings, first=first)
            trained = time.process_time()
            if spec.calibration != "none":
                made = calibrate_locked(step, parent, spec.calibration, data, here, settings, first=first)
                if not any(made.table("calibration", ["offset"])["offset"].to_pylist()):
                    raise SystemExit("The calibration changes nothing here, so what it costs is not seen. Take another seed.")
            calibrated = time.process_time()
        iterations = [b - a for a, b in itertools.pairwise(ends)]
        rest = trained - begin - sum(iterations) - iterations[0]
        costs = {"epoch": len(ends) * statistics.median(iterations), "rest": rest, "calibration": calibrated - trained}
        return json.dumps(costs)

    return run


def specs_of(spec: fs.RunSpec) -> tuple[StepSpec, StepSpec]:
    first, last = (job.spec for job in fs.plan(spec).jobs.values())
    return first, last


def whole(costs: Costs) -> float:
    return costs["rest"] + EPOCHS * costs["epoch"] + costs["calibration"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--store", help="folder for the first step; by default one that is thrown away")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.side:
        keep_memory()  # as the command line does
        serve(second_step(given.store, given.side))
        return
    with tempfile.TemporaryDirectory() as thrown_away:
        begun = Store(given.store or thrown_away)
        begun.prepare()
        first = specs_of(fs.RunSpec(**SETTING, epochs=EPOCHS))[0]
        run_chain([first], load_data("cifar100", 16), begun, choose_settings("cpu", 1))
        remotes = {name: Remote(__file__, "--store", str(begun.path), "--side", name) for name in SIDES}
        costs: dict[str, list[Costs]] = {name: [] for name in SIDES}
        names = list(SIDES)
        for turn in range(given.turns + 1):
            at = turn % len(names)
            found = {name: json.loads(remotes[name]()) for name in names[at:] + names[:at]}
            for name, of in found.items() if turn else ():  # the turn before the first warms up
                costs[name].append(of)
            print(f"turn {turn} of {given.turns}: {json.dumps(found)}", file=sys.stderr, flush=True)
    told(costs)


def told(costs: Mapping[str, list[Costs]]) -> None:
    """Of each side: ratio to replay, and mean seconds of an epoch, of all else and of the calibration."""
    print(f"| side | time / replay's, {EPOCHS} epochs | an epoch | all else | calibration |")
    print("| --- | --- | --- | --- | --- |")
    for name, of in costs.items():
        ratio = mean_estimate([whole(a) / whole(b) for a, b in zip(of, costs["replay"], strict=True)])
        cell = f"{ratio.value:.3f} ({ratio.low:.3f}, {ratio.high:.3f}), n = {ratio.n}" if name != "replay" else "1"
        parts = [mean_estimate([one[part] for one in of]).value for part in ("epoch", "rest", "calibration")]
        print(f"| {name} | {cell} | {' | '.join(f'{part:.2f} s' for part in parts)} |")


if __name__ == "__main__":
    main()
