"""Starting commands, the undisturbed reference, and the one question after every fault: are these the same bytes?"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from conftest import TINY
from torture.faults import PAGE, Faults, Page

PATIENCE = 300.0  # seconds; a command that takes longer hangs
UNIQUE = re.compile(r"(?<=/commit-\w{8})-\w+|(?<=\.)\w+\.(?=tmp$)")  # what makes the name of what is being written unique
TESTS = Path(__file__).parents[1]


class Lost(AssertionError):
    """Something that a fault must not do."""


@dataclass
class Outcome:
    """What came of a campaign. `lost` counts faults after which anything was missing, different, unnoticed or unclear."""

    fault: str
    tried: int = 0
    survived: int = 0
    details: list[str] = field(default_factory=list)  # one line per loss
    remarks: list[str] = field(default_factory=list)  # figures worth telling
    seconds: float = 0.0

    @property
    def lost(self) -> int:
        return self.tried - self.survived

    @contextmanager
    def trial(self, what: str, weight: int = 1) -> Iterator[None]:
        """Count one fault; a Lost inside it is kept, not raised, so that a campaign goes on."""
        self.tried += weight
        try:
            yield
            self.survived += weight
        except Lost as loss:
            self.details.append(f"{what}: {loss}")


Progress = Callable[[int, int], None]


def silent(done: int, total: int) -> None: ...


def demand(condition: object, message: str) -> None:
    if not condition:
        raise Lost(message)


@dataclass
class Result:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str
    page: Page  # changes, bytes, saving, iterations
    log: list[str]  # one line per change: its kind and path
    seconds: float
    peak: int = 0  # bytes of memory

    def places(self, store: Path) -> list[str]:
        """Each change, by kind and by path inside the store, without what differs from run to run."""
        return [UNIQUE.sub("", line.replace(str(store.resolve()), "")) for line in self.log]

    def demand(self, code: int) -> Result:
        demand(self.code == code, f"exit code {self.code}, not {code}: {self.stderr[-600:]!r}")
        demand("Traceback" not in self.stderr, f"a traceback: {self.stderr[-600:]!r}")
        return self


@dataclass
class Job:
    """A command that is running, in a process group of its own."""

    launcher: Launcher
    pid: int
    folder: Path
    started: float = field(default_factory=time.monotonic)

    @property
    def stderr(self) -> str:
        return (self.folder / "stderr").read_text(encoding="utf-8", errors="replace")

    @cached_property
    def page(self) -> Page:
        return Page(self.folder / "page")

    def signal(self, number: int) -> None:
        """To the whole group; a process that has ended is kept until it is waited for, so the number is still its own."""
        os.killpg(self.pid, number)

    def wait(self, seconds: float = PATIENCE) -> Result:
        code = self.launcher.wait(self.pid, seconds)
        if code is None:
            self.signal(signal.SIGKILL)
            self.launcher.wait(self.pid, 10.0)
            raise Lost(f"no end after {seconds:.0f} s: {self.stderr[-600:]!r}")
        log = (self.folder / "log").read_text(encoding="utf-8").splitlines() if (self.folder / "log").exists() else []
        seconds = time.monotonic() - self.started
        stdout = (self.folder / "stdout").read_text(encoding="utf-8", errors="replace")
        return Result(code, stdout, self.stderr, self.page, log, seconds, self.launcher.peaks[self.pid])

    def wait_until(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """What the condition gives once it is true; None if the command ends, or the time does, before."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := condition():
                return found
            if self.launcher.has_ended(self.pid):
                return None
            time.sleep(0.002)
        return None


