"""What methods and evening cost in time, as ratios to uniform replay: the processor time of whole second steps, in turns.

    python benchmarks/method_cost.py                # 8 turns; --turns N for another number
    python benchmarks/method_cost.py --epochs 15    # steps as long as those of docs/methods.md, in place of extrapolated ones

The setting is that of docs/methods.md: CIFAR-100 at 16 x 16 (`forgetscope data get cifar100`), ResNet-8, 10 + 10 classes, 8 %
kept, probes = "auto", one thread; with a seed that no result uses. All sides start from one first step of 15 epochs, so that
there is something to forecast and to even out. Each is a process of its own; in each turn each of them makes its second step
once, with everything from the parent's files to the committed step, and calibrates it.

Counted is the processor time of that process, which does not run while other processes are served. A step of few epochs gives
the cost of an epoch (probes, and what is forecast at them, included) and of all else: what a step of 15 epochs would take is
all else plus 15 epochs. Ratios are within turns; printed is their mean over turns with a 95 % t interval. `replay, again` is
the baseline once more. "Fewest probes" has one before training and one at the end, in the arm and in its baseline.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

import forgetscope as fs
from forgetscope.analysis.statistics.estimates import mean_estimate
from forgetscope.data.library import load_data
from forgetscope.experiment.calibration import calibrate_locked
from forgetscope.experiment.chain import run_chain, run_locked
from forgetscope.experiment.settings import choose_settings
from forgetscope.learning.rsgd import EpochEnd
from forgetscope.spec import StepSpec, step_id
from forgetscope.store import Store
from forgetscope.threads import keep_memory
from interleaved import Remote, serve

EPOCHS = 15  # of the steps whose cost is told
SETTING: dict[str, object] = {
    **{"dataset": "cifar100", "image_size": 16, "network": "resnet8", "increment": 0.1, "steps": 2, "retention": 0.08},
    **{"validation": 0.04, "probes": "auto", "epochs": EPOCHS, "seed": 950},
}
EVENED: dict[str, object] = {"method": "distillation", "calibration": "evening"}
FEWEST: dict[str, object] = {"probes": 2}
SIDES: dict[str, dict[str, object]] = {
    "replay": {},
    "replay, again": {},
    "distillation": {"method": "distillation"},
    "distillation + evening": EVENED,
    "dark-logits": {"method": "dark-logits"},
    "ace": {"method": "ace"},
    "replay, fewest probes": FEWEST,
    "distillation + evening, fewest probes": {**EVENED, **FEWEST},
}
Costs = Mapping[str, float]


def second_step(store: str, name: str, epochs: int) -> Callable[[], str]:
    """Answers with the processor seconds of an epoch between the first and the last, of all else, and of the calibration."""
    data, settings = load_data("cifar100", 16), choose_settings("cpu", 1)
    spec = fs.RunSpec(**SETTING | SIDES[name])
    first, last = specs_of(spec)
    last = shortened(last, epochs)

    def run() -> str:
        with tempfile.TemporaryDirectory() as folder:
            here = Store(shutil.copytree(store, Path(folder) / "store"))
            ends: list[float] = []

            def epoch_ended(end: EpochEnd) -> None:
                ends.append(time.process_time())

            begin = time.process_time()
            (parent,) = here.steps()
            id = step_id(parent.id, last, data.digest)
            step = run_locked(id, last, parent, data, here, settings, epoch_ended, first=first)
            trained = time.process_time()
            if spec.calibration != "none":
                made = calibrate_locked(step, parent, spec.calibration, data, here, settings, first=first)
                if not any(made.table("calibration", ["offset"])["offset"].to_pylist()):
                    raise SystemExit("The calibration changes nothing here, so what it costs is not seen. Take another seed.")
            calibrated = time.process_time()
        epoch = (ends[-2] - ends[0]) / (epochs - 2)  # the first warms up; the last has a probe on every side
        return json.dumps({"epoch": epoch, "rest": trained - begin - epochs * epoch, "calibration": calibrated - trained})

    return run


def specs_of(spec: fs.RunSpec) -> tuple[StepSpec, StepSpec]:
    first, last = (job.spec for job in fs.plan(spec).jobs.values())
    return first, last


def shortened(spec: StepSpec, epochs: int) -> StepSpec:
    """As many probes an epoch; the fewest are one before training and one at its end."""
    assert spec.rehearsal is not None
    assert spec.rehearsal.probes is not None
    every = spec.rehearsal.probes == spec.training.epochs + 1
    return spec.model_copy(
        update={
            "training": spec.training.model_copy(update={"epochs": epochs}),
            "rehearsal": spec.rehearsal.model_copy(update={"probes": epochs + 1 if every else 2}),
        }
    )


def whole(costs: Costs) -> float:
    return costs["rest"] + EPOCHS * costs["epoch"] + costs["calibration"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3, help="of the steps that are made; at least 3")
    parser.add_argument("--sides", help="some of them, with semicolons between; replay first")
    parser.add_argument("--side", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.side:
        keep_memory()  # as the command line does
        store, name = given.side
        serve(second_step(store, name, given.epochs))
        return
    with tempfile.TemporaryDirectory() as folder:
        begun = Store(folder)
        begun.prepare()
        first = specs_of(fs.RunSpec(**SETTING))[0]
        run_chain([first], load_data("cifar100", 16), begun, choose_settings("cpu", 1))
        names = [name.strip() for name in given.sides.split(";")] if given.sides else list(SIDES)
        remotes = {name: Remote(__file__, "--epochs", str(given.epochs), "--side", folder, name) for name in names}
        costs: dict[str, list[Costs]] = {name: [] for name in names}
        for turn in range(given.turns + 1):
            at = turn % len(names)
            found = {name: json.loads(remotes[name]()) for name in names[at:] + names[:at]}
            for name, of in found.items() if turn else ():  # the turn before the first warms up
                costs[name].append(of)
            print(f"turn {turn} of {given.turns}: {json.dumps(found)}", file=sys.stderr, flush=True)
    told(costs)


def told(costs: Mapping[str, list[Costs]]) -> None:
    """Of each side: ratio to its baseline, and mean seconds of an epoch, of all else and of the calibration."""
    print(f"| side | time / replay's, {EPOCHS} epochs | an epoch | all else | calibration |")
    print("| --- | --- | --- | --- | --- |")
    for name, of in costs.items():
        fewest = "replay, fewest probes"
        base = fewest if name.endswith("fewest probes") else "replay"
        ratio = mean_estimate([whole(a) / whole(b) for a, b in zip(of, costs[base], strict=True)])
        cell = f"{ratio.value:.3f} ({ratio.low:.3f}, {ratio.high:.3f}), n = {ratio.n}" if name != base else "1"
        parts = [mean_estimate([one[part] for one in of]).value for part in ("epoch", "rest", "calibration")]
        print(f"| {name} | {cell} | {' | '.join(f'{part:.2f} s' for part in parts)} |")


if __name__ == "__main__":
    main()
