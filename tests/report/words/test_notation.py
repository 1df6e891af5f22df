"""Numbers, intervals and missing values, as every writer writes them."""

from __future__ import annotations

import math

import pytest
from playwright.sync_api import Browser

from forgetscope.analysis.statistics.estimates import Estimate
from forgetscope.report.pages.packing import asset
from forgetscope.report.words.notation import LATEX, PLAIN

NAN = math.nan
NUMBERS = [0.514, -0.514, 1.0, -0.001, 0.0, -12.3, 0.126, NAN]


def test_a_minus_sign_is_one_zero_has_no_sign_and_what_is_missing_is_a_dash() -> None:
    assert [PLAIN.number(x) for x in NUMBERS] == ["0.51", "−0.51", "1.00", "0.00", "0.00", "−12.30", "0.13", "–"]
    assert [LATEX.number(x) for x in (-0.514, -0.001, NAN)] == ["$-0.51$", "$0.00$", "--"]
    assert [PLAIN.number(x, signed=True) for x in (0.051, -0.15, 0.001, -0.001, NAN)] == ["+0.05", "−0.15", "0.00", "0.00", "–"]
    assert [PLAIN.significant(x) for x in (-0.00001234, 12.345, NAN)] == ["−1.23e−05", "12.3", "–"]
    assert [PLAIN.percent(x) for x in (0.125, NAN, -0.2, -0.001)] == ["12\u202f%", "–", "−20\u202f%", "0\u202f%"]


def test_an_interval_stands_in_brackets_behind_its_estimate_where_it_is_known() -> None:
    assert PLAIN.estimate(Estimate(0.5, -0.1, 0.9, 3)) == "0.50 (−0.10, 0.90)"
    assert PLAIN.estimate(Estimate(0.5, -0.1, 0.9, 3), 3, signed=True) == "+0.500 (−0.100, +0.900)"
    assert LATEX.estimate(Estimate(0.5, -0.1, 0.9, 3)) == "$0.50$ ($-0.10$, $0.90$)"
    assert [PLAIN.estimate(Estimate(x, NAN, NAN, 1)) for x in (0.5, NAN)] == ["0.50", "–"]


def test_probabilities_are_powers_of_ten() -> None:
    assert [PLAIN.probability(p) for p in (1.0, 3.41e-12, NAN)] == ["1.00", "3.41 · 10⁻¹²", "–"]
    assert [LATEX.probability(p) for p in (1.0, 3.41e-12)] == ["$1.00$", r"$3.41 \cdot 10^{-12}$"]


@pytest.mark.browser
def test_the_scripts_of_the_pages_write_numbers_and_intervals_in_the_same_way(browser: Browser) -> None:
    page = browser.new_page()
    script = asset("core.js")
    script = script[script.index("// ---- Words and numbers") : script.index("function element(")]
    given = [None if math.isnan(x) else x for x in NUMBERS]
    ours = page.evaluate(f"values => {{ {script} return values.map((value) => decimal(value)); }}", given)
    assert ours == [PLAIN.number(x) for x in NUMBERS]
    signed = page.evaluate(f"values => {{ {script} return values.map((value) => decimal(value, 3, true)); }}", given)
    assert signed == [PLAIN.number(x, 3, signed=True) for x in NUMBERS]
    ends = page.evaluate(f"() => {{ {script} return [interval(-0.1, 0.9), interval(null, null), significant(-0.00001)]; }}")
    assert ends == [PLAIN.interval(-0.1, 0.9), "", "−1.0e−5"]
    page.close()
