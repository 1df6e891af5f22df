"""The local engine with real worker processes: the same store whatever dies, fails or is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from conftest import heed_interruptions, run_experiment
from forgetscope.benchmark.plans import Plan, benchmark_plan, descendants
from forgetscope.benchmark.records import Journal, recorded_plans
from forgetscope.benchmark.space import BenchmarkSpec, sample
from forgetscope.cli.app import app
from forgetscope.store import Store

OWN_POLICY = """
import os, signal
from pathlib import Path
import numpy as np

def misbehaves(candidates, quota, rng):
    marker = Path(os.environ["MARKER"])
    if os.environ["FAULT"] == "die" and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ["FAULT"] == "always die":
        os.kill(os.getpid(), signal.SIGKILL)
    if os.environ["FAULT"] == "raise" and candidates.node == 0:
        print("this goes to standard output")
        raise ValueError("no such image")
    return np.arange(quota)
"""


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def run(file: Path, store: Path, *more: object) -> Result:
    return invoke("bench", "run", file, "--store", store, "--jobs", 2, "--no-estimate", *more)


def contents(store: Path) -> dict[str, dict[str, str]]:
    """Every step with the checksums of its Parquet and state files."""
    return {
        step.id: {name: entry["sha256"] for name, entry in step.manifest.items() if name != "step.json"}
        for step in Store(store).steps()
    }


def with_policy(small: BenchmarkSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> tuple[Path, Plan]:
    (tmp_path / "own_policy.py").write_text(OWN_POLICY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARKER", str(tmp_path / "died-once"))
    monkeypatch.setenv("FAULT", fault)
    file = tmp_path / "own.toml"
    file.write_text(small.to_toml())
    text = file.read_text().replace('policies = ["uniform"]', 'policies = ["own_policy:misbehaves"]')
    file.write_text(text.replace("experiments = 2", "experiments = 1"))
    return file, benchmark_plan(BenchmarkSpec.load(file))


def test_a_benchmark_leaves_what_single_runs_leave(small: BenchmarkSpec, small_file: Path, tmp_path: Path) -> None:
    result = run(small_file, tmp_path / "bench")
    assert result.exit_code == 0, result.output
    for experiment in sample(small, 8):
        run_experiment(experiment.run, Store(tmp_path / "single"), device="cpu", threads=1)
    assert contents(tmp_path / "bench") == contents(tmp_path / "single")
    assert len(contents(tmp_path / "bench")) == 2 * 3 + 2 * 2
    (plan,) = recorded_plans(Store(tmp_path / "bench"))
    assert [len(chain["steps"]) for chain in plan["chains"]] == [3, 3, 2, 2]
    again = run(small_file, tmp_path / "bench")
    assert again.exit_code == 0
    assert "10 of 10 steps are in the store already" in again.stderr


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(small: BenchmarkSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, plan = with_policy(small, tmp_path, monkeypatch, "die")
    result = run(file, tmp_path / "store")
    assert result.exit_code == 0, result.output
    assert "was killed by SIGKILL (out of memory?). Going on from its snapshot in a new one." in result.stderr
    assert contents(tmp_path / "store").keys() == plan.jobs.keys()
    monkeypatch.setenv("FAULT", "none")
    assert run(file, tmp_path / "undisturbed").exit_code == 0
    assert contents(tmp_path / "store") == contents(tmp_path / "undisturbed")


@pytest.mark.slow
def test_a_job_that_keeps_killing_its_workers_is_given_up_until_the_same_command_is_run_again(
    small: BenchmarkSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, plan = with_policy(small, tmp_path, monkeypatch, "always die")
    result = run(file, tmp_path / "store")
    assert result.exit_code == 1
    assert "was killed by SIGKILL (out of memory?). It was tried 3 times." in result.stderr
    assert "2 steps are not done because their workers died again and again. Run the same command again" in result.stderr
    assert "failed; everything else is done" not in result.stderr
    first = {job.id for job in plan.jobs.values() if job.parent is None}
    assert contents(tmp_path / "store").keys() == first
    nothing = invoke("bench", "retry", file, "--failed", "--store", tmp_path / "store")
    assert (nothing.exit_code, "Nothing was started" in nothing.stderr) == (0, True)
    monkeypatch.setenv("FAULT", "none")
    again = run(file, tmp_path / "store")
    assert again.exit_code == 0, again.output
    assert contents(tmp_path / "store").keys() == plan.jobs.keys()


@pytest.mark.slow
@pytest.mark.parametrize("by_id", [False, True])
def test_a_failure_is_shown_and_stops_only_what_builds_on_it(
    by_id: bool, small: BenchmarkSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, plan = with_policy(small, tmp_path, monkeypatch, "raise")
    store = tmp_path / "store"
    result = run(file, store)
    assert result.exit_code == 1
    second = {job.id for job in plan.jobs.values() if job.spec.step == 2}
    told = "own_policy.py:15: ValueError: no such image. It is your own code."
    assert f"{told} 1 step that builds on it will not be run." in result.stderr
    assert "2 steps failed; everything else is done." in result.stderr
    assert contents(store).keys() == plan.jobs.keys() - descendants(plan.jobs, second)

    status = json.loads(invoke("bench", "status", file, "--store", store, "--json").stdout)
    assert set(status["failures"]) == second
    assert set(status["failures"].values()) == {told}
    assert (status["done"], status["total"], status["blocked"], status["active"]) == (2, 5, 1, False)
    assert {(cell["step"], cell["done"], cell["failed"]) for cell in status["cells"]} == {(1, 2, 0), (2, 0, 1), (3, 0, 0)}
    assert "failed: " in invoke("bench", "status", file, "--store", store).stdout

    monkeypatch.setenv("FAULT", "none")  # the cause is gone, but a failed step is not tried again unasked
    assert run(file, store).exit_code == 1
    assert len(contents(store)) == 2
    assert invoke("bench", "retry", file, "--store", store).exit_code == 2
    named = ("--code", "own_policy:misbehaves") if by_id else ()
    retried = invoke("bench", "retry", plan.id if by_id else file, "--failed", "--store", store, "--jobs", 1, *named)
    assert retried.exit_code == 0, retried.output
    assert contents(store).keys() == plan.jobs.keys()


DIVERGING = ("--set=learning_rate=100", "--set=weight_decay=10", "--set=first_batch=2", "--set=epochs=4", "--set=experiments=1")


@pytest.mark.slow
def test_a_step_that_diverges_blocks_what_builds_on_it(small_file: Path, tmp_path: Path) -> None:
    result = run(small_file, tmp_path / "store", *DIVERGING)
    assert result.exit_code == 0, result.output
    assert "diverged at iteration" in result.stderr
    assert "2 steps diverged: they are kept and excluded from statistics" in result.stdout
    assert "3 steps build on one that failed or diverged and are not run" in result.stdout
    again = run(small_file, tmp_path / "store", *DIVERGING)
    assert again.exit_code == 0
    assert len(contents(tmp_path / "store")) == 2


@pytest.mark.slow
def test_a_damaged_or_freed_parent_is_computed_again(small: BenchmarkSpec, small_file: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert run(small_file, store.path, "--set", "experiments=1").exit_code == 0
    before, plan = contents(store.path), benchmark_plan(BenchmarkSpec.load(small_file, {"experiments": 1}))
    last = [chain.steps for chain in plan.chains]
    damaged, freed = last[0][1], last[1][0]
    state = store.step(damaged).folder / "state.safetensors"
    content = bytearray(state.read_bytes())
    content[-1] ^= 1
    state.write_bytes(content)
    for missing in (last[0][2], last[1][1]):
        store.quarantine(store.step(missing).folder)
    (store.step(freed).folder / "state.freed").write_text(store.step(freed).manifest["state.safetensors"]["sha256"])
    (store.step(freed).folder / "state.safetensors").unlink()
    result = run(small_file, store.path, "--set", "experiments=1")
    assert result.exit_code == 0, result.output
    assert f"Step {damaged[:8]} is damaged" in result.stderr
    assert f"The state of step {freed[:8]} was freed and is needed again" in result.stderr
    assert contents(store.path) == before
    for step in store.steps():
        step.verify()


def start(file: Path, store: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "forgetscope", "bench", "run", str(file), "--store", str(store), "--jobs", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*command, "--no-estimate", *more], **pipes, text=True, preexec_fn=heed_interruptions)


def wait_for_steps(store: Path, count: int) -> None:
    until = time.monotonic() + 300
    while len(Store(store).ids()) < count:
        assert time.monotonic() < until
        time.sleep(0.02)


def workers_of(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in children]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_interrupted_and_resumed_it_leaves_the_same_store(how: signal.Signals, small_file: Path, tmp_path: Path) -> None:
    slower = ("--set", "epochs=20")
    process = start(small_file, tmp_path / "disturbed", *slower)
    wait_for_steps(tmp_path / "disturbed", 2)
    workers = workers_of(process.pid)
    assert len(workers) == 2
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (-9 if how == signal.SIGKILL else 3), errors
    until = time.monotonic() + 30
    while any(Path(f"/proc/{worker}").exists() for worker in workers):  # they notice that their supervisor is gone
        assert time.monotonic() < until
        time.sleep(0.1)
    assert len(Store(tmp_path / "disturbed").ids()) < 10
    if how != signal.SIGKILL:
        assert "Run the same command again to continue." in errors
    assert run(small_file, tmp_path / "disturbed", *slower).exit_code == 0
    assert run(small_file, tmp_path / "undisturbed", *slower).exit_code == 0
    assert contents(tmp_path / "disturbed") == contents(tmp_path / "undisturbed")


@pytest.mark.slow
def test_a_glyphs_benchmark_interrupted_and_undisturbed(tmp_path: Path) -> None:
    """The paper's nine and six partitions with three experiments each, stopped politely on the way and killed on the way."""
    options = [part for option in ("experiments=3", "epochs=1", "image_size=8") for part in ("--set", option)]
    for how, count in ((signal.SIGTERM, 10), (signal.SIGKILL, 40)):
        process = start(Path("glyphs"), tmp_path / "disturbed", *options)
        wait_for_steps(tmp_path / "disturbed", count)
        process.send_signal(how)
        process.communicate(timeout=60)
    assert run(Path("glyphs"), tmp_path / "disturbed", *options).exit_code == 0
    assert run(Path("glyphs"), tmp_path / "undisturbed", *options).exit_code == 0
    assert contents(tmp_path / "disturbed") == contents(tmp_path / "undisturbed")
    status = json.loads(invoke("bench", "status", "glyphs", "--store", tmp_path / "disturbed", "--json", *options).stdout)
    assert [cell["done"] for cell in status["cells"]] == [27, *[3] * 15]


