"""The pictures of the report in README and docs, from a real glyphs benchmark: `make screenshots`.

Trains it first, into the folder that it is given: `examples/extra-glyphs.toml`, eight experiments of two steps, a
quarter of an hour on two cores by `bench plan`; again = continue.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
BENCHMARK = Path(__file__).parents[1] / "examples" / "extra-glyphs.toml"


def main() -> None:
    store = Path(sys.argv[1])
    command = [sys.executable, "-m", "forgetscope"]
    subprocess.run([*command, "bench", "run", str(BENCHMARK), "--store", str(store)], check=True)
    subprocess.run([*command, "report", str(store), "-o", str(store / "report.html")], check=True)
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        page.goto((store / "report.html").resolve().as_uri())
        take(page, "report")
        page.set_viewport_size({"width": 1280, "height": 1700})
        page.locator("#tab-explorer").click()
        page.locator("#classes button").first.click()
        page.wait_for_selector("#class .js-line")
        take(page, "report-explorer")
        page.set_viewport_size({"width": 1280, "height": 720})
        page.emulate_media(color_scheme="dark")
        page.goto(page.url.split("#")[0] + "#fig-SIC_CIC_NIC_across_steps_glyphs")
        page.wait_for_selector("#fig-SIC_CIC_NIC_across_steps_glyphs .js-line")
        take(page, "report-figures")
        browser.close()


def take(page: Page, name: str) -> None:
    """A palette of 128 colours is enough for a page, and keeps the repository small."""
    page.wait_for_timeout(1500)  # fonts and charts settle
    path = IMAGES / f"{name}.png"
    page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main()
