"""The report page: what it says, that it is self-contained, and what a reader can do with it in a real browser."""

from __future__ import annotations

import base64
import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from forgetscope.analysis.experiments import Experiment
from forgetscope.report.pages.experiment import render_page
from forgetscope.report.pages.explorer import explore_chain
from forgetscope.report.words.definitions import definitions
from forgetscope.store import Store
from keys import unreached
from made import HOSTILE, PROBES, make_experiment, small, strips


def test_the_headline_names_the_most_and_the_least_forgotten_class(store: Store) -> None:
    page = render_page(small(store), {})
    assert headline(page) == (
        "Step 3: past classes lost 38 % of their accuracy on average (80 % when learned, 50 % now), but unevenly: "
        "class 0 lost 75 %, class 3 lost nothing (FG-R 0.75, 0.14 by noise alone). Rank correlations with forgetting: "
        "SIC 1.00, CIC −0.80, NIC −0.80, ALL-NIC 0.80, LOG-SIM 1.00; one step of 4 past classes says nothing about which "
        "measure predicts it."
    )


def test_a_single_step_has_nothing_to_forget(store: Store) -> None:
    page = render_page(make_experiment(store, steps=1), {})
    assert "nothing can be forgotten" in headline(page)
    assert 'id="accuracy"' in page
    assert 'id="matrix"' not in page


def test_without_probes_the_headline_credits_no_measure(store: Store) -> None:
    page = render_page(make_experiment(store, steps=2, probes=0), {})
    assert headline(page).endswith(" by noise alone).")
    assert "class 1 lost nothing" in headline(page)
    assert document(page)["steps"][0]["curves"] is None


def test_a_class_that_was_never_learned_is_left_out_of_the_headline_and_shown_as_missing(store: Store) -> None:
    experiment = make_experiment(store, steps=2, learned={0: 0.0})
    page = render_page(experiment, {})
    assert "class 0" not in headline(page)
    assert document(page)["steps"][0]["past"][-1] | {"id": 0, "forgetting": None} == document(page)["steps"][0]["past"][-1]


def test_a_step_whose_past_classes_were_never_learned_has_a_headline_too(store: Store) -> None:
    page = render_page(make_experiment(store, steps=2, learned={0: 0.0, 1: 0.0}), {})
    assert headline(page) == "Step 2: no past class had been learned, so there is nothing to forget."


def test_curves_end_in_the_coefficients(store: Store) -> None:
    step = document(render_page(small(store), {}))["steps"][-1]
    for name in ("sic", "cic", "nic", "all_nic"):
        assert [line[-1] for line in step["curves"][name]] == pytest.approx([row[name] for row in step["past"]], rel=1e-5)


def test_the_matrix_adds_up_to_the_coefficients_of_each_row(store: Store) -> None:
    step = document(render_page(small(store), {}))["steps"][-1]
    past = len(step["past"])
    for i, (row, terms) in enumerate(zip(step["past"], step["matrix"]["terms"], strict=True)):
        assert terms[i] == pytest.approx(row["sic"], rel=1e-4)
        assert sum(terms[:past]) - terms[i] == pytest.approx(row["cic"], rel=1e-4)
        assert sum(terms[past:]) == pytest.approx(row["nic"], rel=1e-4)


def test_a_class_name_cannot_leave_its_place_in_the_document(store: Store) -> None:
    page = render_page(make_experiment(store, steps=2, names={0: HOSTILE}), {})
    assert HOSTILE not in page
    assert document(page)["classes"]["0"]["name"] == HOSTILE


def test_without_thumbnails_nothing_about_images_is_embedded(store: Store) -> None:
    assert "data:image/" not in markup_and_data(render_page(small(store), {}))
    assert "data:image/png;base64," in markup_and_data(render_page(small(store), strips()))


def test_thumbnails_of_classes_that_were_not_learned_are_not_embedded(store: Store) -> None:
    page = render_page(small(store), {**strips(), 77: b"another class"})
    assert base64.b64encode(b"another class").decode() not in page


