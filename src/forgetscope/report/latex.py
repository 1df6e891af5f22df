"""The paper's tables as LaTeX, laid out as in the paper: booktabs, one file per table, and a document that shows them all."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pandas as pd

from forgetscope.analysis.paper import TABLES, TableDescription
from forgetscope.analysis.samples import POOLED
from forgetscope.analysis.tabulation import records

SYMBOLS = {
    "rho": r"$\rho$",
    "rho_p": r"$\rho_p$",
    "rho_p_SIC": r"$\rho_p^{\mathrm{SIC}}$",
    "rho_p_CIC": r"$\rho_p^{\mathrm{CIC}}$",
}
SYMBOLS |= {"rho-rho_p": r"$\rho - \rho_p$", "mae": "MAE", "weight": "weight", "value": ""}
SPECIAL = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}
FACTORS = {"rehearsal": "Retention", "classes": "Increment", "interaction": "Interaction"}
NAMES = {"all_coefficients": "All coefficients"}


def latex_document(labels: Iterable[str]) -> str:
    """A whole document that includes the files of these tables, from the folder `tables` beside it."""
    body = "\n".join(f"\\input{{tables/{label}.tex}}\n\\clearpage" for label in labels)
    packages = "\\usepackage[T1]{fontenc}\n\\usepackage{booktabs}\n\\usepackage{graphicx}"
    page = "\\textwidth=17cm \\oddsidemargin=-0.5cm \\textheight=24cm \\topmargin=-1.5cm"
    return f"\\documentclass{{article}}\n{packages}\n{page}\n\\begin{{document}}\n{body}\n\\end{{document}}\n"


def latex_table(label: str, frame: pd.DataFrame) -> str:
    """One `table` environment; it needs booktabs and graphicx."""
    description = TABLES[label]
    if frame.empty:
        head, lines, columns = "", ["Nothing in the store belongs here. \\\\"], "c"
    elif description.layout == "anova":
        head, lines, columns = _anova(frame)
    elif description.layout == "overall":
        head, lines, columns = _overall(frame)
    else:
        head, lines, columns = _grid(frame)
    rows = "\n".join(lines)
    top = f"{head}\n\\midrule\n" if head else ""
    inner = f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{top}{rows}\n\\bottomrule\n\\end{{tabular}}"
    boxed = inner if frame.empty else f"\\resizebox{{\\linewidth}}{{!}}{{%\n{inner}}}"
    caption = f"\\caption{{{_caption(description, frame)}}}\n\\label{{tab:{label}}}"
    return f"\\begin{{table}}[htbp]\n\\centering\n{caption}\n{boxed}\n\\end{{table}}\n"


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is; a character that its fonts may lack is named by its number."""
    return "".join(SPECIAL.get(c, c) if c.isascii() and c.isprintable() else f"U+{ord(c):04X}" for c in text)


def _caption(description: TableDescription, frame: pd.DataFrame) -> str:
    parts = [f"{escaped(description.title)}."]
    if description.layout == "anova":
        coding = frame["coding"].iloc[0] if len(frame) else "sum"
        kind = "sum-to-zero" if coding == "sum" else "treatment"
        parts.append(f"Type-III two-way ANOVA, HC3, {kind} coding of factors.")
    elif description.layout in ("overall", "grid", "controlled"):
        parts.append("Mean $\\pm$ standard deviation" + (" with 95\\,\\% intervals." if description.intervals else "."))
    if len(frame) and frame["simulated"].any():
        parts.append("Simulated: nothing was trained.")
    lost = {name: int(frame[name].max()) for name in ("diverged", "no_value", "undefined", "unmeasured")} if len(frame) else {}
    words = {"diverged": "diverged steps", "no_value": "values undefined", "undefined": "classes never learned"}
    words |= {"unmeasured": "classes not measured"}
    if any(lost.values()):
        parts.append(f"Left out at most, per entry: {', '.join(f'{n} {words[name]}' for name, n in lost.items() if n)}.")
    return " ".join(parts)


def _overall(frame: pd.DataFrame) -> tuple[str, list[str], str]:
    columns = _distinct(frame, "quantity", "statistic")
    head = _line("", *(_name(quantity, statistic) for quantity, statistic in columns))
    lines = []
    for _, group in _groups(frame):
        lines += _heading(group, len(columns) + 1)
        for subset, rows in group.groupby("subset", sort=False):
            cells = {(row["quantity"], row["statistic"]): _cell(row) for row in records(rows)}
            lines.append(_line(_subset(str(subset)), *(cells.get(column, "--") for column in columns)))
    return head, lines, "l" + "c" * len(columns)


