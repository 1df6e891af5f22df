from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from forgetscope.analysis.exhibits.exhibit import Exhibit
from forgetscope.analysis.exhibits.tables import TABLES
from forgetscope.analysis.paper.cells import tidy
from forgetscope.analysis.results import Analysis, analyse
from forgetscope.report.datafiles import write_analysis
from forgetscope.report.exhibited import Shown, exhibited
from forgetscope.report.typeset.latex import latex_document, latex_table
from forgetscope.report.words.notation import LATEX

COMPILER = shutil.which("pdflatex") or shutil.which("tectonic")


def table(label: str, frame: pd.DataFrame) -> Shown:
    return Shown(TABLES[label], frame)


def test_a_table_beyond_the_paper_has_its_own_columns_and_gaps_are_dashes() -> None:
    frame = pd.DataFrame({"a_b": ["50%", "$x$"], "n": [0.12345678, float("nan")]})
    lines = latex_table(Shown(Exhibit("t", "beyond", "A & B", ""), frame)).splitlines()
    assert r"\caption{A \& B.}" in lines
    assert r"\begin{tabular}{lr}" in lines
    assert r"a b & n \\" in lines
    assert r"50\% & $0.1235$ \\" in lines
    assert r"\$x\$ & -- \\" in lines


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="neither pdflatex nor tectonic is installed")
def test_tables_beyond_the_paper_compile(analysed: Analysis, tmp_path: Path) -> None:
    beyond = [shown for shown in exhibited(analysed) if shown.exhibit.kind == "beyond"]
    (tmp_path / "all.tex").write_text(latex_document("\n\\clearpage\n".join(map(latex_table, beyond))), encoding="utf-8")
    assert COMPILER is not None
    flags = ["-halt-on-error", "-interaction=nonstopmode"] if COMPILER.endswith("pdflatex") else []
    done = subprocess.run([COMPILER, *flags, "all.tex"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]


def test_names_cannot_break_a_table() -> None:
    assert LATEX.text(r"50%_a&b\c{d}#$~^<>") == (
        r"50\%\_a\&b\textbackslash{}c\{d\}\#\$\textasciitilde{}\textasciicircum{}\textless{}\textgreater{}"
    )
    assert LATEX.text("字\n") == "U+5B57U+000A"
    row = {"benchmark": "my_data & more", "subset": "2", "quantity": "FG-R", "statistic": "value", "mean": 0.5, "n": 3}
    text = latex_table(table("FG-R_FG-HSG_overall", tidy("FG-R_FG-HSG_overall", [row | {"policy": "uniform"}])))
    assert r"\textbf{my\_data \& more}" in text
    assert r"step 2 & $0.50$ \\" in text


def test_a_table_is_laid_out_as_in_the_paper(analysed: Analysis) -> None:
    lines = latex_table(table("spearman_SIC", analysed.tables["spearman_SIC"])).splitlines()
    assert r"Retention &  & 10\,\% classes & 20\,\% classes & 50\,\% classes & \textbf{Pooled} \\" in lines
    assert sum(line.startswith(r"\textbf{Pooled} & SIC $\rho$ &") for line in lines) == 4
    assert all(line.endswith(r"-- \\") for line in lines if line.startswith(r"\textbf{Pooled} & SIC"))
    assert any("Simulated" in line for line in lines)


def test_a_table_of_more_benchmarks_than_a_page_holds_goes_on_in_further_ones(analysed: Analysis) -> None:
    frame = analysed.tables["spearman_SIC"]
    many = pd.concat([frame.assign(policy=f"policy {i}") for i in range(4)])
    text = latex_table(table("spearman_SIC", many))
    floats = text.split("\\begin{table}")[1:]
    assert len(floats) > 2
    assert all("10\\,\\% classes" in one for one in floats)  # the head
    assert [one.count("Continued.") for one in floats] == [0] + [1] * (len(floats) - 1)
    rows = [line for line in text.splitlines() if "SIC $" in line]
    assert len(rows) == 4 * sum("SIC $" in line for line in latex_table(table("spearman_SIC", frame)).splitlines())
    assert len(set(re.findall(r"label{(.*?)}", text))) == len(floats)


@pytest.mark.skipif(COMPILER is None, reason="neither pdflatex nor tectonic is installed")
@pytest.mark.parametrize("held", ["the paper's shape", "one experiment", "nothing"])
def test_all_tables_compile(analysed: Analysis, tiny_store: Path, tmp_path: Path, held: str) -> None:
    (tmp_path / "empty" / "steps").mkdir(parents=True)
    store = {"one experiment": tiny_store, "nothing": tmp_path / "empty"}.get(held)
    found = analysed if store is None else analyse(store, resamples=200, cached=False)
    folder = write_analysis(found, tmp_path / "out")
    assert COMPILER is not None
    options = ["-draftmode", "-interaction=nonstopmode", "-halt-on-error"] if "pdflatex" in COMPILER else []
    ran = subprocess.run([COMPILER, *options, "tables.tex"], cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-2000:]
    assert (folder / "tables.log").exists() or (folder / "tables.pdf").exists()
