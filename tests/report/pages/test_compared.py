"""Policies and methods beside a baseline, as a page shows them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

import forgetscope as fs
from forgetscope.analysis.experiments import Experiment
from forgetscope.analysis.inputs.class_pairs import class_pairs
from forgetscope.analysis.questions.leaderboard import leaderboards
from forgetscope.analysis.questions.policies import compare_policies
from forgetscope.report.pages.compared import POOLED, compared_boards, compared_policies, policy_table, side_by_side, verdicts
from forgetscope.report.pages.provenance import provenance_of
from forgetscope.report.words.arms import arm_sentence, by_measure
from forgetscope.store import Store
from made import make_experiment


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("compared") / "store")
    store.prepare()
    for retention in (0.1, 0.2):
        for seed in range(2):
            for policy in ("uniform", "herding"):
                make_experiment(store, seed=seed, steps=2, classes=4, policy=policy, retention=retention)
    return store


@pytest.fixture(scope="module")
def page_file(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = fs.analyse(store.path, resamples=100, cached=False)
    return fs.write_report(found, tmp_path_factory.mktemp("page") / "report.html")


def test_each_class_is_compared_within_pairs(store: Store) -> None:
    rows = [row for row in compare_policies(Experiment(chain) for chain in store.experiments()) if row.policy == "herding"]
    (row,) = rows
    assert row.pairs == len(row.steps) == 4
    for one in row.classes():
        values = [
            [
                dict(
                    zip(
                        *(step.past_classes("class_id", "forgetting")[name] for name in ("class_id", "forgetting")), strict=True
                    )
                )
                for step in pair
            ]
            for pair in row.steps
        ]
        own = [(mine[one.class_id], base[one.class_id]) for mine, base in values if one.class_id in base]
        assert one.difference.n == len(own)
        assert one.base == pytest.approx(sum(base for _, base in own) / len(own))
        assert one.other - one.base == pytest.approx(one.difference.value)


def test_a_class_that_was_barely_learned_is_in_no_pair(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.prepare()
    steps = [make_experiment(store, steps=2, classes=4, learned={0: 0.02}, seed=seed).steps[-1] for seed in range(2)]
    found = class_pairs([(steps[0], steps[1], "an id")])
    assert 0 not in {one.class_id for one in found}
    assert {one.example for one in found} == {"an id"}
    assert [one.base for one in found] == sorted((one.base for one in found), reverse=True)


def test_rows_are_per_retention_and_what_is_pooled_says_so(store: Store) -> None:
    found = provenance_of(fs.analyse(store.path, resamples=100, cached=False))
    assert list(found.apart) == ["10\u202f% kept", "20\u202f% kept"]
    frame = policy_table(found.policies, found.apart).frame
    pairs = frame[frame["policy"] == "herding"].groupby("kept")["n"].unique()
    assert {kept: counts.tolist() for kept, counts in pairs.items()} == {
        "10\u202f% kept": [2],
        "20\u202f% kept": [2],
        POOLED: [4],
    }
    forest = compared_policies(found.policies, found.apart)
    wheres = [row["where"] for row in forest["rows"] if row["quantity"] == "mean_forgetting"]
    assert wheres == ["step 2, 10\u202f% kept", "step 2, 20\u202f% kept", f"step 2, {POOLED}"]


def test_the_forest_has_the_numbers_of_the_comparison(store: Store) -> None:
    boards = leaderboards(store)
    assert len(boards) == 2
    rows = compared_boards(boards)["rows"]
    for board in boards:
        (own,) = [row for row in board.rows if (row.arm, row.measure) == ("replay, herding", "mean_forgetting")]
        shown = [row for row in rows if row["quantity"] == "mean_forgetting" and board.setting in row["where"]]
        assert [row["difference"] for row in shown] == pytest.approx([own.difference], rel=1e-5, abs=1e-9)
        assert shown[0]["low"] is None or shown[0]["low"] == pytest.approx(own.low, rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("barely", [0, 1, 2])
def test_no_verdict_where_too_little_was_learned_by_the_rule_of_the_terminal(store: Store, barely: int) -> None:
    for board in leaderboards(store):
        learned = {"past_classes": 10, "barely_learned": barely, "barely_pairs": min(barely, 1)}
        told = replace(board, rows=[replace(row, **learned) for row in board.rows], sides={})
        sentence = arm_sentence(by_measure(told.rows, "replay, herding", told.step))
        assert ("nothing is concluded" in sentence) is (barely > 1)
        (page,) = (text for text in verdicts([told]) if "replay, herding" in text)
        assert ("Nothing is concluded of replay, herding." in page) is (barely > 1)
        assert (sentence in page) is (barely < 2)
        listed = side_by_side([told]).frame.set_index("method")["verdict"]
        assert (listed["replay, herding"] == "nothing is concluded") is (barely > 1)
        assert listed["replay"] == "baseline"


def test_policies_of_which_too_little_was_learned_say_so_first_on_the_page(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.prepare()
    for policy in ("uniform", "herding"):
        for seed in range(2):
            make_experiment(store, steps=2, classes=4, learned=dict.fromkeys(range(4), 0.1), seed=seed, policy=policy)
    text = fs.write_report(fs.analyse(store.path, resamples=100, cached=False), tmp_path / "report.html").read_text()
    (tab,) = re.findall(r'<section id="policies".*?</section>', text, re.DOTALL)
    caution = tab.index("Step 2, herding and uniform: 8 of 8 past classes were barely learned, in 2 of 2 pairs")
    assert caution < tab.index('data-compared="policies"')
    assert "Nothing is concluded of herding." in tab
    (warned,) = re.findall(r'<section id="warning".*?</section>', text, re.DOTALL)
    assert "barely learned" in warned
    assert warned.index("barely learned") < warned.index('id="warning-body"')


@pytest.mark.browser
def test_the_page_draws_differences_with_numbers_and_every_class(page_file: Path, browser: Browser) -> None:
    page = opened(page_file, browser, "policies")
    section = page.locator("#policies section", has=page.get_by_role("heading", name="Differences"))
    told = " ".join(section.locator(".annotation-text").all_text_contents())
    assert "herding, step 2, 10\u202f% kept" in told
    assert "all together (pooled)" in told
    assert told.endswith("n = 2")  # sequences of classes, each with two retentions
    section.get_by_label("Quantity").select_option("accuracy")
    section.locator(".xtitle", has_text="accuracy").wait_for()
    classes = page.locator("#policies section", has=page.get_by_role("heading", name="Class by class"))
    shown = page.evaluate(
        "pack('compared').then((found) => found.policies.classes.filter((one) => one.where.includes('10')).length)"
    )
    assert classes.locator(".trace").nth(1).locator("path.point").count() == shown > 0
    point = classes.locator(".trace").nth(1).locator("path.point").first
    point.scroll_into_view_if_needed()
    page.wait_for_timeout(300)  # scrolling hides tooltips
    point.click(force=True)
    page.locator("#class h3").wait_for()
    assert page.locator("#tab-explorer").get_attribute("aria-selected") == "true"


@pytest.mark.browser
def test_the_verdict_stands_on_the_headline(page_file: Path, browser: Browser) -> None:
    page = opened(page_file, browser, "headline")
    told = page.locator("#headline section", has=page.get_by_role("heading", name="Against replay")).inner_text()
    assert "replay, herding forgets" in told
    page.get_by_role("link", name="side by side").click()
    page.locator("#ranked .annotation-text").first.wait_for()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("tab", ["policies", "ranked"])
def test_axe_finds_nothing_on_comparisons(page_file: Path, browser: Browser, tab: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    for scheme, width in (("light", 1440), ("dark", 390)):
        page = opened(page_file, browser, tab, color_scheme=scheme, viewport={"width": width, "height": 900})
        found = axe.Axe().run(page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == [], scheme
        assert page.evaluate("document.documentElement.scrollWidth") == width


def opened(path: Path, browser: Browser, tab: str, **look: object) -> Page:
    page = browser.new_page(**look)  # type: ignore[arg-type]
    page.goto(f"{path.as_uri()}#{tab}")
    if tab != "headline":
        page.locator(f"#{tab} .annotation-text").first.wait_for()
    return page
