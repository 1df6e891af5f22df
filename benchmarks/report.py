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

from playwright.sync_api import Browser, sync_playwright

import forgetscope as fs
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.report.explorer import IMAGE_BYTES
from forgetscope.store import Store

OPENINGS = 7
PAINTED = "performance.getEntriesByType('paint').find(entry => entry.name === 'first-contentful-paint').startTime"


def opened(browser: Browser, path: Path) -> tuple[float, float, float]:
    """Seconds until the page is loaded, until its headline is painted, and from there until the explorer shows its classes."""
    page = browser.new_page()
    start = time.perf_counter()
    page.goto(path.as_uri())
    loaded = time.perf_counter() - start
    page.wait_for_function("performance.getEntriesByType('paint').length > 1")
    painted = page.evaluate(PAINTED) / 1000
    start = time.perf_counter()
    page.locator("#tab-explorer").click()
    page.wait_for_selector("#scatter .point")
    explored = time.perf_counter() - start
    page.close()
    return loaded, painted, explored


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
        for name, seconds in zip(("loaded", "headline painted", "explorer drawn"), zip(*rounds, strict=True), strict=True):
            print(f"{name}: median {statistics.median(seconds):.2f} s, {min(seconds):.2f} to {max(seconds):.2f} s")


if __name__ == "__main__":
    main()
