"""The replication comes with the package: whole, small enough, and what its file in `examples/` says."""

from __future__ import annotations

import importlib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import forgetscope as fs
from forgetscope.benchmark.controlled import Controlled
from forgetscope.benchmark.recipes import plan_of
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.cli.app import app
from forgetscope.data.library import DataFacts
from forgetscope.errors import StoreError
from forgetscope.housekeeping import replication
from forgetscope.housekeeping.exporting import export_steps
from forgetscope.housekeeping.importing import import_steps
from forgetscope.housekeeping.verification import verify_store

FILE = Path(__file__).parents[2] / "examples" / "replication.toml"
FILES = [path for path in (resources.files("forgetscope.housekeeping") / "replicated").iterdir() if path.name.endswith(".xz")]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> fs.Store:
    store = fs.Store(tmp_path_factory.mktemp("replication") / "store")
    assert not fs.unpack_replication(store).damaged
    return store


def test_the_files_are_small_enough_for_a_wheel() -> None:
    assert 0 < sum(len(path.read_bytes()) for path in FILES) <= 15_000_000


def test_every_step_is_whole_and_planned_by_the_example(unpacked: fs.Store) -> None:
    assert verify_store(unpacked).damage == []
    steps = unpacked.steps()
    digests = {step.info["data"]["digest"] for step in steps}
    assert len(digests) == 1
    spec = BenchmarkSpec.load(FILE)
    facts = DataFacts("cifar100", 100, 500, 100, (16, 16), steps[0].spec.training.augmentation, digests.pop())
    planned = {*plan_of(spec, facts).jobs, *plan_of(Controlled(spec), facts).jobs}
    assert {step.id for step in steps} <= planned


def test_it_is_unpacked_once(unpacked: fs.Store) -> None:
    again = fs.unpack_replication(unpacked)
    assert (again.new, set(again.present)) == ([], unpacked.ids())


def test_as_a_user_types_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    smallest = min(FILES, key=lambda path: len(path.read_bytes()))  # one of them is enough
    monkeypatch.setattr(replication, "FILES", smallest.name)
    result = CliRunner().invoke(app, ["replication"])
    assert result.exit_code == 0, result.output
    steps = len(fs.Store(tmp_path / "replication").ids())
    assert steps > 0
    assert f"{steps} steps imported into replication, 0 there already." in result.stdout
    assert "Next: forgetscope report replication\n      forgetscope show replication" in result.stdout


def test_an_installation_without_them_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication, "FILES", "*.zip")
    with pytest.raises(StoreError, match="This installation has no results of the replication"):
        fs.unpack_replication(tmp_path / "store")


@pytest.mark.slow
def test_the_page_has_the_tables_that_these_steps_give(
    unpacked: fs.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for contrasts, whose steps are not in the package."""
    monkeypatch.syspath_prepend(str(FILE.parents[1] / "benchmarks"))
    script: Any = importlib.import_module("replication")
    page = tmp_path / script.PAGE.name
    page.write_bytes(script.PAGE.read_bytes())
    script.fill(page, dict(script.blocks(str(unpacked.path))))
    assert page.read_text(encoding="utf-8") == script.PAGE.read_text(encoding="utf-8")
    with pytest.raises(SystemExit, match=r"has 0 places for nothing, expected 1"):
        script.fill(page, {"nothing": ""})


def test_a_bundle_has_a_file_per_increment(unpacked: fs.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FILE.parents[1] / "benchmarks"))
    script: Any = importlib.import_module("replication")
    monkeypatch.setattr(script, "PACKAGED", tmp_path)
    few = fs.Store(tmp_path / "few")
    sequence = unpacked.chain(next(step.id for step in unpacked.steps() if step.number == 3))
    (plan,) = [
        path
        for path in (unpacked.path / "plans").glob("*/plan.json")
        if f'"{sequence[-1].id}"' in path.read_text(encoding="utf-8")
    ]
    export_steps(sequence, tmp_path / "few.tar", plans=[plan])
    import_steps(tmp_path / "few.tar", few)
    script.bundle(few, {})
    whole = (tmp_path / "10.tar.xz").stat().st_size
    script.bundle(few, {"10": 2})
    assert (tmp_path / "10.tar.xz").stat().st_size < whole
    assert import_steps(tmp_path / "10.tar.xz", fs.Store(tmp_path / "again")).new == [step.id for step in sequence]