class Launcher:
    """The warm process that forks commands. `prefix` runs it inside something else; `modules` are imported as well."""

    def __init__(self, folder: Path, prefix: Sequence[str] = (), modules: Sequence[str] = ()) -> None:
        self.folder, self._jobs, self._ended, self.peaks = folder, 0, dict[int, int](), dict[int, int]()
        folder.mkdir(parents=True, exist_ok=True)
        paths = [str(TESTS), str(TESTS.parent / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "torture.launcher", *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # No bytecode: a module that nobody had imported before would count as a write of the command.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()

    def start(
        self,
        *arguments: object,
        faults: Faults | None = None,
        sandbox: Mapping[str, object] | None = None,
        folder: Path | None = None,
        **environment: str,
    ) -> Job:
        """folder: where the command works."""
        self._jobs += 1
        kept = self.folder / f"job-{self._jobs}"
        (kept / "attic").mkdir(parents=True)
        (kept / "page").write_bytes(bytes(PAGE.size))
        names = {name: str(kept / name) for name in ("stdout", "stderr", "page", "log", "attic")}
        job = {**names, "arguments": [str(argument) for argument in arguments], "faults": asdict(faults or Faults())}
        job |= {"sandbox": sandbox, "folder": str(folder or Path.cwd())}
        job["environment"] = {"FORGETSCOPE_CACHE": os.environ["FORGETSCOPE_CACHE"], **environment}
        pid = self._ask({"start": job})["pid"]
        self._ended.pop(pid, None)  # of another process with the same number, long ago
        return Job(self, pid, kept)

    def run(self, *arguments: object, seconds: float = PATIENCE, **more: Any) -> Result:
        job = self.start(*arguments, **more)
        result = job.wait(seconds)
        shutil.rmtree(job.folder)
        return result

    def resident(self) -> int:
        """Bytes of memory that a command shares with the launcher when it starts."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def wait(self, pid: int, seconds: float) -> int | None:
        if pid not in self._ended:
            answer = self._ask({"wait": pid, "seconds": seconds})
            if "code" not in answer:
                return None
            self._ended[pid], self.peaks[pid] = answer["code"], answer["peak"]
        return self._ended[pid]

    def has_ended(self, pid: int) -> bool:
        return self.wait(pid, 0.0) is not None

    def _ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"The launcher has ended with {self.process.wait(60)}; its standard error says why.")
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass(frozen=True)
class Reference:
    """An undisturbed run: what every other one must come to."""

    store: Path
    result: Result

    @property
    def digests(self) -> dict[str, str]:
        return digests(self.store)

    def places(self) -> list[str]:
        return self.result.places(self.store)


class Bench:
    """A folder to work in, a launcher, and references by options."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.launcher = Launcher(folder / "jobs")
        self.closing: list[Callable[[], None]] = [self.launcher.close]
        self._references: dict[str, Reference] = {}
        self._stores = 0

    def close(self) -> None:
        for close in self.closing:
            close()

    def new_store(self, like: Path | None = None) -> Path:
        self._stores += 1
        store = self.folder / f"store-{self._stores}"
        if like is not None:
            shutil.copytree(like, store)
        return store

    def config(self, **options: object) -> Path:
        from forgetscope.spec import RunSpec

        text = RunSpec(**{**TINY, **options}).to_toml()
        path = self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.toml"
        if not path.exists():  # a process that is starting may be reading it
            path.write_text(text)
        return path

    def command(self, store: Path, **options: object) -> list[object]:
        return ["run", self.config(**options), "--store", store, "--threads", "1", "--device", "cpu"]

    def start(self, store: Path, faults: Faults | None = None, **options: object) -> Job:
        return self.launcher.start(*self.command(store, **options), faults=_below(faults, store))

    def run(self, store: Path, faults: Faults | None = None, **options: object) -> Result:
        return self.launcher.run(*self.command(store, **options), faults=_below(faults, store))

    def reference(self, **options: object) -> Reference:
        """Made once for the same options."""
        key = self.config(**options).name
        if key not in self._references:
            self.run(self.new_store(), **options).demand(0)  # the data sets are made the first time: not part of it
            store = self.new_store()
            self._references[key] = Reference(store, self.run(store, **options).demand(0))
            demand(digests(store) == digests(self.folder / f"store-{self._stores - 1}"), "two undisturbed runs differ")
        return self._references[key]

    def finish(self, store: Path, **options: object) -> Result:
        """Run the same command again, without faults; it must come to the same bytes."""
        result = self.run(store, **options).demand(0)
        self.demand_same_bytes(store, **options)
        return result

    def demand_same_bytes(self, store: Path, **options: object) -> None:
        expected, found = self.reference(**options).digests, digests(store)
        for name in sorted({*expected, *found}):
            demand(expected.get(name) == found.get(name), f"{name} differs from the undisturbed run")
        self.demand_whole(store)

    def demand_whole(self, store: Path) -> None:
        self.launcher.run("store", "verify", store).demand(0)


def digests(store: Path) -> dict[str, str]:
    """SHA-256 of every file of steps and calibrations; of records and manifests, which hold times, only that they are there."""
    files = sorted(path for kind in ("steps", "calibrated") for path in (store / kind).rglob("*") if not path.is_dir())
    return {
        str(path.relative_to(store)): "" if path.suffix == ".json" else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def _below(faults: Faults | None, store: Path) -> Faults:
    return replace(faults or Faults(), below=(str(store),))


@contextmanager
def bench(parent: Path | None = None) -> Iterator[Bench]:
    """A bench in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="torture-", dir=parent) as folder:
        os.environ.setdefault("FORGETSCOPE_CACHE", str(Path(folder) / "cache"))
        made = Bench(Path(folder))
        try:
            yield made
        finally:
            made.close()


def counted(items: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in items:
        found[item] = found.get(item, 0) + 1
    return found
