"""The page beside real runs: one is trained to its end while it is looked at, another is killed in the middle."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from cli.test_app import COMMAND
from conftest import TINY, heed_interruptions
from forgetscope.underway.progress import PATIENCE

pytestmark = [pytest.mark.browser, pytest.mark.slow]

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as stack:

        def started(*words: object) -> subprocess.Popen[str]:
            command = [*COMMAND, *map(str, words)]
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=heed_interruptions
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        yield started


def trained(start: Start, store: Path, seed: int, epochs: int) -> subprocess.Popen[str]:
    config = store.with_name(f"run-{seed}.toml")
    options = {**TINY, "sequence": [[0, 1, 2], [3, 4]], "epochs": epochs, "seed": seed}
    config.write_text("\n".join(f"{name} = {json.dumps(value)}" for name, value in options.items()), encoding="utf-8")
    return start("run", config, "--store", store, "--threads", "1")


def points(card: Locator) -> int:
    """Of the first curve of SIC."""
    return (card.locator("figure").first.locator("path").first.get_attribute("d") or "").count("L") + 1


def test_one_comes_to_its_end_and_one_is_killed(start: Start, tmp_path: Path, browser: Browser) -> None:
    store = tmp_path / "store"
    whole, killed = trained(start, store, 0, 40), trained(start, store, 1, 2000)
    until = time.monotonic() + 300
    while not (store / "steps").is_dir():
        assert time.monotonic() < until
        time.sleep(0.1)
    watcher = start("watch", store, "--page", "--every", "0.3")
    assert watcher.stdout is not None
    address = next(line for line in watcher.stdout if line.startswith("http://")).strip()
    page, complaints = browser.new_page(), list[str]()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    mine = page.locator(".step", has_text="of 40").filter(has=page.locator("tbody tr"))
    other = page.locator(".step", has_text="of 2000")
    other.wait_for(timeout=240_000)
    os.kill(killed.pid, signal.SIGKILL)
    gave_no_sign = time.monotonic()
    mine.wait_for(timeout=240_000)
    before = points(mine)
    wait_until(lambda: points(mine) > before + 2)
    assert mine.locator("tbody tr").count() == 3
    expect(mine).to_have_count(0, timeout=240_000)  # it came to its end,
    assert whole.wait(60) == 0
    expect(page.locator("#done tbody tr").first).to_contain_text("2")  # and is listed, with what it forgot
    expect(other.locator(".note")).to_contain_text("has said nothing for", timeout=1000 * (PATIENCE + 60))
    assert time.monotonic() - gave_no_sign > PATIENCE - 10
    expect(page.locator("#now")).to_have_text("Nothing is running. 1 has fallen silent or stopped.")
    opens_its_page(page)
    watcher.send_signal(signal.SIGINT)
    rest, _ = watcher.communicate(timeout=30)
    assert (watcher.returncode, "Traceback" in rest, complaints) == (0, False, [])
    expect(page.locator("#stale")).to_contain_text(re.compile("Not up to date since .* gives no answer"))


def opens_its_page(page: Page) -> None:
    with page.context.expect_page() as found:
        page.locator("#done a").first.click()
    found.value.locator("#finding").wait_for()
    expect(found.value.locator("#finding")).to_contain_text("Step 2")


def wait_until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)
