"""`compare` and `controlled` as a user types them. The quick tests find all steps in the store; the slow ones train them."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner, Result

from forgetscope.analysis.experiments import Experiment, StepSummary
from forgetscope.analysis.statistics.estimates import mean_estimate
from forgetscope.analysis.statistics.noise import ceiling_estimate, reliability_estimate, spread_estimate
from forgetscope.benchmark.controlled import controlled_plan
from forgetscope.benchmark.pairs import Comparison, comparison_plan
from forgetscope.benchmark.plans import Plan
from forgetscope.benchmark.records import Journal, recorded_plans
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.cli.app import app
from forgetscope.data.library import load_data
from forgetscope.experiment.chain import run_locked
from forgetscope.experiment.preparation import prepare, weights_digest
from forgetscope.experiment.settings import choose_settings
from forgetscope.spec import RunSpec
from forgetscope.store import Store

RUN = "image_size = 8\nsequence = [[0, 1, 2], [3], [4]]\nepochs = 1\nfirst_batch = 32\nbatch = 64\nprobe_every = 0\nseed = 2\n"
SPACE = 'dataset = "glyphs"\nimage_size = 8\nepochs = 1\nincrements = [0.05]\nretentions = [0.08]\nexperiments = 1\nsteps = 2\n'


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def carry_out(plan: Plan, store: Store) -> None:
    """All steps of a plan, in this process; a minute lies between two, so that it is certain which came last."""
    data, settings = load_data("glyphs", plan.template.image_size), choose_settings("cpu", 1)
    store.prepare()
    with pytest.MonkeyPatch.context() as patches:
        for minute, job in enumerate(plan.jobs.values()):
            clock = SimpleNamespace(now=lambda zone, minute=minute: datetime(2026, 1, 1, 0, minute, tzinfo=zone))
            patches.setattr("forgetscope.experiment.step.datetime", clock)
            run_locked(job.id, job.spec, store.step(job.parent) if job.parent else None, data, store, settings)


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("compared")
    (folder / "mine.toml").write_text(RUN)
    load_data("glyphs", 8)
    carry_out(
        comparison_plan(Comparison(RunSpec.from_toml(folder / "mine.toml"), ["uniform", "herding"], pairs=3)),
        Store(folder / "store"),
    )
    return folder / "mine.toml", folder / "store"


@pytest.fixture(scope="module")
def rerun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("rerun")
    (folder / "space.toml").write_text(SPACE)
    load_data("glyphs", 8)
    carry_out(controlled_plan(BenchmarkSpec.load(folder / "space.toml"), runs=3), Store(folder / "store"))
    return folder / "space.toml", folder / "store"


@pytest.mark.parametrize("command", ["compare", "controlled"])
def test_help_has_an_example(command: str) -> None:
    assert f"Example: forgetscope {command}" in invoke(command, "--help").output


def compare(compared: tuple[Path, Path], *options: str) -> Result:
    return invoke("compare", compared[0], "--store", compared[1], "--no-estimate", *options)


def test_paired_differences_by_hand(compared: tuple[Path, Path]) -> None:
    result = compare(compared, "--policies", "uniform,herding", "--pairs", "3", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert re.fullmatch(r"mine-compare-\w{8}", found["plan"])
    assert [(row["step"], row["policy"]) for row in found["policies"]] == [
        (2, "uniform"),
        (2, "herding"),
        (3, "uniform"),
        (3, "herding"),
    ]
    store = Store(compared[1])
    forgetting: dict[tuple[int, str, int], list[float]] = {}
    for chain in store.experiments():
        for step in chain[1:]:
            rows = Experiment(chain).past_classes(step.spec.step)
            assert step.spec.rehearsal is not None
            forgetting[step.spec.step, step.spec.rehearsal.policy, step.spec.seed] = rows["forgetting"].tolist()
    checked = 0
    for row in found["policies"]:
        assert (row["pairs"], row["baseline"], row["diverged"]) == (3, "uniform", 0)
        for name, calculate in {"worst_forgetting": np.nanmax, "mean_forgetting": np.nanmean}.items():
            mine, base = (
                np.array([calculate(forgetting[row["step"], policy, seed]) for seed in (2, 3, 4)])
                for policy in (row["policy"], "uniform")
            )
            for estimate, values in ((row["means"][name], mine), (row["differences"][name], mine - base)):
                assert (estimate["value"], estimate["n"]) == (pytest.approx(values.mean()), 3)
                if np.ptp(values):
                    checked += 1
                    interval = stats.t.interval(0.95, 2, loc=values.mean(), scale=stats.sem(values))
                    assert (estimate["low"], estimate["high"]) == pytest.approx(interval)
    assert checked > 4


def test_spread_reliability_and_ceiling_of_each_policy_are_those_of_its_steps(compared: tuple[Path, Path]) -> None:
    """As functions of the statistics have them, which have oracles of their own."""
    rows = json.loads(compare(compared, "--policies", "uniform,herding", "--pairs", "3", "--json").stdout)["policies"]
    for row in rows:
        steps: list[StepSummary] = []
        for chain in Store(compared[1]).experiments():
            assert chain[1].spec.rehearsal is not None
            if chain[1].spec.rehearsal.policy == row["policy"]:
                steps.append(Experiment(chain).summaries[row["step"] - 2])
        variances, observed = (np.array([getattr(s, name) for s in steps]) for name in ("true_variance", "variance"))
        variance, noises = mean_estimate(variances), [np.array(s.sampling) for s in steps]
        expected = {
            "spread": spread_estimate(variance),
            "reliability": reliability_estimate(variances, observed),
            "ceiling": ceiling_estimate(variance, noises),
        }
        for name, estimate in expected.items():
            assert row["means"][name] == pytest.approx(asdict(estimate))
        assert row["means"]["true_variance"]["value"] == pytest.approx(variance.value)


def test_another_baseline_turns_the_differences_round(compared: tuple[Path, Path]) -> None:
    options = ("--policies", "uniform,herding", "--pairs", "3")
    forth, back = (
        json.loads(compare(compared, *options, "--baseline", baseline, "--json").stdout)["policies"]
        for baseline in ("uniform", "herding")
    )
    assert [row["policy"] for row in back] == ["herding", "uniform"] * 2
    for there, here in zip(forth[1::2], back[1::2], strict=True):
        for name, difference in there["differences"].items():
            assert here["differences"][name]["value"] == pytest.approx(-difference["value"])


def test_the_table_of_policies(compared: tuple[Path, Path]) -> None:
    result = compare(compared, "--policies", "uniform,herding", "--pairs", "3")
    assert result.exit_code == 0, result.output
    for text in ("Policies in step 2, in pairs that share their first step", "Policies in step 3", "worst class"):
        assert text in result.stdout
    assert "the paired difference to uniform" in result.stdout
    assert re.search(r"^herding +3( +−?\d+\.\d{3}( \(−?\d+\.\d{3}, −?\d+\.\d{3}\))?){9} *$", result.stdout, re.MULTILINE)
    assert re.search(
        r"^  difference( +[+−]?\d+\.\d{3}( \([+−]?\d+\.\d{3}, [+−]?\d+\.\d{3}\))?){6} *$", result.stdout, re.MULTILINE
    )
    assert "true variance" not in result.stdout
    by_noise = r"^  by noise( +\d+\.\d{3}( \(−?\d+\.\d{3}, \d+\.\d{3}\))?){2} *$"  # of two values there is no interval
    assert len(re.findall(by_noise, result.stdout, re.MULTILINE)) == 4
    assert "by noise: if all were forgotten alike" in result.stdout


def test_one_pair_has_no_interval(compared: tuple[Path, Path]) -> None:
    result = compare(compared, "--policies", "uniform,herding", "--pairs", "1")
    assert result.exit_code == 0, result.output
    assert not re.search(r"\d \(", result.stdout)
    assert re.search(r"^herding +1 ", result.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policies", "uniform,hering"], "policy = 'hering' is not known. Did you mean 'herding'?"),
        (["--policies", "uniform,herding", "--baseline", "entropy"], "--baseline entropy is not among the policies"),
        (["--policies", "herding"], "name at least two policies"),
        (["--set", "network=resnet9"], "resnet9"),
        (["--set", "policy=entropy"], "name the policies that are compared with --policies"),
    ],
)
def test_wrong_comparisons_start_nothing(options: list[str], message: str, tmp_path: Path) -> None:
    result = invoke("compare", "--store", tmp_path / "store", *options)
    assert result.exit_code == 2
    assert message in result.stderr.replace("\n", " ")
    assert not (tmp_path / "store").exists()
    assert invoke("compare", "--pairs", "0").exit_code == 2


def test_correlations_of_re_runs(rerun: tuple[Path, Path]) -> None:
    result = invoke("controlled", rerun[0], "--store", rerun[1], "--runs", "3", "--no-estimate", "--json")
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["steps"]
    assert (found["step"], found["increment"], found["retention"]) == (2, 0.05, 0.08)
    assert (found["planned"], found["runs"], found["unproved"]) == (4, 4, 0)
    (plan,) = recorded_plans(Store(rerun[1]))
    ids = [plan["reruns"][0]["original"], *plan["reruns"][0]["others"]]
    tables = [Store(rerun[1]).step(id).table("classes").to_pandas().set_index("class_id") for id in ids]
    assert len(found["classes"]) == 5
    for row in found["classes"]:
        nic, sic = ([table.loc[row["class_id"], name] for table in tables] for name in ("nic", "sic"))
        assert row["correlation"] == pytest.approx(stats.spearmanr(nic, sic).statistic)
    shown = invoke("controlled", rerun[0], "--store", rerun[1], "--runs", "3", "--no-estimate").stdout
    assert re.search(r"^ +2 +5 % +8 % +4 +5 ", shown, re.MULTILINE)
    assert "equal in all runs of a step: checked" in shown


def test_show_details_the_latest_experiment_that_it_lists_and_no_re_run(rerun: tuple[Path, Path]) -> None:
    invoke("controlled", rerun[0], "--store", rerun[1], "--runs", "3", "--no-estimate")  # which records the plan
    (plan,) = recorded_plans(Store(rerun[1]))
    (listed,) = (chain["steps"][-1] for chain in plan["chains"])
    assert Store(rerun[1]).experiments()[-1][-1].id != listed  # a re-run came last
    shown = invoke("show", rerun[1]).stdout
    assert "3 re-runs of controlled experiments are not among them" in shown
    assert f"Past classes after step 2 of {listed[:8]}, most forgotten first" in shown
    assert json.loads(invoke("show", rerun[1], "--json").stdout)["experiment"]["id"] == listed


def test_the_digest_is_that_of_the_grown_network_and_of_nothing_else(rerun: tuple[Path, Path]) -> None:
    store, data, settings = Store(rerun[1]), load_data("glyphs", 8), choose_settings("cpu", 1)
    later = [step for step in store.steps() if step.parent is not None]
    assert len(later) == 4
    for step in later:
        assert step.parent is not None
        network = prepare(store.step(step.parent), step.spec, data, settings).network
        assert weights_digest(network) == step.start_weights
    assert len({step.start_weights for step in later}) == 1
    import torch

    assert weights_digest(network.to(memory_format=torch.contiguous_format)) == later[0].start_weights  # type: ignore[call-overload]
    with torch.no_grad():
        network.head.bias[-1] += 1e-7
    assert weights_digest(network) != later[0].start_weights


def test_status_and_retry_know_every_plan_by_its_id(rerun: tuple[Path, Path]) -> None:
    invoke("controlled", rerun[0], "--store", rerun[1], "--runs", "3", "--no-estimate")
    (plan,) = recorded_plans(Store(rerun[1]))
    status = invoke("bench", "status", plan["id"], "--store", rerun[1])
    assert status.exit_code == 0, status.output
    assert re.search(r"re-runs +3 of 3", status.stdout)
    unknown = invoke("bench", "status", plan["id"][:-1], "--store", rerun[1])
    assert f"There is no preset, file or plan '{plan['id'][:-1]}'. Did you mean '{plan['id']}'?" in unknown.stderr.replace(
        "\n", " "
    )
    changed = invoke("bench", "status", plan["id"], "--store", rerun[1], "--set", "epochs=2")
    assert (changed.exit_code, "Leave --set out" in changed.stderr) == (2, True)
    retried = invoke("bench", "retry", plan["id"], "--failed", "--store", rerun[1])
    assert (retried.exit_code, "will be run again" in retried.stderr) == (0, False)
    assert f"No step of {plan['id']} has failed. Nothing was started" in retried.stderr
    journal, failed = Journal(rerun[1] / "plans" / plan["id"]), plan["reruns"][0]["others"][0]
    shutil.rmtree(rerun[1] / "steps" / failed)
    journal.write("failed", step=failed, message="the disk was full")
    again = invoke("controlled", rerun[0], "--store", rerun[1], "--runs", "3", "--no-estimate")
    assert again.exit_code == 1
    assert f"`forgetscope bench retry {plan['id']} --failed --store {rerun[1]}`" in again.stderr.replace("\n", " ")
    retried = invoke("bench", "retry", plan["id"], "--failed", "--store", rerun[1])
    assert retried.exit_code == 0, retried.output
    assert "1 failed step will be run again" in retried.stderr
    assert failed in Store(rerun[1])


@pytest.mark.slow
def test_a_controlled_experiment_from_nothing(tmp_path: Path) -> None:
    options: list[Any] = ["--store", tmp_path / "store", "--runs", "3", "--jobs", "2", "--no-estimate", "--json"]
    space: list[Any] = ["glyphs", "--set", "epochs=1", "--set", "experiments=1", "--set", "image_size=8"]
    cells: list[Any] = ["--set", "increments=[0.1]", "--set", "retentions=[0.08]"]
    result = invoke("controlled", *space, *cells, *options)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [(step["step"], step["runs"], len(step["classes"])) for step in found["steps"]] == [(2, 4, 10), (3, 4, 20)]
    assert all(step["unproved"] == 0 for step in found["steps"])
    again = invoke("controlled", *space, *cells, *options)
    assert again.stdout == result.stdout
    assert "9 of 9 steps are in the store already" in again.stderr


@pytest.mark.slow
def test_a_comparison_from_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(RUN)
    command: list[Any] = ["compare", tmp_path / "mine.toml", "--policies", "uniform,entropy", "--pairs", "2"]
    result = invoke(*command, "--store", tmp_path / "store", "--jobs", "2", "--no-estimate", "--json")
    assert result.exit_code == 0, result.output
    assert len(Store(tmp_path / "store").ids()) == 2 + 2 * 2 * 2
    assert {row["pairs"] for row in json.loads(result.stdout)["policies"]} == {2}
