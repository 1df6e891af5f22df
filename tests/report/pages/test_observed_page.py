"""The page of what a monitor saw is that of an experiment."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Browser

import forgetscope as fs
from forgetscope.report.words.findings import finding
from forgetscope.store import Store, commit_observed
from made import HOSTILE
from observed_steps import incomplete, observe, observed_record


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    observe(store, settings={"lr": 0.1, "note": HOSTILE})
    commit_observed(store, incomplete(4))
    return store


def test_it_says_what_was_observed(store: Store, tmp_path: Path) -> None:
    page = fs.write_report(fs.open_observed(store.path, "birds"), tmp_path / "page.html").read_text()
    assert "<title>Forgetting in steps 2 to 3, seen by the monitor birds</title>" in page
    assert "<h1>What Sequential forgot in steps 2 to 3, seen by the monitor birds</h1>" in page
    assert "see its images" not in page
    assert "Other monitors" not in page
    assert "Step 4 is incomplete" in page
    assert "Measured at the last layer." in page
    assert HOSTILE not in page
    document = json.loads(re.search(r'<script type="application/json" id="report">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    assert document["counted"] == "Epoch"
    step = document["steps"][-1]
    assert [row["id"] for row in step["past"]] == [30, 10, 50, 20]
    assert step["curves"]["sic"][0][-1] == pytest.approx(step["past"][0]["sic"], rel=1e-5)
    row, place = step["matrix"]["terms"][1], 1
    assert row[place] == pytest.approx(step["past"][1]["sic"], rel=1e-5)


def test_what_no_probe_measured_is_missing(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    record = observed_record(2)
    tables = {
        name: table.filter(pa.compute.field("class_id") == 10)
        for name, table in record.tables.items()
        if name in ("probes", "pairs")
    }
    commit_observed(store, observed_record(2, tables={**record.tables, **tables}))
    page = fs.write_report(fs.open_observed(store.path), tmp_path / "page.html").read_text()
    document = json.loads(re.search(r'id="report">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    assert document["steps"][0]["matrix"]["terms"][0] == [None] * 4


def test_it_says_which_monitor_it_is_of_and_how_to_get_the_others(store: Store, tmp_path: Path) -> None:
    observe(store, 2, "ducks")
    page = fs.write_report(fs.open_observed(store.path, "birds"), tmp_path / "page.html").read_text()
    assert "<dt>Other monitors in the store</dt><dd>ducks (report --observed ducks)</dd>" in page


@pytest.mark.parametrize(("classes", "first"), [(4, 0.9), (50, 0.9), (5, 0.31), (5, -0.31)])
def test_one_step_names_no_best_measure(store: Store, classes: int, first: float) -> None:
    observed = fs.open_observed(store.path, "birds")
    correlations = {"sic": first, "cic": first - 0.1, "nic": math.nan}
    summary = dataclasses.replace(observed.summaries[-1], ranked_classes=classes, correlations=correlations)
    said = finding(observed, summary).replace("\N{MINUS SIGN}", "-")
    assert (
        f"Rank correlations with forgetting: SIC {first:.2f}, CIC {first - 0.1:.2f}; one step of {classes} past classes says "
        "nothing about which measure predicts it."
    ) in said
    assert "best" not in said


@pytest.mark.browser
def test_what_was_measured_is_not_called_unmeasured_where_forgetting_is_unknown(tmp_path: Path, browser: Browser) -> None:
    store, record = Store(tmp_path / "store"), observed_record(3)
    classes = record.tables["classes"]
    for name in ("accuracy", "forgetting"):
        missing = pa.nulls(len(classes), classes.schema.field(name).type)
        classes = classes.set_column(classes.column_names.index(name), name, missing)
    tables = {name: table for name, table in record.tables.items() if name not in ("confusion", "predictions")}
    commit_observed(store, observed_record(3, tables={**tables, "classes": classes}))
    path = fs.write_report(fs.open_observed(store.path, "birds"), tmp_path / "page.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    assert "Measured, but of no class whose forgetting is known" in (page.locator("#panel-sic").text_content() or "")
    page.wait_for_selector("#curves .xtitle")
    assert page.locator("#curves .xtitle").text_content() == "Epoch of the step"


@pytest.mark.browser
def test_it_draws_without_an_error(store: Store, tmp_path: Path, browser: Browser) -> None:
    path = fs.write_report(fs.open_observed(store.path, "birds"), tmp_path / "page.html")
    page, complaints = browser.new_page(), list[str]()
    page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector("#accuracy .hm")
    for button in page.locator(".buttons button").all():
        button.click()
    page.locator("#table tbody a", has_text="owl").click()
    page.locator("#class h3", has_text="owl").wait_for()
    page.locator("#class .xtitle", has_text="Epoch").wait_for()
    assert complaints == []
    assert page.evaluate("window.hacked") is None
