"""What is kept is kept for the code that computed it, all of it."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import forgetscope
from forgetscope.analysis.inputs.cache import ABOVE, code_version

PACKAGE = Path(forgetscope.__file__).parent
# What is said of finished results: nothing that is kept.
WORDS = {f"forgetscope.report.words.{name}" for name in ("reading", "notebook", "findings")}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "assets", "*.csv")
    return Path(shutil.copytree(PACKAGE, tmp_path / "forgetscope", ignore=ignored))


def test_the_digest_is_of_the_content(copy: Path) -> None:
    assert code_version(copy) == code_version()


@pytest.mark.parametrize(
    "module",
    [
        *("measuring/forgetting.py", "randomness.py", "store/stored.py", "store/tablefiles.py", "analysis/experiments.py"),
        *("analysis/statistics/bootstrap.py", "analysis/paper/joint_model.py", "measuring/new/further.py"),
    ],
)
def test_a_line_more_in_a_module_that_is_depended_on_changes_it(copy: Path, module: str) -> None:
    before = code_version(copy)
    (copy / module).parent.mkdir(exist_ok=True)
    with (copy / module).open("a") as file:
        file.write("\n# another line\n")
    code_version.cache_clear()
    assert code_version(copy) != before


def test_what_is_above_the_analysis_does_not_count(copy: Path) -> None:
    before = code_version(copy)
    with (copy / "report" / "__init__.py").open("a") as file:
        file.write("\n# another line\n")
    code_version.cache_clear()
    assert code_version(copy) == before


def test_nothing_that_results_depend_on_is_above() -> None:
    """By the syntax trees of the modules, from those whose results are kept."""
    seen, waiting = set[str](), ["forgetscope.analysis.results", "forgetscope.analysis.index"]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += (name for name in imported(module) if name not in WORDS)
    assert {"forgetscope.measuring.forgetting", "forgetscope.randomness", "forgetscope.store.stored"} <= seen
    assert not [module for module in seen if {module.split(".")[1], f"{module.split('.')[1]}.py"} & set(ABOVE)]


def imported(module: str) -> Iterator[str]:
    """Modules below the package's root, whose own names are loaded when they are used."""
    for node in ast.walk(ast.parse(path_of(module).read_bytes())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("forgetscope"):
            names = [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("forgetscope")]
        else:
            continue
        yield from (name for name in names if "." in name and path_of(name).is_file())


def path_of(module: str) -> Path:
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
