"""What docs/forecast.md shows: forecasts of forgetting against every other predictor, on the same runs.

    python benchmarks/forecast.py run STORE FILE [--set NAME=VALUE ...] [--shard 1/2]

Trains what is missing of a benchmark, and keeps the network after every epoch in STORE-networks: all predictors are computed
from the same networks afterwards. A forecast changes nothing in training, so these are also the steps of runs without it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import safetensors.torch

import forgetscope as fs
from forgetscope.benchmark.plans import Job
from forgetscope.learning.snapshots import load_snapshot


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.add_argument("store")
    one.add_argument("file")
    one.add_argument("--set", action="append", default=[])
    one.add_argument("--shard")
    one.set_defaults(command=run)
    given = vars(parser.parse_args(arguments))
    given.pop("command")(**given)


class Keeper(fs.Watcher):
    """Keeps the network after every epoch: steps save a snapshot then, and drop it when they are done."""

    def __init__(self, store: fs.Store) -> None:
        self.store = store

    def epoch_ended(self, job: Job, epoch: int, loss: float, accuracy: float) -> None:
        snapshot = load_snapshot(self.store.working(job.id), lambda path: None)
        if snapshot is None or snapshot.epoch != epoch:
            raise SystemExit(
                f"There is no snapshot of step {job.id[:8]} after epoch {epoch}: the network is too large for this."
            )
        path = kept_network(self.store, job.id, epoch)
        path.parent.mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file(snapshot.network, path)

    def ended(self, job: Job) -> None:
        print(f"step {job.spec.step} {job.id[:8]}", flush=True)

    def ended_badly(self, job: Job, message: str, blocked: int) -> None:
        print(f"step {job.spec.step} {job.id[:8]}: {message}", flush=True)

    def note(self, text: str) -> None:
        print(text, flush=True)


def kept_network(store: fs.Store, id: str, epoch: int) -> Path:
    return store.path.with_name(f"{store.path.name}-networks") / id / f"{epoch}.safetensors"


def run(store: str, file: str, set: Sequence[str], shard: str | None) -> None:
    spec, opened = fs.BenchmarkSpec.load(file, parsed(set)), fs.Store(store)
    fs.run(spec, opened, on=fs.Here(threads=1), watch=Keeper(opened), shard=shard)


def parsed(settings: Sequence[str]) -> dict[str, object]:
    """Of the form NAME=VALUE, with values as TOML has them."""
    import tomllib

    return {name: value for setting in settings for name, value in tomllib.loads(setting).items()}


if __name__ == "__main__":
    main()
