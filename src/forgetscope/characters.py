"""Text to print: counts with their nouns; of foreign text, what would steer a terminal, or show another order, is escaped."""

import re
from collections.abc import Callable

# C0 with ESC, CR and backspace, DEL and C1; marks, embeddings, overrides and isolates of writing direction; line and
# paragraph separators; halves of surrogate pairs, which stand for undecodable bytes in paths and cannot be printed.
_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_WORDS = re.compile("[^ `]*`[^`]+`[^ ]*|[^ ]+")  # what no line ends within: words, and commands in backticks


def visible(text: str, *, lines: bool = False) -> str:
    r"""The text with every such character as an escape like `\x1b`; `lines` keeps newlines, for text of our own making."""
    return _STEERING.sub(
        lambda found: found[0] if lines and found[0] == "\n" else found[0].encode("unicode_escape").decode(), text
    )


def visible_json(text: str) -> str:
    """The same for a JSON document, as JSON's own escapes: a program that parses it gets the original characters."""
    return _STEERING.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def counted(number: int, noun: str, verb: str = "", of: int | None = None) -> str:
    """`1 class`; `2 steps are` with the verb `is/are`; of three, `1 of 3 steps is`. Irregular nouns are given as `one/many`."""
    amount, total = (f"{number:,}", number) if of is None else (f"{number:,} of {of:,}", of)
    one, _, many = noun.partition("/")
    things = one if total == 1 else many or f"{one}{'es' if one.endswith('s') else 's'}"
    return f"{amount} {things} {verb.split('/')[0 if 1 in (number, total) else -1]}".rstrip()


def shortened(name: str, most: int = 40) -> str:
    """A name, such as one of a class, with its middle left out where it is longer: whole, it would be broken by a terminal.

    >>> shortened("Gobiidae_Pomatoschistus_microps", 15)
    'Gobiida…microps'
    """
    half = (most - 1) // 2
    return name if len(name) <= most else f"{name[:half]}…{name[len(name) - (most - 1 - half) :]}"


def wrapped(text: str, width: int, measure: Callable[[str], int] = len) -> list[str]:
    """Lines that end between words. A word longer than `width` has a line of its own; so has, where it fits, a command in
    backticks, which is there to be copied. Lines after the first are indented as it is."""
    indent = text[: len(text) - len(text.lstrip(" "))]
    if measure(text) <= width:
        return [text]
    lines, line = [], indent
    for word in _WORDS.findall(text):
        for part in [word] if measure(indent + word) <= width else word.split(" "):
            if line.strip() and measure(f"{line} {part}") > width:
                lines.append(line)
                line = indent
            line = f"{line} {part}" if line.strip() else indent + part
    return [*lines, line]
