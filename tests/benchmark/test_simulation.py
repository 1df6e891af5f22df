"""A simulated store is like a real one in everything but its truth, which is known."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from conftest import TINY
from forgetscope.benchmark.controlled import controlled_plan
from forgetscope.benchmark.plans import Job, Plan, benchmark_plan, chain_of, empty_plan
from forgetscope.benchmark.records import recorded_plans
from forgetscope.benchmark.simulation import MEANS, SCALES, Simulation, simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.benchmark.truth import Truth
from forgetscope.data.library import data_facts, load_data
from forgetscope.errors import StoreError
from forgetscope.experiment.preparation import Inherited
from forgetscope.housekeeping.exporting import export_steps
from forgetscope.housekeeping.freeing import free, freeable
from forgetscope.housekeeping.importing import import_steps
from forgetscope.housekeeping.sql import query, rows
from forgetscope.housekeeping.verification import verify_store
from forgetscope.spec import RunSpec, step_specs
from forgetscope.store import COEFFICIENTS, TABLES, StepRecord, Store

DATA = dataclasses.replace(data_facts("glyphs", 8), digest="simulated")  # known, whether or not the data are in the cache yet
SMALL = {"name": "toy", "image_size": 8, "epochs": 2, "increments": (0.02,), "retentions": (0.08, 0.2), "experiments": 2}


def toy(**options: Any) -> BenchmarkSpec:
    return BenchmarkSpec(**{**SMALL, **options})


def chain(*sizes: int, **options: Any) -> list[Job]:
    """Jobs of an experiment whose steps introduce so many classes each."""
    ends = np.cumsum(sizes)
    sequence = [list(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]
    run = RunSpec(**{"image_size": 8, "sequence": sequence, "epochs": 2, **options})
    plan = empty_plan({"name": "toy"}, run, (), DATA)
    plan.add(None, 0, step_specs(run, sequence, DATA.augmentation))
    return list(plan.jobs.values())


def record(jobs: list[Job], seed: int = 0, truth: Truth | None = None) -> StepRecord:
    return Simulation(seed, truth or Truth(), DATA, 8).record(jobs)


def frames(made: StepRecord) -> dict[str, pd.DataFrame]:
    return {name: table.to_pandas() for name, table in made.tables.items()}


def past_of(made: StepRecord) -> pd.DataFrame:
    classes = made.tables["classes"].to_pandas()
    return classes[classes["introduced_step"] < made.spec.step]


def test_tables_and_record_are_those_of_a_real_run(tiny_store: Path, tmp_path: Path) -> None:
    """The same shape as the real experiment in `tiny_store`: everything that training does not decide is equal."""
    real = Store(tiny_store).experiments()[0]
    jobs = chain(2, 2, 2, **{name: value for name, value in TINY.items() if name != "sequence"})
    store = Store(tmp_path)
    store.prepare()
    for i, step in enumerate(real):
        assert jobs[i].spec == step.spec
        made = store.commit(record(jobs[: i + 1]), "2026-01-01")
        assert made.info.keys() - {"simulated"} == step.info.keys() - {
            "start",
            "kept",
        }  # nothing was there to start from, or to keep
        assert (made.info["data"].keys(), made.info["network"]) == (step.info["data"].keys(), step.info["network"])
        assert [list(epoch) for epoch in made.info["history"]] == [list(epoch) for epoch in step.info["history"]]
        for name in TABLES:
            assert made.table(name).schema == step.table(name).schema
        decided = {
            "classes": ["class_id", "head_node", "introduced_step", "train_images", "rehearsal_images", "share", "missing"],
            "probes": ["probe", "iteration", "class_id"],
            "pairs": ["class_id", "source_class_id", "source_is_new"],
            "rehearsal": ["class_id", "position"],
        }
        for name in ("classes", "probes", "pairs", "rehearsal"):
            assert made.table(name).select(decided[name]).equals(step.table(name).select(decided[name])), name
        counts = [table.table("confusion").to_pandas().groupby("true")["count"].sum().to_dict() for table in (made, step)]
        assert counts[0] == counts[1]


shapes = st.lists(st.integers(1, 6), min_size=2, max_size=3)


@settings(max_examples=25)
@given(
    shapes,
    st.integers(0, 3),
    st.integers(1, 5),
    st.one_of(st.fixed_dictionaries({"retention": st.floats(0.01, 1)}), st.just({"memory": 37})),
    st.sampled_from([0.0, 0.2]),
    st.floats(0, 1),
    st.integers(0, 2**32),
)
def test_everything_adds_up(
    sizes: list[int], every: int, epochs: int, budget: dict[str, Any], validation: float, never: float, seed: int
) -> None:
    jobs = chain(*sizes, epochs=epochs, probe_every=every, validation=validation, **budget)
    truth = Truth(never_learned=never)
    made = record(jobs, seed, truth)
    tables, past = frames(made), past_of(made)
    classes, test = tables["classes"], round(DATA.test_images)
    assert len(classes) == sum(sizes)
    assert classes["accuracy_when_learned"].between(0, 1).all()
    assert classes["accuracy"].between(0, 1).all()
    loss = past["accuracy_when_learned"] - past["accuracy"]
    expected = (loss / past["accuracy_when_learned"].where(past["accuracy_when_learned"] > 0)).to_numpy()
    np.testing.assert_allclose(past["forgetting"].to_numpy(np.float64), expected)
    confusion = tables["confusion"].pivot(index="true", columns="predicted", values="count").fillna(0)
    assert (confusion.sum(axis=1) == test).all()
    right = {label: confusion.loc[label].get(label, 0) / test for label in confusion.index}
    assert classes.set_index("class_id")["accuracy"].to_dict() == pytest.approx(right)
    before = past_of(record(jobs[:-1], seed, truth)) if len(jobs) > 2 else None
    if before is not None:  # what the chain has decided stays
        learned = classes.set_index("class_id")["accuracy_when_learned"]
        assert (learned[before["class_id"]].to_numpy() == before["accuracy_when_learned"].to_numpy()).all()
        kept = frames(record(jobs[:-1], seed, truth))["rehearsal"].merge(
            tables["rehearsal"], on=["class_id", "position"], suffixes=("", "_now")
        )
        assert len(kept)
        assert (kept["image"] == kept["image_now"]).all()
    assert (tables["rehearsal"].groupby("class_id").size() == past.set_index("class_id")["rehearsal_images"]).all()
    assert not tables["rehearsal"].duplicated(["image"]).any()
    if every == 0:
        assert past[list(COEFFICIENTS)].isna().all(axis=None)
        assert set(past["missing"]) == {"not measured: probe_every is 0"}
        return
    sums = tables["probes"].groupby("class_id")[list(COEFFICIENTS)].sum().loc[past["class_id"]]
    np.testing.assert_allclose(past[list(COEFFICIENTS)].to_numpy(), sums.to_numpy(), atol=1e-12)
    pairs = tables["pairs"].pivot(index="class_id", columns="source_class_id", values="term")
    own = pairs.loc[past["class_id"], past["class_id"]].to_numpy()
    np.testing.assert_allclose(np.diag(own), past["sic"], atol=1e-12)
    np.testing.assert_allclose(own.sum(axis=1) - np.diag(own), past["cic"], atol=1e-12)
    new = pairs.loc[past["class_id"], list(made.spec.classes)]
    np.testing.assert_allclose(new.sum(axis=1), past["nic"], atol=1e-12)


def many(truth: Truth, seed: int = 0, steps: int = 60, past: int = 40) -> list[StepRecord]:
    """Second steps of as many experiments."""
    return [record(chain(past, 5, seed=number, retention=0.2, epochs=3), seed, truth) for number in range(steps)]


def standardised(made: StepRecord) -> pd.DataFrame:
    """Coefficients and forgetting as the truth has them."""
    past = past_of(made).reset_index(drop=True)
    found = (past[list(COEFFICIENTS)] - MEANS) / SCALES
    return found.assign(fg=(past["forgetting"] - Truth().mean_forgetting) / Truth().spread, log_sim=past["log_sim"])


def regress(tables: list[pd.DataFrame]) -> np.ndarray:
    """Per step [steps, 4]: intercept and slopes of SIC, CIC and NIC, by least squares."""
    found = []
    for table in tables:
        design = np.column_stack([np.ones(len(table)), table[["sic", "cic", "nic"]]])
        found.append(np.linalg.lstsq(design, table["fg"], rcond=None)[0])
    return np.array(found)


@pytest.mark.parametrize(
    "options", [{}, {"sic_effect": 0.0, "cic_effect": 0.5, "nic_effect": -0.3, "sic_nic": 0.2, "rerun_sic_nic": 0.2}]
)
def test_the_truth_is_recovered(options: dict[str, float]) -> None:
    truth = Truth(**options, image_share=0)
    tables = [standardised(made) for made in many(truth)]
    per_step, pooled = regress(tables), pd.concat(tables)
    margins = 4 * per_step.std(axis=0, ddof=1) / np.sqrt(len(tables))  # four standard errors
    truths = np.array([0, truth.sic_effect, truth.cic_effect, truth.nic_effect])
    assert (np.abs(per_step.mean(axis=0) - truths) < margins).all()
    assert (margins < 0.2).all()
    correlation = pooled[["sic", "cic", "nic"]].corr().to_numpy()
    assert np.abs(correlation - truth.correlation).max() < 0.06
    assert pooled[["sic", "cic", "nic", "all_nic"]].std().to_numpy() == pytest.approx(1, abs=0.05)
    within = pd.concat([table - table.mean() for table in tables]).corr()["fg"]
    for name, expected in truth.expected_correlations().items():
        assert within[name] == pytest.approx(expected, abs=0.1)
    assert pooled["all_nic"].corr(pooled["nic"]) == pytest.approx(truth.all_nic, abs=0.05)
    assert pooled["log_sim"].corr(pooled["nic"]) == pytest.approx(truth.log_sim, abs=0.05)


def test_steps_differ_as_much_as_they_are_told() -> None:
    """Without noise a step's own line shows, up to the rounding of its test images."""
    told = regress([standardised(made) for made in many(Truth(noise=0, intercept_sd=0.5, slope_sd=0.2, image_share=0))])
    assert told[:, 0].std() == pytest.approx(0.5, rel=0.3)
    assert told[:, 1:].std(axis=0) == pytest.approx(0.2, rel=0.35)
    even = Truth(noise=0, intercept_sd=0, slope_sd=0, image_share=0)
    alike = regress([standardised(made) for made in many(even, steps=5)])
    assert alike.std(axis=0).max() < 0.02


