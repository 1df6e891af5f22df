"""The site as it is built and opened: from files, without a network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def build(source: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """As `make docs` does."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed: `make docs` installs it")
    options = ("--fail-on-warning", "--keep-going", "--quiet", "--fresh-env")
    command = [sys.executable, "-m", "sphinx", *options, str(source), str(target)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    built = build(ROOT / "docs", target)
    assert built.returncode == 0, built.stderr
    return target


@pytest.fixture(scope="module")
def pages(site: Path) -> list[Path]:
    found = sorted(
        page for page in site.rglob("*.html") if page.name not in ("search.html", "genindex.html", "py-modindex.html")
    )
    assert len(found) >= 35
    return found


def test_the_makefile_builds_as_these_tests_do() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "sphinx-build --fail-on-warning --keep-going --quiet --fresh-env docs $(SITE)" in text


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("[a page](gone.md)", "gone.md"),
        ("[an anchor](other.md#gone)", "'gone'"),
        ("[an anchor here](#gone)", "'gone'"),
        ("![a picture](images/gone.png)", "gone.png"),
        ("<!-- generated: gone -->", "gone"),
    ],
)
def test_a_page_that_leads_to_nothing_ends_the_build(tmp_path: Path, written: str, said: str) -> None:
    for name in ("generating", "static"):
        shutil.copytree(ROOT / "docs" / name, tmp_path / "docs" / name)
    shutil.copy(ROOT / "docs" / "conf.py", tmp_path / "docs")
    (tmp_path / "docs" / "index.md").write_text("# Front\n\n```{toctree}\nother\n```\n")
    other = tmp_path / "docs" / "other.md"
    other.write_text("# Other\n\n[front](index.md#front)\n")
    assert build(other.parent, tmp_path / "built").returncode == 0
    other.write_text(f"# Other\n\n{written}\n")
    built = build(other.parent, tmp_path / "built")
    assert built.returncode != 0
    assert said in built.stderr


def test_links_of_pages_that_leave_the_site_are_listed(tmp_path: Path) -> None:
    for name in ("generating", "static"):
        shutil.copytree(ROOT / "docs" / name, tmp_path / "docs" / name)
    shutil.copy(ROOT / "docs" / "conf.py", tmp_path / "docs")
    (tmp_path / "docs" / "index.md").write_text("# Front\n\n[out](https://example.org/there) and [in](#front)\n")
    assert build(tmp_path / "docs", tmp_path / "built").returncode == 0
    assert (tmp_path / "built" / "external-links.txt").read_text(encoding="utf-8") == "https://example.org/there\tindex\n"


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_every_page_opens_from_its_file_alone_and_fits(
    site: Path, pages: list[Path], browser: Browser, scheme: Literal["light", "dark"], width: int
) -> None:
    """No request to outside, no error, every picture there, and nothing wider than the window."""
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    requests, complaints = set[str](), list[str]()
    page.on("request", lambda request: requests.add(request.url))
    page.on("console", lambda said: complaints.append(f"{page.url}: {said.text}"))
    page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
    for path in pages:
        page.goto(path.as_uri())
        for picture in page.locator("img").all():
            picture.scroll_into_view_if_needed()
        page.wait_for_function("[...document.images].every(one => one.complete)")
        assert page.evaluate("[...document.images].filter(one => !one.naturalWidth).map(one => one.src)") == [], path
        assert page.evaluate("document.documentElement.scrollWidth") == width, path
    page.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith((site.as_uri(), "data:"))] == []


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 1440), ("light", 390), ("dark", 390)])
def test_axe_finds_nothing(site: Path, browser: Browser, scheme: Literal["light", "dark"], width: int) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 900})
    for name in ("index", "monitor", "store", "mathematics", "reference/commands", "reference/files"):
        page.goto((site / f"{name}.html").as_uri())
        found = axe.Axe().run(page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == [], name
    page.close()


@pytest.fixture
def searched(site: Path, browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto((site / "index.html").as_uri())
    yield page
    page.close()


@pytest.mark.browser
def test_a_word_is_searched_from_files_and_its_hit_followed(searched: Page) -> None:
    searched.get_by_placeholder("Search").fill("herding")
    searched.keyboard.press("Enter")
    hit = searched.locator("ul.search a").first
    hit.wait_for()
    hit.click()
    assert "herding" in searched.locator("article").inner_text()


@pytest.mark.browser
def test_a_search_ends_with_how_many_pages_it_found(searched: Page) -> None:
    from playwright.sync_api import expect

    complaints = list[str]()
    searched.on("pageerror", lambda error: complaints.append(str(error)))
    searched.get_by_placeholder("Search").fill("herding")
    searched.keyboard.press("Enter")
    searched.locator("ul.search a").first.wait_for()
    expect(searched.locator(".search-summary")).to_contain_text(re.compile(r"found \d+ pages"))
    assert complaints == []


@pytest.mark.browser
@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("How do I install it without a clone?", "pip install git+"),
        ("What is SIC?", "Self-induced interference"),
        ("Can I use it without past data?", "past=None"),
        ("What does it cost?", "an evaluation pass"),
        ("Does it work on a GPU?", "--device auto"),
    ],
)
def test_a_strangers_question_is_answered_by_the_first_hit_and_two_clicks_from_the_front_page(
    searched: Page, asked: str, answer: str
) -> None:
    from playwright.sync_api import expect

    front = searched.url
    searched.get_by_placeholder("Search").fill(asked)
    searched.keyboard.press("Enter")
    hit = searched.locator("ul.search a").first
    hit.wait_for()
    hit.click()
    assert answer in searched.locator("article").inner_text()
    searched.goto(front)
    searched.locator("article").get_by_role("link", name="questions", exact=True).first.click()
    searched.locator("aside.toc-drawer").get_by_role("link", name=asked).click()
    section = searched.locator("section", has=searched.get_by_role("heading", name=asked)).last
    assert answer in section.inner_text()
    expect(section.get_by_role("heading")).to_be_in_viewport()
