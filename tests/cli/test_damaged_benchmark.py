"""A store of many experiments in which a file is damaged: what is said, and that it mends the store."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from forgetscope.cli.app import app
from forgetscope.store import Store

SHAPE = ("experiments=3", "increments=[0.1]", "retentions=[0.08]", "steps=2", "epochs=2")


def test_a_page_stops_at_a_file_that_only_the_explorer_reads_and_its_advice_mends_it(store: Store, tmp_path: Path) -> None:
    id = next(step.id for step in store.steps() if step.spec.step == 2)
    harm(store, id, "pairs.parquet")
    page = tmp_path / "page.html"
    result = invoke("report", store.path, "-o", page)
    assert result.exit_code == 2
    assert f"Step {id[:8]} is damaged: {store.step(id).folder / 'pairs.parquet'}" in flat(result.stderr)
    assert f"`forgetscope store verify {store.path} --quarantine` moves it out of the way" in flat(result.stderr)
    assert "Traceback" not in result.stderr
    assert not page.exists()
    assert invoke("store", "verify", store.path, "--quarantine").exit_code == 0
    simulated(store.path)
    store.step(id).verify()
    assert invoke("report", store.path, "-o", page).exit_code == 0


def test_a_step_that_cannot_be_analysed_is_left_out_and_the_page_says_so(store: Store, tmp_path: Path) -> None:
    id = next(step.id for step in store.steps() if step.spec.step == 2)
    harm(store, id, "classes.parquet")
    assert invoke("report", store.path, "-o", tmp_path / "page.html").exit_code == 0
    assert f"Damaged steps, left out: 1 ({id[:8]})" in (tmp_path / "page.html").read_text(encoding="utf-8")


def harm(store: Store, id: str, name: str) -> None:
    path = store.step(id).folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def simulated(path: Path) -> None:
    settings = [part for setting in SHAPE for part in ("--set", setting)]
    assert invoke("simulate", "glyphs", "--store", path, "--reruns", "0", *settings).exit_code == 0


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def flat(text: str) -> str:
    """Without the line breaks of a terminal."""
    return " ".join(text.split())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    simulated(tmp_path / "store")
    return Store(tmp_path / "store")
