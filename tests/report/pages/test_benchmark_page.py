"""The page of a whole store: what it says, and what a reader can do with it in a real browser."""

from __future__ import annotations

import base64
import csv
import gzip
import html
import io
import itertools
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page

from forgetscope.analysis.exhibits.figures import FIGURES
from forgetscope.analysis.exhibits.tables import TABLES
from forgetscope.analysis.inputs.samples import Subset
from forgetscope.analysis.results import Analysis, analyse
from forgetscope.analysis.statistics.estimates import fisher_z, in_rho, mean_estimate
from forgetscope.analysis.statistics.pooling import per_experiment
from forgetscope.benchmark.plans import benchmark_plan
from forgetscope.benchmark.records import record_plan
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.data.images import DataSet, ImageSet
from forgetscope.report.exhibited import Shown
from forgetscope.report.pages.benchmark import render_benchmark
from forgetscope.report.pages.explorer import DataSource, explore
from forgetscope.report.pages.packing import number
from forgetscope.report.pages.provenance import provenance_of
from forgetscope.report.typeset.latex import latex_table
from forgetscope.report.words.definitions import definitions
from forgetscope.report.words.headlines import headlines
from forgetscope.report.words.notation import PLAIN
from forgetscope.spec import AugmentationSpec
from forgetscope.store import Store
from keys import unreached
from made import HOSTILE, make_experiment

FORMULA = "$\\frac{1}{0}$"
TABS = ("headline", "tables", "figures", "explorer", "warning", "policies", "methods")
SHAPE: dict[str, Any] = {
    "increments": [0.1, 0.2],
    "retentions": [0.08, 0.4],
    "experiments": 3,
    "epochs": 4,
    "design": "paired",
    "policies": ["uniform", "herding"],
}


def test_the_headline_holds_the_estimates_with_their_intervals(analysis: Analysis, page_text: str) -> None:
    sample = next(one for one in analysis.collection.samples if one.policy == "uniform")
    second, roots = sample.mask(Subset(2)), sample.roots(sample.mask(Subset(2)))
    assert len(set(roots)) < len(roots)  # retentions share sequences of classes, which are what is independent
    spread = mean_estimate(per_experiment(sample.values["FG-R", "value"][second], roots))
    assert f"lost {spread.value:.2f} ({spread.low:.2f}, {spread.high:.2f}) more of its accuracy" in page_text
    noise = analysis.more["noise"].query("benchmark == 'glyphs' and policy == 'uniform' and subset == '2'").iloc[0]
    told = f"{noise['reliability']:.2f} ({noise['reliability_lo']:.2f}, {noise['reliability_hi']:.2f})"
    assert f"Reliability, the share of the variance over classes that is not noise: {told}." in page_text
    best = in_rho(mean_estimate(per_experiment(fisher_z(sample.values["SIC", "rho"], sample.ranked)[second], roots)))
    assert f"SIC {best.value:.2f} ({best.low:.2f}, {best.high:.2f})" in page_text


def test_the_headline_says_what_the_terminal_says(analysis: Analysis, page_text: str) -> None:
    told = [sentence for headline in headlines(analysis) for sentence in headline.sentences]
    assert len(told) > 20
    for sentence in told:
        assert f"<li>{html.escape(sentence, quote=False)}</li>" in page_text
        assert sentence in analysis.reading
    worst = analysis.more["class_forgetting"].query("n > 1").iloc[0]  # once is no average
    assert "the noise of 100 test images per class alone" in told[1]
    assert f"{worst['class_name']} suffered most" in told[2]


def test_the_first_screen_has_every_class_of_its_step_with_both_accuracies(analysis: Analysis, page_text: str) -> None:
    first = headlines(analysis)[0]
    assert first.picture is not None
    section = page_text[page_text.index('<table class="lines">') : page_text.index("</table>")]
    rows = re.findall(r"<tr class.*?</tr>", section, re.DOTALL)
    assert len(rows) == len(first.picture.classes)
    for row, past in zip(rows, first.picture.classes, strict=True):
        assert f'class={past.id}">{past.name}</a>' in row
        assert f"{PLAIN.percent(past.learned)} → {PLAIN.percent(past.now)}" in row
    told = html.unescape(page_text)
    assert (
        told.index(first.lead)
        < told.index(html.unescape(section))
        < told.index(first.predicted)
        < told.index('<dl class="card">')
    )


def test_no_class_is_among_those_that_suffer_most_and_least(tmp_path: Path) -> None:
    text = rendered(analyse(made_store(tmp_path, steps=2, classes=4), resamples=100, cached=False))
    tables = re.findall(r'<table class="suffering">.*?</table>', text, re.DOTALL)
    named = [name for table in tables for name in re.findall(r">(class \d)</a>", table)]
    assert len(set(named)) == len(named) > 0


def test_simulated_numbers_judge_no_claim(analysis: Analysis, page_text: str) -> None:
    assert len(analysis.more["claims"])
    assert 'id="claims"' not in page_text
    assert "claims" not in embedded(page_text, "exhibits")
    assert "nothing here speaks for or against the paper&#39;s claims" in page_text
    assert "<title>Simulated forgetting" in page_text


def test_a_store_of_trained_steps_says_how_claims_fared(tmp_path: Path) -> None:
    found = analyse(made_store(tmp_path, steps=2, classes=4), resamples=100, cached=False)
    told = pd.DataFrame({"what": ["there is more with `forgetscope bench run <b>`, and so on."]})
    text = rendered(replace(found, more={**found.more, "missing": told}))
    assert "<li>There is more with <code>forgetscope bench run &lt;b&gt;</code>, and so on.</li>" in text
    assert 'id="claims"' in text
    assert "made up" not in text


