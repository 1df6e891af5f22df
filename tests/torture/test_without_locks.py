"""File systems on which locks do nothing or are refused: everything is right all the same, some of it is done twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from conftest import TINY
from forgetscope.data.library import load_data
from forgetscope.spec import RunSpec
from forgetscope.store import Store
from torture.harness import digests

BENEATH = Path(__file__).parent / "beneath"
REFUSED = "the file system has no locks (No locks available)"

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("how", ["nothing", "ENOLCK"])]


def together(count: int, how: str, *arguments: object, **environment: str) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of so many processes that run the same command at the same time without locks."""
    paths = os.pathsep.join(filter(None, [str(BENEATH), os.environ.get("PYTHONPATH")]))
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "forgetscope", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "FLOCK": how, "PYTHONPATH": paths, **environment},
        )
        for _ in range(count)
    ]
    ended = [(process, *process.communicate(timeout=300)) for process in started]
    return [(process.returncode, output, errors) for process, output, errors in ended]


def verify(store: Path) -> None:
    (clean,) = together(1, "nothing", "store", "verify", store)
    assert clean[0] == 0, clean


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "run.toml"
    path.write_text(RunSpec(**{**TINY, "epochs": 4}).to_toml())
    return path


def test_four_processes_run_the_same_experiment(how: str, config: Path, tmp_path: Path) -> None:
    options = ("--threads", 1, "--device", "cpu")
    ((code, _, errors),) = together(1, how, "run", config, "--store", tmp_path / "alone", *options)
    assert code == 0, errors
    results = together(4, how, "run", config, "--store", tmp_path / "store", *options)
    assert [code for code, _, _ in results] == [0] * 4, results
    assert len({output for _, output, _ in results}) == 1
    for _, _, errors in results:
        assert errors.count(REFUSED) == (how == "ENOLCK"), errors
        assert "Traceback" not in errors
    assert digests(tmp_path / "store") == digests(tmp_path / "alone")
    assert not (tmp_path / "store" / "quarantine").exists()
    verify(tmp_path / "store")


def test_four_processes_add_the_same_data(how: str, tmp_path: Path, empty_cache: Path) -> None:
    for name in ("owl", "wren"):
        (tmp_path / "birds" / name).mkdir(parents=True)
        for i in range(40):
            Image.new("RGB", (16, 16), (3 * i, 7, 5 * i)).save(tmp_path / "birds" / name / f"{i}.png")
    (tmp_path / "crowd").mkdir()
    crowd = f"{tmp_path / 'crowd'}:4"
    results = together(4, how, "data", "add", "birds", tmp_path / "birds", "--test-share", 0.2, FLOCK_CROWD=crowd)
    assert [code for code, _, _ in results] == [0] * 4, results
    assert len({output for _, output, _ in results}) == 1
    for _, _, errors in results:
        assert errors.count(REFUSED) == (how == "ENOLCK"), errors
    assert len(load_data("birds").classes) == 2
    assert [path.name for path in empty_cache.iterdir()] == ["birds"]


def test_the_same_benchmark_is_started_three_times(how: str, small_file: Path, tmp_path: Path) -> None:
    arguments = ("bench", "run", small_file, "--jobs", 2, "--no-estimate", "--json", "--set", "epochs=8")
    ((code, _, errors),) = together(1, how, *arguments, "--store", tmp_path / "alone")
    assert code == 0, errors
    results = together(3, how, *arguments, "--store", tmp_path / "store")
    assert [code for code, _, _ in results] == [0] * 3, results
    for _, _, errors in results:
        assert errors.count(REFUSED) == (how == "ENOLCK"), errors
    assert len(Store(tmp_path / "store").steps()) == json.loads(results[0][1])["total"]
    assert digests(tmp_path / "store") == digests(tmp_path / "alone")
    assert not (tmp_path / "store" / "quarantine").exists()
    verify(tmp_path / "store")
