"""A policy, a network or a data set that is replaced while a run or a benchmark works.

Two versions of each are known, and what an undisturbed run makes of them. Whatever happens meanwhile, a step that names a
version must be the one that this version gives; and the same command, left alone, finishes.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from torture.harness import PATIENCE, Bench, Job, Outcome, Progress, demand, digests, silent

MINE = """\
from torch import nn

VERSION = {version}


def choose(candidates, quota, rng):
    order = list(range(len(candidates.images)))
    return (order if VERSION == 1 else order[::-1])[:quota]


class Network(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3)
        nn.init.constant_(self.body.bias, VERSION / 10)
        self.head = nn.Linear(8, classes)

    def features(self, images):
        return self.body(images).relu().mean((2, 3))

    def forward(self, images):
        return self.head(self.features(images))
"""
RUN = """\
dataset = "squares"
network = "mine:Network"
policy = "mine:choose"
sequence = [[0, 1, 2], [3, 4], [5, 6]]
retention = 0.25
epochs = 30
first_batch = 16
batch = 16
"""
BENCHMARK = """\
name = "edited"
dataset = "squares"
network = "mine:Network"
policies = ["mine:choose"]
increments = [0.25]
retentions = [0.25]
experiments = 2
epochs = 30
first_batch = 16
batch = 16
"""
VERSIONS = (1, 2)


def campaign(bench: Bench, n: int, seed: int, progress: Progress = silent, *, benchmarks: int) -> Outcome:
    """n runs and so many benchmarks; code and data take turns, each replaced several times at random moments."""
    outcome = Outcome("policy, network or data set replaced during a run or a benchmark")
    draw, kinds, replaced, refused = random.Random(seed), [_Kind(bench, False), _Kind(bench, True)], 0, 0
    for number in range(n + benchmarks):
        kind, what = kinds[number >= n], ("code", "data")[number % 2]
        with outcome.trial(f"seed {seed}, trial {number}, {what} during `{kind.command[0]}`"):
            times, code = _replace_meanwhile(kind, what, draw, kind.place(f"trial-{number}"))
            replaced += times
            refused += code != 0
        progress(number + 1, n + benchmarks)
    outcome.remarks.append(f"{replaced} replacements; {refused} of the commands refused to go on, all others ended well")
    return outcome


def _replace_meanwhile(kind: _Kind, what: str, draw: random.Random, place: _Place) -> tuple[int, int]:
    job, begin = kind.start(place), time.monotonic()
    moments = sorted(draw.uniform(0.0, kind.seconds) for _ in range(draw.randrange(1, 5)))
    version = {"code": 1, "data": 1}
    for moment in moments:
        while time.monotonic() < begin + moment and not job.launcher.has_ended(job.pid):
            time.sleep(0.002)
        version[what] = 3 - version[what]
        place.put(what, version[what], same_time=draw.random() < 0.5)
    result = job.wait(PATIENCE)
    demand(result.code in (0, 1, 2), f"exit code {result.code}: {result.stderr[-600:]!r}")
    demand("Traceback" not in result.stderr, f"a traceback: {result.stderr[-600:]!r}")
    kind.demand_true(place.store)
    finished = kind.start(place).wait(PATIENCE)
    finished.demand(0)
    kind.demand_true(place.store)
    missing = kind.expected(version["code"], version["data"]).keys() - digests(place.store).keys()
    demand(not missing, f"{len(missing)} files of the last version are not there, {min(missing, default='')}")
    shutil.rmtree(place.folder, ignore_errors=True)
    return len(moments), result.code


@dataclass(frozen=True)
class _Place:
    """A folder with a user's module, a cache and a store."""

    folder: Path
    caches: dict[int, Path]  # the data set in each of its versions

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def put(self, what: str, version: int, *, same_time: bool = False) -> None:
        """Replace the module, or the data set, at once. same_time: as an editor that keeps times, or a second that is long."""
        if what == "code":
            self._swap(self.folder / "mine.py", lambda new: _write(new, MINE.format(version=version)), same_time)
        else:
            new, old = self.folder / f"data-{time.monotonic_ns()}", self.folder / f"old-{time.monotonic_ns()}"
            shutil.copytree(self.caches[version] / "squares", new)
            if (self.folder / "cache" / "squares").exists():
                os.rename(self.folder / "cache" / "squares", old)
            os.rename(new, self.folder / "cache" / "squares")

    def _swap(self, path: Path, write: Callable[[Path], object], same_time: bool) -> None:
        new = path.with_name(f".{path.name}.new")
        write(new)
        if same_time and path.exists():
            shutil.copystat(path, new)
        os.replace(new, path)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


