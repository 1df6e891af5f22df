"""Every public name has an example in its docstring, and every example in a docstring runs, in a folder of its own."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path

import pytest
from PIL import Image

import forgetscope
from tiny_cifar100 import SPLITS, binary, write_tar

SOURCE = Path(forgetscope.__file__).parent
MODULES = [path for path in sorted(SOURCE.rglob("*.py")) if "\n    >>> " in path.read_text(encoding="utf-8")]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the examples find there: a folder of birds and an archive of tiny images."""
    folder = tmp_path_factory.mktemp("examples")
    for name in ("wren", "owl"):
        (folder / "birds" / name).mkdir(parents=True)
        for i in range(5):
            Image.new("RGB", (20, 30), (40 * i, 0, 0)).save(folder / "birds" / name / f"{i}.png")
    write_tar(folder / "my-copy.tar.gz", {f"{name}.bin": binary(name) for name in SPLITS})
    return folder


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_examples_give_what_they_say(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(folder / "cache"))
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    module = importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    failed, tried = doctest.testmod(module, optionflags=FLAGS)
    assert tried
    assert not failed


def has_example(name: str) -> bool:
    return ">>> " in (inspect.getdoc(getattr(forgetscope, name)) or "")


def test_every_public_name_has_an_example() -> None:
    """Of classes and functions; values, modules and aliases of types have none."""
    public = {name for name in forgetscope.__all__ if inspect.isclass(v := getattr(forgetscope, name)) or inspect.isfunction(v)}
    assert len(public) >= 25
    assert {name for name in public if not has_example(name)} == set()
