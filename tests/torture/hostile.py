"""Strangers' files: every reader and every file of a store is given mutations of what it knows.

Whatever is in them, a command ends with 0, 1 or 2 and says why, within its limits, and changes nothing that is not its own.
"""

from __future__ import annotations

import hashlib
import os
import queue
import random
import re
import shutil
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torture import sandbox
from torture.corpus import Command, Files, Target, corpus
from torture.damage import glyphs
from torture.harness import Bench, Launcher, Lost, Outcome, Progress, Result, demand, silent
from torture.mutations import mutate

SEED = 20261118
PATIENCE = 60.0  # seconds by the clock; a machine may be busy, and processor time is limited more closely
LANES = 2
MODULES = (
    "jinja2",
    "plotly.graph_objects",
    "matplotlib.figure",
    "PIL.Image",
    "forgetscope.report.pages.experiment",
    "forgetscope.report.pages.benchmark",
    "forgetscope.analysis.results",
    "forgetscope.benchmark.status",
    "forgetscope.data.acquisition",
    "forgetscope.data.library",
    "forgetscope.housekeeping.inventory",
    "forgetscope.housekeeping.freeing",
)
SECRET = "what only the viewer may know"
PLUGIN = "print('HOSTILE CODE RAN')\n\n\ndef make(*args, **more):\n    print('HOSTILE CODE RAN')\n"
EXHAUSTED = re.compile(
    r"out of memory|MemoryError|[Uu]nable to allocate|bad_alloc|[Cc]annot allocate|alloc of size|File too large"
)
DIGITS = re.compile(r"[0-9a-f]{30,}|(?<=/)[0-9a-f]{2}(?=/)|\d+")


@dataclass(frozen=True)
class Trial:
    """One mutation, made again from seed and number alone."""

    number: int
    target: Target
    what: str
    folder: Path
    commands: Sequence[Command]

    @property
    def is_large(self) -> bool:
        """A file that is large itself may take as much; growth is what a small one takes."""
        files = (path.lstat() for path in (self.folder / self.target.root).rglob("*"))
        return any(stat.S_ISREG(found.st_mode) and found.st_size > sandbox.FILE for found in files)


def campaign(bench: Bench, n: int, seed: int, progress: Progress = silent, *, only: int | None = None) -> Outcome:
    """n mutations; or the one with this number, whose folder is then left to be looked at."""
    outcome = Outcome("hostile archives, stores and files")
    numbers, ran = range(n) if only is None else [only], 0
    with _launchers(bench) as launchers, ThreadPoolExecutor(LANES) as pool:
        targets = corpus(bench)
        list(pool.map(lambda target: _demand_whole(bench, target, launchers), targets))
        for done, (trial, problems, commands) in enumerate(
            pool.map(lambda number: _tried(bench, targets, seed, number, launchers, keep=only is not None), numbers), start=1
        ):
            ran += commands
            with outcome.trial(f"seed {seed}, mutation {trial.number}, {trial.target.name}, {trial.what}"):
                demand(not problems, "; ".join(problems))
            progress(done, len(numbers))
    outcome.remarks.append(f"{len(targets)} kinds of sources, {ran} commands")
    return outcome


def _demand_whole(bench: Bench, target: Target, launchers: queue.Queue[Launcher]) -> None:
    """Without a mutation every command ends well, or the campaign would prove nothing."""
    launcher = launchers.get()
    try:
        for way in target.ways:
            trial = Trial(-1, target, "whole", _laid_out(bench, f"whole {target.name}", target, target.files), way)
            for command, result in _run(trial, launcher):
                demand(result.code == 0, f"{target.name}, whole: {command}: {result.code}, {result.stderr[-500:]!r}")
            demand(not (problems := _changes(trial, {})), f"{target.name}, whole: {problems}")
            shutil.rmtree(trial.folder)
    finally:
        launchers.put(launcher)


