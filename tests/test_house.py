"""The shape of the house: what a reader may count on in every package, function and name."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import forgetscope

SOURCE = Path(forgetscope.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
FOLDERS = sorted({path.parent for path in MODULES})

Function = ast.FunctionDef | ast.AsyncFunctionDef


def parsed() -> Iterator[tuple[str, ast.Module]]:
    for path in MODULES:
        yield str(path.relative_to(SOURCE)), ast.parse(path.read_text(encoding="utf-8"))


def functions() -> Iterator[tuple[str, Function]]:
    for name, tree in parsed():
        for node in ast.walk(tree):
            if isinstance(node, Function):
                yield f"{name}: {node.name}", node


def body_of(function: Function) -> list[ast.stmt]:
    """Without its docstring."""
    return function.body[1:] if ast.get_docstring(function) is not None else function.body


def says_nothing(body: list[ast.stmt]) -> bool:
    """Of protocols and of watchers that watch nothing: `...` and docstrings alone."""
    return all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in body)


def test_no_two_functions_have_the_same_body() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for name, function in functions():
        body = body_of(function)
        if not says_nothing(body):
            found["; ".join(ast.dump(node) for node in body)].append(name)
    assert [names for names in found.values() if len(names) > 1] == []


def test_no_function_is_longer_than_sixty_lines() -> None:
    lengths = {name: function.end_lineno - function.lineno + 1 for name, function in functions() if function.end_lineno}
    assert {name: length for name, length in lengths.items() if length > 60} == {}


def test_no_two_classes_have_the_same_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for name, tree in parsed():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(name)
    assert {name: where for name, where in found.items() if len(where) > 1} == {}


def test_no_two_test_files_have_the_same_name() -> None:
    """pytest would refuse to collect the second."""
    names = Counter(path.name for path in Path(__file__).parent.rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(SOURCE.parent)))
def test_a_folder_fits_in_a_head(folder: Path) -> None:
    assert len(list(folder.glob("*.py"))) <= 15


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(SOURCE.parent)))
def test_a_package_says_what_is_in_it(folder: Path) -> None:
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    said = ast.get_docstring(tree) or ""
    assert len(said.split()) >= 10
    if folder != SOURCE:
        modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
        unsaid = {name for name in modules if f"`{name}`" not in said}
        assert unsaid == set()


def test_no_one_writes_into_the_dictionary_of_a_value() -> None:
    found = [
        f"{name}:{node.lineno}"
        for name, tree in parsed()
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript | ast.Call)
        and isinstance(node.ctx if isinstance(node, ast.Subscript) else ast.Store(), ast.Store)
        and "__dict__" in ast.dump(node.value if isinstance(node, ast.Subscript) else node.func)
    ]
    assert found == []


def test_the_package_itself_needs_no_command_line() -> None:
    below = {name: tree for name, tree in parsed() if not name.startswith(("cli/", "__main__"))}
    assert [name for name, tree in below.items() if "forgetscope.cli" in _imported(tree)] == []


def test_the_map_has_every_package_and_names_nothing_that_is_not_there() -> None:
    text = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text[text.index("## The map") : text.index("## The way of an image")]
    known = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert {name for name in known if not name.startswith("__") and f"`{name}`" not in table} == set()
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+)(\.[a-z]+)?`", text)
    paths = [f"{path}{ending}" for path, ending in named if not path.startswith("docs/")]
    assert len(paths) > 20
    assert [path for path in paths if not (SOURCE / path).exists() and not (SOURCE / f"{path}.py").exists()] == []


def _imported(tree: ast.Module) -> str:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return " ".join(names)
