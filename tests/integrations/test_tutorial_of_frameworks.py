"""The tutorial that takes a framework shows what it prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from frameworks import needed

needed("avalanche")
needed("lightning")


@pytest.mark.slow
def test_made_again_its_page_is_the_same() -> None:
    command = [sys.executable, str(Path(__file__).parents[2] / "benchmarks" / "tutorials.py"), "check", "one_line"]
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "one_line: as on its page" in ran.stdout
