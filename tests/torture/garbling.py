"""How bytes, lines and JSON are made hostile, of whatever they are part."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

Mutated = tuple[bytes, str]  # the new content, and what was done

HUGE = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 33, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
NUMBERS = (0, -1, 1, 2, 7, 999, 3000, 2**31, 2**53 + 1, 2**63, 10**12, 10**30, 0.5, -0.0, 1e-300, 1e308)
STRINGS = (
    "",
    " ",
    "x" * 100_000,
    "../../../home/private.txt",
    "/etc/passwd",
    "hostile_plugin:make",
    "hostile_plugin",
    "os:system",
    "\x1b[31mred\x1b]0;title\x07",
    "[red]markup[/red] [/]",
    "</script><script>alert(1)</script>",
    "=1+1",
    "a\x00b",
    "one\ntwo",
    "\u202egnp.exe",
    "{0}{x}%s%n",
    "$(touch touched)`touch touched`;touch touched",
    "nan",
    "1e999",
    "0" * 32,
    "SURROGATE",  # becomes half a character, which no file can hold
)
DEEP, NAN, INFINITE, SURROGATE = (
    "DEEPLY NESTED",
    "NOT A NUMBER",
    "INFINITE",
    "SURROGATE",
)  # what json cannot say, put in as text


def mutate_bytes(content: bytes, draw: random.Random) -> Mutated:
    kinds = (_flip, _flip, _cut, _double, _drop, _swap, _huge, _huge, mutate_numbers, _append, _nothing, _zeros)
    return draw.choice(kinds)(content, draw)


def _flip(content: bytes, draw: random.Random) -> Mutated:
    changed, count = bytearray(content), draw.choice((1, 1, 3, 20))
    places = [draw.randrange(len(content)) for _ in range(count)] if content else []
    for place in places:
        changed[place] ^= 1 << draw.randrange(8)
    return bytes(changed), f"{count} bits flipped, the first in byte {places[:1]}"


def _span(content: bytes, draw: random.Random) -> tuple[int, int]:
    start = draw.randrange(len(content) + 1)
    return start, min(len(content), start + draw.choice((1, 4, 16, 512, 4096, len(content))))


def _cut(content: bytes, draw: random.Random) -> Mutated:
    length = draw.randrange(len(content) + 1)
    return content[:length], f"cut to {length} of {len(content)} bytes"


def _double(content: bytes, draw: random.Random) -> Mutated:
    start, end = _span(content, draw)
    times = draw.choice((1, 1, 100))
    return content[:end] + content[start:end][:8192] * times + content[end:], f"bytes {start} to {end} repeated {times} times"


def _drop(content: bytes, draw: random.Random) -> Mutated:
    start, end = _span(content, draw)
    return content[:start] + content[end:], f"bytes {start} to {end} removed"


def _swap(content: bytes, draw: random.Random) -> Mutated:
    (a, b), (c, d) = sorted((_span(content, draw), _span(content, draw)))
    b = min(b, c)
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:], f"bytes {a} to {b} and {c} to {d} swapped"


def _huge(content: bytes, draw: random.Random) -> Mutated:
    """A length, a count or an offset, perhaps; near the start or the end, where headers are, or anywhere."""
    value, form = draw.choice(HUGE), draw.choice(("<I", ">I", "<Q", ">Q", "<H", ">H"))
    packed = struct.pack(form, value & ((1 << 8 * struct.calcsize(form)) - 1))
    last = max(0, len(content) - len(packed))
    place = draw.choice((draw.randrange(min(last, 64) + 1), last - draw.randrange(min(last, 64) + 1), draw.randrange(last + 1)))
    return content[:place] + packed + content[place + len(packed) :], f"{value:#x} as {form} at byte {place}"


def mutate_numbers(content: bytes, draw: random.Random) -> Mutated:
    """A number that is written out: in JSON, TOML, headers of arrays and archives."""
    found = list(re.finditer(rb"\d+", content[:100_000]))
    if not found:
        return _flip(content, draw)
    match = draw.choice(found)
    length = match.end() - match.start()
    same = draw.choice((b"9", b"7", b"0", b"1")) * length  # as long as before: fields of fixed width stay in their place
    new = draw.choice((same, same, str(draw.choice(NUMBERS)).encode(), b"9" * 25))
    return content[: match.start()] + new + content[match.end() :], f"{match[0][:20]!r} at byte {match.start()} is {new!r}"


def _append(content: bytes, draw: random.Random) -> Mutated:
    return content + draw.randbytes(draw.choice((1, 100, 10_000))), "garbage at its end"


def _nothing(content: bytes, draw: random.Random) -> Mutated:
    return b"", "emptied"


def _zeros(content: bytes, draw: random.Random) -> Mutated:
    start, end = _span(content, draw)
    return content[:start] + bytes(end - start) + content[end:], f"zeros from byte {start} to {end}"


def mutate_lines(content: bytes, draw: random.Random) -> Mutated:
    lines = content.decode(errors="surrogateescape").splitlines()
    place = draw.randrange(len(lines))
    how = draw.randrange(4)
    if how == 0:
        lines.insert(draw.randrange(len(lines)), lines[place])
    elif how == 1:
        del lines[place]
    elif how == 2:
        key, sign, _ = lines[place].partition("=")
        value = draw.choice((json.dumps(draw.choice(STRINGS)), str(draw.choice(NUMBERS)), "[[]]", "nan", "inf", "{}", "true"))
        lines[place] = f"{key}{sign} {value}" if sign else draw.choice(STRINGS)
    else:
        lines[place:place] = [f"n{i:08}" for i in range(draw.choice((1, 100_000)))]
    return "\n".join(lines).encode(errors="surrogateescape"), f"line {place + 1} changed in way {how}"


def mutate_json(content: bytes, draw: random.Random) -> Mutated:
    """One value somewhere in it; of a file with a document per line, in one of the lines."""
    if b"\n{" in content.strip() and not content.lstrip().startswith(b"{\n"):
        lines = content.split(b"\n")
        place = draw.choice([i for i, line in enumerate(lines) if line])
        body, tab, rest = lines[place].partition(b"\t")
        body, what = mutate_json(body, draw)
        lines[place] = body.replace(b"\n", b" ") + tab + rest
        return b"\n".join(lines), f"line {place + 1}: {what}"
    wrapped = [json.loads(content)]
    holders = list(_holders(wrapped))
    named: dict[str, list[tuple[Any, Any]]] = {}
    for holder, key in holders:
        named.setdefault(str(key) if isinstance(key, str) else "", []).append((holder, key))
    holder, key = draw.choice(named[draw.choice(sorted(named))])  # each name equally often, however often it occurs
    old = holder[key]
    ids = re.findall(r"[0-9a-f]{32}", content.decode(errors="replace"))
    new: Any = draw.choice(
        (
            lambda: draw.choice(NUMBERS),
            lambda: draw.choice(STRINGS),
            lambda: draw.choice((None, True, [], {}, [1], {"a": 1}, "1", 1, [[]], [None])),
            lambda: draw.choice((DEEP, NAN, INFINITE)),
            lambda: [old] * draw.choice((2, 5000)),
            lambda: {"a": old},
            lambda: list(old.values()) if isinstance(old, dict) else str(old),
            lambda: _elsewhere(holders, draw),
            lambda: draw.choice(ids or STRINGS),  # its own, for example: a step that is its own parent
        )
    )()
    if draw.random() < 0.1 and isinstance(holder, dict):
        del holder[key]
        return _as_text(wrapped[0]), f"{key!r} removed"
    holder[key] = new
    return _as_text(wrapped[0]), f"{key!r}: {repr(old)[:60]} is {repr(new)[:60]}"


def _holders(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a document: what holds it, and its key there."""
    for key in range(len(value)) if isinstance(value, list) else list(value):
        yield value, key
        if isinstance(value[key], list | dict):
            yield from _holders(value[key])


def _elsewhere(holders: Sequence[tuple[Any, Any]], draw: random.Random) -> Any:
    holder, key = draw.choice(holders)
    return json.loads(json.dumps(holder[key]))


def _as_text(document: Any) -> bytes:
    depth = 100_000
    text = json.dumps(document, ensure_ascii=False)
    for mark, meant in ((DEEP, "[" * depth + "]" * depth), (NAN, "NaN"), (INFINITE, "-Infinity")):
        text = text.replace(json.dumps(mark), meant)
    return text.replace(SURROGATE, "\\ud800").encode(errors="surrogatepass")
