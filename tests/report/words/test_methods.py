"""Methods: words that can go into a paper, and commands that plan the very steps of a store."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import typer
from hypothesis import given, settings, strategies as st
from typer.testing import CliRunner

from forgetscope.analysis.results import Analysis, analyse
from forgetscope.benchmark.arms import parse_arm
from forgetscope.benchmark.controlled import controlled_plan
from forgetscope.benchmark.pairs import Comparison, Variants, comparison_plan, variants_plan
from forgetscope.benchmark.plans import Plan, benchmark_plan
from forgetscope.benchmark.records import record_plan, recorded_plans
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.benchmark.truth import Truth
from forgetscope.cli.app import app
from forgetscope.cli.options import overrides
from forgetscope.data.library import data_facts
from forgetscope.report.words.methods import Command, commands, paragraphs
from forgetscope.scenario import sequence_of
from forgetscope.spec import RunSpec, as_released, step_id, step_specs
from forgetscope.store import Store, StoredStep

SHAPE: dict[str, Any] = {"increments": [0.1], "retentions": [0.08], "experiments": 2, "epochs": 3}
RUN = RunSpec(dataset="glyphs", epochs=3, retention=0.2, seed=4)
ALL = {"policy": "herding", "script_behaviour": "released", "alpha": 0.25}


def parsed(command: str) -> tuple[str, dict[str, Any]]:
    """What the command line makes of a printed command: the command's name and its parameters."""
    program, *words = shlex.split(command)
    assert program == "forgetscope"
    chosen: Any = typer.main.get_command(app)
    path = []
    while hasattr(chosen, "commands"):
        path.append(words[0])
        chosen = chosen.commands[words.pop(0)]
    return " ".join(path), chosen.make_context(path[-1], words).params


def planned(command: Command, folder: Path) -> set[str]:
    """The ids of the steps that a command's commands would run, as each command plans them."""
    if command.file is not None:
        (folder / command.file[0]).write_text(command.file[1], encoding="utf-8")
    found: set[str] = set()
    for line in command.command.splitlines():
        name, given = parsed(line)
        chosen = overrides(given["settings"])
        if "config" in given:
            run = RunSpec.from_toml(folder / given["config"], chosen)
            if name == "run":
                found |= set(step_ids(run))
                continue
            if name == "compare":
                arms = dict(map(parse_arm, given["arm"])) if given["arm"] else None
                names = given["policies"].split(",") if given["policies"] else ()
                plan = comparison_plan(Comparison(run, names, pairs=given["pairs"], arms=arms, again=given["again"]))
            else:
                plan = variants_plan(Variants(run, given["vary"], given["pairs"]))
        else:
            named = folder / given["benchmark"]
            spec = BenchmarkSpec.load(str(named) if named.exists() else given["benchmark"], chosen)
            plan = controlled_plan(spec, runs=given["runs"]) if name == "controlled" else benchmark_plan(spec)
        found |= plan.jobs.keys()
    return found


def step_ids(run: RunSpec) -> list[str]:
    return [id for id, _ in resolved(run)]


def resolved(run: RunSpec) -> list[tuple[str, Any]]:
    data = data_facts(run.dataset, run.image_size)
    found: list[tuple[str, Any]] = []
    for spec in step_specs(run, sequence_of(run, data.classes), data.augmentation):
        found.append((step_id(found[-1][0] if found else None, spec, str(data.digest)), spec))
    return found


@pytest.mark.parametrize(
    "plan",
    [
        lambda: benchmark_plan(BenchmarkSpec.load("glyphs")),
        lambda: benchmark_plan(BenchmarkSpec.load("glyphs", SHAPE)),
        lambda: controlled_plan(BenchmarkSpec.load("glyphs", SHAPE), runs=3),
        lambda: comparison_plan(Comparison(RUN, ["uniform", "herding"], pairs=2)),
        lambda: comparison_plan(Comparison(RUN, arms={"plain": {}, "all": ALL}, pairs=2)),
        lambda: variants_plan(Variants(RUN, ("sampling=reshuffled-short", "validation=0.1"), 2)),
    ],
    ids=["preset", "benchmark", "controlled", "compare", "arms", "variants"],
)
def test_the_command_of_a_plan_plans_the_same_steps(plan: Any, tmp_path: Path) -> None:
    made: Plan = plan()
    record_plan(Store(tmp_path / "store"), made)
    (command,) = commands(recorded_plans(Store(tmp_path / "store")), [])
    assert planned(command, tmp_path) == set(made.jobs)