def test_of_classes_barely_learned_no_claim_is_judged(tmp_path: Path) -> None:
    barely = dict.fromkeys(range(4), 0.1)
    text = rendered(analyse(made_store(tmp_path, steps=2, classes=4, learned=barely), resamples=100, cached=False))
    assert 'id="claims"' not in text
    assert "claims are not judged: where so many classes were barely learned" in text


def test_every_table_and_figure_has_a_place_a_link_and_a_line_on_how_to_read_it(analysis: Analysis, page_text: str) -> None:
    shown = [*TABLES, *(label for label, frame in analysis.figures.items() if len(frame))]
    assert len(TABLES) == 24
    for label in shown:
        id = label.replace(":", "-")
        article = re.search(rf'<article [^>]*id="{re.escape(id)}".*?</article>', page_text, re.DOTALL)
        assert article is not None, label
        assert f'href="#{id}"' in article[0]
        assert re.search(r'<p class="how">.{20,}</p>', article[0])
    for label in FIGURES:
        assert label in embedded(page_text, "exhibits") or label.replace(":", "-") in embedded(page_text, "exhibits")


def test_every_class_of_every_step_has_its_final_values(analysis: Analysis, page_text: str) -> None:
    runs = embedded_runs(page_text)
    assert len(runs) == sum(len(sample.steps) for sample in analysis.collection.samples)
    by_id = {run["id"]: run for run in runs}
    for sample in analysis.collection.samples:
        for step in sample.steps:
            assert by_id[step.facts.id]["classes"] == step.class_ids.tolist()
            assert by_id[step.facts.id]["forgetting"] == pytest.approx(step.forgetting.tolist(), rel=1e-3)
            assert by_id[step.facts.id]["sic"] == pytest.approx(step.measures[0].tolist(), rel=1e-3)


def test_trajectories_end_in_the_coefficients_and_sources_are_the_largest(analysis: Analysis, page_text: str) -> None:
    run = next(run for run in embedded_runs(page_text) if "detail" in run)
    for name in ("sic", "cic", "nic"):
        for (unit, *differences), final in zip(run["detail"][name], run[name], strict=True):
            assert unit * sum(differences) == pytest.approx(final, abs=0.6 * unit)
    pairs = Store(analysis.store).step(run["id"]).table("pairs").to_pandas()
    own = pairs[pairs["class_id"] == run["classes"][0]]
    largest = own.loc[own["term"].abs().sort_values(ascending=False).index, "source_class_id"].tolist()
    assert [source for source, _ in run["detail"]["sources"][0]] == largest[:6]


def test_methods_name_data_network_training_exclusions_and_the_commands(page_text: str) -> None:
    for part in ("resnet8 on glyphs", "4 epochs", "128 images", "2 policies (uniform and herding)", "Nothing was excluded."):
        assert part in page_text
    assert re.search(r"forgetscope simulate glyphs-\w{8}\.toml --seed 3 --reruns 3 --store results", page_text)
    assert "increments = [0.1, 0.2]" in page_text
    assert "Experiments share class sequences and seeds" in page_text


def test_a_plan_that_was_only_estimated_is_no_part_of_how_to_reproduce_a_store(analysis: Analysis) -> None:
    store = Store(analysis.store)
    before = len(provenance_of(analysis).plans)
    other = benchmark_plan(BenchmarkSpec.load("glyphs", SHAPE | {"seed": 99}))
    record_plan(store, other)
    assert len(provenance_of(analysis).plans) == before
    shutil.rmtree(store.path / "plans" / other.id)


def test_a_simulated_store_says_so_before_anything_else(page_text: str) -> None:
    assert page_text.index("<strong>Simulated.</strong> No network was trained") < page_text.index("<h1>")


def test_a_store_without_past_classes_says_what_is_missing(tmp_path: Path) -> None:
    store = made_store(tmp_path, steps=1)
    text = rendered(analyse(store, resamples=100, cached=False))
    assert "nothing can have been forgotten yet" in text
    assert "an experiment needs at least two steps" in text


def test_a_small_store_gives_what_it_can_and_says_what_it_lacks(tmp_path: Path) -> None:
    text = rendered(analyse(made_store(tmp_path, steps=2, classes=4), resamples=100, cached=False))
    assert "The most forgotten class of a step lost" in text
    assert "the joint model needs 3 steps in a partition" in text
    assert 'id="tab-policies"' not in text
    assert "forgetscope run run-1.toml --store results --set seed=" in text


@pytest.mark.slow
def test_the_same_store_gives_the_same_page(analysis: Analysis, page_text: str) -> None:
    assert rendered(analysis) == page_text


def test_hostile_names_stay_out_of_the_markup(hostile: Path) -> None:
    text = hostile.read_text(encoding="utf-8")
    assert HOSTILE not in text
    assert 'window.hacked=1"' not in text
    names = embedded(text, "explorer")["data"][0]["names"]
    assert {HOSTILE, FORMULA} <= set(names.values())


