"""The index of a store: the same as reading everything, and never believed when it should not be."""

from __future__ import annotations

from pathlib import Path

import pytest

from forgetscope.analysis.experiments import Experiment
from forgetscope.analysis.index import glance
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.errors import DamagedStep
from forgetscope.store import Store


def one_by_one(store: Store) -> list[Experiment]:
    """As a glance without an index would find them."""
    return [Experiment(chain) for chain in store.experiments()]


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
    assert (several.path / "index.jsonl").is_file()
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
    whole = (several.path / "index.jsonl").read_bytes()
    (several.path / "index.jsonl").write_bytes(content + whole[100:])
    assert repr(described(glance(several))) == expected
    assert (several.path / "index.jsonl").read_bytes() == whole


def test_a_step_that_was_replaced_is_read_again(several: Store) -> None:
    tip = glance(several)[-1].chain[-1]
    manifest = tip.folder / "manifest.json"
    manifest.write_bytes(manifest.read_bytes() + b"\n")  # another one, and then the record does not match any more
    (tip.folder / "step.json").write_bytes(b"{}")
    with pytest.raises(DamagedStep):
        glance(several)


def test_a_store_that_cannot_be_written_is_read_all_the_same(several: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pathlib.Path.replace", lambda self, target: (_ for _ in ()).throw(PermissionError("no")))
    assert len(glance(several)) == len(one_by_one(several))
    assert not list(several.path.glob("*index*"))