options = st.fixed_dictionaries(
    {"seed": st.integers(0, 9), "epochs": st.integers(1, 5), "batch": st.sampled_from([64, 128])},
    optional={
        "steps": st.integers(1, 4),
        "network": st.sampled_from(["resnet8", "resnet8-projected"]),
        "policy": st.sampled_from(["uniform", "herding"]),
        "method": st.sampled_from(["replay", "ace", "distillation(weight=0.5, temperature=3)"]),
        "retention": st.sampled_from([0.08, 0.2]),
        "quota": st.sampled_from(["balanced", "neyman"]),
        "first_batch": st.sampled_from([32, 33]),
        "sampling": st.sampled_from(["iid", "reshuffled"]),
        "validation": st.sampled_from([0.0, 0.1]),
        "precision": st.sampled_from(["float32", "bfloat16"]),
        "flip": st.booleans(),
        "alpha": st.sampled_from([0.25, 0.5]),
        "all_layers_every": st.integers(0, 2),
        "every_iteration": st.booleans(),
        "released_nic": st.booleans(),
        "keepsake": st.sampled_from(["none", "variance", "covariance"]),
        "image_size": st.sampled_from([None, 8]),
    },
)


@settings(max_examples=60)
@given(options, st.sampled_from([None, {"memory": 200}, {"memory_bytes": 10**7}]), st.booleans())
def test_the_command_of_a_run_without_a_plan_plans_the_same_steps(
    given: Mapping[str, Any], memory: Mapping[str, int] | None, list_alphas: bool
) -> None:
    chosen = {name: value for name, value in given.items() if name != "retention" or not memory}
    chosen |= memory or {}
    steps = given.get("steps", 3)
    chosen |= {"alpha": [0.25, 0.5, 0.75][: steps - 1]} if list_alphas and steps > 1 else {}
    run = RunSpec(**chosen)
    expected = resolved(run)
    data = {"name": run.dataset, "image_size": run.image_size}
    chain = [SimpleNamespace(spec=spec, info={"data": data, "network": run.network}) for _, spec in expected]
    (command,) = commands([], [cast(Sequence[StoredStep], chain)])
    with tempfile.TemporaryDirectory() as folder:
        assert planned(command, Path(folder)) == {id for id, _ in expected}


def test_the_command_of_a_simulation_makes_the_same_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path / "store")
    simulate(BenchmarkSpec.load("glyphs", SHAPE), store, 3, Truth(nic_effect=0.25), reruns=2)
    (command,) = commands(recorded_plans(store), [])
    assert command.file is not None
    monkeypatch.chdir(tmp_path)
    Path(command.file[0]).write_text(command.file[1], encoding="utf-8")
    _, *words = shlex.split(command.command)
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    assert Store(tmp_path / "results").ids() == store.ids()


def test_the_paragraph_reads_as_a_person_would_write_it(same: Analysis) -> None:
    described, statistics = paragraphs(same)
    assert described.startswith(
        "C100: training of resnet32 on cifar100 in class-incremental steps was simulated with a known truth, "
        "8 second steps and 8 third steps; nothing was trained. Each step introduces"
    )
    assert (
        "introduces 10 or 20\u202f% of the classes; 8 or 20\u202f% of each past class’s training images are kept" in described
    )
    assert "A batch holds 128 images, 50\u202f% of them rehearsed, drawn with replacement" in described
    assert described.endswith("Interference was measured before training and after every epoch.")
    assert statistics.endswith("factors coded to sum to zero. Nothing was excluded.")


