"""The page of what a monitor saw is that of an experiment."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from playwright.sync_api import Browser

import forgetscope as fs
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
    assert "<title>Forgetting on birds</title>" in page
    assert "Step 4 is incomplete" in page
    assert "Measured at the last layer." in page
    assert HOSTILE not in page
    document = json.loads(re.search(r'<script type="application/json" id="report">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
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


@pytest.mark.browser
def test_it_draws_without_an_error(store: Store, tmp_path: Path, browser: Browser) -> None:
    path = fs.write_report(fs.open_observed(store.path, "birds"), tmp_path / "page.html")
    page, complaints = browser.new_page(), list[str]()
    page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector("#accuracy .hm")
    for button in page.locator("button").all():
        button.click()
    assert complaints == []
    assert page.evaluate("window.hacked") is None
