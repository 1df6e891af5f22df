"""The pictures in README and docs: `make screenshots`.

Of the replication that comes with the package, which is real, and of the demo, which is trained first: one to three minutes
on two cores, into the folder that it is given; again = look at what is there. CIFAR-100 is needed for the pictures of classes
(`forgetscope data get cifar100`).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

import forgetscope as fs

IMAGES = Path(__file__).parents[1] / "docs" / "images"
FIGURE = "fig-SIC_CIC_NIC_across_steps_cifar"


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    fs.load_data("cifar100", 16)  # else classes would have no pictures
    real, demo = folder / "replication", folder / "demo"
    forgetscope("replication", real)
    forgetscope("report", real, "-o", real / "report.html")
    forgetscope("demo", "--store", demo)
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        of_the_replication(browser, (real / "report.html").resolve().as_uri())
        of_the_demo(browser, (demo / "report.html").resolve().as_uri())
        browser.close()


def forgetscope(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "forgetscope", *map(str, words)], check=True)


def of_the_replication(browser: Browser, address: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.goto(address)
    take(page, "report")
    page.set_viewport_size({"width": 1280, "height": 1780})
    page.locator("#tab-explorer").click()
    page.locator("#classes button").first.click()
    page.wait_for_selector("#class .js-line")
    take(page, "report-explorer")
    page.set_viewport_size({"width": 1280, "height": 720})
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}#{FIGURE}")
    page.wait_for_selector(f"#{FIGURE} .js-line")
    take(page, "report-figures")


def of_the_demo(browser: Browser, address: str) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.goto(address)
    take(page, "demo")


def take(page: Page, name: str) -> None:
    """In true colours: what a class looks like is part of the finding."""
    page.wait_for_timeout(1500)  # fonts and charts settle
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path)
    Image.open(path).convert("RGB").save(path, optimize=True)


if __name__ == "__main__":
    main()
