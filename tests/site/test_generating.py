"""What is generated on the site: all of it, from where it is defined."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

import forgetscope as fs
from forgetscope import errors
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.cli.app import app
from forgetscope.errors import VARIABLES
from forgetscope.housekeeping import sql
from forgetscope.report.words.definitions import explained
from forgetscope.spec import RunSpec
from forgetscope.store.columns import TABLES

SITE = Path(__file__).parents[2] / "docs"
SOURCE = Path(fs.__file__).parent


@pytest.fixture(autouse=True)
def _site_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SITE))
    pytest.importorskip("docutils", reason="docutils is not installed: `make docs` installs it")


def generated(page: str) -> str:
    from generating.pages import completed

    return completed((SITE / "reference" / f"{page}.md").read_text(encoding="utf-8"), SITE / "reference" / f"{page}.md")


def every_command(command: Any, name: str = "forgetscope") -> dict[str, Any]:
    below = getattr(command, "commands", {})
    return {name: command} | {key: one for sub in below for key, one in every_command(below[sub], f"{name} {sub}").items()}


def test_every_command_has_a_section_with_all_of_its_options() -> None:
    text = generated("commands")
    sections = dict(re.findall(r"^## (forgetscope[a-z ]*)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE))
    known = every_command(typer.main.get_command(app))
    assert sections.keys() == known.keys()
    for name, command in known.items():
        for option in (option for one in command.params if one.param_type_name == "option" for option in one.opts):
            assert f"`{option}" in sections[name], name


def test_every_option_of_runs_and_benchmarks_has_default_and_range() -> None:
    text = generated("options")
    for name in (*RunSpec.model_fields, *BenchmarkSpec.model_fields):
        assert name == "run" or re.search(rf"^`{name}`\n: .+ Range: .+\. Default: .+\.$", text, re.MULTILINE), name
    assert (
        "`retention`\n: Share of each past class's training images that is kept. Range: a number above 0 to 1. Default: `0.08`."
        in text
    )
    assert "Range: a whole number from 1 to 1,000. Default: `3`." in text


def test_every_public_name_has_a_section_with_its_docstring() -> None:
    text = generated("python")
    for name in fs.__all__:
        found = getattr(fs, name)
        if inspect.isclass(found) or inspect.isfunction(found):
            (section,) = re.findall(rf"^## fs\.{name}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
            assert f"fs.{name}(" in section
            assert ">>> " in section


def test_every_column_has_a_unit_or_none_and_a_meaning() -> None:
    text = generated("files")
    for name, table in TABLES.items():
        assert f"### {name}.parquet" in text
        for column, one in table.columns.items():
            assert f"| `{column}` |" in text
            assert one.meaning
            assert one.unit or not str(one.type).startswith(("double", "list", "float")) or column in ("log_sim", "scale"), (
                column
            )
    assert {name for name in sql.TABLES if f"| `{name}` |" not in text} == set()


def test_every_error_every_exit_code_and_every_word_is_there() -> None:
    text = generated("errors")
    known = [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, errors.ForgetscopeError)]
    assert {one.exit_code for one in known} <= errors.EXIT_CODES.keys()
    assert [one.__name__ for one in known if f"`{one.__name__}`\n: " not in text] == []
    words = generated("words")
    assert [term for term in explained() if f"## {term}\n" not in words.replace("\\", "")] == []


def test_every_environment_variable_that_is_read_is_listed() -> None:
    """By name, or by the constant that has it."""
    text = generated("errors")
    assert [name for name in VARIABLES if f"`{name}`\n: " not in text] == []
    set_here = {"PYTHONSAFEPATH", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"}  # for other processes, whatever a user has there
    named = {
        node.value
        for path in SOURCE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call | ast.Subscript) and "environ" in ast.unparse(call)[:40]
        for node in ast.walk(call)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"[A-Z][A-Z_]{2,}", node.value)
    }
    assert {"CXX", "COLUMNS"} <= named
    assert named - VARIABLES.keys() - set_here == set()


def test_what_public_names_give_has_its_methods_in_the_reference_too() -> None:
    from generating.names import GIVEN

    text = generated("python")
    given = set(re.findall(r"-> .*?\b([A-Z]\w+)", text)) | set(re.findall(r"A value, `.*?\b([A-Z]\w+)", text))
    for name, home in GIVEN.items():
        found = getattr(import_module(home), name)
        assert name in given or name == "Estimate", name  # of which tables have columns
        assert f"\n## {name}\n" in text
        for own, member in vars(found).items():
            if inspect.isfunction(member) and not own.startswith("_") and member.__doc__:
                assert f"\n### {name}.{own}\n" in text