def _grid(frame: pd.DataFrame) -> tuple[str, list[str], str]:
    increments = sorted(frame["class_pct"].unique(), key=lambda level: (level == POOLED, _number(level)))
    head = _line("Retention", "", *(_share(level, " classes") for level in increments))
    lines = []
    for _, group in _groups(frame):
        lines += _heading(group, len(increments) + 2)
        for step, part in group.groupby("subset", sort=False):
            lines += [_line(f"\\multicolumn{{{len(increments) + 2}}}{{c}}{{{_subset(str(step))}}}"), "\\midrule"]
            for (retention, quantity, statistic), rows in part.groupby(["rehearsal_pct", "quantity", "statistic"], sort=False):
                cells = {row["class_pct"]: _cell(row) for row in records(rows)}
                name = _name(str(quantity), str(statistic))
                lines.append(_line(_share(str(retention)), name, *(cells.get(level, "--") for level in increments)))
    return head, lines, "ll" + "c" * len(increments)


def _anova(frame: pd.DataFrame) -> tuple[str, list[str], str]:
    columns = _distinct(frame, "quantity", "response")
    titles = [f"\\multicolumn{{3}}{{c}}{{{_name(quantity, '' if r == quantity else r)}}}" for quantity, r in columns]
    head = _line("", "", *titles) + "\n" + _line("", "", *["$F$ & $p$ & $\\eta_p^2$"] * len(columns))
    lines = []
    for _, group in _groups(frame):
        lines += _heading(group, 3 * len(columns) + 2)
        for (subset, factor), rows in group.groupby(["subset", "factor"], sort=False):
            cells = {
                (row["quantity"], row["response"]): f"{_text(row['F'])} & {_probability(row['p'])} & {_text(row['eta2p'])}"
                for row in records(rows)
            }
            name = _subset(str(subset)) if factor == "rehearsal" else ""
            lines.append(_line(name, FACTORS[str(factor)], *(cells.get(column, "-- & -- & --") for column in columns)))
    return head, lines, "ll" + "rrr" * len(columns)


def _groups(frame: pd.DataFrame) -> Iterable[tuple[Any, pd.DataFrame]]:
    return frame.groupby(["benchmark", "policy"], sort=False)


def _heading(group: pd.DataFrame, columns: int) -> list[str]:
    first = group.iloc[0]
    title = first["benchmark"] + ("" if first["policy"] == "uniform" else f", {first['policy']}")
    return ["\\midrule", _line(f"\\multicolumn{{{columns}}}{{c}}{{\\textbf{{{escaped(title)}}}}}"), "\\midrule"]


def _distinct(frame: pd.DataFrame, first: str, second: str) -> list[tuple[str, str]]:
    return list(dict.fromkeys(zip(frame[first].astype(str), frame[second].astype(str), strict=True)))


def _subset(label: str) -> str:
    step, *increments = label.split("_")
    restricted = f", increments {', '.join(increments)}\\,\\%" if increments else ""
    return f"step {escaped(step)}{restricted}"


def _share(level: str, what: str = "") -> str:
    if level == POOLED:
        return "\\textbf{Pooled}"
    return f"{escaped(level)}\\,\\%{what}" if level.replace(".", "").isdigit() else escaped(level) + what


def _number(level: str) -> float:
    return float(level) if level.replace(".", "", 1).isdigit() else math.inf


def _name(quantity: str, statistic: str) -> str:
    return f"{NAMES.get(quantity, escaped(quantity))} {SYMBOLS.get(statistic, escaped(statistic))}".strip()


def _cell(row: dict[str, Any]) -> str:
    text = _text(row["mean"]) + _interval(row["mean_lo"], row["mean_hi"])
    if not math.isnan(row["sd"]):
        text += f" $\\pm$ {_text(row['sd'])}{_interval(row['sd_lo'], row['sd_hi'])}"
    return text


def _interval(low: float, high: float) -> str:
    return "" if math.isnan(low) or math.isnan(high) else f" {{\\tiny({_text(low)}, {_text(high)})}}"


def _text(value: float) -> str:
    return "--" if math.isnan(value) else f"${value:.2f}$"


def _probability(p: float) -> str:
    if math.isnan(p):
        return "--"
    mantissa, exponent = f"{p:.2e}".split("e")
    return f"${mantissa}$" if exponent == "+00" else f"${mantissa} \\cdot 10^{{{int(exponent)}}}$"


def _line(*cells: str) -> str:
    return " & ".join(cells) + r" \\"
