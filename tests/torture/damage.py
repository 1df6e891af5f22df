"""Truncated files and flipped bits, in every kind of file: each is noticed, named, and made good by the next run."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from torture.faults import Faults
from torture.harness import Bench, Lost, Outcome, Progress, demand, digests, silent


def campaign(bench: Bench, n: int, seed: int, progress: Progress = silent, *, runs: int = 10) -> Outcome:
    """n truncations and n flips, kind after kind of file. The first `runs` in the store are followed by a whole run."""
    outcome = Outcome("truncation and one-bit flips in every kind of file")
    draw, kinds = random.Random(seed), _Kinds(bench)
    harmless = 0
    for number in range(2 * n):
        how = _truncate if number % 2 else _flip
        kind = kinds.all[number // 2 % len(kinds.all)]
        path, check = kind()
        original = path.read_bytes()
        what = how(path, draw)
        with outcome.trial(f"seed {seed}, trial {number}, {what}"):
            harmless += check(path, original) is False
        if path.exists():
            path.write_bytes(original)
        progress(number + 1, 2 * n + runs)
    for number in range(runs):
        _damage_and_run(bench, kinds, outcome, draw, number)
        progress(2 * n + number + 1, 2 * n + runs)
    outcome.remarks.append(f"{len(kinds.all)} kinds of files, {runs} of the damaged stores run to the end")
    if harmless:
        outcome.remarks.append(f"{harmless} hit the padding of an archive, which holds nothing")
    return outcome


def _flip(path: Path, draw: random.Random) -> str:
    content = bytearray(path.read_bytes())
    place, bit = draw.randrange(len(content)), draw.randrange(8)
    content[place] ^= 1 << bit
    path.write_bytes(content)
    return f"bit {bit} of byte {place} in {path.name}"


def _truncate(path: Path, draw: random.Random) -> str:
    content = path.read_bytes()
    length = draw.randrange(len(content))
    path.write_bytes(content[:length])
    return f"{path.name} cut to {length} of {len(content)} bytes"


Check = Callable[[Path, bytes], object]


class _Kinds:
    """Every kind of file that there is, in a store in the middle of its third step, a data cache and an archive."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.opened = bench, 0
        self.store = interrupted(bench)
        self.archive = bench.folder / "export.tar"
        bench.launcher.run("store", "export", bench.reference().store, "-o", self.archive).demand(0)
        step = next(path for path in sorted((self.store / "steps").iterdir()))
        snapshots = sorted(self.store.glob("working/*/snapshot-*"))
        files = [*sorted(step.iterdir()), *snapshots]
        self.cache = bench.folder / "damaged-cache"  # others read the real one
        cache = sorted(shutil.copytree(glyphs(), self.cache / glyphs().name).iterdir())
        self.all: list[Callable[[], tuple[Path, Check]]] = [
            *(lambda path=path: (path, self._noticed_in_store) for path in files),
            *(lambda path=path: (path, self._noticed_in_cache) for path in cache),
            lambda: (self.archive, self._noticed_in_archive),
        ]
        self.files = files

    def _noticed_in_store(self, path: Path, original: bytes) -> None:
        from forgetscope.housekeeping.verification import verify_store
        from forgetscope.store import Store

        named = {damage.path for damage in verify_store(Store(self.store)).damage}
        if path.name == "manifest.json":  # it disagrees with another file of the step: nobody can tell which of them is right
            named = {found.parent / path.name for found in named}
        demand(path in named, f"{path} is not reported")

    def _noticed_in_cache(self, path: Path, original: bytes) -> None:
        """Opening it is an error; now and then also whether a run would make it again as it was, which takes seconds."""
        from forgetscope.data.images import open_data
        from forgetscope.data.library import load_data
        from forgetscope.errors import DataError

        try:
            open_data(path.parent)
            raise Lost("it was opened")
        except DataError as error:
            demand(path.name in str(error), f"the error does not name {path.name}: {error}")
        self.opened += 1
        if self.opened % 15 != 1:
            return
        notes: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FORGETSCOPE_CACHE", str(self.cache))
            load_data("glyphs", 8, notes.append)
        demand(any(path.name in note for note in notes), f"no note names {path.name}: {notes}")
        demand(path.read_bytes() == original, "it was not made again as it was")

    def _noticed_in_archive(self, path: Path, original: bytes) -> bool:
        """Refused, or of no effect: False if all was imported as it should be."""
        from forgetscope.errors import ForgetscopeError
        from forgetscope.housekeeping.importing import import_steps
        from forgetscope.store import Store

        target = self.bench.new_store()
        try:
            result = import_steps(path, Store(target))
        except ForgetscopeError as error:
            demand(str(path) in str(error), f"the error does not name the file: {error}")
            return True
        finally:
            imported = digests(target)
            shutil.rmtree(target, ignore_errors=True)
        demand(result.damaged or imported == self.bench.reference().digests, "imported as if it were whole")
        return bool(result.damaged)


def interrupted(bench: Bench) -> Path:
    """A store with two finished steps and two snapshots of the third."""
    places = bench.reference().places()
    last = max(i for i, place in enumerate(places, 1) if place.startswith("replace") and "/snapshot-" in place)
    store = bench.new_store()
    bench.run(store, Faults(crash_at=last + 2)).demand(-signal.SIGKILL)
    demand(len(list(store.glob("working/*/snapshot-*"))) == 2, "there are no two snapshots to damage")
    return store


def glyphs() -> Path:
    from forgetscope.data.cache import cache_folder

    (folder,) = (path for path in cache_folder().iterdir() if path.name.startswith("glyphs-") and path.name.endswith("@8px"))
    return folder


def _damage_and_run(bench: Bench, kinds: _Kinds, outcome: Outcome, draw: random.Random, number: int) -> None:
    """What a user sees: `store verify` exits with 1 and names the file, a run says so and ends in the same bytes."""
    store = bench.new_store(like=kinds.store)
    path = store / kinds.files[number * 7 % len(kinds.files)].relative_to(kinds.store)
    what = (_flip if number % 2 else _truncate)(path, draw)
    with outcome.trial(f"run {number} after {what}"):
        verified = bench.launcher.run("store", "verify", store)
        demand(verified.code == 1 and str(path) in verified.stdout, f"`store verify` says {verified.stdout!r}")
        quarantined = set((store / "quarantine").glob("*")) if (store / "quarantine").exists() else set()
        result = bench.run(store).demand(0)
        demand(path.name in result.stderr, f"the run does not name {path.name}: {result.stderr[-600:]!r}")
        demand("quarantine" in result.stderr, f"the run does not speak of quarantine: {result.stderr[-600:]!r}")
        demand(set((store / "quarantine").glob("*")) - quarantined, "nothing is in quarantine")
        bench.demand_same_bytes(store)
    shutil.rmtree(store, ignore_errors=True)