def test_the_settings_name_every_step_and_its_libraries(store: Store) -> None:
    experiment = small(store)
    page = render_page(experiment, {})
    for step in experiment.steps:
        assert step.id in page
    assert "2.99.0+test" in page


def test_a_simulated_experiment_says_so_before_anything_else(store: Store) -> None:
    page = render_page(make_experiment(store, steps=2, simulated={"seed": 5, "truth": {"noise": 0.4}}), {})
    markup = markup_and_data(page)
    assert "<title>Simulated forgetting on toy" in markup
    assert markup.index("<strong>Simulated.</strong> No network was trained") < markup.index("<h1>")
    assert headline(page).startswith("Simulated with seed 5: nothing was trained")
    assert document(page)["steps"][0]["finding"].startswith("Simulated with seed 5")
    assert re.search(r'<th scope="row">noise</th>\s*<td colspan="2">0.4</td>', markup)


def test_a_trained_experiment_does_not(store: Store) -> None:
    markup = markup_and_data(render_page(small(store), {}))
    assert "simulated" not in markup[markup.index("<body>") :].lower()


def test_the_same_experiment_gives_the_same_page(store: Store) -> None:
    assert render_page(small(store), strips()) == render_page(small(store), strips())


# ---- In a browser


@pytest.mark.browser
def test_the_page_requests_nothing_but_itself_and_reports_no_error(store: Store, tmp_path: Path, browser: Browser) -> None:
    page = browser.new_page()
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    address = show(page, small(store), tmp_path)
    for button in page.locator(".buttons button").all():
        button.click()
    page.locator("summary").click()
    assert [url for url in requests if not url.startswith("data:")] == [address]
    assert complaints == []


@pytest.mark.browser
def test_pointing_at_a_class_shows_its_images_and_marks_it_everywhere(store: Store, tmp_path: Path, browser: Browser) -> None:
    page = browser.new_page()
    show(page, small(store), tmp_path)
    hover_first_point(page)
    tooltip = page.locator("#tooltip")
    assert tooltip.is_visible()
    assert "class 0" in tooltip.inner_text()
    assert "Accuracy when learned" in tooltip.inner_text()
    assert tooltip.locator("img").evaluate("image => image.naturalWidth") == 8
    assert page.locator("#panel-cic .trace").nth(1).locator("path.point").count() == 1
    assert "class 0" in page.locator("tr.lit").inner_text()
    page.mouse.move(2, 2)
    page.wait_for_function("document.getElementById('tooltip').hidden")
    assert page.locator("tr.lit").count() == 0


@pytest.mark.browser
def test_the_matrix_says_in_words_who_interfered_with_whom(store: Store, tmp_path: Path, browser: Browser) -> None:
    page = browser.new_page()
    show(page, small(store), tmp_path)
    point_at(page, "#matrix .nsewdrag", across=0.97, down=0.05)  # top right: most forgotten class, last new class
    assert re.match(r"class 5 \(new\) interfered with class 0: \+0\.\d{4} \(NIC\)", page.locator("#tooltip").inner_text())
    point_at(page, "#matrix .nsewdrag", across=0.03, down=0.05)  # top left: the diagonal
    assert re.match(r"class 0 interfered with itself: \+2\.000 \(SIC\)", page.locator("#tooltip").inner_text())


@pytest.mark.browser
def test_step_buttons_work_from_the_keyboard_and_govern_the_sections(store: Store, tmp_path: Path, browser: Browser) -> None:
    page = browser.new_page()
    show(page, small(store), tmp_path)
    assert page.locator("#table tbody tr").count() == 4
    page.get_by_role("button", name="Step 2").focus()
    page.keyboard.press("Enter")
    assert page.get_by_role("button", name="Step 2").get_attribute("aria-pressed") == "true"
    assert page.get_by_role("button", name="Step 3").get_attribute("aria-pressed") == "false"
    assert page.locator("#table tbody tr").count() == 2
    assert page.locator("#finding").inner_text().startswith("Step 2:")


