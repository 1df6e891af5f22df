"""Which steps are alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forgetscope.spec import BESIDE_THE_PROBES, StepSpec
from forgetscope.store import POLICY, Setting, Store, first_step, told_apart
from made import make_experiment
from strangers import SECOND, golden_copy, rewrite

OLD, NEW = "a" * 64, "b" * 64


def setting(store: Store, **options: object) -> Setting:
    return make_experiment(store, steps=2, **options).steps[-1].setting  # type: ignore[arg-type]


def test_seeds_make_no_difference_and_options_do(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    usual = setting(store)
    assert setting(store, seed=1) == usual
    assert hash(setting(store, seed=1)) == hash(usual)
    for other in ({"classes": 3}, {"probes": 0}, {"policy": "herding"}):
        assert setting(store, **other) != usual
    assert setting(store, policy="herding").but_for(*POLICY) == usual.but_for(*POLICY)


def test_keepsakes_make_a_difference_only_where_they_take_the_place_of_images(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    info = make_experiment(store, steps=2).steps[-1].info

    def under(**options: object) -> Setting:
        return Setting.of({**info, "spec": {**info["spec"], "rehearsal": {**info["spec"]["rehearsal"], **options}}})

    besides = {"keepsake": "variance", "forecast": True}
    assert under(**besides) == under()
    assert under(quota="neyman") != under()
    paid = {"retention": None, "memory_bytes": 9000}
    assert len({under(**paid, **more).options.get("keepsake") for more in ({}, besides)}) == 2
    assert under(**paid, **besides) != under(**paid) != under(retention=None, memory_bytes=9001)


def test_an_own_policy_that_was_edited_is_another_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    old, new = (setting(store, policy="mine:choose", source=source) for source in (OLD, NEW))
    assert old != new
    assert old.but_for(*POLICY) == new.but_for(*POLICY)
    assert old.policy == ("mine:choose", OLD)


def test_an_own_network_is_told_by_the_first_step(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare()
    first, second = (step.setting for step in make_experiment(store, steps=2, network_source=OLD).steps)
    assert (first.network_source, second.network_source) == (OLD, None)


def test_an_option_that_is_younger_than_the_record_is_not_set(tmp_path: Path) -> None:
    step = golden_copy(tmp_path / "store").step(SECOND)
    assert "precision" not in step.info["spec"]["training"]
    spec = StepSpec.model_validate(step.info["spec"])
    assert spec.rehearsal is not None
    whole = {**spec.training.model_dump(mode="json"), **spec.rehearsal.model_dump(mode="json")}
    for name in ("keepsake", *BESIDE_THE_PROBES):  # no number of another table depends on them
        del whole[name]
    del whole["augmentation"]["brightness_rounded"]  # not set
    assert step.setting.options == {**whole, "classes": 2, "protocol": spec.protocol}
    assert "brightness_rounded" not in step.info["spec"]["training"]["augmentation"]


@pytest.mark.parametrize("size", [None, 8])
def test_data_are_what_their_digest_says_whatever_size_was_asked_for(size: int | None, tmp_path: Path) -> None:
    store = golden_copy(tmp_path / "store")
    usual = store.step(SECOND).setting
    rewrite(store.step(SECOND), lambda info: info["data"].update(image_size=size))
    assert store.step(SECOND).setting == usual
    assert store.step(SECOND).setting.image_size == size
    assert replace(usual, digest="other") != usual


def test_names_have_a_digest_only_where_they_need_one() -> None:
    assert told_apart([("uniform", None), ("mine:a", OLD), ("mine:b", OLD), ("mine:b", NEW), ("mine:b", NEW)]) == {
        ("uniform", None): "uniform",
        ("mine:a", OLD): "mine:a",
        ("mine:b", OLD): "mine:b@aaaaaaaa",
        ("mine:b", NEW): "mine:b@bbbbbbbb",
    }


def test_a_chain_begins_where_the_parents_that_are_known_end() -> None:
    assert [first_step(id, {"c": "b", "b": "a", "a": None, "y": "x"}) for id in "cay"] == ["a", "a", "x"]
