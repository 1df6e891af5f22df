"""SIC, CIC and NIC of a method's own loss, in runs: beside the paper's, and without a trace in training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_stopping import StopsAtLook, assert_same_bytes

from conftest import TINY, run_experiment
from forgetscope.errors import Interrupted, SpecError
from forgetscope.measuring.quantities import COEFFICIENTS, METHODS_OWN
from forgetscope.spec import RunSpec
from forgetscope.store import OF_METHOD, STATE, Store, StoredStep, trainings
from forgetscope.store.condition import Recording

ASKED = {"method_interference": True}
SAME = """
import forgetscope as fs
from torch.nn import functional as F

class Same(fs.Method):
    def loss(self, batch):
        return F.cross_entropy(batch.logits, batch.nodes)
"""


def run(store: Store, method: str, **options: Any) -> list[StoredStep]:
    return list(run_experiment(RunSpec(**{**TINY, "method": method, **options}), store, device="cpu", threads=1).steps)


def classes(step: StoredStep) -> pd.DataFrame:
    frame: pd.DataFrame = step.table("classes").to_pandas()
    return frame[frame["introduced_step"] < step.number]


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[StoredStep]]:
    """Three steps by each method, with its interference and without; do not write to their store."""
    store = Store(tmp_path_factory.mktemp("methods") / "store")
    methods = ("distillation", "ace", "fine-tune")
    found = {f"{name}{' plain' * (not asked)}": run(store, name, **asked) for name in methods for asked in ({}, ASKED)}
    return found | {"replay": run(store, "replay", **ASKED), "replay plain": run(store, "replay")}


@pytest.mark.parametrize("method", ["distillation", "ace", "fine-tune"])
def test_training_and_all_that_is_measured_besides_stay_bit_for_bit(method: str, chains: dict[str, list[StoredStep]]) -> None:
    for with_it, without in zip(chains[method][1:], chains[f"{method} plain"][1:], strict=True):
        assert with_it.id != without.id
        for file in (STATE, "probes.parquet", "pairs.parquet", "predictions.parquet", "rehearsal.parquet"):
            assert with_it.verified(file) == without.verified(file), file
        usual = without.table("classes")
        assert with_it.table("classes").select(usual.column_names).equals(usual)
        assert not without.has("extra")
        named = trainings(Recording.of(step.id, step.info) for step in (*chains[method], *chains[f"{method} plain"]))
        assert named[with_it.id] == named[without.id]  # one training, which counts once


def test_of_replay_it_is_the_same_step(chains: dict[str, list[StoredStep]]) -> None:
    assert [step.id for step in chains["replay"]] == [step.id for step in chains["replay plain"]]


def test_a_class_has_the_sums_of_its_probes(chains: dict[str, list[StoredStep]]) -> None:
    for method in ("distillation", "ace", "fine-tune"):
        for step in chains[method][1:]:
            extra = step.table("extra").to_pandas()
            assert set(extra["measure"]) == {OF_METHOD}
            assert extra["gradient_norm"].isna().all()
            sums = extra.groupby("class_id")[list(COEFFICIENTS)].sum()
            table = classes(step).set_index("class_id")
            np.testing.assert_allclose(table[list(METHODS_OWN)], sums.loc[table.index], rtol=1e-12)
            assert not np.allclose(table["method_sic"], table["sic"], rtol=0.01)


def test_a_method_of_ones_own_that_is_replay_has_the_papers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory stream's images are found among the probe's, in the order in which a policy chose them."""
    monkeypatch.chdir(tmp_path)
    Path("same_methods.py").write_text(SAME)
    options = {"policy": "herding", "sequence": ((4, 1), (3, 0), (5,)), "validation": 0.1, **ASKED}
    for step in run(Store(tmp_path / "store"), "same_methods:Same", **options)[1:]:
        table = classes(step)
        for own, paper in zip(METHODS_OWN, COEFFICIENTS, strict=True):
            np.testing.assert_allclose(table[own], table[paper], rtol=1e-9, atol=1e-12)


def test_probes_that_stand_for_others_count_by_their_weight(tmp_path: Path) -> None:
    options = {"epochs": 3, "probes": 2, "sequence": TINY["sequence"][:2]}
    step = run(Store(tmp_path / "store"), "distillation", **options, **ASKED)[1]
    sums = step.table("extra").to_pandas().groupby("class_id")["nic"].sum()
    table = classes(step).set_index("class_id")
    np.testing.assert_allclose(table["method_nic"], 2 * sums.loc[table.index])


@pytest.mark.parametrize("method", ["distillation", "ace"])
def test_a_step_goes_on_bit_for_bit_wherever_it_was_stopped(
    method: str, chains: dict[str, list[StoredStep]], tmp_path: Path
) -> None:
    store, spec, stops = Store(tmp_path / "store"), RunSpec(**{**TINY, "method": method, **ASKED}), 0
    while not store.path.exists() or len(store.ids()) < 3:
        try:
            run_experiment(spec, store, device="cpu", threads=1, stop=StopsAtLook(23))
        except Interrupted:
            stops += 1
    assert stops > 3
    assert_same_bytes(store, chains[method])


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"probe_every": 0}, "method_interference is measured beside the probes, and probe_every = 0 takes none"),
        ({"probe_images": 50}, "method_interference is measured on all images, not on 50 of a class"),
        ({"probes": "auto"}, "method_interference is measured on all images, not on 60 of a class"),
    ],
)
def test_it_is_refused_where_it_cannot_be_measured(options: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        RunSpec(method="distillation", **ASKED, **options)
