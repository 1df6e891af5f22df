"""Tables as LaTeX: the paper's laid out as there, others column by column; and documents that show them."""

from collections.abc import Iterable, Iterator

import pandas as pd

from forgetscope.report.exhibited import Shown
from forgetscope.report.typeset.layout import Line, Tabular, lay_out, lay_out_beside
from forgetscope.report.words.captions import EMPTY, caption, caption_beside
from forgetscope.report.words.notation import LATEX

BESIDE = "_beside_paper"  # ends the name of a table that compares
LONG = 60  # characters of a text that is broken into lines
TALLEST = 600.0  # points: what a page holds below a caption
FITTING = r"\ifdim\width>\linewidth\linewidth\else\width\fi"  # as wide as the text, but never enlarged
PREAMBLE = r"""\documentclass{article}
\usepackage{booktabs}
\usepackage{graphicx}
\textwidth=17cm \oddsidemargin=-0.5cm \textheight=24cm \topmargin=-1.5cm
\setlength{\belowcaptionskip}{6pt}
"""


def latex_document(body: str) -> str:
    """A whole document; what it needs is part of every basic installation, and its fonts are outlines."""
    return f"{PREAMBLE}\\begin{{document}}\n{body}\n\\end{{document}}\n"


def table_inputs(labels: Iterable[str]) -> str:
    """Includes the files of these tables, from the folder `tables` beside the document."""
    return "\n".join(f"\\input{{tables/{label}.tex}}" for label in labels) + "\n\\clearpage"


def latex_table(shown: Shown) -> str:
    """A `table` environment, or several where a page cannot hold all benchmarks; they need booktabs and graphicx."""
    if shown.exhibit.kind == "table" or shown.exhibit.layout == "noise":
        return _floats(shown.exhibit.label, caption(shown), lay_out(shown, LATEX))
    inner = "\n".join(_plainly(shown.frame))
    above = f"\\caption{{{LATEX.text(shown.exhibit.title)}.}}\n\\label{{tab:{shown.exhibit.label}}}"
    return f"\\begin{{table}}[htbp]\n\\centering\n{above}\n\\resizebox{{\\linewidth}}{{!}}{{%\n{inner}}}\n\\end{{table}}\n"


def latex_beside(shown: Shown) -> str:
    """The same with a line for each estimate that the paper prints too, ours beside it; nothing where there is none."""
    if shown.beside is None:
        return ""
    text = caption_beside(shown, shown.beside)
    return _floats(f"{shown.exhibit.label}{BESIDE}", text, lay_out_beside(shown, shown.beside, LATEX))


def _plainly(frame: pd.DataFrame) -> Iterator[str]:
    """A column for each of the frame's."""
    numeric = [pd.api.types.is_numeric_dtype(frame[name]) and not pd.api.types.is_bool_dtype(frame[name]) for name in frame]
    long = [len(frame) > 0 and frame[name].astype(str).str.len().max() > LONG for name in frame]
    columns = "".join("r" if n else "p{9cm}" if breaks else "l" for n, breaks in zip(numeric, long, strict=True))
    yield f"\\begin{{tabular}}{{{columns}}}\n\\toprule"
    yield _row(LATEX.text(str(name).replace("_", " ")) for name in frame) + "\n\\midrule"
    for row in frame.itertuples(index=False):
        pairs = zip(row, numeric, strict=True)
        yield _row(LATEX.significant(value, 4) if is_number else LATEX.text(str(value)) for value, is_number in pairs)
    yield "\\bottomrule\n\\end{tabular}"


def _floats(label: str, text: str, layout: Tabular) -> str:
    first, *others = _parts(layout)
    continued = (_float(f"{label}-{i}", f"{text} Continued.", part) for i, part in enumerate(others, start=2))
    return "\n".join([_float(label, text, first), *continued])


def _float(label: str, text: str, layout: Tabular) -> str:
    inner = "\n".join(_tabular(layout)) if layout.lines else EMPTY
    boxed = f"\\resizebox{{{FITTING}}}{{!}}{{%\n{inner}}}" if layout.lines else inner
    above = f"\\caption{{{LATEX.text(text)}}}\n\\label{{tab:{label}}}"
    return f"\\begin{{table}}[htbp]\n\\centering\n{above}\n\\footnotesize\n{boxed}\n\\end{{table}}\n"


def _parts(layout: Tabular) -> list[Tabular]:
    """Cut before benchmarks, so that each part fits on a page; every part has the head."""
    head = [line for line in layout.lines if line.role == "head"]
    parts, part, height = [], list(head), 0.0
    for group in _by_benchmark(layout.lines[len(head) :]):
        own = sum(map(_height, group))
        if height and height + own > TALLEST:
            parts.append(part)
            part, height = list(head), 0.0
        part += group
        height += own
    return [Tabular(layout.columns, tuple(lines)) for lines in (*parts, part)]


def _by_benchmark(lines: Iterable[Line]) -> list[list[Line]]:
    groups: list[list[Line]] = []
    for line in lines:
        if line.role == "benchmark":
            groups.append([])
        groups[-1].append(line)
    return groups


def _height(line: Line) -> float:
    """Points, of a line that is not shrunk to fit the width."""
    double = any("\\begin{tabular}" in cell.text for cell in line.cells)
    return 20.0 if line.role != "row" else 17.0 if double else 10.0


def _tabular(layout: Tabular) -> Iterator[str]:
    yield f"\\begin{{tabular}}{{{layout.columns}}}\n\\toprule"
    for line in layout.lines:
        text = _row(c.text if c.span == 1 else f"\\multicolumn{{{c.span}}}{{c}}{{{c.text}}}" for c in line.cells)
        if line.role == "benchmark":
            yield f"\\midrule\n{text}\n\\midrule"
        else:
            yield f"\\addlinespace\n{text}\n\\midrule" if line.role == "step" else text
    yield "\\bottomrule\n\\end{tabular}"


def _row(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"
