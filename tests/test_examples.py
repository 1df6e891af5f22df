"""The Python files in `examples/` run as they stand there; only their size is reduced."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forgetscope.store import Store
from made import make_experiment

FOLDER = Path(__file__).parents[1] / "examples"
SMALL = {
    "own_evening": "--epochs 2 --classes 3 --image-size 8",
    "own_forecast": "--epochs 2 --classes 3 --image-size 8",
    "own_policy": "--seeds 1 --epochs 1 --classes 2 --image-size 8",
    "own_training_loop": "--epochs 1 --classes 3 --image-size 8",
    "read_a_store": "tiny",
}
SAYS = {
    "own_evening": "evened      forgetting spreads by ",
    "own_forecast": "rank correlation of predicted and measured forgetting: step 2 ",
    "own_policy": "own_policy:median_confident  ",
    "own_training_loop": "MonitoredStep(characters/2: 2 probes, 1 epoch. 3 past classes, ",
    "read_a_store": "glyphs 8x8, resnet8, 3 steps",
}


def test_every_python_example_is_run_here_and_named_in_the_readme() -> None:
    files = {path.stem for path in FOLDER.glob("*.py")}
    assert files == SMALL.keys() == SAYS.keys()
    readme = (FOLDER.parent / "README.md").read_text(encoding="utf-8")
    assert all(f"(examples/{name}.py)" in readme for name in files)


@pytest.mark.parametrize("name", SMALL)
def test_it_runs(name: str, tmp_path: Path, tiny_store: Path) -> None:
    (tmp_path / "tiny").symlink_to(tiny_store)
    ran = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), *SMALL[name].split()],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert SAYS[name] in ran.stdout


def test_a_store_without_rankings_has_no_correlation(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.prepare()
    make_experiment(store, steps=2, classes=1)
    command = [sys.executable, str(FOLDER / "read_a_store.py"), str(tmp_path / "store")]
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", check=True, env={**os.environ, "PYTHONUTF8": "1"})
    assert "SIC  –  over 0" in ran.stdout
