"""Fewer probes and fewer images in a run: what is kept, what is scaled, and that nothing else is different because of it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from test_stopping import StopsAtLook

from conftest import TINY, run_experiment
from forgetscope.analysis.experiments import open_experiment
from forgetscope.benchmark.costs import Rates, step_seconds
from forgetscope.benchmark.plans import run_plan
from forgetscope.data.library import data_facts
from forgetscope.errors import Interrupted, SpecError
from forgetscope.experiment.observation import Observer
from forgetscope.housekeeping.sql import query, rows
from forgetscope.housekeeping.verification import verify_store
from forgetscope.measuring.measurement import measure
from forgetscope.measuring.quantities import COEFFICIENTS
from forgetscope.measuring.subsampled.drawing import subsampled
from forgetscope.measuring.sums import Sums
from forgetscope.report.terminal.experiments import experiment_view
from forgetscope.spec import AugmentationSpec, RunSpec, StepSpec, step_specs
from forgetscope.store import Store, StoredStep

TWO = {**TINY, "sequence": TINY["sequence"][:2]}
ERRORS = [f"{name}_se" for name in COEFFICIENTS]


def run(path: Path, **options: Any) -> StoredStep:
    """The second step."""
    store = Store(path)
    return store.chain(run_experiment(RunSpec(**{**TWO, **options}), store, device="cpu", threads=1).id)[-1]


def past(step: StoredStep) -> pd.DataFrame:
    frame = step.table("classes").to_pandas()
    return frame[frame["introduced_step"] == 1].reset_index(drop=True)


def second(**options: Any) -> StepSpec:
    return step_specs(RunSpec(**options), ((0, 1), (2, 3)), AugmentationSpec())[1]


@pytest.mark.parametrize(
    ("epochs", "probes", "when"),
    [(20, 6, [0, 4, 8, 12, 16, 20]), (20, 2, [0, 20]), (3, 4, [0, 1, 2, 3]), (5, 4, [0, 2, 3, 5]), (1, 2, [0, 1])],
)
def test_probes_are_spread_from_before_training_to_its_end(epochs: int, probes: int, when: list[int]) -> None:
    spec = second(epochs=epochs, probes=probes)
    assert [epoch for epoch in range(epochs + 1) if spec.is_probed(epoch)] == when
    assert spec.probe_weight == (epochs + 1) / probes


@pytest.mark.parametrize("epochs", [1, 7, 20, 170])
def test_as_many_probes_as_asked_for_fit_into_any_training(epochs: int) -> None:
    for probes in range(2, epochs + 2):
        assert sum(map(second(epochs=epochs, probes=probes).is_probed, range(epochs + 1))) == probes


def test_what_is_not_asked_for_is_in_no_record() -> None:
    assert not {"probes", "probe_images"} & set(second().model_dump(exclude_none=True)["rehearsal"])
    assert second(probe_images=50).rehearsal != second().rehearsal


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"probes": 6, "probe_every": 2}, "probes and probe_every exclude each other"),
        ({"probes": 30}, r"probes = 30: there is one before training and one after each epoch. Use at most epochs \+ 1 = 21"),
        ({"probes": 1}, "probes = 1 is not valid"),
        ({"probes": "often"}, "probes = 'often' is not valid"),
        ({"probe_images": 50, "probe_every": 0}, "probe_images = 50: probe_every = 0 takes no probes"),
        ({"probe_images": 50, "released_nic": True}, "released_nic is measured on all images, not on 50 of a class"),
        ({"probes": "auto", "released_nic": True}, "released_nic is measured on all images, not on 60 of a class"),
    ],
)
def test_options_that_do_not_go_together_are_refused_with_their_value(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        RunSpec(**options)


@pytest.mark.parametrize(
    ("options", "probes", "images"),
    [
        ({}, 21, 60),
        ({"retention": 0.4}, 21, 100),
        ({"memory": 400}, 21, 100),
        ({"memory_bytes": 10**6}, 21, 100),
        ({"epochs": 5}, 6, 100),
        ({"epochs": 100}, 101, 40),
        ({"epochs": 170}, 101, 30),
        ({"epochs": 170, "retention": 0.2, "probe_images": 25}, 101, 25),
    ],
)
def test_auto_is_a_table_of_what_the_run_says(options: dict[str, Any], probes: int, images: int) -> None:
    spec = second(**options, probes="auto").rehearsal
    assert spec is not None
    assert (spec.probes, spec.probe_images) == (probes, images)
    assert spec == second(**options | {"probes": probes, "probe_images": images}).rehearsal


def test_the_scripts_behaviour_leaves_out_what_some_images_cannot_tell() -> None:
    assert RunSpec(script_behaviour="released", probe_images=50).released_nic is False
    assert RunSpec(script_behaviour="released", probes=6).released_nic is True


def test_a_few_probes_have_the_scale_of_all(tmp_path: Path) -> None:
    still = {"learning_rate": 1e-12, "epochs": 4}  # nothing moves but BatchNorm, which the first epoch settles
    every, few = run(tmp_path / "every", **still), run(tmp_path / "few", **still, probes=3)
    assert every.id != few.id
    terms = few.table("probes").to_pandas()
    assert terms["iteration"].nunique() == 3
    by_class = terms.groupby("class_id", sort=False)[list(COEFFICIENTS)].mean() * 5
    np.testing.assert_allclose(past(few)[list(COEFFICIENTS)], by_class, rtol=1e-12)
    one = every.table("probes").to_pandas().pivot(index="probe", columns="class_id", values="nic")
    np.testing.assert_allclose(past(few)["nic"], one.iloc[[0, 2, 4]].mean() * 5, rtol=1e-9)
    pairs = few.table("pairs").to_pandas()
    new = pairs[pairs["source_is_new"]].groupby("class_id", sort=False)["term"].sum()
    np.testing.assert_allclose(new, past(few)["nic"], rtol=1e-9)
    assert "sic_se" not in few.table("classes").column_names


def test_some_images_leave_estimates_with_errors_and_everything_else_as_it_was(tmp_path: Path) -> None:
    exact, some = run(tmp_path / "exact"), run(tmp_path / "some", probe_images=30)
    for name in ("state.safetensors", "confusion.parquet", "predictions.parquet", "rehearsal.parquet"):
        assert (exact.folder / name).read_bytes() == (some.folder / name).read_bytes(), name
    assert not {*ERRORS} & {*exact.table("classes").column_names}
    found, expected = past(some), past(exact)
    for name in COEFFICIENTS:
        error = found[f"{name}_se"]
        assert (error > 0).all()
        assert (((found[name] - expected[name]) / error).abs() < 5).all()
    assert some.table("classes").to_pandas()[ERRORS].isna().sum().eq(len(TWO["sequence"][1])).all()  # of new classes
    assert verify_store(Store(tmp_path / "some")).damage == []
    (answer,) = rows(query(Store(tmp_path / "some"), "SELECT count(sic_se) AS n FROM classes"))
    assert answer == {"n": len(TWO["sequence"][0])}
    shown = []
    for step, path in ((exact, "exact"), (some, "some")):
        with (console := Console(width=200)).capture() as printed:
            console.print(experiment_view(open_experiment(tmp_path / path, step.id)))
        shown.append("estimated from some images of each class" in printed.get())
    assert shown == [False, True]


def test_as_many_images_as_there_are_give_the_exact_coefficients(tmp_path: Path) -> None:
    exact, everything = past(run(tmp_path / "exact")), past(run(tmp_path / "all", probe_images=1000))
    np.testing.assert_allclose(everything[list(COEFFICIENTS)], exact[list(COEFFICIENTS)], rtol=1e-9)
    assert (everything[ERRORS] == 0).all().all()


def test_each_probe_draws_images_of_its_own_and_none_of_them_are_the_policy_s(tmp_path: Path) -> None:
    seen: list[torch.Tensor] = []
    with pytest.MonkeyPatch.context() as patch:

        def noting(data: Any, *given: Any) -> Any:
            some = subsampled(data, *given)
            seen.append(some.parts[0][0])
            return some

        patch.setattr("forgetscope.experiment.observation.subsampled", noting)
        run(tmp_path / "store", probe_images=10)
    assert len(seen) == TWO["epochs"] + 1
    assert not torch.equal(seen[0], seen[1])


def test_a_run_that_is_stopped_again_and_again_ends_in_the_same_bytes(tmp_path: Path) -> None:
    options = {"probe_images": 12, "probes": 3, "epochs": 4}
    whole, store, stops = run(tmp_path / "whole", **options), Store(tmp_path / "store"), 0
    while len(store.ids()) < 2:
        with contextlib.suppress(Interrupted):
            run_experiment(RunSpec(**{**TWO, **options}), store, device="cpu", threads=1, stop=StopsAtLook(9 + stops % 4))
        stops += 1
        assert stops < 200
    assert stops > 5
    for name in whole.manifest:
        if name != "step.json":
            assert (store.step(whole.id).folder / name).read_bytes() == (whole.folder / name).read_bytes(), name


def test_on_a_real_step_estimates_are_unbiased_and_their_errors_right(tmp_path: Path) -> None:
    """150 other draws beside those of the run, at the same weights."""
    draws, exact, images = [Sums() for _ in range(150)], Sums(), 40
    plain = Observer.epoch_ended

    def beside(self: Observer, epoch: int, iteration: int) -> None:
        plain(self, epoch, iteration)
        if self._data is None:
            return
        exact.add(measure(self._step.network, self._data, trusted=True))
        for seed, sums in enumerate(draws):
            some = subsampled(self._data, images, lambda node, seed=seed: np.random.default_rng([seed, epoch, node]))
            sums.add(measure(self._step.network, some, trusted=True))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Observer, "epoch_ended", beside)
        run(tmp_path / "store", retention=0.2, epochs=3)
    truth = exact.totals[: len(COEFFICIENTS)]
    values = torch.stack([sums.totals[: len(COEFFICIENTS)] for sums in draws])
    variances = torch.stack([sums.variances for sums in draws if sums.variances is not None])
    deviation = (values - truth).square().mean(dim=0).sqrt()
    # Of a ratio some bias is left, which falls with the square of a deviation: well below it.
    assert ((values.mean(dim=0) - truth).abs() < 0.3 * deviation + 3 * deviation / 150**0.5).all()
    told = (variances.mean(dim=0) / deviation.square()).mean(dim=1).sqrt()  # over classes; 150 draws know one to 6 %
    assert ((told - 1).abs() < 0.15).all(), told


def test_a_plan_knows_that_such_probes_are_cheaper() -> None:
    rates = Rates(1.0, 1.0, 0.4, 0.4, 0.0, 0.0, 0, 0)

    def seconds(**options: Any) -> float:
        plan = run_plan(RunSpec(**{"steps": 2, "epochs": 20, **options}), data_facts("glyphs", 16))
        return step_seconds(list(plan.jobs.values())[-1], plan, rates)

    unmeasured = seconds(probe_every=0)
    every = seconds() - unmeasured
    assert seconds(probes=6) - unmeasured == pytest.approx(every * 6 / 21)
    assert seconds(probe_images=50) - unmeasured == pytest.approx(every * (10 * 50 + 10 * 20) / (20 * 200))
    assert seconds(probe_images=1000) == seconds()