class _Kind:
    """`run` or `bench run`, with what it gives when nobody disturbs it."""

    def __init__(self, bench: Bench, benchmark: bool) -> None:
        self.bench, self.benchmark, self._expected = bench, benchmark, dict[tuple[int, int], dict[str, str]]()

    @property
    def command(self) -> list[str]:
        if self.benchmark:
            return ["bench run", "bench", "run", "edited.toml", "--no-estimate", "--jobs", "2"]
        return ["run", "run", "run.toml", "--threads", "1", "--device", "cpu"]

    @cached_property
    def caches(self) -> dict[int, Path]:
        return {version: _squares(self.bench, version) for version in VERSIONS}

    def place(self, name: str) -> _Place:
        folder = self.bench.folder / f"edits-{self.benchmark}-{name}"
        (folder / "cache").mkdir(parents=True)
        _write(folder / "run.toml", RUN)
        _write(folder / "edited.toml", BENCHMARK)
        made = _Place(folder, self.caches)
        made.put("code", 1)
        made.put("data", 1)
        return made

    def start(self, place: _Place) -> Job:
        arguments = [*self.command[1:], "--store", str(place.store)]
        return self.bench.launcher.start(*arguments, folder=place.folder, FORGETSCOPE_CACHE=str(place.folder / "cache"))

    @cached_property
    def seconds(self) -> float:
        """How long it takes undisturbed, so that a replacement falls into it."""
        self.expected(1, 1)
        return self._seconds

    def expected(self, code: int, data: int) -> dict[str, str]:
        """The digest of every file that these versions give."""
        if (code, data) not in self._expected:
            place = self.place(f"reference-{code}-{data}")
            place.put("code", code)
            place.put("data", data)
            result = self.start(place).wait(PATIENCE).demand(0)
            self._seconds = result.seconds
            self._expected[code, data] = digests(place.store)
        return self._expected[code, data]

    def demand_true(self, store: Path) -> None:
        """Every step is what the versions that its id stands for give."""
        known = {name: digest for versions in ((1, 1), (2, 1), (1, 2)) for name, digest in self.expected(*versions).items()}
        for name, digest in digests(store).items():
            demand(name in known, f"{name} belongs to no version")
            demand(known[name] == digest, f"{name} records one version and used another")


def _squares(bench: Bench, version: int) -> Path:
    """A cache with eight classes of small noisy images; another version has other noise."""
    cache = bench.folder / f"squares-{version}"
    if cache.exists():
        return cache
    rng, labels, file = np.random.default_rng(version), np.repeat(np.arange(8), 12), bench.folder / f"squares-{version}.npz"
    pixels = rng.integers(0, 80, size=(len(labels), 8, 8, 3))
    for i, label in enumerate(labels):
        pixels[i, label // 4 * 4 : label // 4 * 4 + 4, label % 4 * 2 : label % 4 * 2 + 2] += 150
    images = pixels.astype(np.uint8)
    np.savez(file, train_images=images, train_labels=labels, test_images=images[::2], test_labels=labels[::2])
    bench.launcher.run("data", "add", "squares", file, "--workers", "1", FORGETSCOPE_CACHE=str(cache)).demand(0)
    return cache
