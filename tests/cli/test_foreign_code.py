"""Somebody else's folder: looking at it imports nothing of it, and what a store says is no reason to run code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from conftest import SMALL, TINY, rewrite, run_experiment
from forgetscope.benchmark.plans import benchmark_plan
from forgetscope.benchmark.records import Journal, record_plan
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.cli.app import app
from forgetscope.data.library import data_facts
from forgetscope.engines.local import _Process
from forgetscope.housekeeping.exporting import chains, export_steps
from forgetscope.housekeeping.importing import import_steps
from forgetscope.spec import RunSpec
from forgetscope.store import Store

EVIL = "open({!r}, 'w').close()\n\ndef policy(candidates, quota, rng):\n    return range(quota)\n\nnetwork = policy\n"
NAMING = {"policies": ["evil.inner:policy"], "network": "evil.inner:network", "experiments": 1}


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """Appears when code of the folder runs."""
    return tmp_path / "canary"


@pytest.fixture
def plan_id(tiny_store: Path, squares: Path, canary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """In the current folder: a store with results, and with plans and files that name code, which lies beside them."""
    folder = shutil.copytree(tiny_store, tmp_path / "theirs")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(squares))
    (folder / "evil").mkdir()
    for file in ("evil/__init__.py", "evil/inner.py", "json.py", "scipy.py", "pandas.py", "sitecustomize.py"):
        (folder / file).write_text(EVIL.format(str(canary)))
    spec = BenchmarkSpec(**SMALL | NAMING)
    (folder / "evil.toml").write_text(spec.to_toml())
    (folder / "run.toml").write_text('policy = "evil.inner:policy"\nnetwork = "evil.inner:network"\n')
    journal, plan = record_plan(Store(folder), benchmark_plan(spec)), benchmark_plan(spec)
    journal.write("failed", step=next(iter(plan.jobs)), message="no reason")
    shutil.copytree(journal.folder, folder / "plans" / "glyphs")
    record = json.loads((folder / "plans" / "glyphs" / "plan.json").read_bytes()) | {"id": "glyphs"}
    (folder / "plans" / "glyphs" / "plan.json").write_text(json.dumps(record))
    return plan.id


LOOKING = [
    "bench status glyphs --store .",
    "bench status PLAN --store .",
    "bench status evil.toml --store . --json",
    "bench plan evil.toml --store .",
    "bench plan evil.toml --store . --no-estimate --json",
    "bench sample evil.toml",
    "bench preset glyphs",
    "simulate evil.toml --store ../simulated --reruns 0",
    "config run.toml",
    "show .",
    "report . -o ../page.html",
    "report . -o ../page.html --experiment LAST",
    "analyse . --out ../analysis",
    "approximations .",
    "store list .",
    "store verify .",
    "store verify . --quarantine",
    "store gc . --yes",
    "store export . -o ../steps.tar",
    "store sql 'SELECT count(*) FROM steps' .",
    "data list",
]


@pytest.mark.parametrize("command", LOOKING)
def test_looking_imports_nothing(command: str, plan_id: str, canary: Path) -> None:
    last = Store(Path()).experiments()[-1][-1].id
    arguments = command.replace("PLAN", plan_id).replace("LAST", last).replace("'SELECT count(*) FROM steps'", "QUERY").split()
    result = invoke(*("SELECT count(*) FROM steps" if part == "QUERY" else part for part in arguments))
    assert result.exit_code == (2 if command == "approximations ." else 0), result.output  # it measured nothing of that kind
    assert not canary.exists()


def test_a_plan_called_like_a_preset_does_not_hide_it(plan_id: str) -> None:
    status = json.loads(invoke("bench", "status", "glyphs", "--store", ".", "--json").stdout)
    assert status["plan"] != "glyphs"
    assert status["total"] == 240  # the preset's


def test_a_plan_is_looked_at_without_its_data_or_code(plan_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(tmp_path / "empty"))
    shutil.rmtree("evil")
    status = json.loads(invoke("bench", "status", plan_id, "--store", ".", "--json").stdout)
    assert (status["plan"], status["total"], status["done"]) == (plan_id, 5, 0)
    assert list(status["failures"].values()) == ["no reason"]


def test_a_plan_and_a_file_of_one_name_are_not_confused(plan_id: str) -> None:
    shutil.copy("evil.toml", plan_id)
    result = invoke("bench", "retry", plan_id, "--failed", "--store", ".")
    assert result.exit_code == 2
    assert f"{plan_id} is a plan in ., and a file. Write ./{plan_id} for the file" in result.stderr


def test_a_recorded_plan_does_not_decide_what_runs(plan_id: str, canary: Path) -> None:
    result = invoke("bench", "retry", plan_id, "--failed", "--store", ".")
    assert result.exit_code == 2
    assert (
        f"Plan {plan_id} names code to run, evil.inner:network, evil.inner:policy, and a store does not decide what runs here."
        in result.stderr
    )
    assert "add `--code evil.inner:network --code evil.inner:policy`" in result.stderr
    partly = invoke("bench", "retry", plan_id, "--failed", "--store", ".", "--code", "evil.inner:network")
    assert "names code to run, evil.inner:policy" in partly.stderr
    assert list(Journal(Path("plans") / plan_id).failures(set()))
    assert not canary.exists()


def test_a_recorded_plan_whose_data_are_gone_is_not_run(plan_id: str) -> None:
    spec = BenchmarkSpec(**SMALL)
    gone = replace(data_facts(spec.template.dataset), digest="0" * 64)
    plan = benchmark_plan(spec, gone)
    record_plan(Store(Path()), plan)
    result = invoke("bench", "retry", plan.id, "--failed", "--store", ".")
    assert result.exit_code == 2
    assert f"Plan {plan.id} was run on a data set 'squares' that is not here any more" in result.stderr


def test_a_forged_record_s_network_is_not_imported(
    plan_id: str, canary: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(cache))
    store = Store(Path())
    first, *later = store.experiments()[-1]
    rewrite(first.folder, network="evil.inner:network")
    for step in later:
        shutil.rmtree(step.folder)
    run_experiment(RunSpec(**TINY), store, device="cpu", threads=1)
    assert [store.step(step.id).info["network"] for step in later] == ["resnet8", "resnet8"]
    assert not canary.exists()


def test_a_forged_record_s_network_is_not_imported_into_a_store(store: Store, tmp_path: Path) -> None:
    first, *_ = store.experiments()[-1]
    rewrite(first.folder, network="evil.inner:network")
    export_steps(chains(store, [first.id]), tmp_path / "forged.tar")
    result = import_steps(tmp_path / "forged.tar", Store(tmp_path / "mine"))
    assert result.damaged == {first.id: "step.json: its network is evil.inner:network, and its specification says resnet8"}
    assert not Store(tmp_path / "mine").ids()


def test_a_worker_takes_nothing_from_the_current_folder_by_itself(plan_id: str, canary: Path) -> None:
    """It is started as the engine starts it, and told nothing."""
    process = _Process({"nothing": True}, Path("worker.log"))
    assert "KeyError" in process.cause_of_death()
    process.close()
    assert not canary.exists()


@pytest.mark.slow
def test_a_folder_full_of_shadows_changes_no_benchmark(plan_id: str, canary: Path) -> None:
    Path("small.toml").write_text(BenchmarkSpec(**SMALL | {"experiments": 1}).to_toml())
    command = [
        str(Path(sys.executable).parent / "forgetscope"),
        "bench",
        "run",
        "small.toml",
        "--store",
        "../mine",
        "--no-estimate",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert not canary.exists()


def test_processes_that_decode_take_nothing_from_the_current_folder(tmp_path: Path, canary: Path, empty_cache: Path) -> None:
    for number, name in enumerate(("cat", "dog")):
        (tmp_path / "images" / name).mkdir(parents=True)
        for image in range(4):
            Image.new("RGB", (8, 8), (60 * image, 90 * number, 0)).save(tmp_path / "images" / name / f"{image}.png")
    (tmp_path / "here").mkdir()
    for module in ("socket", "signal", "multiprocessing"):
        (tmp_path / "here" / f"{module}.py").write_text(EVIL.format(str(canary)))
    command = [Path(sys.executable).with_name("forgetscope"), "data", "add", "pets", tmp_path / "images", "--test-share", "0.5"]
    added = subprocess.run([*command, "--workers", "2"], cwd=tmp_path / "here", capture_output=True, text=True, timeout=120)
    assert added.returncode == 0, added.stderr
    assert not canary.exists()