@pytest.mark.browser
def test_a_missing_value_is_a_dash_that_says_why(store: Store, tmp_path: Path, browser: Browser) -> None:
    page = browser.new_page()
    show(page, make_experiment(store, steps=2, learned={0: 0.0}, vanished=(1,)), tmp_path)
    dashes = page.locator("#table abbr")
    assert set(dashes.all_inner_texts()) == {"–"}
    reasons = {dash.get_attribute("title") for dash in dashes.all()}
    assert reasons == {"never learned: its accuracy was 0", f"gradient vanished at {PROBES} of {PROBES} probes"}


@pytest.mark.browser
@pytest.mark.parametrize("classes", [2, 30])
def test_a_phone_scrolls_wide_parts_and_never_the_page(store: Store, tmp_path: Path, browser: Browser, classes: int) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    show(page, make_experiment(store, steps=3, classes=classes), tmp_path)
    page.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.browser
def test_dark_mode_changes_page_and_charts_at_once(store: Store, tmp_path: Path, browser: Browser) -> None:
    page = browser.new_page(color_scheme="light")
    show(page, small(store), tmp_path)
    look = "[getComputedStyle(document.body).backgroundColor, document.querySelector('#curves .js-line').style.stroke]"
    light = page.evaluate(look)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"before => {look}.every((colour, i) => colour !== before[i])", arg=light)


@pytest.mark.browser
def test_a_hostile_class_name_is_only_characters(store: Store, tmp_path: Path, browser: Browser) -> None:
    page = browser.new_page()
    show(page, make_experiment(store, steps=3, names={0: HOSTILE}), tmp_path)
    hover_first_point(page)
    assert page.locator("#tooltip strong").inner_text() == HOSTILE
    assert page.evaluate("window.hacked") is None
    assert page.locator("a, img[src=x], #matrix b").count() == 0
    assert any(text.startswith("</script>") for text in page.locator("#matrix .ytick").all_text_contents())


@pytest.mark.browser
def test_an_experiment_of_one_step_and_one_without_probes_draw_without_error(
    store: Store, tmp_path: Path, browser: Browser
) -> None:
    page = browser.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    show(page, make_experiment(store, steps=1), tmp_path)
    assert page.locator("#accuracy .hm").count() == 1
    show(page, make_experiment(store, steps=2, probes=0), tmp_path)
    assert page.locator(".empty").count() == 7
    assert errors == []