def test_test_images_are_drawn_in_pairs_around_the_true_accuracies() -> None:
    """The same images when learned and now: counts are those of `classes`, and an image stays likely to be recognised."""
    truth, before, now = Truth(accuracy_sd=0.0, spread=0.0, mean_forgetting=0.4, retention_power=0, image_share=0.5), [], []
    for number in range(30):
        jobs = chain(10, 5, seed=number, retention=0.2)
        made = [record(jobs[: i + 1], 1, truth) for i in range(2)]
        assert "forgetting" not in (made[0].simulated or {})
        assert (made[1].simulated or {})["forgetting"] == pytest.approx([0.4] * 10)
        found = [one.tables["predictions"].to_pandas() for one in made]
        for one, predictions in zip(made, found, strict=True):
            shares = (predictions["true"] == predictions["predicted"]).groupby(predictions["true"], sort=False).mean()
            assert shares.tolist() == one.tables["classes"].to_pandas()["accuracy"].tolist()
            counts = predictions.groupby(["true", "predicted"]).size().to_dict()
            assert counts == one.tables["confusion"].to_pandas().set_index(["true", "predicted"])["count"].to_dict()
            past = predictions["predicted"].isin(made[0].spec.classes) & (one is made[1])
            assert ((predictions["margin"] >= 0) == past)[predictions["margin"].notna()].all()
            assert (predictions["predicted"] == predictions["best_past"].where(past, predictions["best_new"])).all()
        both = found[0].merge(found[1], on="image")
        assert len(both) == 10 * round(DATA.test_images)
        assert (both["true_x"] == both["true_y"]).all()
        before += (both["true_x"] == both["predicted_x"]).tolist()
        now += (both["true_y"] == both["predicted_y"]).tolist()
    error = 4 * np.sqrt(0.25 / len(before))
    assert (np.mean(before), np.mean(now)) == pytest.approx((0.75, 0.45), abs=error)
    edges = stats.norm.ppf([0.75, 0.45])
    together = stats.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]]).cdf(edges)
    assert np.mean(np.logical_and(before, now)) == pytest.approx(together, abs=error)


