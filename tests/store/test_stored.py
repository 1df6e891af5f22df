"""A committed step that a stranger wrote: what is not of its form is damage, named by its file, and nothing else happens."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forgetscope.errors import DamagedStep, SpecError, StoreError
from forgetscope.files import read_regular
from forgetscope.foreign import strict_json
from forgetscope.spec import RunSpec
from forgetscope.store import COEFFICIENTS, Store, StoredStep, parquet_bytes
from strangers import FIRST, SECOND, forge, golden_copy, put, rewrite


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return golden_copy(tmp_path / "store")


def set_spec(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda info: info["spec"].update(changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"committed": 5},
        {"data": [1]},
        {"data": {"name": "glyphs", "digest": "d", "shape": [8]}},
        {"environment": None},
        {"timings": {"seconds": "long"}},
        {"history": [[1]]},
        {"network": {"a": 1}},
        {"status": "fine"},
        {"divergence": 3},
        {"simulated": "no"},
        {"start": []},
        {"spec": []},
        {"parent": "../.."},
        {"id": 1},
        {"schema": "1"},
        {"schema": None},
    ],
)
def test_a_record_of_another_form_is_damage(store: Store, changes: dict[str, object]) -> None:
    rewrite(store.step(SECOND), lambda info: info.update(changes))
    with pytest.raises(DamagedStep, match=r"f3fa24f9 is damaged: .*step.json: (no record of a step|it is the record)"):
        _ = store.step(SECOND).info


@pytest.mark.parametrize(
    "change",
    [
        set_spec(step=0),
        set_spec(step=10**9),
        set_spec(step="2"),
        set_spec(step=1),
        set_spec(classes=[2, 2]),
        set_spec(classes=[]),
        set_spec(classes=[-1]),
        set_spec(seed=-1),
        set_spec(surprise=1),
        lambda info: info["spec"]["rehearsal"].update(retention=None),
        lambda info: info["spec"]["training"].update(epochs=0),
    ],
)
def test_a_specification_that_cannot_be_is_damage_even_under_its_own_id(store: Store, change: Callable[..., object]) -> None:
    step = forge(store, SECOND, change)
    with pytest.raises(DamagedStep, match="no record of a step"):
        _ = store.step(step.id).spec


def test_the_id_is_held_against_every_form_of_a_specification(store: Store) -> None:
    """Also where options are left out that have a default by now: an old form has the id of what it held."""
    rewrite(store.step(SECOND), lambda info: (info["spec"]["training"].pop("sampling"), set_spec(seed=7)(info)))
    with pytest.raises(DamagedStep, match="its specification, parent and data have the id"):
        _ = store.step(SECOND).info
    other = golden_copy(store.path.parent / "other")
    old = forge(other, SECOND, lambda info: info["spec"]["training"].pop("sampling"))
    assert other.step(old.id).spec.training.sampling == "iid"


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'{"a": 1, "a": 2}',
        b'{"a": "\xff"}',
        b'\xef\xbb\xbf{"a": 1}',
        b'{"a": "\\ud800"}',
        '{"a": 1}'.encode("utf-16"),
        b'{"a": ' + b"9" * 5000 + b"}",
        b"",
    ],
)
def test_only_plain_json_is_json(store: Store, content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        strict_json(content)
    put(store.step(SECOND), "step.json", content)
    with pytest.raises(DamagedStep, match=r"step\.json"):
        _ = store.step(SECOND).info


@pytest.mark.parametrize(
    "content", [b"[1]", b"{}", b'{"step.json": 3}', b'{"../x": {"sha256": "%s", "size": 1}}' % (b"0" * 64), b"x" * 2_000_000]
)
def test_a_manifest_of_another_form_is_damage(store: Store, content: bytes) -> None:
    (store.step(SECOND).folder / "manifest.json").write_bytes(content)
    with pytest.raises(DamagedStep, match=r"manifest\.json"):
        _ = store.step(SECOND).manifest


def test_parents_that_lead_in_a_circle_or_to_a_later_step_are_damage(store: Store) -> None:
    rewrite(store.step(SECOND), lambda info: info.update(parent=SECOND))
    with pytest.raises(DamagedStep, match="its specification, parent and data have the id"):
        store.chain(SECOND)
    other = golden_copy(store.path.parent / "other")
    fifth = forge(other, SECOND, set_spec(step=5))
    told: list[StoreError] = []
    assert [[step.id for step in chain] for chain in other.experiments(told.append)] == [[FIRST]]
    assert "step 5 that builds on a step 1" in str(told[0])
    with pytest.raises(DamagedStep, match="step 5 that builds on a step 1"):
        other.chain(fifth.id)


@pytest.mark.parametrize("name", ["step.json", "manifest.json", "classes.parquet", "state.safetensors"])
def test_a_file_that_is_a_link_is_damage(store: Store, name: str, tmp_path: Path) -> None:
    path = store.step(FIRST).folder / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedStep, match=rf"{name}: a link, or something else that is no plain file"):
        store.step(FIRST).verify()


def test_a_step_that_is_a_link_is_no_step(store: Store, tmp_path: Path) -> None:
    folder = store.step(SECOND).folder
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert store.ids() == {FIRST}
    assert SECOND not in store


@pytest.mark.parametrize("name", ["steps", "working", "plans", "quarantine", "working/x", "plans/x"])
def test_a_store_with_linked_folders_is_not_written_to(store: Store, name: str, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    path = store.path / name
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        path.rename(tmp_path / "away")
    path.symlink_to(tmp_path / "private")
    with pytest.raises(StoreError, match=rf"{name} is a link to .*private. The folders of a store are no links"):
        store.prepare()
    assert list((tmp_path / "private").iterdir()) == []


def test_pipes_and_large_files_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no plain file"):
        read_regular(tmp_path / "pipe", 10)
    (tmp_path / "sparse").touch()
    os.truncate(tmp_path / "sparse", 2**40)
    with pytest.raises(OSError, match=r"1,099,511,627,776 bytes, more than the 1,000 that such a file may have"):
        read_regular(tmp_path / "sparse", 1000)


def test_a_seed_that_no_table_holds_is_refused() -> None:
    for name in ("seed", "sequence_seed"):
        with pytest.raises(SpecError, match=name):
            RunSpec(**{name: 2**63})
    assert json.loads(RunSpec(seed=2**63 - 1).model_dump_json())["seed"] == 2**63 - 1


def test_partial_sums_are_those_of_the_terms_in_whatever_order_rows_and_classes_are(tiny_store: Path) -> None:
    step = Store(tiny_store).experiments()[0][-1]
    probes = step.table("probes").to_pandas()
    for ids in (step.past_classes("class_id")["class_id"], [3, 0, 2, 1]):
        iterations, sums = step.partial_sums(ids)
        assert iterations.tolist() == sorted(probes["iteration"].unique())
        for i, name in enumerate(COEFFICIENTS):
            table = probes.pivot(index="iteration", columns="class_id", values=name).cumsum(skipna=False)
            np.testing.assert_array_equal(sums[:, i], table[list(ids)].to_numpy())


def test_a_probe_without_a_row_for_each_past_class_is_damage(store: Store) -> None:
    step = store.step(SECOND)
    put(step, "probes.parquet", parquet_bytes(step.table("probes").slice(1)))
    with pytest.raises(DamagedStep, match="no row for each probe and past class"):
        store.step(SECOND).partial_sums(store.step(SECOND).past_classes("class_id")["class_id"])


def test_past_classes_are_those_of_earlier_steps(tiny_store: Path) -> None:
    for step in Store(tiny_store).experiments()[0]:
        earlier = [id for parent in Store(tiny_store).chain(step.id)[:-1] for id in parent.spec.classes]
        past = step.past_classes("class_id", "class_name")
        assert past["class_id"].tolist() == earlier
        assert past["class_name"].tolist() == [f"digit {id}" for id in earlier]


def test_what_is_known_of_a_record_is_not_read_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    step = store.step(SECOND)
    known = StoredStep(step.folder, known=step.info)
    assert known == step
    spec = step.spec
    monkeypatch.setattr("forgetscope.store.StoredStep.verified", lambda self, name: pytest.fail(f"{name} was read"))
    assert (known.spec, known.parent, known.number) == (spec, FIRST, 2)


@pytest.mark.parametrize("classes", [0, "ten", 2.5, 2**31])
def test_a_data_set_has_a_number_of_classes(store: Store, classes: object) -> None:
    rewrite(store.step(SECOND), lambda info: info["data"].update(classes=classes))
    with pytest.raises(DamagedStep, match=r"data\.classes"):
        _ = store.step(SECOND).spec


def test_a_record_of_more_values_than_any_has_is_refused_before_there_is_room_for_them() -> None:
    with pytest.raises(ValueError, match="more than 4,000,000 values"):
        strict_json(b"[" + b"[]," * 2_000_000 + b"[]]")
    assert strict_json(b"[" + b"0," * 100 + b"0]") == [0] * 101
