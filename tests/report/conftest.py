"""A real browser for all tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is on the PATH")
    flags = ("no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking")
    flags += ("disable-component-update", "disable-sync")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[f"--{flag}" for flag in flags])
        yield browser
        browser.close()
