"""Against scipy on the steps of a real, tiny plan."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from forgetscope.analysis.experiments import summarise
from forgetscope.benchmark.pairs import Variants, variants_plan
from forgetscope.cli.app import app
from forgetscope.data.library import load_data
from forgetscope.experiment.chain import run_locked
from forgetscope.experiment.settings import choose_settings
from forgetscope.spec import RunSpec
from forgetscope.store import Store

RUN = """dataset = "squares"
sequence = [[0, 1, 2, 3], [4], [5]]
epochs = 2
first_batch = 16
batch = 16
learning_rate = 0.05
retention = 0.25
"""
SETTINGS = ("sampling=reshuffled-short", "validation=0.25")


@pytest.fixture
def command(squares: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(squares))
    (tmp_path / "run.toml").write_text(RUN)
    run, store = RunSpec.from_toml(tmp_path / "run.toml"), Store(tmp_path / "store")
    plan = variants_plan(Variants(run, SETTINGS, pairs=2))
    data, settings = load_data("squares", None), choose_settings("cpu", 1)
    store.prepare()
    for job in plan.jobs.values():  # in this process: the command then finds all of them in the store
        run_locked(job.id, job.spec, store.step(job.parent) if job.parent else None, data, store, settings)
    varied = [part for setting in SETTINGS for part in ("--vary", setting)]
    options = ["--pairs", "2", "--store", str(tmp_path / "store"), "--no-estimate", "--jobs", "1"]
    return ["variants", str(tmp_path / "run.toml"), *varied, *options]


def test_differences_are_paired_on_common_parents_where_possible(command: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["variants"]
    assert [(row["step"], row["variant"], row["common_parent"]) for row in rows] == [
        (2, "as it is", True),
        (2, "sampling=reshuffled-short", True),
        (2, "validation=0.25", False),
        (3, "as it is", True),
        (3, "sampling=reshuffled-short", False),
        (3, "validation=0.25", False),
    ]
    second = [step for step in Store(tmp_path / "store").steps() if step.spec.step == 2]
    ranges = {
        (s.spec.seed, s.spec.training.sampling, s.spec.training.validation): summarise(s).forgetting_range for s in second
    }
    change = np.array([ranges[seed, "reshuffled-short", None] - ranges[seed, "iid", None] for seed in range(2)])
    found = rows[1]["differences"]["forgetting_range"]["estimate"]
    assert (found["value"], found["n"]) == (pytest.approx(change.mean()), 2)
    if np.ptp(change):
        assert (found["low"], found["high"]) == pytest.approx(stats.t.interval(0.95, 1, change.mean(), stats.sem(change)))
    shown = CliRunner().invoke(app, command)
    assert "a common parent" in shown.output
    assert all({"spread", "reliability", "ceiling"} <= row["means"].keys() for row in rows)
    assert re.search(r"ρ LOG-SIM +spread +reliability +ρ, at most$", shown.output, re.MULTILINE)
    assert "Example: forgetscope variants" in CliRunner().invoke(app, ["variants", "--help"]).output
