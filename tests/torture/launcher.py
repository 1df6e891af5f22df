"""A warm process that forks one `forgetscope` command after another: importing torch takes longer than a tiny experiment.

It imports and computes nothing itself, so a child is what a fresh process would be. One request per line on standard input,
one answer per line on standard output: {"start": {...}} -> {"pid": n}; {"wait": n, "seconds": s} -> {"code": c, "peak": bytes}
or {}. Modules that its arguments name are imported as well.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from torture import sandbox
from torture.beneath.sitecustomize import break_flock
from torture.faults import Faults, Page, count_iterations, install

IMPORTS = (
    "forgetscope",  # first: it decides how the threads of torch wait
    "torch",
    "torch._dynamo.aot_compile",  # the first optimiser imports it otherwise, which takes longer than all the training
    "pandas",
    "pyarrow.parquet",
    "safetensors.torch",
    "scipy.stats",
    "forgetscope.cli.app",
    "forgetscope.runs",
    "forgetscope.analysis.experiments",
    "forgetscope.data.glyphs",
    "forgetscope.engines.here",
    "forgetscope.housekeeping.exporting",
    "forgetscope.housekeeping.importing",
    "forgetscope.housekeeping.verification",
    "forgetscope.report.terminal.storage",
    "forgetscope.report.terminal.experiments",
    "rich.console",
)


def main() -> None:
    for name in (*IMPORTS, *sys.argv[1:]):
        importlib.import_module(name)
    gc.freeze()  # what is there now is shared by all children, and none of them need look through it
    requests, answers = sys.stdin, os.fdopen(os.dup(1), "w")
    for line in requests:
        request = json.loads(line)
        answer = {"pid": _fork(request["start"])} if "start" in request else _wait(request["wait"], request["seconds"])
        print(json.dumps(answer), file=answers, flush=True)


def _fork(job: dict) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    for number, name in ((0, os.devnull), (1, job["stdout"]), (2, job["stderr"])):
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o644)
        os.dup2(descriptor, number)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process would inherit that it is ignored
    os.environ.update(job["environment"])
    os.chdir(job["folder"])
    if "FLOCK" in job["environment"]:
        break_flock(job["environment"]["FLOCK"])
    sys.argv = ["forgetscope", *job["arguments"]]
    page = Page(Path(job["page"]))
    count_iterations(page)
    install(Faults(**{**job["faults"], "below": tuple(job["faults"]["below"])}), page, Path(job["log"]), Path(job["attic"]))
    from forgetscope.cli import main as command

    if job["sandbox"]:
        sandbox.enter(**job["sandbox"])
    command()
    raise SystemExit(0)


def _wait(pid: int, seconds: float) -> dict[str, int]:
    end = time.monotonic() + seconds
    while True:
        found, status, used = os.wait4(pid, os.WNOHANG)
        if found:
            return {"code": os.waitstatus_to_exitcode(status), "peak": used.ru_maxrss * 1024}
        if time.monotonic() >= end:
            return {}
        time.sleep(0.002)


if __name__ == "__main__":
    main()
