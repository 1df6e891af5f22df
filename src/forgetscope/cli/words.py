"""`forgetscope explain`: what the words of tables, pages and documents mean."""

from __future__ import annotations

import difflib
from dataclasses import asdict
from typing import Annotated

import typer

from forgetscope.cli import options as option
from forgetscope.cli.console import onward, print_json, print_view
from forgetscope.errors import SpecError


def explain(
    word: Annotated[
        list[str] | None, typer.Argument(help="Such as SIC, FG-R, step, rho or true spread. Default: list all words.")
    ] = None,
    as_json: option.JsonOfOne = False,
) -> None:
    """Say what a word means: definition, formula, how to read it, and what to do about it."""
    from forgetscope.report.terminal.glossary import definition_view, words_view
    from forgetscope.report.words.definitions import defined, explained

    if not word:
        everything = list(explained().values())
        if as_json:
            print_json([asdict(one) for one in everything])
            return
        print_view(words_view(everything), legend=False)
        onward(("explain", "SIC"), found=f"\n{len(everything)} words. Other names for them are understood, in any case.")
        return
    asked = " ".join(word)
    found = defined(asked)
    if found is None:
        raise SpecError(f"{asked!r} is not explained.{_alike(asked)}")
    if as_json:
        print_json(asdict(found))
    else:
        print_view(definition_view(found))
        onward(("explain",), found=f"\n{len(explained())} words are explained.")


def _alike(asked: str) -> str:
    """Words that it may have been meant to be, or all."""
    from forgetscope.report.words.definitions import explained

    names = {name.casefold(): one.term for one in explained().values() for name in (one.term, *one.aliases)}
    close = difflib.get_close_matches(asked.casefold(), list(names), n=3)
    terms = list(dict.fromkeys(names[name] for name in close))
    return f" Did you mean {' or '.join(map(repr, terms))}?" if terms else f" Known: {', '.join(explained())}."
