"""Words and what they mean, on a terminal."""

from collections.abc import Sequence

from rich.console import Group

from forgetscope.report.terminal.columns import make_table, plain
from forgetscope.report.words.definitions import Definition


def words_view(found: Sequence[Definition]) -> Group:
    """All of them with their short definitions."""
    table = make_table(("word", "what it is"), ())
    for one in found:
        table.add_row(one.term, one.short)
    return Group(plain("What the words mean", "bold"), table)


def definition_view(one: Definition) -> Group:
    """Of one: what it is, its formula, how to read it, and what one can do about it."""
    parts = [plain(f"{one.term}: {one.short}", "bold"), plain(""), plain(one.text)]
    titles = {"Formula": one.formula, "How to read it": one.reading, "What to do": one.acting}
    for title, text in titles.items():
        if text:
            parts += [plain(""), plain(title, "dim"), plain(f"  {text}")]
    if one.aliases:
        parts += [plain(""), plain(f"Also: {', '.join(one.aliases)}", "dim")]
    return Group(*parts)