@pytest.mark.browser
def test_a_chosen_class_shows_what_happened_to_it(store: Store, tmp_path: Path, browser: Browser) -> None:
    experiment = small(store)
    path = tmp_path / "page.html"
    path.write_text(render_page(experiment, {}, explore_chain(experiment.steps, lambda facts: None)), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.get_by_role("button", name="class 0", exact=True).click()
    told = page.locator("#class").inner_text()
    for part in ("Accuracy after every step", "Who interfered with it most", "Now taken for", "Rehearsal images: 4 kept"):
        assert part in told
    page.locator("#class .js-line").last.wait_for()


@pytest.mark.browser
def test_numbers_of_all_classes_say_so_where_the_sentence_leaves_some_out(
    store: Store, tmp_path: Path, browser: Browser
) -> None:
    page = browser.new_page()
    experiment = make_experiment(store, steps=2, learned={0: 0.3})
    show(page, experiment, tmp_path)
    barely = experiment.summaries[0].barely_learned
    assert page.locator("#barely").is_visible() == (barely > 0) == ("barely learned" in page.locator("#finding").inner_text())
    assert barely == 1
    assert "also the one that was barely learned" in page.locator("#barely").inner_text()


@pytest.mark.browser
def test_one_choice_of_a_step_governs_charts_panel_and_address(store: Store, tmp_path: Path, browser: Browser) -> None:
    page = browser.new_page()
    address = show_whole(page, small(store), tmp_path)
    page.get_by_role("button", name="Step 2").click()
    page.locator("#class-names option").first.wait_for(state="attached")
    page.locator("#table tbody a", has_text="class 1").click()
    page.locator("#class h3", has_text="class 1").wait_for()
    assert "Step 2" in page.locator("#class").inner_text()
    assert page.locator("#classes tbody tr").count() == page.locator("#table tbody tr").count() == 2
    page.get_by_role("button", name="Step 3").click()
    page.locator("#class .how", has_text="Step 3").first.wait_for()
    assert page.locator("#class h3").inner_text() == "class 1"
    assert page.locator("#classes tbody tr").count() == 4
    again = browser.new_page()
    again.goto(page.evaluate("location.href").replace("step=3", "step=2"))
    again.locator("#class .how", has_text="Step 2").first.wait_for()
    assert again.get_by_role("button", name="Step 2").get_attribute("aria-pressed") == "true"
    assert again.locator("#finding").inner_text().startswith("Step 2:")
    assert again.url.startswith(address)


@pytest.mark.browser
def test_every_point_of_a_chart_opens_its_class(store: Store, tmp_path: Path, browser: Browser) -> None:
    page = browser.new_page()
    show_whole(page, small(store), tmp_path)
    page.locator("#scatter .point").first.wait_for()
    for chart in ("#panel-nic path.point >> nth=0", "#matrix .nsewdrag", "#accuracy .nsewdrag"):
        page.evaluate("location.hash = '#?step=3'")
        page.locator("#class .empty").wait_for()
        point_at(page, chart, across=0.5, down=0.5)
        page.mouse.down()
        page.mouse.up()
        page.locator("#class h3").wait_for()
    assert page.evaluate("Number(readState().class)") >= 0


@pytest.mark.browser
def test_charts_and_tables_of_an_experiment_can_be_taken_away(store: Store, tmp_path: Path, browser: Browser) -> None:
    page = browser.new_page()
    show_whole(page, small(store), tmp_path)
    groups = page.get_by_role("group", name="Downloads of")
    names = [groups.nth(i).get_attribute("aria-label") for i in range(groups.count())]
    assert len(set(names)) == len(names) >= 11  # five panels, table, curves, matrix, points, confusion, accuracies
    with page.expect_download() as saved:
        groups.nth(5).get_by_role("button", name="Download CSV").click()
    rows = list(csv.DictReader(saved.value.path().read_text().splitlines()))
    assert saved.value.suggested_filename == "table-step-3.csv"
    step = page.evaluate("JSON.parse(byId('report').textContent).steps.at(-1)")
    assert [float(row["sic"]) for row in rows] == [row["sic"] for row in step["past"]]
    for kind, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with page.expect_download() as saved:
            page.locator("#matrix").locator("xpath=ancestor::figure").get_by_role("button", name=f"Download {kind}").click()
        assert saved.value.path().read_bytes().startswith(start)
    page.get_by_role("button", name="Enlarge: Cumulative coefficient").press("Enter")
    page.locator("dialog.enlarged .js-line").first.wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog.enlarged").wait_for(state="detached")


@pytest.mark.browser
def test_an_experiment_prints_whole(store: Store, tmp_path: Path, browser: Browser) -> None:
    page = browser.new_page(color_scheme="dark", viewport={"width": 1440, "height": 900})
    show_whole(page, make_experiment(store, steps=3, classes=30), tmp_path)
    page.locator("#scatter .point").first.wait_for()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size({"width": 718, "height": 1000})  # a sheet of A4 without its margins
    for name in ("#table", "#matrix", "#accuracy", "#curves"):
        box = page.locator(name).bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 718, name
    assert page.locator("#table").evaluate("table => table.parentElement.scrollHeight - table.parentElement.clientHeight") <= 1
    expect(page.locator(".fg-bar i").first).to_have_css("print-color-adjust", "exact")  # of the table as it is drawn anew
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator(".settings").is_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen", color_scheme="dark")
    assert page.locator(".settings").is_hidden()


@pytest.mark.browser
def test_range_and_half_gap_stand_beside_their_noise(store: Store, tmp_path: Path, browser: Browser) -> None:
    page = browser.new_page()
    show(page, small(store), tmp_path)
    step = page.evaluate("JSON.parse(byId('report').textContent).steps.at(-1)")
    bands = page.locator("#cards .noise i")
    assert bands.count() == 2
    for i, name in enumerate(("range_floor", "half_gap_floor")):
        assert float(bands.nth(i).evaluate("band => band.style.width").split("(")[-1].split("%")[0]) == pytest.approx(
            100 * step[name]
        )


@pytest.mark.browser
def test_words_of_an_experiment_are_explained_to_keys(store: Store, tmp_path: Path, browser: Browser) -> None:
    page = browser.new_page()
    show(page, small(store), tmp_path)
    word = page.locator("#cards .term", has_text="FG-R")
    word.focus()
    page.keyboard.press("Enter")
    assert definitions()["FG-R"].short in page.locator("#definition").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#definition").is_hidden()


@pytest.mark.browser
def test_keys_alone_reach_everything(store: Store, tmp_path: Path, browser: Browser) -> None:
    page = browser.new_page()
    show_whole(page, small(store), tmp_path)
    page.locator("#table tbody a").first.press("Enter")
    page.locator("#class .js-line").last.wait_for()
    assert unreached(page) == []


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("width", [1440, 390])
def test_axe_finds_nothing_on_the_page_of_an_experiment(store: Store, tmp_path: Path, browser: Browser, width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
        show_whole(page, small(store), tmp_path)
        page.locator("#confusion .hm").wait_for()
        for chosen in (False, True):
            if chosen:
                page.locator("#table tbody a").first.click()
                page.locator("#class h3").wait_for()
                page.locator("summary").click()
            found = axe.Axe().run(page).response["violations"]
            assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == [], (scheme, chosen)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.prepare()
    return store


def show(page: Page, experiment: Experiment, folder: Path) -> str:
    """Open the experiment's page from a file; returns its address."""
    path = folder / "page.html"
    path.write_text(render_page(experiment, strips()), encoding="utf-8")
    page.goto(path.as_uri())
    page.wait_for_selector("#accuracy .hm")
    return path.as_uri()


def show_whole(page: Page, experiment: Experiment, folder: Path) -> str:
    """The same with the section about one class."""
    path = folder / "whole.html"
    text = render_page(experiment, strips(), explore_chain(experiment.steps, lambda facts: None))
    path.write_text(text, encoding="utf-8")
    page.goto(path.as_uri())
    page.wait_for_selector("#accuracy .hm")
    return path.as_uri()


def hover_first_point(page: Page) -> None:
    """Point at the most forgotten class in the panel of SIC."""
    point_at(page, "#panel-sic path.point >> nth=0", across=0.5, down=0.5)


def point_at(page: Page, selector: str, across: float, down: float) -> None:
    """Move the mouse to a place in an element, from 0 to 1 both ways, and wait for the tooltip."""
    page.locator(selector).scroll_into_view_if_needed()
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")  # scrolling hides tooltips
    area = page.locator(selector).bounding_box()
    assert area is not None
    page.mouse.move(area["x"] + across * area["width"], area["y"] + down * area["height"])
    page.wait_for_selector("#tooltip:visible", timeout=5000)


def headline(page: str) -> str:
    found = re.search(r'<p id="finding"[^>]*>(.*?)</p>', page)
    assert found is not None
    return found[1].replace("\u202f", " ")


def document(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="report">(.*?)</script>', page)
    assert found is not None
    return json.loads(found[1])


def markup_and_data(page: str) -> str:
    return page[: page.index("<script>")]  # what follows is plotly, which mentions everything
