"""The tutorials: their pages are what their files say and print, and are read in five minutes."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "tutorials"
NAMES = ["contest_a_claim", "forgotten_class", "one_line", "own_loop", "own_method", "paper_tables", "two_machines"]


@pytest.fixture(scope="module")
def tutorials() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tutorials", ROOT / "benchmarks" / "tutorials.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tutorials"] = module
    spec.loader.exec_module(module)
    return module


def page_of(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def test_these_are_the_tutorials_and_the_index_names_each(tutorials: ModuleType) -> None:
    assert [file.stem for file in tutorials.sources()] == NAMES
    index = page_of("index")
    assert re.findall(r"\]\((\w+)\.md\) \|", index) != []
    assert sorted(re.findall(r"\]\((\w+)\.md\) \|", index)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_the_words_and_code_of_its_file_and_its_pictures(tutorials: ModuleType, name: str) -> None:
    (file,) = FOLDER.glob(f"{name}.[ps][yh]")
    empty = tutorials.page(file, ["" for _ in tutorials.cells(file.read_text(encoding="utf-8"))])
    text = page_of(name)
    assert "".join(tutorials.OUTPUT.sub("", text).split()) == "".join(empty.split()), "`make tutorials`"
    assert tutorials.OUTPUT.search(text)
    assert all((tutorials.PICTURES / picture).is_file() for picture in tutorials.shown_pictures(text))
    assert name in (FOLDER / "made.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_a_tutorial_is_read_in_five_minutes_and_says_for_whom_it_is_and_what_comes_next(
    tutorials: ModuleType, name: str
) -> None:
    text = page_of(name)
    assert len(re.sub(r"```.*?```", "", text, flags=re.DOTALL).split()) <= 1000  # 200 words a minute
    assert re.match(r"# .+\n\n`(bash|python) .+\n\n\*For ", text)
    assert "At the end you " in text
    assert re.search(r"\n## What now\n\n(- .+\n(  .+\n)*){2,}$", text)


def test_no_output_begins_with_a_caution() -> None:
    """That classes were barely learned, for one: then it shows nothing."""
    for name in NAMES:
        assert "barely learned" not in page_of(name), name


PAGE = "Words.\n\n```python\ncode()\n```\n\n```text\nSIC 0.51  in 12 s\nNIC 0.20\nowl 3\n```\n"


def test_times_and_the_width_of_columns_do_not_count(tutorials: ModuleType) -> None:
    assert tutorials.differences(PAGE, PAGE.replace("  in 12 s", " in  9.5 s"), True) == []


@pytest.mark.parametrize(("old", "new"), [("0.51", "0.52"), ("owl", "wren"), ("NIC 0.20\n", ""), ("code()", "other()")])
def test_on_the_same_kind_of_machine_everything_else_does(tutorials: ModuleType, old: str, new: str) -> None:
    assert tutorials.differences(PAGE, PAGE.replace(old, new), True)


def test_on_another_kind_numbers_may_be_near_and_lines_in_another_order(tutorials: ModuleType) -> None:
    other = PAGE.replace("0.51", "0.62").replace("NIC 0.20\nowl 3", "owl 3\nNIC 0.31")
    assert tutorials.differences(PAGE, other, False) == []


LOST = [("NIC 0.20\nowl 3", "NIC 2.20\nowl 8"), ("NIC 0.20\nowl 3", "failed"), ("code()", "x()")]


@pytest.mark.parametrize(("old", "new"), LOST)
def test_on_another_kind_most_lines_and_numbers_must_still_be_there(tutorials: ModuleType, old: str, new: str) -> None:
    assert tutorials.differences(PAGE, PAGE.replace(old, new), False)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != "one_line"])
def test_made_again_a_page_is_the_same(name: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "tutorials.py"), "check", name]
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{name}: as on its page" in ran.stdout
