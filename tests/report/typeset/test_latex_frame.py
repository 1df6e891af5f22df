from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pandas as pd
import pytest

from forgetscope.analysis.results import Analysis
from forgetscope.report.pages.benchmark import BEYOND
from forgetscope.report.typeset.latex_frame import latex_frame

COMPILER = shutil.which("pdflatex") or shutil.which("tectonic")


def test_every_cell_is_text_or_a_number_and_gaps_are_dashes() -> None:
    frame = pd.DataFrame({"a_b": ["50%", "$x$"], "n": [0.12345678, float("nan")]})
    lines = latex_frame("t", "A & B", frame).splitlines()
    assert r"\caption{A \& B.}" in lines
    assert r"\begin{tabular}{lr}" in lines
    assert r"a b & n \\" in lines
    assert r"50\% & $0.1235$ \\" in lines
    assert r"\$x\$ & -- \\" in lines


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="neither pdflatex nor tectonic is installed")
def test_tables_beyond_the_paper_compile(analysed: Analysis, tmp_path: Path) -> None:
    body = "\n\\clearpage\n".join(latex_frame(label, title, analysed.more[label]) for label, (title, _) in BEYOND.items())
    head = "\\documentclass{article}\n\\usepackage[T1]{fontenc}\n\\usepackage{booktabs}\n\\usepackage{graphicx}"
    (tmp_path / "all.tex").write_text(f"{head}\n\\begin{{document}}\n{body}\n\\end{{document}}\n", encoding="utf-8")
    assert COMPILER is not None
    flags = ["-halt-on-error", "-interaction=nonstopmode"] if COMPILER.endswith("pdflatex") else []
    done = subprocess.run([COMPILER, *flags, "all.tex"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