def test_cheap_probes_are_told(tmp_path: Path) -> None:
    shape = {
        "experiments": 2,
        "increments": [0.1],
        "retentions": [0.08],
        "epochs": 20,
        "steps": 2,
        "probes": 6,
        "probe_images": 50,
    }
    simulate(BenchmarkSpec.load("glyphs", shape), Store(tmp_path / "store"), seed=2, reruns=0)
    described, _ = paragraphs(analyse(tmp_path / "store", resamples=10, cached=False))
    assert described.endswith(
        "Interference was measured 6 times, evenly from before training to its end; coefficients are means over these times "
        "21. Each measurement looked at 50 images of each past class, drawn anew, so coefficients are estimates."
    )


@pytest.mark.parametrize(
    ("method", "told"),
    [
        ("distillation", "learn by distillation in place of plain replay."),
        ("joint", "plain replay: from all past images and not from those that are kept, which is a bound and no rehearsal."),
        ("fine-tune", "learn by fine-tune in place of plain replay: from new images alone, without rehearsal."),
    ],
)
def test_a_method_that_does_not_rehearse_is_named_so(method: str, told: str, tmp_path: Path) -> None:
    shape = {"experiments": 2, "increments": [0.1], "retentions": [0.08], "epochs": 2, "steps": 2, "method": method}
    simulate(BenchmarkSpec.load("glyphs", shape), Store(tmp_path / "store"), seed=2, reruns=0)
    described, _ = paragraphs(analyse(tmp_path / "store", resamples=10, cached=False))
    assert told in described


def test_every_behaviour_of_the_released_scripts_is_named(tmp_path: Path) -> None:
    shape = {"experiments": 2, "increments": [0.1], "retentions": [0.08, 0.2], "script_behaviour": "released", "epochs": 4}
    spec = BenchmarkSpec.load("tiny-imagenet", shape)
    simulate(spec, Store(tmp_path / "store"), seed=2, reruns=3)
    described, _ = paragraphs(analyse(tmp_path / "store", resamples=10, cached=False))
    assert {*as_released(spec.template.model_dump())} == RELEASED.keys()  # an option that is new here needs words
    for text in (*RELEASED.values(), "4 runs each, none of them the original one, as in the paper’s released scripts."):
        assert text in described


RELEASED = {
    "sampling": "drawn in reshuffled passes without replacement, the last batch of which is short",
    "validation": "10\u202f% of each class’s training images are set aside and not used.",
    "retained_of": "are kept for rehearsal, counted of all of them, those set aside included, chosen by",
    "initial_weights": "drawn anew for every first step, as by scripts that build the network before they set the seed.",
    "brightness_rounded": "brightness of 1 ± 0.25, rounded to 8 bits",
    "initialisation": "Convolutions begin with weights after He et al., by fan-out,",
    "released_nic": "NIC was also measured with the entry that the paper’s released scripts read in place of the bias.",
    "normalisation": "normalised by mean and standard deviation of CIFAR-10, as in the paper’s released scripts.",
    "network": "The network has a projection to 64 features before its head, as in the paper’s released scripts.",
}


def test_the_protocol_of_the_text_is_named_too(analysed: Analysis) -> None:
    described, _, statistics = paragraphs(analysed)
    assert (
        "by fan-in, drawn from the experiment’s seed. Pixels are normalised by mean and standard deviation of the training"
        in described
    )
    assert "was run with other new classes and nothing else changed, 4 runs each, the original one among them." in described
    assert "rounded" not in described
    assert "released" not in described
    assert "intervals of its weights are Wald’s, with Student’s t of steps − 1." in statistics


def test_what_was_left_out_is_said_where_it_was(tiny_store: Path) -> None:
    found = analyse(tiny_store, resamples=100, cached=False)
    trained = (
        "glyphs: resnet8 was trained on glyphs at 8 pixels in class-incremental steps, and 1 second step and 1 third step were"
    )
    assert paragraphs(found)[0].startswith(trained)
    assert "Nothing was excluded" not in paragraphs(found)[-1]
    assert "Left out of glyphs, step 2: 1 step without a ranking." in paragraphs(found)[-1]  # it has two past classes
