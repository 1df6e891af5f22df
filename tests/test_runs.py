"""What the command line can do, Python can do with the same words."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

import forgetscope as fs
from conftest import SMALL
from forgetscope.benchmark.controlled import controlled_plan
from forgetscope.cli.app import app
from forgetscope.errors import TRACEBACK, DataError, ForgetscopeError, SpecError
from forgetscope.report.document import study_document

RUN = {"dataset": "squares", "epochs": 1, "first_batch": 16, "batch": 16, "sequence": ((0, 1), (2, 3))}


@pytest.mark.parametrize("name", fs.__all__)
def test_every_public_name_is_an_attribute(name: str) -> None:
    assert getattr(fs, name) is not None
    assert name in dir(fs)


def test_what_is_named_is_what_type_checkers_see() -> None:
    tree = ast.parse(Path(str(fs.__file__)).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = [(node.module, name.name) for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names]
    homes = [(module, name) for module, names in fs._HOMES.items() for name in names]
    assert sorted(seen) == sorted([*homes, ("forgetscope", "errors"), ("forgetscope", "testing")])
    assert sorted(fs.__all__) == sorted(["__version__", *(name for _, name in seen)])


def test_ray_is_not_imported_before_it_is_used() -> None:
    code = "import sys, forgetscope as fs; fs.Ray(address='auto'); print('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def cli(*arguments: object) -> dict[str, object]:
    result = CliRunner().invoke(app, [str(argument) for argument in (*arguments, "--json", "--no-estimate", "--jobs", 1)])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def test_comparisons_are_those_of_the_command_line(small: fs.BenchmarkSpec, small_file: Path, tmp_path: Path) -> None:
    """Same plans, same steps, same rows."""
    run, store = fs.RunSpec(**RUN), tmp_path / "store"
    (tmp_path / "run.toml").write_text(run.to_toml())
    config = (tmp_path / "run.toml", "--store", store)
    policies = fs.Comparison(run, ("uniform", "herding"), pairs=2, name="run-compare")
    rows = fs.compare(policies, store, device="cpu", threads=1, progress=False)
    assert study_document(plan=fs.plan(policies).id, policies=rows) == cli("compare", *config, "--pairs", 2)
    vary = fs.Variants(run, ["sampling=reshuffled-short"], pairs=2, name="run-variants")
    changes = fs.compare(vary, store, device="cpu", threads=1, progress=False)
    command = ("variants", *config, "--pairs", 2, "--vary", "sampling=reshuffled-short")
    assert study_document(plan=fs.plan(vary).id, variants=changes) == cli(*command)
    again = fs.Controlled(fs.BenchmarkSpec(**SMALL | {"steps": 2, "increments": [0.25]}), runs=3)
    steps = fs.compare(again, store, device="cpu", threads=1, progress=False)
    settings = ("--set", "steps=2", "--set", "increments=[0.25]", "--runs", 3, "--store", store)
    assert study_document(plan=fs.plan(again).id, steps=steps) == cli("controlled", small_file, *settings)


def test_a_plan_of_data_that_are_not_here_counts_and_does_not_run(empty_cache: Path, tmp_path: Path) -> None:
    plan = fs.plan(fs.BenchmarkSpec.load("cifar100"))
    assert plan.provisional
    assert len(plan.chains) == 360
    with pytest.raises(DataError, match="was made before its data were here"):
        fs.run(plan, tmp_path / "store", progress=False)
    assert not (tmp_path / "store").exists()
    with pytest.raises(DataError, match="There is no data set 'mine'"):
        fs.plan(fs.RunSpec(dataset="mine"))


def test_a_simulated_store_takes_a_path(tmp_path: Path) -> None:
    spec = fs.BenchmarkSpec.load("glyphs", {"experiments": 1, "increments": [0.1], "retentions": [0.2], "epochs": 2})
    result = fs.simulate(spec, tmp_path / "store", reruns=0)
    assert len(fs.Store(tmp_path / "store").ids()) == 3
    assert result.reruns == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fs.Comparison(fs.RunSpec(), ["uniform"]), "name at least two policies"),
        (lambda: fs.Comparison(fs.RunSpec(), []), "name at least two policies"),
        (lambda: fs.Comparison(fs.RunSpec(), ["uniform", "herding"], baseline="entropy"), "--baseline entropy is not among"),
        (lambda: fs.Comparison(fs.RunSpec(), ["uniform", "herding"], pairs=0), "pairs = 0 is not valid"),
        (lambda: fs.Variants(fs.RunSpec(), ["seed=3"]), "seed is what a pair has in common"),
        (lambda: fs.Controlled(fs.BenchmarkSpec.load("glyphs"), runs=1), "runs = 1 is not valid"),
        (lambda: fs.compare(fs.RunSpec()), "fs.compare takes a Comparison, Variants or Controlled, not a RunSpec"),  # type: ignore[call-overload]
        (lambda: fs.plan({}), "fs.plan takes a RunSpec, .* or Controlled, not a dict"),  # type: ignore[arg-type]
        (lambda: fs.compare(fs.RunSpec()), r"make one with fs.Comparison\(spec, "),  # type: ignore[call-overload]
        (lambda: fs.compare(fs.BenchmarkSpec.load("glyphs")), r"make one with fs.Controlled\(spec\)"),  # type: ignore[call-overload]
        (lambda: fs.compare({}), r"make one with fs.Comparison\(fs.RunSpec\(\*\*options\), "),  # type: ignore[call-overload]
        (lambda: fs.plan(fs.plan(fs.RunSpec())), "not a Plan: fs.run takes a plan.$"),  # type: ignore[arg-type]
        (lambda: fs.run(fs.RunSpec(), on="here"), r"on = 'here' is not valid: it should be an engine, such as fs.Here\(\)"),  # type: ignore[call-overload]
        (lambda: fs.run(fs.RunSpec(), on=fs.Here), "on = <class '.*Here'> is not valid"),  # type: ignore[call-overload]
        (lambda: fs.run(fs.RunSpec(), watch=3), "watch = 3 is not valid: it should be .* fs.Watcher"),  # type: ignore[call-overload]
        (lambda: fs.run(fs.RunSpec(), watch=fs.Watcher), "watch = <class '.*Watcher'> is not valid"),  # type: ignore[call-overload]
        (lambda: fs.Controlled(fs.RunSpec()), r"benchmark = RunSpec\(.* is not valid: it should be a benchmark"),  # type: ignore[arg-type]
        (lambda: fs.simulate(fs.RunSpec(), "s"), r"spec = RunSpec\(.* is not valid: it should be a benchmark"),  # type: ignore[arg-type]
        (lambda: fs.simulate(fs.BenchmarkSpec.load("glyphs"), "s", truth={}), r"truth = \{\} is not valid: .* Truth\(noise"),  # type: ignore[arg-type]
        (lambda: fs.Comparison({}, ["uniform", "herding"]), r"run = \{\} is not valid: it should be a run"),  # type: ignore[arg-type]
        (lambda: fs.Comparison(fs.RunSpec(), "uniform"), "policies = 'uniform' is not valid: it should be a list of names"),
        (lambda: fs.Comparison(fs.RunSpec(), 3), "policies = 3 is not valid"),  # type: ignore[arg-type]
        (lambda: fs.Variants({}), r"run = \{\} is not valid"),  # type: ignore[arg-type]
        (lambda: fs.Variants(fs.RunSpec(), "validation=0.1"), "vary = 'validation=0.1' is not valid: it should be a list"),
    ],
)
def test_what_is_wrong_is_said_when_it_is_made(make: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()  # type: ignore[operator]


def test_names_of_plans_are_by_default_those_of_the_command_line(small: fs.BenchmarkSpec) -> None:
    assert fs.plan(fs.Comparison(fs.RunSpec(**RUN), ["uniform", "herding"])).id.startswith("squares-compare-")
    assert fs.plan(fs.Variants(fs.RunSpec(**RUN))).id.startswith("squares-variants-")
    assert fs.plan(fs.Controlled(small, runs=3)).id == controlled_plan(small, runs=3).id


def test_a_plan_is_shown_in_a_line(small: fs.BenchmarkSpec) -> None:
    plan = fs.plan(fs.Comparison(fs.RunSpec(**RUN), ["uniform", "herding"], pairs=1))
    assert repr(plan) == f"<plan {plan.id}: 3 steps of 2 experiments>"
    again = fs.plan(fs.Controlled(small, runs=3))
    shown = len(again.chains) + 3 * len(again.reruns)
    assert repr(again) == f"<plan {again.id}: {len(again.jobs)} steps of {shown} experiments>"


def test_a_comparison_that_shows_nothing_says_why(
    small: fs.BenchmarkSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In this process without a word on standard error: what failed is a value."""
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text("def policy(candidates, quota, rng):\n    raise ValueError('no such image')\n")
    wanted = fs.Comparison(fs.RunSpec(**RUN), ["own:policy", "uniform"], pairs=1)
    with pytest.raises(
        ForgetscopeError, match=r"^No pair .* under own:policy and another policy\. own\.py:2: ValueError: no such"
    ):
        fs.compare(wanted, "store", device="cpu", threads=1, progress=False)
    assert fs.compare(wanted, "store", device="cpu", threads=1, progress=False, shard="1/1") == []
    heard = Mock(spec=[name for name in vars(fs.Watcher) if not name.startswith("_")])  # no Watcher, but all of its methods
    monkeypatch.setenv(TRACEBACK, "1")
    fs.run(wanted, "other", device="cpu", threads=1, watch=heard)
    heard.ended_badly.assert_called_once()
    heard.note.assert_any_call("Traceback (most recent call last):")
    assert capfd.readouterr() == ("", "")
