"""The index of a store: the same as reading everything, and never believed when it should not be."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from forgetscope.analysis.experiments import Experiment
from forgetscope.analysis.index import glance
from forgetscope.analysis.inputs.cache import kept_for
from forgetscope.analysis.results import analyse
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.errors import DamagedStep, StoreError
from forgetscope.store import Store


def one_by_one(store: Store) -> list[Experiment]:
    """As a glance without an index would find them."""
    return [Experiment(chain) for chain in store.experiments()]


def index(store: Store) -> Path:
    return kept_for(store.path) / "index.jsonl"


def described(found: list) -> list[tuple]:
    return [(e.id, e.data_title, e.network, e.simulated is None, [step.spec for step in e.chain], e.summaries) for e in found]


@pytest.fixture
def several(store: Store) -> Store:
    """A trained experiment, and simulated ones with re-runs."""
    spec = BenchmarkSpec.load("glyphs", {"experiments": 1, "increments": [0.1], "retentions": [0.08], "epochs": 2})
    simulate(spec, store, seed=1, reruns=2)
    return store


def test_a_glance_shows_what_reading_everything_shows(several: Store) -> None:
    expected = repr(described(one_by_one(several)))
    assert repr(described(glance(several))) == expected
    assert index(several).is_file()
    assert repr(described(glance(several))) == expected


def test_what_the_index_knows_is_not_read_again(several: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = repr(described(glance(several)))
    monkeypatch.setattr("forgetscope.store.StoredStep.verified", lambda self, name: pytest.fail(f"{name} was read"))
    assert repr(described(glance(several))) == expected


def test_steps_come_and_go(several: Store, tiny_store: Path) -> None:
    glance(several)
    (real,) = one_by_one(Store(tiny_store))
    several.quarantine(several.step(real.id).folder)
    assert real.id not in [e.id for e in glance(several)]
    assert real.chain[-2].id in [e.id for e in glance(several)]


@pytest.mark.parametrize("content", [b"", b"no index", b"{}\t00\n", b"\xff\x00"])
def test_a_damaged_index_is_made_again(several: Store, content: bytes) -> None:
    expected = repr(described(glance(several)))
    whole = index(several).read_bytes()
    index(several).write_bytes(content + whole[100:])
    assert repr(described(glance(several))) == expected
    assert index(several).read_bytes() == whole


def test_a_step_that_was_replaced_is_read_again(several: Store) -> None:
    tip = glance(several)[-1].chain[-1]
    manifest = tip.folder / "manifest.json"
    manifest.write_bytes(manifest.read_bytes() + b"\n")  # another one, and then the record does not match any more
    (tip.folder / "step.json").write_bytes(b"{}")
    with pytest.raises(DamagedStep):
        glance(several)
    told: list[StoreError] = []
    assert tip.id not in {step.id for one in glance(several, left_out=told.append) for step in one.chain}
    assert f"Step {tip.id[:8]} is damaged" in str(told[0])


def test_where_nothing_can_be_kept_a_store_is_read_all_the_same(several: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("open", "mkdir", "unlink"):
        monkeypatch.setattr(f"pathlib.Path.{name}", refuse)
    assert len(glance(several)) == len(one_by_one(several))


def test_looking_writes_nothing_into_a_store_and_believes_no_index_in_it(several: Store, tmp_path: Path) -> None:
    expected = repr(described(glance(several)))
    forged = []
    for line in index(several).read_bytes().splitlines():
        entry = json.loads(line.rpartition(b"\t")[0])
        if entry["summary"]:
            entry["summary"]["mean_forgetting"] = 0.123
        body = json.dumps(entry).encode()
        forged.append(body + b"\t" + hashlib.sha256(body).hexdigest().encode())
    stranger = Store(shutil.copytree(several.path, tmp_path / "stranger"))
    (stranger.path / "index.jsonl").write_bytes(b"\n".join(forged) + b"\n")
    before = {path: path.stat().st_mtime_ns for path in stranger.path.rglob("*")}
    assert repr(described(glance(stranger))) == expected
    analyse(stranger, resamples=100, tables=["class_forgetting"])
    assert {path: path.stat().st_mtime_ns for path in stranger.path.rglob("*")} == before


def test_what_is_kept_of_a_store_goes_when_the_store_is_gone(several: Store, empty_cache: Path, tmp_path: Path) -> None:
    first = Store(shutil.copytree(several.path, tmp_path / "first"))
    glance(first)
    assert index(first).is_file()
    shutil.rmtree(first.path)
    glance(several)
    assert [path.parent for path in empty_cache.glob("*/*/index.jsonl")] == [index(several).parent]


def test_what_somebody_else_keeps_there_stays(several: Store, empty_cache: Path) -> None:
    for name in ("mine", "0" * 32):
        folder = empty_cache / ".stores" / name
        folder.mkdir(parents=True)
        (folder / "store").write_text("shopping list")
        (folder / "thesis").write_text("precious")
    os.mkfifo(empty_cache / ".stores" / "pipe")
    glance(several)
    assert {path.read_text() for path in empty_cache.glob(".stores/*/thesis")} == {"precious"}
    assert len(list(empty_cache.glob(".stores/*/thesis"))) == 2


@pytest.mark.parametrize("harm", ["gone", "shorter", "other bytes"])
def test_a_step_that_is_harmed_once_its_index_is_warm_is_looked_at_again(several: Store, harm: str) -> None:
    tip = glance(several)[-1].chain[-1]
    path = tip.folder / "classes.parquet"
    content = path.read_bytes()
    path.unlink()
    if harm != "gone":
        path.write_bytes(content[:-1] if harm == "shorter" else content[:-1] + bytes([content[-1] ^ 1]))
        os.utime(path, ns=(1, 1))
    left_out: list[StoreError] = []
    assert tip.id not in [step.id for experiment in glance(several, left_out=left_out.append) for step in experiment.chain]
    assert [f"Step {tip.id[:8]} is damaged" in str(problem) for problem in left_out] == [True]