def test_without_test_images_ids_and_bytes_are_those_of_before_there_were_any(tmp_path: Path) -> None:
    truth = Truth(image_share=0)
    assert truth.digest(3) == "simulated-848ef5f60cdb63f59501bc6ccd9acb46"
    assert "image_share" not in truth.recorded
    store = Store(tmp_path)
    simulate(toy(experiments=1, retentions=(0.08,)), store, 3, truth, reruns=0)
    last = store.experiments()[0][-1]
    assert not last.has("predictions")
    found = hashlib.sha256("".join(str(last.table(name).to_pydict()) for name in TABLES).encode()).hexdigest()
    assert (last.id, found) == (
        "d4cded10791d68e26c790fbf1b15ceda",
        "2a026e2e88e4589d416e33883ed26657c0d6a20f51e5e1229dc726c657bdb348",
    )


def test_without_effects_nothing_is_associated() -> None:
    truth = Truth(sic_effect=0, cic_effect=0, nic_effect=0, slope_sd=0)
    found = [past_of(made) for made in many(truth)]
    for name in ("sic", "cic", "nic", "all_nic", "log_sim"):
        rhos = [stats.spearmanr(past[name], past["forgetting"]).statistic for past in found]
        assert stats.ttest_1samp(rhos, 0).pvalue > 0.001


