"""What is installed, and what a source distribution holds."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(name: str, extras: tuple[str, ...], seen: set[tuple[str, str]]) -> Iterator[str]:
    """Everything that installing a distribution with these extras brings along, here and now."""
    for extra in ("", *extras):
        if (plain(name), extra) in seen:
            continue
        seen.add((plain(name), extra))
        for line in distribution(name).requires or []:
            found = Requirement(line)
            if found.marker is None or found.marker.evaluate({"extra": extra}):
                yield plain(found.name)
                yield from needed(found.name, tuple(found.extras), seen)


def test_every_version_that_is_installed_is_pinned() -> None:
    """Transitive ones included; but pip, which comes with Python."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    pinned = {plain(name): version for name, _, version in (line.partition("==") for line in lines)}
    assert all(pinned.values())
    try:
        names = set(needed("forgetscope", ("dev", "docs", "ray", "web"), set()))
        installed = {name: distribution(name).version.partition("+")[0] for name in names}
    except PackageNotFoundError as error:
        pytest.skip(f"not everything is installed: {error}")
    other = [f"{name} {version}" for name, version in installed.items() if pinned.get(name, version) != version]
    if other:
        pytest.skip(f"not installed from constraints.txt: {other[0]}")
    assert {name for name in names if name not in pinned} == set()


def test_the_source_distribution_holds_everything_that_its_tests_and_pages_need(tmp_path: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no checkout: nothing tells what belongs to the project")
    pytest.importorskip("hatchling")
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "sdist", "--directory", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    (built,) = tmp_path.iterdir()
    with tarfile.open(built) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert set(filter(None, tracked)) - names == {".ci/run", ".gitattributes"}
