"""Every word that `forgetscope explain` knows."""

from __future__ import annotations

from collections.abc import Iterator

from generating.marking import prose


def words(_: str) -> str:
    from forgetscope.report.words.definitions import explained

    return "\n".join(line for one in explained().values() for line in _explained(one))


def _explained(one: object) -> Iterator[str]:
    from forgetscope.report.words.definitions import Definition

    assert isinstance(one, Definition)
    yield f"## {prose(one.term)}\n"
    yield f"**{prose(one.short)}** {prose(one.text)}\n"
    if one.formula:
        yield f"```text\n{one.formula}\n```\n"
    for name, text in (("How to read it", one.reading), ("What to do about it", one.acting)):
        if text:
            yield f"{name}: {prose(text)}\n"
    if one.aliases:
        yield f"Also: {', '.join(map(prose, one.aliases))}\n"
