"""Policies and protocol variants in whole experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from conftest import TINY, run_experiment
from forgetscope.analysis.experiments import Experiment
from forgetscope.data.library import load_data
from forgetscope.errors import SpecError
from forgetscope.spec import POLICIES, RunSpec
from forgetscope.store import Store

SHORT = {name: value for name, value in TINY.items() if name != "retention"} | {"sequence": TINY["sequence"][:2], "epochs": 1}


def run(store: Path, **changes: Any) -> tuple[Store, Experiment]:
    opened = Store(store)
    return opened, run_experiment(RunSpec(**{**SHORT, **changes}), opened, device="cpu", threads=1)


def frame(store: Store, id: str, name: str) -> pd.DataFrame:
    return store.step(id).table(name).to_pandas()  # type: ignore[arg-type]


def test_all_policies_start_from_one_parent_and_choose_differently(tmp_path: Path) -> None:
    data, chosen = load_data("glyphs", 8), {}
    for policy in POLICIES:
        store, plan = run(tmp_path, policy=policy, sequence=((0, 1, 2), (3,)))  # with two classes, entropy ranks as margins do
        rehearsal = frame(store, plan.id, "rehearsal")
        assert (data.train.labels[rehearsal["image"]] == rehearsal["class_id"]).all()
        assert rehearsal.groupby("class_id").size().tolist() == [16, 16, 16]
        chosen[policy] = tuple(rehearsal["image"])
    assert len(store.steps()) == 1 + len(POLICIES)
    assert len(set(chosen.values())) == len(POLICIES)


def test_gradient_matching_starts_with_a_smaller_bias_than_uniform(tmp_path: Path) -> None:
    norms = {}
    for policy in ("uniform", "gradient-matching"):
        store, plan = run(tmp_path, policy=policy)
        probes = frame(store, plan.id, "probes")
        norms[policy] = probes[probes["probe"] == 0].set_index("class_id")["bias_norm"]
    assert (norms["gradient-matching"] < 0.5 * norms["uniform"]).all()


def test_a_fixed_memory_shrinks_its_quotas_and_keeps_the_first(tmp_path: Path) -> None:
    store, plan = run(tmp_path, memory=21, sequence=TINY["sequence"])
    second, third = (frame(store, step.id, "rehearsal") for step in plan.steps[1:])
    assert second.groupby("class_id", sort=False).size().tolist() == [11, 10]
    assert third.groupby("class_id", sort=False).size().tolist() == [6, 5, 5, 5]
    for label, count in ((0, 6), (1, 5)):
        before, after = (part[part["class_id"] == label]["image"].tolist() for part in (second, third))
        assert after == before[:count]
    shares = frame(store, plan.id, "classes")["share"].dropna().tolist()
    assert shares == [6 / 21, 5 / 21, 5 / 21, 5 / 21]


def test_what_is_set_aside_is_never_used(tmp_path: Path) -> None:
    store, plan = run(tmp_path, validation=0.1, retention=1.0)
    rehearsal = frame(store, plan.id, "rehearsal")
    assert rehearsal.groupby("class_id").size().tolist() == [180, 180]  # all that is left of 200
    assert frame(store, plan.id, "classes")["train_images"].tolist() == [180] * 4


@pytest.mark.parametrize("sampling", ["reshuffled", "reshuffled-short"])
def test_sampling_variants_train_and_are_named_in_the_record(sampling: str, tmp_path: Path) -> None:
    store, plan = run(tmp_path, sampling=sampling)
    step = store.step(plan.id)
    assert step.spec.training.sampling == sampling
    assert np.isfinite([epoch["loss"] for epoch in step.info["history"]]).all()


def test_the_history_of_images_is_kept_for_the_next_step(tmp_path: Path) -> None:
    store, plan = run(tmp_path, epochs=2, sampling="reshuffled")
    history = store.step(plan.steps[0].id).state()["image_history"]
    assert history.shape == (400,)
    assert history.dtype == np.int16
    assert set(np.unique(history // 2)) <= {0, 1}  # seen twice: lost at most once
    assert (history > 0).any()


def test_a_user_s_policy_and_network_and_a_changed_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    source = tmp_path / "own_code.py"
    source.write_text(
        """
import torch

class Small(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, 2), torch.nn.ReLU(), torch.nn.Flatten())
        self.head = torch.nn.Linear(36, classes)
    def features(self, images):
        return self.body(images)
    def forward(self, images):
        return self.head(self.features(images))

def first(candidates, quota, rng):
    return range(quota)
"""
    )
    own = {"network": "own_code:Small", "policy": "own_code:first"}
    store, plan = run(tmp_path / "store", **own)
    images = frame(store, plan.id, "rehearsal")["image"].tolist()
    assert images == [*range(16), *range(200, 216)]
    assert store.step(plan.id).info["network"] == "own_code:Small"
    assert run(tmp_path / "store", **own)[1].id == plan.id
    source.write_text(source.read_text() + "\n# another version\n")
    assert run(tmp_path / "store", **own)[1].id != plan.id


def test_code_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="nowhere:policy: cannot import nowhere"):
        run(tmp_path, policy="nowhere:policy")
    with pytest.raises(SpecError, match="nowhere:network: cannot import nowhere"):
        run(tmp_path, network="nowhere:network")
