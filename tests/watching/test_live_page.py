"""The live page in a real browser: what it shows of a store that changes under it, and what it says when nobody answers."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from forgetscope.report.underway import SHOWN
from forgetscope.underway.running import Lookout, UnderWay
from keys import unreached
from made import HOSTILE
from underway.test_lookout import halted, say, stopped
from watching.served import Served, serving

__all__ = ["halted", "stopped"]  # fixtures
pytestmark = [pytest.mark.browser, pytest.mark.slow]

LATER = "2999-01-01T00:00:00+00:00"


@pytest.fixture
def running(halted: Path) -> Path:
    """A store in which a step runs."""
    say(halted, state="running", heartbeat=LATER)
    return halted


@pytest.fixture
def opened(browser: Browser, running: Path) -> Iterator[tuple[Page, Served]]:
    with serving(running) as served:
        page = browser.new_page()
        page.goto(served.address)
        page.locator(".step table tbody tr").first.wait_for()
        yield page, served
        page.close()


def test_it_shows_classes_at_risk_curves_and_what_is_done(opened: tuple[Page, Served]) -> None:
    page, served = opened
    (one,) = served.state()["running"]
    expect(page.locator("#now")).to_have_text("1 step is running.")
    expect(page.locator(".step h2")).to_have_text(one["title"])
    expect(page.locator(".step .lead").first).to_have_text(one["pace"])
    rows = page.locator(".step tbody tr").all_inner_texts()
    assert [row.split("\t")[0].strip() for row in rows] == [row["class_name"] for row in one["at_risk"]]
    for shown, row in zip(rows, one["at_risk"], strict=True):
        assert shown.split("\t")[1] == str(row["rank"])
        assert shown.split("\t")[-1] == row["why"]
    lines = page.locator(".growing figure")
    assert [lines.nth(i).locator("path.curve").count() for i in range(5)] == [3, 3, 6, 1, 0]
    expect(lines.nth(4)).to_contain_text(one["forecasts_by"])
    assert one["forecasts_by"].startswith("No forecast: ")
    assert page.locator("#done tbody a").count() == 1


def test_curves_grow_and_what_is_focused_or_chosen_stays(opened: tuple[Page, Served], running: Path) -> None:
    page, _ = opened
    button = page.locator(".step tbody button").nth(1)
    name = button.inner_text()
    button.focus()
    page.keyboard.press("Enter")
    assert page.locator("path.curve.lit").count() == 4
    say(running, epoch=2, loss=0.5, losses=[0.9, 0.5])
    expect(page.locator(".step .lead").first).to_contain_text("epoch 2 of 3 · loss 0.500")
    assert page.locator(".growing figure").nth(3).locator("path").get_attribute("d").count("L") == 1  # type: ignore[union-attr]
    assert page.evaluate("document.activeElement.textContent") == name
    assert page.locator(".step tbody button[aria-pressed=true]").all_inner_texts() == [name]
    page.keyboard.press("Enter")
    assert page.locator("path.curve.lit, .chosen").count() == 0


def test_a_step_that_ends_leaves_and_one_that_stops_says_so(opened: tuple[Page, Served], running: Path) -> None:
    page, _ = opened
    say(running, state="stopped")
    expect(page.locator("#now")).to_have_text("Nothing is running. 1 has fallen silent or stopped.")
    expect(page.locator(".step .note")).to_contain_text("was stopped after epoch 1")
    for path in (running / "working").iterdir():
        path.rename(path.with_name(f".{path.name}"))
    expect(page.locator(".step")).to_have_count(0)
    expect(page.locator("#now")).to_have_text("Nothing is running.")


def test_a_store_that_goes_away_and_comes_back(opened: tuple[Page, Served], running: Path) -> None:
    page, _ = opened
    running.rename(running.with_name("elsewhere"))
    expect(page.locator("#lost")).to_contain_text("it was moved or deleted")
    expect(page.locator(".step")).to_have_count(0)
    running.with_name("elsewhere").rename(running)
    expect(page.locator(".step")).to_have_count(1)
    expect(page.locator("#lost")).to_be_hidden()


def test_where_no_answer_comes_it_says_since_when(browser: Browser, running: Path) -> None:
    with ExitStack() as stack:
        served = stack.enter_context(serving(running))
        page = browser.new_page()
        page.goto(served.address)
        page.locator(".step").wait_for()
        expect(page.locator("#stale")).to_be_hidden()
        stack.close()
        expect(page.locator("#stale")).to_contain_text("Not up to date since")
        expect(page.locator("#stale")).to_contain_text("gives no answer")
        assert page.locator(".step").count() == 1  # what was seen last stays
        assert page.title().startswith("not up to date")


def test_it_asks_nobody_else_and_reports_no_error(browser: Browser, running: Path) -> None:
    with serving(running) as served:
        page, asked, complaints = browser.new_page(), list[str](), list[str]()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(served.address)
        page.locator(".step").wait_for()
        page.wait_for_timeout(300)
        assert {url for url in asked if not url.startswith("data:")} == {served.address, f"{served.address}state"}
        assert complaints == []


def test_a_hidden_page_does_not_ask(opened: tuple[Page, Served]) -> None:
    page, _ = opened
    asked: list[str] = []
    hide = "hidden => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });"
    page.evaluate(f"{hide} document.dispatchEvent(new Event('visibilitychange')); }}", True)
    page.wait_for_timeout(200)  # what was asked before is answered
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(400)
    assert asked == []
    page.evaluate(f"{hide} document.dispatchEvent(new Event('visibilitychange')); }}", False)
    page.wait_for_timeout(400)
    assert len(asked) > 1


def test_hostile_names_are_only_characters(browser: Browser, running: Path) -> None:
    say(
        running, names=[HOSTILE, '"><img src=x onerror=window.hacked=1>', "</script><script>window.hacked=1</script>", "d", "e"]
    )
    (running / "working" / "</ul><img src=x onerror=window.hacked=1>".replace("/", "")).mkdir()
    (running / "working" / "<ul><img src=x onerror=window.hacked=1>" / "progress.json").write_text("[")
    with serving(running) as served:
        page = browser.new_page()
        page.goto(served.address)
        page.locator(".step tbody button").first.click()
        assert set(page.locator(".step tbody button").all_inner_texts()) >= {HOSTILE}
        expect(page.locator("#problems li")).to_contain_text("<img src=x")
        assert page.evaluate("window.hacked") is None
        assert page.locator("img, main a[href^=javascript], b > script").count() == 0


def test_forecasts_stand_against_what_is_forgotten_so_far(
    browser: Browser, running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [(0.8, 0.6, 0.95, 0.3), (0.5, math.nan, math.nan, 0.4), (0.2, 0.1, 0.3, math.nan)]
    by = "Forecasts are fitted on 12 experiments."
    look, hidden = Lookout.look, list[str]()

    def foreseen(self: Lookout) -> list[UnderWay]:
        names = ("forecast", "forecast_low", "forecast_high", "so_far")
        found = []
        for one in look(self):
            values = [
                {name: math.nan if name in hidden else value for name, value in zip(names, row, strict=True)} for row in made
            ]
            rows = tuple(dataclasses.replace(row, **own) for row, own in zip(one.at_risk, values, strict=True))
            found.append(dataclasses.replace(one, at_risk=rows, forecasts_by=by))
        return found

    monkeypatch.setattr(Lookout, "look", foreseen)
    with serving(running) as served:
        page = browser.new_page()
        page.goto(served.address)
        chart = page.locator(".growing figure").nth(4)
        expect(chart).to_contain_text("forgotten so far")
        assert (chart.locator("circle").count(), chart.locator("line.curve").count()) == (2, 1)
        expect(page.locator(".step thead")).to_contain_text("Final FG")
        assert "0.80 (0.60, 0.95)" in page.locator(".step tbody tr").first.inner_text()
        expect(page.locator(".step")).to_contain_text(by)
        hidden.append("so_far")  # as where a run keeps nothing to tell it by
        expect(chart).to_contain_text("rank; forgotten so far is unknown")
        assert (chart.locator("circle").count(), chart.locator("line.curve").count()) == (3, 2)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 390])
def test_everybody_can_read_it(browser: Browser, running: Path, scheme: str, width: int) -> None:
    """axe finds nothing, nothing is wider than the screen, Tab alone gets everywhere, and nothing moves by itself."""
    with serving(running) as served:
        page = browser.new_page(
            color_scheme=scheme,  # type: ignore[arg-type]
            viewport={"width": width, "height": 900},
            reduced_motion="reduce",
        )
        page.goto(served.address)
        page.locator(".step table").wait_for()
        page.locator("summary").click()
        found = Axe().run(page).response["violations"]
        assert [(one["id"], [node["target"] for node in one["nodes"]]) for one in found] == []
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert unreached(page) == []
        moving = "[...document.querySelectorAll('*')].filter((one) => getComputedStyle(one).transitionDuration !== '0s'"
        assert page.evaluate(f"{moving} || getComputedStyle(one).animationName !== 'none').length") == 0


def test_the_link_of_a_finished_step_opens_its_page(opened: tuple[Page, Served]) -> None:
    page, served = opened
    with page.context.expect_page() as found:
        page.locator("#done a").click()
    report = found.value
    report.locator("h1").wait_for()
    assert report.locator("h1").inner_text() == "What resnet8 forgot on glyphs"
    report.locator("#accuracy .hm").wait_for()  # its own scripts run under its own policy
    assert report.evaluate("document.referrer") == ""
    assert report.evaluate("window.opener") is None
    assert report.url.startswith(served.address)


def test_a_page_without_a_step_that_can_forget(browser: Browser, running: Path) -> None:
    (path,) = running.glob("working/*/progress.json")
    told = json.loads(path.read_text(encoding="utf-8"))
    say(running, past=0, step="birds/1", losses=[], loss=None, epochs=None, seconds_left=None, classes=told["classes"])
    for name in ("probes", "pairs"):
        (path.parent / f"{name}.parquet").unlink()
    with serving(running) as served:
        page = browser.new_page()
        page.goto(served.address)
        expect(page.locator(".step h2")).to_have_text("Observed step birds/1")
        expect(page.locator(".step")).to_contain_text("No past classes yet: nothing can be forgotten.")
        expect(page.locator(".step")).to_contain_text("a monitor does not see the loss")
        expect(page.locator(".step table, .step progress").first).to_be_hidden()


def test_many_steps_are_lines(browser: Browser, running: Path) -> None:
    (path,) = (found.parent for found in running.glob("working/*/progress.json"))
    for i in range(SHOWN + 3):
        copy = path.with_name(f"{i:032x}")
        copy.mkdir()
        for file in path.glob("*.parquet"):
            (copy / file.name).write_bytes(file.read_bytes())
        told = json.loads((path / "progress.json").read_text(encoding="utf-8"))
        (copy / "progress.json").write_text(json.dumps({**told, "step": copy.name}), encoding="utf-8")
    with serving(running) as served:
        page = browser.new_page()
        page.goto(served.address)
        expect(page.locator("#now")).to_have_text(f"{SHOWN + 4} steps are running.")
        expect(page.locator(".step")).to_have_count(SHOWN)
        expect(page.locator("#more li")).to_have_count(4)
