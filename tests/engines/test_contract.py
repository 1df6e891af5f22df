"""What every engine promises: the same store, failures as values, the same checks, and everything told to whoever watches."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

import forgetscope as fs
from conftest import SMALL
from forgetscope.benchmark.plans import Job, Plan
from forgetscope.benchmark.records import recorded_plans
from forgetscope.engines.dispatch import Prospect, Watcher
from forgetscope.engines.work import Place
from forgetscope.errors import Diverged, ForgetscopeError, OwnCodeFailed, SpecError
from ray_cluster import RayCluster

RUN = {
    "dataset": "squares",
    "epochs": 2,
    "first_batch": 16,
    "batch": 16,
    "learning_rate": 0.05,
    "sequence": ((0, 1), (2,), (3,)),
}
OWN = "def policy(candidates, quota, rng):\n    raise ValueError('no such image')\n"
FICKLE = """from pathlib import Path
FLAG = Path(__file__).absolute().with_name("missing")  # workers may be elsewhere

def policy(candidates, quota, rng):
    if FLAG.exists():
        raise ValueError("no such image")
    return range(quota)
"""


class Watches(Watcher):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.todo: list[int] = []
        self.epochs: list[tuple[int, int]] = []
        self.ends: list[str] = []

    def planned(self, plan: Plan, ahead: Prospect) -> None:
        self.todo.append(len(ahead.todo))

    def epoch_ended(self, job: Job, epoch: int, loss: float, accuracy: float) -> None:
        assert loss > 0
        assert 0 <= accuracy <= 1
        self.epochs.append((job.spec.step, epoch))

    def ended(self, job: Job) -> None:
        self.ends.append(job.id)

    def ended_badly(self, job: Job, message: str, blocked: int) -> None:
        self.ends.append(message)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    found = RayCluster()
    yield found
    found.close()


@pytest.fixture(params=["here", "local", pytest.param("ray", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, squares: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(squares))
    monkeypatch.chdir(tmp_path)
    if request.param == "ray":
        if find_spec("ray") is None:
            pytest.skip("Ray is not installed")
        return fs.Ray(address=request.getfixturevalue("cluster").address, device="cpu")
    return fs.Here(device="cpu", threads=1) if request.param == "here" else fs.Local(jobs=1, device="cpu")


def otherwise(place: Place) -> Place:
    return replace(place, threads=1 if isinstance(place, fs.Ray) else 2, channels_last=False)


def contents(store: str) -> dict[str, dict[str, str]]:
    return {
        step.id: {name: entry["sha256"] for name, entry in step.manifest.items() if name != "step.json"}
        for step in fs.Store(store).steps()
    }


@pytest.fixture(scope="module")
def expected(squares: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What single runs in this process leave."""
    store = str(tmp_path_factory.mktemp("expected") / "store")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORGETSCOPE_CACHE", str(squares))
        for seed in (0, 1):
            for policy in ("uniform", "herding"):
                fs.run(fs.RunSpec(**RUN, policy=policy, seed=seed), store, device="cpu", threads=1, progress=False)
    return contents(store)


def test_a_comparison_leaves_what_single_runs_leave(place: Place, expected: dict[str, dict[str, str]]) -> None:
    watches, wanted = Watches(), fs.Comparison(fs.RunSpec(**RUN), ["uniform", "herding"], pairs=2)
    found = fs.run(wanted, "store", on=place, watch=watches)
    plan = fs.plan(wanted)
    assert [experiment.id for experiment in found] == [chain.steps[-1] for chain in plan.chains]
    assert all(isinstance(experiment, fs.Experiment) for experiment in found)
    assert contents("store") == expected
    assert watches.todo == [len(plan.jobs)] == [10]
    assert sorted(watches.ends) == sorted(plan.jobs)
    assert watches.notes[0] == f"Plan {plan.id}"
    if not isinstance(place, fs.Ray):  # whose tasks tell it by the way
        assert sorted(watches.epochs) == sorted((job.spec.step, epoch) for job in plan.jobs.values() for epoch in (1, 2))
    again = Watches()
    assert [experiment.id for experiment in fs.run(plan, "store", on=place, watch=again)] == [e.id for e in found]
    assert (again.todo, again.ends) == ([0], [])


def test_a_run_is_no_plan_that_a_store_remembers(place: Place, expected: dict[str, dict[str, str]]) -> None:
    spec = fs.RunSpec(**RUN)
    made = fs.run(spec, "store", on=place, progress=False)
    assert [made.id] == [experiment.id for experiment in fs.run(fs.plan(spec), "store", on=place, progress=False)]
    assert contents("store").items() <= expected.items()
    assert recorded_plans(fs.Store("store")) == []
    assert sorted(path.name for path in Path("store").iterdir()) == ["steps", "working"]
    assert not list(Path("store/working").iterdir())


def test_what_fails_is_a_value_of_a_plan_and_an_error_of_a_run(place: Place) -> None:
    Path("own.py").write_text(OWN)
    run = fs.RunSpec(**RUN)
    wanted = fs.Comparison(run, ["own:policy", "uniform"], pairs=1)
    watches = Watches()
    failed, whole = fs.run(wanted, "store", on=place, watch=watches)
    chain = fs.plan(wanted).chains[0].steps
    told = "own.py:2: ValueError: no such image. It is your own code."
    assert isinstance(failed, fs.Failed)
    assert (failed.id, failed.step) == (chain[-1], chain[1])
    assert failed.message.endswith(told)  # a task elsewhere names the whole path
    assert isinstance(whole, fs.Experiment)
    assert failed.message in watches.ends
    assert fs.run(wanted, "store", on=place, progress=False)[0] == failed  # remembered, and not tried again unasked
    with pytest.raises(ForgetscopeError, match="no such image") as error:
        fs.run(fs.RunSpec(**RUN, policy="own:policy"), "store", on=place, progress=False)
    assert isinstance(error.value, OwnCodeFailed)
    if isinstance(place, fs.Here):
        assert isinstance(error.value.__cause__, ValueError)