def _tried(
    bench: Bench, targets: Sequence[Target], seed: int, number: int, launchers: queue.Queue[Launcher], *, keep: bool
) -> tuple[Trial, list[str], int]:
    trial = _made(bench, targets, seed, number)
    before = _listing(trial)
    launcher, problems, ran = launchers.get(), list[str](), 0
    try:
        for command, result in _run(trial, launcher):
            ran += 1
            found = [*_judged(result), *([] if trial.is_large else _grown(result, launcher))]
            problems += [f"`{' '.join(command)[:200]}`: {problem}" for problem in found]
            if keep:
                print(
                    f"{trial.target.name}, {trial.what}\n$ {' '.join(command)}\n{result.code}\n{result.stdout}{result.stderr}"
                )
    except Lost as loss:
        problems.append(str(loss))
    finally:
        launchers.put(launcher)
    problems += _changes(trial, before)
    if keep:
        print(f"Left in {shutil.copytree(trial.folder, Path.cwd() / f'mutation-{number}', symlinks=True)}")
    _remove(trial.folder)
    return trial, problems, ran


def _made(bench: Bench, targets: Sequence[Target], seed: int, number: int) -> Trial:
    draw = random.Random(f"{seed} {number}")
    (target,) = draw.choices(targets, [target.weight for target in targets])
    files, replaced, what = dict(target.files), "", ""
    name = _some_file(target, draw)
    kind = draw.random()
    if kind < 0.1:
        replaced, what = name, "replaced"
    elif kind < 0.15:
        del files[name]
        what = f"{name} gone"
    elif kind < 0.2:
        other = _some_file(target, draw)
        files[name], files[other] = files[other], files[name]
        what = f"{name} and {other} swapped"
    else:
        files[name], what = mutate(name.rpartition("/")[2], files[name], draw)
        what = f"{name}: {what}"
        if target.repair and draw.random() < 0.75:
            target.repair(files, name)
            what += ", checksums made good"
    folder = _laid_out(bench, f"trial-{number}", target, files)
    if replaced:
        what = _replace(folder / target.root / name, folder, draw)
    ways = draw.sample(target.ways, min(target.tries, len(target.ways)))
    return Trial(number, target, what, folder, [command for way in ways for command in way])


def _some_file(target: Target, draw: random.Random) -> str:
    """Every kind of file equally often, however many there are of it."""
    names = [name for name in target.files if not target.writable or name.startswith("working/")]
    kinds: dict[str, list[str]] = {}
    for name in names:
        kinds.setdefault(DIGITS.sub("*", name), []).append(name)
    return draw.choice(kinds[draw.choice(sorted(kinds))])


def _laid_out(bench: Bench, name: str, target: Target, files: Files) -> Path:
    """A viewer's home with something private in it, the source, a cache, and a folder to work in."""
    folder = bench.folder / re.sub(r"\W+", "-", name)
    for part in ("home", "source", "cache", "out", "tmp"):
        (folder / part).mkdir(parents=True)
    (folder / "home" / "private.txt").write_text(SECRET)
    (folder / "out" / "hostile_plugin.py").write_text(PLUGIN)
    if target.trained:  # a store's plans and pages look at the data that it was trained on
        shutil.copytree(glyphs(), folder / "cache" / glyphs().name)
    for path, content in files.items():
        (folder / target.root / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / target.root / path).write_bytes(content)
    return folder


def _replace(path: Path, folder: Path, draw: random.Random) -> str:
    """Something else in a file's place, or in that of a folder above it."""
    root = path
    if draw.random() < 0.3 and len(path.relative_to(folder).parts) > 2:
        root = path.parent
    shutil.rmtree(root) if root.is_dir() else root.unlink()
    kind = draw.choice(("folder", "pipe", "private", "private folder", "itself", "dangling", "/dev/zero", "/dev/full", "above"))
    links = {
        "private": folder / "home" / "private.txt",
        "private folder": folder / "home",
        "itself": root,
        "dangling": folder / "home" / "not-there",
        "above": root.parent,
    }
    if kind == "folder":
        root.mkdir()
    elif kind == "pipe":
        os.mkfifo(root)
    else:
        root.symlink_to(links.get(kind, Path(kind)))
    return f"{root.relative_to(folder)} is now: {kind}"


