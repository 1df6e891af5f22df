"""Files of an analysis: texts that a spreadsheet would take for formulas are texts, and numbers are numbers."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import Browser

from forgetscope.report.datafiles import inert
from forgetscope.report.pages.packing import asset

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"]
HARMLESS = ["cat", "a=b", "a\n=1", "-0.5", "+1e-3", "", "8 images"]


def test_formulas_become_texts_and_numbers_stay(tmp_path: Path) -> None:
    frame = pd.DataFrame({"class_name": [*FORMULAS, *HARMLESS], "mean": -0.5})
    inert(frame).to_csv(tmp_path / "x.csv", index=False)
    back = pd.read_csv(tmp_path / "x.csv", keep_default_na=False)
    assert back["class_name"].tolist() == [*(f"'{text}".replace("\r", "\n") for text in FORMULAS), *HARMLESS]
    assert back["mean"].tolist() == [-0.5] * len(frame)
    assert frame["class_name"].tolist()[0] == "=1+1"


@pytest.mark.browser
def test_the_downloads_of_a_page_do_the_same(browser: Browser) -> None:
    page = browser.new_page()
    (line,) = [line for line in asset("core.js").splitlines() if line.startswith("const inert =")]
    found = page.evaluate(f"texts => {{ {line} return texts.map(inert); }}", [*FORMULAS, *HARMLESS])
    page.close()
    assert found == [*(f"'{text}" for text in FORMULAS), *HARMLESS]