@pytest.mark.slow
def test_workers_killed_on_the_way_leave_the_same_store(small_file: Path, tmp_path: Path) -> None:
    slower = ("--set", "epochs=20")
    process = start(small_file, tmp_path / "disturbed", *slower)
    for count in (1, 4, 7):
        wait_for_steps(tmp_path / "disturbed", count)
        for worker in workers_of(process.pid)[:1]:
            os.kill(worker, signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert run(small_file, tmp_path / "undisturbed", *slower).exit_code == 0
    assert contents(tmp_path / "disturbed") == contents(tmp_path / "undisturbed")


@pytest.mark.slow
def test_a_second_run_of_the_same_plan_is_refused_and_status_watches(small_file: Path, tmp_path: Path) -> None:
    slower = ("--set", "epochs=40")
    process = start(small_file, tmp_path / "store", *slower)
    wait_for_steps(tmp_path / "store", 1)
    second = run(small_file, tmp_path / "store", *slower)
    assert second.exit_code == 2
    assert "Another process is running this plan" in second.stderr
    status = json.loads(invoke("bench", "status", small_file, "--store", tmp_path / "store", "--json", *slower).stdout)
    assert status["active"]
    assert status["steps_per_hour"] > 0
    assert status["seconds_left"] > 0
    assert {job["epochs"] for job in status["running"]} <= {40}
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    after = json.loads(invoke("bench", "status", small_file, "--store", tmp_path / "store", "--json", *slower).stdout)
    assert not after["active"]
    assert after["running"] == []


@pytest.mark.slow
def test_the_estimate_and_what_it_took_are_recorded(small_file: Path, tmp_path: Path) -> None:
    planned = invoke("bench", "plan", small_file, "--store", tmp_path / "store", "--jobs", 1, "--json")
    assert planned.exit_code == 0, planned.output
    expected = json.loads(planned.stdout)["estimate"]
    assert expected["seconds"] > 0
    assert expected["memory"] > 1e8
    assert expected["disk"] > 10 * 1e5
    result = invoke("bench", "run", small_file, "--store", tmp_path / "store", "--jobs", 1)
    assert result.exit_code == 0, result.output
    assert "Measuring how fast" not in result.stderr  # the plan's rates are used
    (folder,) = (tmp_path / "store" / "plans").iterdir()
    events = {event["event"]: event for event in Journal(folder).events()}
    assert events["started"]["estimate"]["seconds"] == expected["seconds"]
    assert events["ended"]["done"] == 10
    assert events["ended"]["seconds"] > 0
    written = sum(file.stat().st_size for step in Store(tmp_path / "store").steps() for file in step.folder.iterdir())
    assert 0.5 < expected["disk"] / written < 2
    assert not list((tmp_path / "store" / "working").iterdir())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["dataset=squars"], r"There is no data set 'squars'. Did you mean 'squares'\?"),
        (["dataset=cifar100"], "There is no data set 'cifar100'. Get it with `forgetscope data get cifar100`"),
        (["increments=[0.3]"], "increment = 0.3 of 8 classes is 2.4 classes per step, not a whole number"),
        (["network=resnet9"], "network = 'resnet9' is not known"),
        (['policies=["nobody:knows"]'], "nobody:knows: cannot import nobody"),
    ],
)
def test_bad_input_is_told_before_anything_starts(
    settings: list[str], message: str, small_file: Path, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    result = run(small_file, tmp_path / "store", *[part for setting in settings for part in ("--set", setting)])
    assert result.exit_code == 2, result.output
    assert message.replace("\\", "") in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "store").exists()
