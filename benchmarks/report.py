"""The report of the paper's full shape: seconds to write it, its size, and how long a browser takes to open it.

Simulates both benchmarks (2,376 steps; about two minutes) unless it is given a store: `python benchmarks/report.py STORE`. No
image is in a simulated page; images have a budget of their own, which is printed too. Needs a Chromium.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

import forgetscope as fs
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.report.pages.explorer import IMAGE_BYTES
from forgetscope.store import Store

OPENINGS = 7
PAINTED = """() => new Promise((done) => new PerformanceObserver((list) => {
  for (const entry of list.getEntriesByName("first-contentful-paint")) done(entry.startTime / 1000);
}).observe({ type: "paint", buffered: true }))"""
NAMES = (
    "loaded",
    "headline painted",
    "explorer clicked at once: classes listed",
    "explorer clicked at once: drawn",
    "explorer clicked after it was read: drawn",
)
READING = 3000  # milliseconds


def opened(browser: Browser, path: Path) -> tuple[float, ...]:
    """Seconds until the page is loaded, until its headline is painted, and what the explorer takes: clicked at once, when
    Plotly has yet to start, and after the headline was read."""
    page = browser.new_page()
    start = time.perf_counter()
    page.goto(path.as_uri())
    loaded = time.perf_counter() - start
    at_once = explored(page)
    painted = page.evaluate(PAINTED)
    page.close()
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_timeout(READING)
    later = explored(page)
    page.close()
    return loaded, painted, *at_once, later[1]


def explored(page: Page) -> tuple[float, float]:
    """Seconds from a click until the explorer lists its classes, and until it has drawn them."""
    start = time.perf_counter()
    page.locator("#tab-explorer").click()
    page.wait_for_selector("#classes button")
    listed = time.perf_counter() - start
    page.wait_for_selector("#scatter .point")
    return listed, time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder) / "store"
        if len(sys.argv) == 1:
            for name in ("cifar100", "tiny-imagenet"):
                simulate(BenchmarkSpec.load(name), Store(store), seed=1)
        start = time.perf_counter()
        analysis = fs.analyse(store)
        print(f"analysed in {time.perf_counter() - start:.0f} s")
        start = time.perf_counter()
        page = fs.write_report(analysis, Path(folder) / "report.html")
        size, images = page.stat().st_size / 1e6, 4 / 3 * IMAGE_BYTES / 1e6
        print(f"written in {time.perf_counter() - start:.0f} s: {size:.2f} MB; images would add at most {images:.2f} MB")
        with sync_playwright() as playwright:
            path = shutil.which("chromium") or shutil.which("google-chrome")
            browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
            rounds = [opened(browser, page) for _ in range(OPENINGS)]
            browser.close()
        for name, seconds in zip(NAMES, zip(*rounds, strict=True), strict=True):
            print(f"{name}: median {statistics.median(seconds):.2f} s, {min(seconds):.2f} to {max(seconds):.2f} s")


if __name__ == "__main__":
    main()