def test_partial_sums_come_to_resemble_the_total_as_told() -> None:
    truth = Truth(half_way=0.25, wander=1.0)
    made = [record(chain(60, 5, seed=number, epochs=19), 0, truth) for number in range(10)]
    sums = [frames(m)["probes"].pivot(index="class_id", columns="probe", values="sic").cumsum(axis=1) for m in made]
    together = pd.concat(sums).to_numpy()
    shares = (np.arange(20) + 1) / 20
    reached = shares**0.5  # a quarter of the probes, half of the total
    assert together.mean(axis=0) == pytest.approx(reached * MEANS[0], abs=0.04)
    resembling = [np.corrcoef(together[:, probe], together[:, -1])[0, 1] for probe in range(20)]
    assert resembling == pytest.approx(1 / np.sqrt(1 + (1 - reached) / reached), abs=0.1)


def test_of_one_class_nic_and_sic_go_together_over_reruns_as_told() -> None:
    spec, truth = toy(increments=(0.1,), retentions=(0.08,), steps=2), Truth(rerun_sic_nic=0.4)
    plan = controlled_plan(spec, DATA, runs=100)
    (reruns,) = plan.reruns
    simulation = Simulation(0, truth, DATA, 8)
    made = [past_of(simulation.record(chain_of(plan.jobs, id))) for id in (reruns.original, *reruns.others)]
    sic, nic = (np.array([past[name] for past in made]) for name in ("sic", "nic"))
    rhos = [stats.pearsonr(sic[:, c], nic[:, c]).statistic for c in range(sic.shape[1])]
    assert np.mean(rhos) == pytest.approx(0.4, abs=0.1)
    spread = nic.std(axis=0).mean() / SCALES[2]  # new classes overlap between runs, which takes some of the variation
    assert 0.4 < spread < np.sqrt(1 - truth.parent_share) + 0.05
    learned = {tuple(past["accuracy_when_learned"]) for past in made}
    assert len(learned) == 1


def test_classes_that_were_never_learned_come_when_asked_for() -> None:
    assert not past_of(record(chain(60, 5)))["forgetting"].isna().any()
    past = past_of(record(chain(60, 5), truth=Truth(never_learned=0.5)))
    assert 15 < past["forgetting"].isna().sum() < 45
    assert (past["accuracy_when_learned"] == 0).sum() == past["forgetting"].isna().sum()


def test_another_truth_changes_only_what_it_is_about() -> None:
    jobs = chain(10, 5)
    first, second = past_of(record(jobs)), past_of(record(jobs, truth=Truth(sic_effect=0)))
    assert not first["forgetting"].equals(second["forgetting"])
    for name in (*COEFFICIENTS, "log_sim", "accuracy_when_learned"):
        assert first[name].equals(second[name])
    assert not first["sic"].equals(past_of(record(jobs, seed=1))["sic"])


def parquet_digests(store: Store) -> dict[str, dict[str, Any]]:
    return {
        step.id: {name: entry["sha256"] for name, entry in step.manifest.items() if name.endswith(".parquet")}
        for step in store.steps()
    }


def test_equal_bytes_whatever_was_there_before(tmp_path: Path) -> None:
    whole, grown = Store(tmp_path / "whole"), Store(tmp_path / "grown")
    made = simulate(toy(), whole, 3, reruns=4)
    assert (made.present, made.quarantined, made.reruns) == (0, 0, 4 * 4)
    assert made.written == len(whole.ids())
    first = simulate(toy(experiments=1), grown, 3, reruns=0)
    assert first.reruns == 0
    second = simulate(toy(), grown, 3, reruns=4)
    assert (second.present, second.written) == (first.written, made.written - first.written)
    assert parquet_digests(grown) == parquet_digests(whole)
    third = simulate(toy(), grown, 3, reruns=4)
    assert (third.present, third.written) == (made.written, 0)


def test_it_adds_to_a_store_and_leaves_what_is_there(store: Store) -> None:
    before = parquet_digests(store)
    seen: list[tuple[str, int, int]] = []
    made = simulate(toy(experiments=1), store, reruns=0, progress=lambda *facts: seen.append(facts))
    assert seen[-1] == ("steps", made.written, made.written)
    assert parquet_digests(store).items() >= before.items()
    assert verify_store(store).damage == []
    assert {step.id for step in store.steps() if step.simulated is None} == before.keys()


