from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given, strategies as st

from forgetscope.characters import counted, shortened, visible, visible_json

ANYTHING = st.text(alphabet=st.characters(codec=None), max_size=40)  # surrogates too: undecodable bytes in paths


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\rb\bc\x07", r"a\rb\x08c\x07"),
        ("\x9b2J\x7f", r"\x9b2J\x7f"),
        ("safe\u202egnp.exe", r"safe\u202egnp.exe"),
        ("\u2066x\u2069\u2028", r"\u2066x\u2069\u2028"),
        ("two\nlines\tand a tab", r"two\nlines\tand a tab"),
        ("caf\udce9", r"caf\udce9"),
        ("Ёжик 蛇 ρ 38\u202f% [red] <b> $x$ \\", "Ёжик 蛇 ρ 38\u202f% [red] <b> $x$ \\"),
    ],
)
def test_what_steers_a_terminal_is_shown_instead(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(ANYTHING)
def test_nothing_that_python_s_database_calls_control_is_left(text: str) -> None:
    shown = visible(text)
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert not {unicodedata.bidirectional(c) for c in shown} & {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    assert visible(shown) == shown
    shown.encode()


def test_our_own_lines_stay_lines() -> None:
    assert visible("a\nb\r", lines=True) == "a\nb\\r"


@given(ANYTHING)
def test_a_program_that_reads_the_json_gets_the_original(text: str) -> None:
    document = visible_json(json.dumps({"name": text}, indent=1, ensure_ascii=False))
    assert json.loads(document) == {"name": text}
    assert visible(document, lines=True) == document


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (counted(1, "step"), "1 step"),
        (counted(0, "step"), "0 steps"),
        (counted(2000, "past class"), "2,000 past classes"),
        (counted(1, "past class"), "1 past class"),
        (counted(1, "step", "is/are"), "1 step is"),
        (counted(2, "step", "is/are"), "2 steps are"),
        (counted(1, "class", "has/have", of=77), "1 of 77 classes has"),
        (counted(2, "class", "has/have", of=77), "2 of 77 classes have"),
        (counted(0, "class", "has/have", of=0), "0 of 0 classes have"),
        (counted(1, "partition", "has/have", of=1), "1 of 1 partition has"),
        (counted(0, "step", "is/are", of=1), "0 of 1 step is"),
        (counted(1, "file without ending/files without ending"), "1 file without ending"),
        (counted(2, "file without ending/files without ending"), "2 files without ending"),
    ],
)
def test_one_thing_is_not_called_many(text: str, expected: str) -> None:
    assert text == expected


def test_a_long_name_loses_its_middle_and_fits() -> None:
    assert shortened("owl") == "owl"
    assert shortened("x" * 40) == "x" * 40
    long = shortened(f"{'a' * 200}{'z' * 200}")
    assert len(long) == 40
    assert long.startswith("aaa")
    assert long.endswith("zzz")
    assert "…" in long
