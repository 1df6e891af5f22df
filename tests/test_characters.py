from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetscope.characters import visible, visible_json

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