def _run(trial: Trial, launcher: Launcher) -> Iterator[tuple[Command, Result]]:
    """One command after another, as long as they end well."""
    folder = trial.folder
    writable = [str(folder / name) for name in ("cache", "out", "tmp", *(["source"] if trial.target.writable else []))]
    for template in trial.commands:
        command = tuple(
            part.replace("{source}", str(folder / "source")).replace("{out}", str(folder / "out")) for part in template
        )
        cell = {"folder": str(folder / "out"), "allowed": writable, "log": str(folder / "audit")}
        places = {"HOME": folder / "home", "TMPDIR": folder / "tmp", "FORGETSCOPE_CACHE": folder / "cache"}
        more = {name: str(path) for name, path in places.items()} | {"XDG_CACHE_HOME": str(folder / "tmp")}
        result = launcher.run(*command, sandbox=cell, seconds=PATIENCE, **more)
        yield command, result
        if result.code:
            return


def _judged(result: Result) -> Iterator[str]:
    text = result.stdout + result.stderr
    last = " ".join(result.stderr.split())[-300:]
    if result.code not in (0, 1, 2):
        yield f"exit code {result.code} after {result.seconds:.0f} s: {last!r}"
    elif "Traceback (most recent call last)" in text:
        yield f"a traceback: {last!r}"
    elif result.code and not text.strip():
        yield f"exit code {result.code} and no word"
    if "\x1b" in text or "\x9b" in text:
        yield "control characters reach the terminal"
    if "HOSTILE CODE RAN" in text:
        yield "ran a stranger's code"


def _grown(result: Result, launcher: Launcher) -> Iterator[str]:
    if EXHAUSTED.search(result.stdout + result.stderr):
        yield f"memory or disk exhausted: {' '.join(result.stderr.split())[-300:]!r}"
    growth = result.peak - launcher.resident()
    if growth > sandbox.GROWTH:
        yield f"took {growth >> 20} MB of memory"


def _listing(trial: Trial) -> dict[str, str]:
    """Everything that is not the command's to change: type, and target or digest."""
    found = {}
    for root in ("home", *(["source"] if trial.target.root == "source" else [])):
        for path in sorted((trial.folder / root).rglob("*")):
            mode = path.lstat().st_mode
            name = str(path.relative_to(trial.folder))
            content = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(mode) else ""
            found[name] = f"{stat.filemode(mode)[0]}{path.readlink() if stat.S_ISLNK(mode) else content}"
    return found


def _changes(trial: Trial, before: dict[str, str]) -> list[str]:
    """What was changed, touched, packed or filled that should not be."""
    problems = []
    after = _listing(trial) if before else {}
    if not trial.target.writable:
        altered = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
        problems += [f"{name}, {before.get(name, 'not there')}, is now {after.get(name, 'gone')}" for name in altered]
    log = trial.folder / "audit"
    problems += sorted(set(log.read_text().splitlines())) if log.exists() else []
    size = 0
    for path in [path for root in ("cache", "out", "tmp") for path in (trial.folder / root).rglob("*")]:
        if stat.S_ISREG(path.lstat().st_mode):
            size += path.stat().st_size
            if path.stat().st_size < sandbox.FILE and SECRET.encode() in path.read_bytes():
                problems.append(f"{path.relative_to(trial.folder)} holds what is private")
    if size > 2 * sandbox.FILE:
        problems.append(f"{size >> 20} MB were written")
    return problems


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _launchers(bench: Bench) -> Iterator[queue.Queue[Launcher]]:
    made = [Launcher(bench.folder / f"jobs-hostile-{i}", modules=MODULES) for i in range(LANES)]
    ready: queue.Queue[Launcher] = queue.Queue()
    for launcher in made:
        ready.put(launcher)
    try:
        yield ready
    finally:
        for launcher in made:
            launcher.close()