def test_what_failed_is_tried_again_when_asked(place: Place) -> None:
    Path("own.py").write_text(FICKLE)
    Path("missing").touch()
    wanted, first, second, third = (
        fs.Comparison(fs.RunSpec(**RUN), ["own:policy", "uniform"], pairs=1),
        *(Watches() for _ in "123"),
    )
    failed, _ = fs.run(wanted, "store", on=place, watch=first)
    assert isinstance(failed, fs.Failed)
    Path("missing").unlink()
    told = "1 step failed before and is not tried again: retry=True"
    assert fs.run(wanted, "store", on=place, watch=second)[0] == failed
    assert [told in watches.notes for watches in (first, second)] == [False, True]
    assert all(isinstance(found, fs.Experiment) for found in fs.run(wanted, "store", on=place, watch=third, retry=True))
    assert (third.todo, told in third.notes) == ([2], False)
    assert fs.run(wanted, "store", on=place, progress=False, retry=True)[0].id == failed.id  # nothing is left to try


def test_what_diverges_is_a_value_of_a_plan_and_an_error_of_a_run(place: Place) -> None:
    wild = {**RUN, "learning_rate": 100.0, "weight_decay": 10.0, "first_batch": 2, "epochs": 4}
    wanted = fs.Comparison(fs.RunSpec(**wild), ["herding", "uniform"], pairs=1)
    for _ in range(2):  # the second time it is read from the store
        found = fs.run(wanted, "store", on=place, progress=False)
        assert [type(one).__name__ for one in found] == ["Failed", "Failed"]
        assert "diverged at iteration" in found[0].message  # type: ignore[union-attr]
        with pytest.raises(Diverged, match=r"Step 1 diverged: .*--set learning_rate=33.3333"):
            fs.run(fs.RunSpec(**wild), "other", on=place, progress=False)


def test_a_damaged_and_a_freed_parent_are_computed_again(place: Place, expected: dict[str, dict[str, str]]) -> None:
    spec, watches = fs.RunSpec(**RUN), Watches()
    made = fs.run(spec, "store", on=place, progress=False)
    first, second, third = made.steps
    shutil.rmtree(third.folder)
    (first.folder / "state.freed").write_text(first.manifest["state.safetensors"]["sha256"])
    (first.folder / "state.safetensors").unlink()
    state = second.folder / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-1] + b"!")
    fs.run(spec, "store", on=place, watch=watches)
    assert any(f"Step {second.id[:8]} is damaged" in note for note in watches.notes)
    assert any(f"The state of step {first.id[:8]} was freed and is needed again" in note for note in watches.notes)
    assert contents("store").items() <= expected.items()


def test_what_was_made_otherwise_and_is_built_on_is_told(place: Place) -> None:
    spec = fs.RunSpec(**{**RUN, "sequence": RUN["sequence"][:1]})
    (first,) = fs.run(spec, "store", on=place, progress=False).steps
    watches, other = Watches(), otherwise(place)
    fs.run(fs.Comparison(fs.RunSpec(**RUN), ["uniform", "herding"], pairs=1), "store", on=other, watch=watches)
    (told,) = [note for note in watches.notes if note.startswith("Building on step")]  # once, though two steps do
    assert told.startswith(f"Building on step {first.id[:8]}, made under another environment (")
    assert "channels_last True then, False now" in told
    made = [step.info["environment"] for step in fs.Store("store").steps() if step.id != first.id]
    assert {(one["threads"], one["channels_last"], one["compile"]) for one in made} == {(other.threads, False, False)}


def test_reruns_come_after_the_chains(small: fs.BenchmarkSpec, tmp_path: Path) -> None:
    wanted = fs.Controlled(fs.BenchmarkSpec(**SMALL | {"increments": [0.25], "steps": 2}), runs=3)
    found, plan = fs.run(wanted, tmp_path, device="cpu", threads=1, progress=False), fs.plan(wanted)
    assert [experiment.id for experiment in found] == [plan.reruns[0].original, *plan.reruns[0].others]
    assert len({experiment.steps[0].id for experiment in found if isinstance(experiment, fs.Experiment)}) == 1


def test_a_part_of_a_plan_gives_its_experiments(small: fs.BenchmarkSpec, tmp_path: Path) -> None:
    parts = [fs.run(small, tmp_path, device="cpu", threads=1, progress=False, shard=f"{i}/2") for i in (1, 2)]
    assert sorted(e.id for part in parts for e in part) == sorted(chain.steps[-1] for chain in fs.plan(small).chains)
    assert min(map(len, parts)) > 0


def test_what_is_wrong_with_where_to_run_is_said() -> None:
    with pytest.raises(SpecError, match=r"device, threads: say it where you say on which engine: on=fs\.Local"):
        fs.run(fs.RunSpec(), device="cpu", threads=1, on=fs.Local(jobs=2))
    with pytest.raises(SpecError, match="jobs = 0 is not valid"):
        fs.Local(jobs=0)
    with pytest.raises(SpecError, match="threads = 0 is not valid"):
        fs.Here(threads=0)