# ---- In a browser


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_no_tab_requests_anything_complains_or_is_wider_than_the_screen(
    page_file: Path, browser: Browser, width: int, scheme: Any
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    requests: list[str] = []
    complaints: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(page_file.as_uri())
    for tab in TABS:
        visit(page, tab)
        assert page.evaluate("document.documentElement.scrollWidth") == width, tab
    assert [url for url in requests if not url.startswith(("data:", "blob:"))] == [page_file.as_uri()]
    assert complaints == []


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 1440), ("light", 390), ("dark", 390)])
def test_axe_finds_nothing_in_any_tab(page_file: Path, browser: Browser, scheme: Literal["light", "dark"], width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    page.context.set_default_timeout(60_000)
    page.goto(page_file.as_uri())
    for tab in TABS:
        visit(page, tab)
        if tab == "explorer":
            page.locator("#classes button").first.click()
            page.locator("#class h3").wait_for()
        found = axe.Axe().run(page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == [], tab


@pytest.mark.slow
@pytest.mark.browser
def test_a_column_sorts_both_ways_with_margins_and_gaps_last(page: Page) -> None:
    page.goto(page.url + "#spearman_SIC")
    table = page.locator("#spearman_SIC table")
    table.wait_for()
    mean = table.locator("thead th").filter(has_text="Mean")
    mean.locator("button").click()
    assert mean.get_attribute("aria-sort") == "ascending"
    first = shown_means(page)
    assert first == sorted(first)
    mean.locator("button").press("Enter")
    assert mean.get_attribute("aria-sort") == "descending"
    assert shown_means(page) == first[::-1]
    table.locator("thead th").filter(has_text="Retained").locator("button").click()
    kept = shown(page, "Retained %")
    assert kept == sorted(kept, key=lambda text: (text == "pooled", float(text) if text != "pooled" else 0))


@pytest.mark.slow
@pytest.mark.browser
def test_downloads_hold_what_the_analysis_holds(analysis: Analysis, page: Page) -> None:
    page.goto(page.url + "#spearman_SIC")
    frame = analysis.tables["spearman_SIC"]
    rows = list(csv.DictReader(io.StringIO(downloaded(page, "#spearman_SIC", "CSV"))))
    assert [float(row["mean"]) if row["mean"] else None for row in rows] == pytest.approx(
        [None if value != value else value for value in frame["mean"].tolist()], rel=1e-5
    )
    assert [row["subset"] for row in rows] == frame["subset"].tolist()
    assert downloaded(page, "#spearman_SIC", "LaTeX") == latex_table(Shown(TABLES["spearman_SIC"], frame))
    visit(page, "figures")
    figure = "#fig-SIC_CIC_NIC_across_steps_glyphs"
    page.locator(f"{figure} .js-line").first.wait_for()
    assert downloaded(page, figure, "SVG").startswith("<svg")
    course = list(csv.DictReader(io.StringIO(downloaded(page, figure, "CSV"))))
    assert len(course) == len(analysis.figures["fig:SIC_CIC_NIC_across_steps_glyphs"])


@pytest.mark.browser
def test_a_link_opens_the_tab_that_holds_its_exhibit(page: Page) -> None:
    page.goto(page.url + "#fig-controlled_exps_distributions")
    page.locator("#fig-controlled_exps_distributions .boxlayer").wait_for()
    assert page.locator("#tab-figures").get_attribute("aria-selected") == "true"
    assert page.locator("#headline").is_hidden()


@pytest.mark.browser
def test_the_first_screen_needs_no_script(page_file: Path, browser: Browser) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(page_file.as_uri())
    bars = page.locator(".lines").first.locator(".track b")
    widths = [bars.nth(i).bounding_box()["width"] for i in range(bars.count())]  # type: ignore[index]
    assert widths[0] > 20
    assert page.locator(".result .finding").first.is_visible()


@pytest.mark.browser
def test_on_a_phone_the_bars_have_room_and_marks_of_their_scale_stay_apart(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    lines = page.locator(".lines").first
    marks = sorted(
        (box["x"], box["x"] + box["width"]) for one in lines.locator(".ticks i").all() if (box := one.bounding_box())
    )
    assert len(marks) > 2
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(marks))
    track = lines.locator(".track").first.bounding_box()
    assert track is not None
    assert track["width"] > 130
    assert {round(row.bounding_box()["height"]) for row in lines.locator("tbody tr").all()} == {20}  # type: ignore[index]


@pytest.mark.browser
def test_a_name_on_the_first_screen_opens_the_class_in_that_step(analysis: Analysis, page: Page) -> None:
    shown = headlines(analysis)[0].picture
    assert shown is not None
    page.locator(".lines").first.get_by_role("link", name=shown.classes[1].name, exact=True).click()
    page.locator("#class h3", has_text=shown.classes[1].name).wait_for()
    assert page.locator("#tab-explorer").get_attribute("aria-selected") == "true"
    assert page.evaluate("readState().experiment") == shown.step[:8]


@pytest.mark.browser
def test_the_address_keeps_what_was_chosen_and_the_open_tab(page: Page) -> None:
    page.evaluate("writeState({ step: 2, class: 'a & b?', measure: null })")
    page.locator("#tab-tables").click()
    assert page.evaluate("location.hash") == "#tables?step=2&class=a+%26+b%3F"
    assert page.evaluate("readState()") == {"step": "2", "class": "a & b?"}
    page.reload()
    assert page.locator("#tab-tables").get_attribute("aria-selected") == "true"
    assert page.evaluate("writeState({ step: '' }), readState()") == {"class": "a & b?"}


@pytest.mark.browser
def test_back_undoes_one_choice_after_the_other(page: Page) -> None:
    """A section, a class, a coefficient; what is typed in one go is one choice."""
    page.locator("#tab-explorer").click()
    page.wait_for_selector("#scatter .point")
    page.locator("#classes button").nth(0).click()
    first = page.locator("#class h3").inner_text()
    page.locator("#classes button").nth(1).click()
    second = page.locator("#class h3").inner_text()
    page.locator("#explorer-controls select").last.select_option("nic")
    page.wait_for_function("readState().measure === 'nic'")
    page.locator("#tab-tables").click()
    page.locator("#filter").press_sequentially("noise")
    hidden = "[...document.querySelectorAll('[data-table]')].some((one) => one.hidden)"
    assert page.evaluate(hidden)
    page.go_back()
    page.wait_for_function(f"!{hidden} && location.hash.startsWith('#tables')")
    page.go_back()
    page.wait_for_selector("#explorer:visible")
    assert (page.locator("#class h3").inner_text(), page.evaluate("readState().measure")) == (second, "nic")
    page.go_back()
    page.wait_for_function("document.querySelector('#explorer-controls label:last-child select').value === 'sic'")
    assert page.locator("#class h3").inner_text() == second
    page.go_back()
    page.wait_for_function("(name) => document.querySelector('#class h3').textContent === name", arg=first)
    page.go_back()
    page.wait_for_function("!document.querySelector('#class h3')")
    page.go_back()
    page.wait_for_selector("#headline:visible")
    assert "#" not in page.url
    page.go_forward()
    page.wait_for_selector("#explorer:visible")


def test_experiments_have_names_that_tell_them_apart(page_text: str) -> None:
    explorer = embedded(page_text, "explorer")
    cells, classes = [cell for group in explorer["groups"] for cell in group["cells"]], set()
    for data in explorer["data"]:
        classes |= set(data["names"].values())
    for cell in cells:
        told = [name.partition("new: ")[2] for _, name in cell["experiments"]]
        assert len(set(told)) == len(told) > 1
        for one in told:
            named = one.removesuffix(", …").split(", ")
            assert len(named) >= 2
            assert set(named) <= classes


@pytest.mark.browser
def test_early_warning_calls_experiments_as_the_explorer_does(page_text: str, page: Page) -> None:
    cells = [cell for group in embedded(page_text, "explorer")["groups"] for cell in group["cells"]]
    names = dict(tuple(one) for cell in cells for one in cell["experiments"])
    visit(page, "warning")
    offered = page.locator("#warning-controls select").last.locator("option").all_text_contents()
    assert len(offered) > 1
    for text in offered:
        *_, id = text.split(" · ")
        assert text.endswith(f"new, {names[id]} · {id}")


@pytest.mark.browser
def test_the_confusion_matrix_says_what_its_colours_mean(page: Page) -> None:
    visit(page, "explorer")
    page.wait_for_selector("#confusion .hm")
    scale = page.locator("#confusion .colorbar")
    assert [text.replace("\u202f", " ") for text in scale.locator(".cbaxis text").all_text_contents()] == [
        "0 %",
        "5 %",
        "25 %",
        "50 %",
        "100 %",
    ]
    at = page.evaluate("document.querySelector('#confusion .chart').layout.width")
    box = scale.bounding_box()
    assert box is not None
    chart = page.locator("#confusion .chart").bounding_box()
    assert chart is not None
    assert box["x"] + box["width"] <= chart["x"] + at


@pytest.mark.browser
def test_a_page_rounds_as_the_terminal_does(page: Page) -> None:
    """Neither a second time what was rounded to be packed, nor what lies half-way to another side."""
    halves = [0.125, 0.375, -0.125, 0.625, 2.5, 0.005, 0.115, 1.005, 0.0625, -0.004, 0.1249999, 0.12500001, 0.845, -0.5]
    values = [number(value) for value in halves]
    for digits in (0, 1, 2, 3):
        told = page.evaluate(f"(values) => values.map((one) => decimal(one, {digits}))", values)
        assert told == [PLAIN.number(value, digits) for value in halves]
    told = page.evaluate("(values) => values.map(percent)", values)
    assert told == [f"{PLAIN.number(100 * value, 0)}\u202f%" for value in halves]


@pytest.mark.browser
def test_words_are_explained_on_focus_pointing_and_tapping_until_escape(page_file: Path, browser: Browser) -> None:
    page = browser.new_page(has_touch=True, viewport={"width": 390, "height": 844})
    page.goto(page_file.as_uri())
    told, short = page.locator("#definition"), definitions()["FG-R"].short
    word = page.locator("#headline .term", has_text="FG-R").first
    assert word.get_attribute("tabindex") == "0"
    page.locator("#tab-headline").focus()
    page.keyboard.press("Tab")
    page.wait_for_selector("#definition:visible")
    page.keyboard.press("Escape")
    assert told.is_hidden()
    for point in (word.hover, word.tap):
        point()
        assert told.inner_text() == f"FG-R {short}"
        box = told.bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= 390 - box["width"]
        page.keyboard.press("Escape")
        assert told.is_hidden()
    described = page.locator(f"#{word.get_attribute('aria-describedby')}")
    assert described.text_content() == short


@pytest.mark.browser
def test_a_word_is_underlined_once_in_a_section_and_as_the_head_of_a_column(page: Page) -> None:
    for section in page.locator("#headline .result .sentences").all():
        words = section.locator(".term").evaluate_all("(found) => found.map((one) => one.getAttribute('aria-describedby'))")
        assert len(set(words)) == len(words) > 0
    page.goto(page.url + "#spearman_SIC")
    head = page.locator("#spearman_SIC thead button", has_text="Step")
    head.hover()
    assert definitions()["step"].short in page.locator("#definition").inner_text()


@pytest.mark.browser
def test_tables_are_counted_by_question_and_found_by_their_words(page: Page) -> None:
    page.goto(page.url + "#tables")
    groups = page.locator("#tables .group")
    counts = [int(text.split()[0]) for text in groups.locator("h2 small").all_inner_texts()]
    assert sum(counts) == page.locator("#tables [data-table]").count()
    assert [groups.nth(i).locator("[data-table]").count() for i in range(len(counts))] == counts
    page.get_by_label("Filter tables").fill("NOISE much of it")
    assert page.locator("#tables [data-table]:visible h3").all_inner_texts() == ["How much of it is noise of the test images #"]
    assert page.locator("#filtered").inner_text() == f"1 of {sum(counts)} tables"
    page.reload()
    assert page.locator("#tables [data-table]:visible").count() == 1
    page.get_by_label("Filter tables").fill("")
    assert groups.filter(visible=True).count() == len(counts)


@pytest.mark.browser
def test_columns_without_any_value_are_left_out_and_stay_in_the_file(page: Page) -> None:
    drawn = page.evaluate("""async () => {
      const box = document.createElement("div");
      drawTable(box, { layout: "plain", frame: { there: [1, 2], nothing: [null, null], zero: [0, 0] } }, "a table");
      return [[...box.querySelectorAll("th")].map((head) => head.textContent), csv({ there: [1, 2], nothing: [null, null] })];
    }""")
    assert drawn == [["there", "zero"], "there,nothing\n1,\n2,\n"]


@pytest.mark.browser
def test_what_a_bar_cannot_show_is_marked_as_clipped(page: Page) -> None:
    bar = "intervalBar({}, [-0.2, 1])"
    told = [
        page.evaluate(f"{bar.format(values)}.textContent")
        for values in ("0.5, 0, 1", "0.5, -0.5, 1", "1.2, 0, 1.4", "2, -1, 3")
    ]
    assert told == ["", "◂clipped", "▸clipped", "◂▸clipped"]


@pytest.mark.browser
def test_range_and_half_gap_have_their_noise_beside_them_in_tables(analysis: Analysis, page: Page) -> None:
    page.goto(page.url + "#FG-R_FG-HG_fine_grained")
    table = page.locator("#FG-R_FG-HG_fine_grained table")
    table.wait_for()
    heads = [text.strip() for text in table.locator("thead th").all_text_contents()]
    place, kept, new = (heads.index(name) + 1 for name in ("By noise", "Retained %", "Increment %"))
    rows = table.locator("tbody tr")
    noise = analysis.more["noise"].query("policy == 'uniform' and subset == '2'")
    for i in range(2):
        cells = {n: rows.nth(i).locator(f"td:nth-child({n})").inner_text() for n in (place, kept, new)}
        (floor,) = noise.loc[(noise["rehearsal_pct"] == cells[kept]) & (noise["class_pct"] == cells[new]), "FG-R_floor"]
        assert cells[place] == PLAIN.number(floor)
        assert rows.nth(i).locator(".interval q").count() == 1
    every = rows.locator(f"td:nth-child({place})").all_inner_texts()
    assert any(text == "pooled" for text in rows.locator(f"td:nth-child({kept})").all_inner_texts())
    assert all(re.fullmatch(r"0\.\d\d", text) for text in every)  # of what pools retentions or increments too


def test_what_pools_partitions_says_so(page_text: str, tmp_path: Path) -> None:
    text = page_text.replace("\u202f", " ")
    assert "Pooled over 4 partitions: 8 % and 40 % kept; increments 10 % and 20 %." in text
    alone = rendered(analyse(made_store(tmp_path, steps=2, classes=4), resamples=100, cached=False))
    assert "Pooled over" not in alone


@pytest.mark.browser
def test_who_hides_a_line_hides_its_band(page: Page) -> None:
    page.goto(page.url + "#fig-SIC_CIC_NIC_across_steps_glyphs")
    figure = page.locator("#fig-SIC_CIC_NIC_across_steps_glyphs")
    figure.locator(".js-line").first.wait_for()
    figure.locator(".legendtoggle").first.click()
    hidden = figure.locator(".chart").evaluate("""async (chart) => {
      while (!chart.data.some((trace) => trace.visible === "legendonly")) await painted();
      return chart.data.filter((trace) => trace.visible === "legendonly").map((trace) => Boolean(trace.fill));
    }""")
    assert hidden.count(True) == 2 * hidden.count(False) > 0


@pytest.mark.browser
def test_a_figure_is_enlarged_zoomed_and_closed_by_keys_and_saved_as_a_sharp_image(page: Page) -> None:
    page.goto(page.url + "#fig-controlled_exps_distributions")
    figure = page.locator("#fig-controlled_exps_distributions")
    figure.locator(".boxlayer").wait_for()
    with page.expect_download() as saved:
        figure.get_by_role("button", name="Download PNG").click()
    box = figure.locator(".main-svg").first.bounding_box()
    assert box is not None
    with Image.open(saved.value.path()) as image:
        assert (image.format, image.width) == ("PNG", 2 * round(box["width"]))
    figure.get_by_role("button", name="Enlarge").press("Enter")
    dialog = page.locator("dialog.enlarged")
    dialog.locator(".boxlayer").wait_for()
    heights = "document.querySelector('dialog .chart')._fullLayout.yaxis.range"
    before, after = (
        page.evaluate(heights),
        dialog.get_by_role("button", name="Zoom in").press("Enter"),
        page.evaluate(heights),
    )[::2]
    assert after[1] - after[0] == pytest.approx(0.7 * (before[1] - before[0]))
    page.keyboard.press("Escape")
    assert dialog.count() == 0
    assert page.locator("body > #tooltip").count() == 1


@pytest.mark.browser
def test_tabs_follow_the_arrow_keys(page: Page) -> None:
    page.locator("#tab-headline").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#tab-tables").get_attribute("aria-selected") == "true"
    assert page.evaluate("document.activeElement.id") == "tab-tables"
    page.keyboard.press("End")
    assert page.locator("#methods").is_visible()


@pytest.mark.browser
def test_a_class_is_found_by_pointing_and_opened_by_a_click_or_a_key(page: Page) -> None:
    visit(page, "explorer")
    point = page.locator("#scatter path.point").first
    point.scroll_into_view_if_needed()
    page.wait_for_timeout(300)  # scrolling hides tooltips
    box = point.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#tooltip:visible")
    name = page.locator("#tooltip strong").inner_text()
    page.mouse.down()
    page.mouse.up()
    page.wait_for_selector("#class h3")
    assert page.locator("#class h3").inner_text() == name
    page.locator("#class .js-line").first.wait_for()
    told = page.locator("#class").inner_text()
    for part in ("Accuracy after every step", "Who interfered with it most", "Now taken for", "Rehearsal images"):
        assert part in told
    other = page.locator("#classes button").last
    other.press("Enter")
    assert page.locator("#class h3").inner_text() == other.inner_text()
    page.locator("#explorer-controls select").last.select_option("nic")
    page.wait_for_function("document.querySelector('#scatter .xtitle').textContent === 'NIC'")


@pytest.mark.browser
def test_a_partition_is_read_when_it_is_chosen_and_shows_its_own_classes(page: Page, page_text: str) -> None:
    visit(page, "explorer")
    cells = embedded(page_text, "explorer")["groups"][0]["cells"]
    assert page.evaluate("Object.keys(packs).filter((name) => name.startsWith('runs-'))") == ["runs-0"]
    controls = page.locator("#explorer-controls")
    controls.get_by_label("Partition").select_option(str(len(cells) - 1))
    runs = embedded(page_text, f"runs-{cells[-1]['runs']}")
    controls.locator(f"option:has-text('{runs[0]['id'][:8]}')").wait_for(state="attached")
    assert page.locator("#classes tbody tr").count() == len(runs[0]["classes"])
    controls.get_by_label("Experiment").select_option("partition")
    assert page.locator("#classes tbody tr").count() == sum(len(run["classes"]) for run in runs)


@pytest.mark.browser
def test_classes_are_pictured_where_the_data_set_is_at_hand(tmp_path: Path, browser: Browser) -> None:
    path, store = tmp_path / "report.html", made_store(tmp_path, steps=2, classes=4)
    path.write_text(rendered(analyse(store, resamples=100, cached=False), lambda facts: painted(8)), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    page.locator(".worst .one > .image canvas").first.wait_for()
    for tab, chart in (("explorer", "#scatter"), ("figures", "#figures .exhibit:has-text('Forgetting')")):
        visit(page, tab)
        point = page.locator(f"{chart} path.point").first
        point.scroll_into_view_if_needed()
        page.wait_for_timeout(300)  # scrolling hides tooltips
        point.hover(force=True)
        page.locator("#tooltip canvas").wait_for()
        assert page.locator("#tooltip strong").inner_text().startswith("class ")
        page.wait_for_function(
            "document.querySelector('#tooltip canvas').getContext('2d').getImageData(8, 8, 1, 1).data[3] === 255"
        )
        page.mouse.move(0, 0)


@pytest.mark.browser
@pytest.mark.parametrize("width", [1440, 390])
def test_every_section_starts_high_on_the_screen(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    page.locator("#tab-tables").click()
    page.evaluate("scrollTo(0, 4000)")
    page.locator("#tab-methods").click()
    assert page.locator("#methods h2").bounding_box()["y"] < 160  # type: ignore[index]
    page.evaluate("scrollTo(0, 0)")
    assert page.locator("#methods h2").bounding_box()["y"] < 300  # type: ignore[index]


@pytest.mark.browser
def test_the_share_of_training_decides_what_is_flagged(analysis: Analysis, page: Page) -> None:
    visit(page, "warning")
    slider = page.get_by_label("Share of training seen")
    for share, key in ((0.25, None), (1.0, "End")):
        if key:
            slider.press(key)
        frame = analysis.more["flagged"]
        step = page.locator("#warning-controls select").last.input_value()
        own = frame[(frame["step_id"] == step) & (frame["share"] == share) & frame["flagged"]]
        told = page.locator("#warning-body tbody").first
        assert told.locator("tr").count() == len(own)
        assert told.locator(".yes").count() == int(own["hit"].sum())
        assert f"After {share:.0%}".replace("%", "\u202f%") in page.locator("#warning-body").inner_text()


@pytest.mark.browser
@pytest.mark.parametrize(
    ("all_images", "rehearsed", "told"), [((1, 2), (1, 0), True), ((1, 2), (1, 2), False), ((2, 1), (1, 0), False)]
)
def test_the_gap_of_losses_is_called_a_mechanism_where_they_part(
    page: Page, all_images: tuple[int, int], rehearsed: tuple[int, int], *, told: bool
) -> None:
    text = page.evaluate(
        """([all, own]) => {
            const trace = ([first, last]) => [1, first, last - first], chart = element("div", {});
            chart.tools = element("div", {});
            return lossPart({ loss_full: [trace(all)], loss_rehearsal: [trace(own)], rehearsed: [5] }, 0, chart).textContent;
        }""",
        [all_images, rehearsed],
    )
    assert ("learned by heart" in text) == told
    assert f"the loss is {all_images[1]}.00 on all its images (at first {all_images[0]}.00)" in text


@pytest.mark.browser
@pytest.mark.parametrize("address", ["%E0%A4%A", "explorer?measure=constructor", "explorer?measure=__proto__"])
def test_no_address_leaves_a_part_undrawn(address: str, page_file: Path, browser: Browser) -> None:
    page, failed = browser.new_page(), list[str]()
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto(f"{page_file.as_uri()}#{address}")
    if address.startswith("explorer"):
        page.locator("#classes tbody tr").first.wait_for()
    else:
        page.locator("#tab-tables").click()
        page.locator("#tables table").first.wait_for()
    assert failed == []
    page.close()


@pytest.mark.browser
def test_early_warning_is_restored_from_its_address(page: Page) -> None:
    visit(page, "warning")
    experiments = page.locator("#warning-controls select").last
    last = experiments.locator("option").last.get_attribute("value")
    assert last is not None
    assert last != experiments.input_value()
    experiments.select_option(last)
    page.get_by_label("Share of training seen").press("End")
    address = page.url
    assert f"experiment={last[:8]}" in address
    assert "share=1" in address
    page.goto("about:blank")
    page.goto(address)
    page.locator("#warning-body p").first.wait_for()
    assert page.locator("#warning-controls select").last.input_value() == last
    assert page.locator("#warning-controls output").inner_text() == "after 100\u202f% of training"


@pytest.mark.browser
@pytest.mark.parametrize("tab", ["headline", "explorer", "warning", "policies", "methods"])
def test_keys_alone_reach_everything_in_a_tab(page: Page, tab: str) -> None:
    visit(page, tab)
    if tab == "explorer":
        page.locator("#classes button").first.press("Enter")
        page.locator("#class h3").wait_for()
    assert unreached(page) == []


@pytest.mark.browser
def test_a_class_is_sought_by_typing_its_name(page: Page) -> None:
    visit(page, "explorer")
    name = page.locator("#classes button").last.inner_text()
    page.get_by_label("Search for a class").press_sequentially(name)
    page.keyboard.press("Enter")
    page.locator("#classes th", has_text="Experiment").first.wait_for()
    assert page.evaluate("readState().all") == "class"
    choosers = page.locator("#explorer-controls select")
    chosen = [one.evaluate("list => list.selectedOptions[0].textContent") for one in choosers.all()]
    assert "all" in chosen
    assert not any("kept" in text for text in chosen)
    assert "trace" not in page.locator("#scatter").inner_text()


@pytest.mark.browser
def test_early_warning_can_be_watched_and_marks_hits_misses_and_false_alarms(analysis: Analysis, page: Page) -> None:
    visit(page, "warning")
    page.locator("#warning-body .point").first.wait_for()
    slider = page.get_by_label("Share of training seen")
    names, ranges = [], []
    for key in ("Home", "End"):
        slider.press(key)
        share = page.evaluate("document.querySelector('#warning-controls output').textContent")
        step = page.locator("#warning-controls select").last.input_value()
        own = analysis.more["flagged"].query("step_id == @step and moment == @share")
        chart = page.locator("#warning-body .chart")
        page.wait_for_function(
            "told => document.querySelector('#warning-body .xtitle').textContent.replace(/\\s/g, ' ').endsWith(told)",
            arg=share.replace("\u202f", " "),
        )
        drawn = chart.evaluate(
            "(chart) => chart.data.map((trace) => trace.rows.map((row) => row.class_id).sort((a, b) => a - b))"
        )
        expected = [
            own[own["flagged"] & own["hit"]],
            own[own["flagged"] & ~own["hit"]],
            own[~own["flagged"] & own["hit"]],
            own[~own["flagged"] & ~own["hit"]],
        ]
        assert drawn == [sorted(part["class_id"].tolist()) for part in expected]
        names.append(chart.evaluate("(chart) => chart.data.map((trace) => trace.name)"))
        ranges.append(chart.evaluate("(chart) => [chart.layout.xaxis.range, chart.layout.yaxis.range]"))
    assert names[0] == names[1] == ["flagged, and rightly", "flagged in vain", "missed", "neither"]
    assert ranges[0] == ranges[1]  # points move, axes do not
    page.locator("#warning-body tbody a").first.click()
    page.locator("#class h3").wait_for()
    assert page.evaluate("readState().experiment") == step[:8]


@pytest.mark.browser
def test_points_of_figures_open_their_class(page: Page) -> None:
    page.goto(page.url + "#fig-swarm_plots_forgetting_glyphs_1")
    point = page.locator("#fig-swarm_plots_forgetting_glyphs_1 path.point").first
    point.wait_for()
    point.scroll_into_view_if_needed()
    page.wait_for_timeout(300)  # scrolling hides tooltips
    point.click(force=True)
    page.locator("#class h3").wait_for()
    assert page.evaluate("readState().experiment").isalnum()


@pytest.mark.browser
def test_dark_mode_changes_page_and_charts_at_once(page: Page) -> None:
    visit(page, "explorer")
    look = "[getComputedStyle(document.body).backgroundColor, document.querySelector('#scatter path.point').style.fill]"
    light = page.evaluate(look)
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(f"before => {look}.every((colour, i) => colour !== before[i])", arg=light)


@pytest.mark.slow
@pytest.mark.browser
def test_print_shows_every_section_but_the_explorer_drawn_in_light_colours(page: Page) -> None:
    page.emulate_media(color_scheme="dark")
    page.evaluate("prepareToPrint()")
    page.emulate_media(media="print", color_scheme="dark")
    for section in ("headline", "tables", "figures", "warning", "policies", "methods"):
        assert page.locator(f"#{section}").is_visible()
    assert page.locator("#explorer").is_hidden()
    assert page.locator("#figures .exhibit").count() == page.locator("#figures .chart.drawn").count() > 0
    assert page.locator("[data-exhibit] .body[aria-busy]").count() == 0
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf().startswith(b"%PDF")


@pytest.mark.browser
def test_a_browser_that_prints_by_itself_finds_everything_drawn(page: Page) -> None:
    busy = """event => new Promise(done => {
        if (event) dispatchEvent(new Event(event));
        setTimeout(() => done(document.querySelectorAll("[data-exhibit] .body[aria-busy]").length));
    })"""
    assert page.evaluate(busy) > 0
    page.evaluate("readAhead()")
    assert page.evaluate(busy, "beforeprint") == 0
    assert page.locator("#figures .exhibit").count() == page.locator("#figures .chart.drawn").count() > 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.wait_for_function("!document.documentElement.classList.contains('printing')")


@pytest.mark.browser
def test_hostile_class_names_are_only_characters(hostile: Path, browser: Browser) -> None:
    page = browser.new_page()
    page.goto(hostile.as_uri())
    for tab in ("figures", "explorer", "warning"):
        visit(page, tab)
    visit(page, "explorer")
    page.locator("#classes button").first.click()
    assert page.locator("#class h3").inner_text() == HOSTILE
    labels = page.locator("#scatter .textpoint").all_text_contents()
    assert any(label.startswith("</script>") for label in labels)
    assert any(label.startswith("$\\frac") for label in labels)
    assert page.evaluate("window.hacked") is None
    assert page.locator("img, a[href^=javascript]").count() == 0


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    store = Store(tmp_path_factory.mktemp("benchmark") / "store")
    simulate(BenchmarkSpec.load("glyphs", SHAPE), store, seed=3, reruns=3)
    return analyse(store, resamples=100, cached=False)


@pytest.fixture(scope="module")
def page_text(analysis: Analysis) -> str:
    return rendered(analysis)


@pytest.fixture(scope="module")
def page_file(page_text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page_text, encoding="utf-8")
    return path


@pytest.fixture
def page(page_file: Path, browser: Browser) -> Iterator[Page]:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    yield page
    page.close()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    path = folder / "report.html"
    store = made_store(folder, steps=2, classes=4, names={0: HOSTILE, 1: FORMULA})
    path.write_text(rendered(analyse(store, resamples=100, cached=False)), encoding="utf-8")
    return path


def made_store(folder: Path, **shape: Any) -> Store:
    store = Store(folder / "store")
    store.prepare()
    for seed in range(2):
        make_experiment(store, seed=seed, **shape)
    return store


def rendered(analysis: Analysis, find_data: DataSource = lambda facts: None) -> str:
    return render_benchmark(analysis, explore(analysis, find_data), provenance_of(analysis))


def painted(classes: int) -> DataSet:
    """Images of one colour per class."""
    labels = np.repeat(np.arange(classes), 200)
    images = ImageSet(
        np.broadcast_to((20 * labels + 60).astype(np.uint8)[:, None, None, None], (len(labels), 16, 16, 3)), labels
    )
    names = tuple(f"class {id}" for id in range(classes))
    return DataSet("made", names, None, images, images, "0", (0.5, 0.5, 0.5), (0.2, 0.2, 0.2), AugmentationSpec())


def embedded(text: str, name: str) -> Any:
    found = re.search(rf'<script type="text/plain" id="data-{name}">([^<]*)</script>', text)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def embedded_runs(text: str) -> list[dict[str, Any]]:
    """Those of every partition of every benchmark."""
    cells = [cell for group in embedded(text, "explorer")["groups"] for cell in group["cells"]]
    return [run for cell in cells for run in embedded(text, f"runs-{cell['runs']}")]


def visit(page: Page, tab: str) -> None:
    """Open a tab and wait until what is in sight is drawn."""
    page.locator(f"#tab-{tab}").click()
    for exhibit in page.locator(f"#{tab} .exhibit").all()[:1]:
        exhibit.scroll_into_view_if_needed()
    ready = {
        "tables": "#tables table",
        "figures": "#figures .main-svg",
        "explorer": "#scatter .point",
        "warning": "#warning-body p",
    }
    page.locator(ready.get(tab, f"#{tab} h2")).first.wait_for()


def shown(page: Page, column: str) -> list[str]:
    """The texts of a column of one table, from top to bottom."""
    heads = [text.strip(" ▲▼") for text in page.locator("#spearman_SIC thead th").all_inner_texts()]
    return page.locator(f"#spearman_SIC tbody tr td:nth-child({heads.index(column) + 1})").all_inner_texts()


def shown_means(page: Page) -> list[float]:
    numbers = [text.split()[0].replace("−", "-") for text in shown(page, "Mean")]
    return [float(text) for text in numbers if text != "–"]


def downloaded(page: Page, exhibit: str, kind: str) -> str:
    with page.expect_download() as waiting:
        page.locator(exhibit).get_by_role("button", name=f"Download {kind}").click()
    return Path(waiting.value.path()).read_text(encoding="utf-8")