def test_a_damaged_step_is_put_aside_and_made_anew(tmp_path: Path) -> None:
    store = Store(tmp_path)
    simulate(toy(experiments=1), store, reruns=0)
    whole = parquet_digests(store)
    (store.steps()[0].folder / "probes.parquet").write_bytes(b"")
    again = simulate(toy(experiments=1), store, reruns=0)
    assert (again.written, again.quarantined, again.present) == (1, 1, len(whole) - 1)
    assert parquet_digests(store) == whole
    assert len(list((store.path / "quarantine").iterdir())) == 1


def test_no_simulated_step_has_the_id_of_another(tmp_path: Path) -> None:
    def ids(seed: int, truth: Truth) -> set[str]:
        return set(benchmark_plan(toy(), dataclasses.replace(DATA, digest=truth.digest(seed))).jobs)

    sets = [ids(0, Truth()), ids(1, Truth()), ids(0, Truth(noise=0)), set(benchmark_plan(toy(), DATA).jobs)]
    assert len(set.union(*sets)) == sum(map(len, sets))


def test_records_and_plans_say_that_they_are_simulated(tmp_path: Path) -> None:
    store, truth = Store(tmp_path), Truth(noise=0.1)
    made = simulate(toy(), store, 7, truth, reruns=2)
    for step in store.steps():
        mark = dict(step.simulated or {})
        true = mark.pop("forgetting", [])
        assert mark == {"seed": 7, "truth": truth.model_dump()}
        assert len(true) == len(step.past_classes("class_id")["class_id"])
    plans = recorded_plans(store)
    assert [plan["id"] for plan in plans] == sorted(made.plans)
    assert all(plan["simulated"]["seed"] == 7 for plan in plans)
    assert {plan["kind"] for plan in plans} == {"benchmark", "controlled"}
    listed = {id for plan in plans for chain in plan["chains"] for id in chain["steps"]}
    listed |= {id for plan in plans for reruns in plan["reruns"] for id in reruns["others"]}
    assert listed == store.ids()


def test_a_benchmark_whose_classes_leave_no_choice_has_no_reruns(tmp_path: Path) -> None:
    made = simulate(toy(increments=(0.5,), retentions=(0.08,), experiments=1), Store(tmp_path))
    assert (len(made.plans), made.reruns, made.written) == (1, 0, 2)


def test_no_run_builds_on_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    step = store.commit(record(chain(2)), "2026-01-01")
    with pytest.raises(StoreError, match=f"Step {step.id[:8]} in .* is simulated"):
        Inherited.from_record(step, load_data("glyphs", 8))


def test_housekeeping_treats_it_as_any_other(tmp_path: Path) -> None:
    store, copy = Store(tmp_path / "store"), Store(tmp_path / "copy")
    made = simulate(toy(experiments=1), store, reruns=1)
    answer = rows(query(store, "SELECT simulated, count(*) AS steps, min(dataset) AS data FROM steps GROUP BY ALL"))
    assert answer == [{"simulated": True, "steps": made.written, "data": "glyphs"}]
    assert all(free(store, item) for item in freeable(store, every_state=True))
    export_steps(store.steps(), tmp_path / "all.tar")
    assert len(import_steps(tmp_path / "all.tar", copy).new) == made.written
    assert verify_store(copy).damage == []
    assert all(step.simulated for step in copy.steps())


def test_real_steps_are_not_marked(store: Store) -> None:
    assert {step.simulated for step in store.steps()} == {None}
    assert rows(query(store, "SELECT DISTINCT simulated FROM steps")) == [{"simulated": False}]


def test_plans_of_the_papers_size_have_its_steps() -> None:
    """720 + 480 measured steps, and twelve of them re-run nineteen times per benchmark."""
    plans: list[Plan] = []
    for name in ("cifar100", "tiny-imagenet"):
        spec = BenchmarkSpec.load(name)
        data = dataclasses.replace(data_facts(spec.template.dataset), digest=Truth().digest(0))
        plans += [benchmark_plan(spec, data), controlled_plan(spec, data)]
    measured = [sum(len(ids) for cells in plan.partitions().values() for ids in cells.values()) for plan in plans[::2]]
    assert sum(measured) == 1200
    assert [len(plan.reruns) for plan in plans[1::2]] == [12, 12]
    assert {len(reruns.others) for plan in plans for reruns in plan.reruns} == {19}
