"""What `forgetscope watch` costs while it waits, as a share of one core, and what its first look costs and those after it.

    python benchmarks/watch.py STORE [SECONDS] [page]

A watcher on a screen of its own looks at the store every two seconds, as it does by default; its start is not counted. page: as
a server, with its page open in a headless Chromium, whose own time is not counted.
"""

import os
import pty
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import forgetscope as fs
from forgetscope.cli import main
from forgetscope.underway.running import Lookout

SETTLED = 10.0  # seconds after which its libraries are loaded


def measured(store: str, seconds: float, *options: str) -> float:
    """Processor time of a watcher over time that passes, in a child with a terminal of its own."""
    ours, theirs = os.pipe()
    child, terminal = pty.fork()
    if not child:
        threading.Thread(target=report, args=(theirs, seconds), daemon=True).start()
        sys.argv = ["forgetscope", "watch", store, *options]
        main()
    os.close(theirs)
    with ExitStack() as stack:
        if options:
            stack.enter_context(opened(terminal))
        threading.Thread(target=drained, args=(terminal,), daemon=True).start()
        with os.fdopen(ours) as answer:
            return float(answer.read())


@contextmanager
def opened(terminal: int) -> Iterator[None]:
    """The page whose address is printed there, in a browser."""
    from playwright.sync_api import sync_playwright

    told = b""
    while (address := re.search(rb"http://\S+/\s", told)) is None:
        told += os.read(terminal, 65536)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto(address[0].decode().strip())
        page.wait_for_selector("#now:not(:empty)")
        yield
        browser.close()


def report(where: int, seconds: float) -> None:
    time.sleep(SETTLED)
    before, began = time.process_time(), time.monotonic()
    time.sleep(seconds)
    os.write(where, str((time.process_time() - before) / (time.monotonic() - began)).encode())
    os._exit(0)


def drained(terminal: int) -> None:
    """Somebody has to read what is drawn."""
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:  # the child has ended
        return


def looks(store: str) -> list[float]:
    """Seconds of processor time of the first look at what runs, and of those after it."""
    lookout, found = Lookout(fs.Store.existing(store)), []
    for _ in range(5):
        before = time.process_time()
        lookout.look()
        found.append(time.process_time() - before)
    return found


if __name__ == "__main__":
    folder, *others = [argument for argument in sys.argv[1:] if argument != "page"]
    shown = ["--page"] if "page" in sys.argv[1:] else []
    first, *later = looks(folder)
    print(f"first look {1000 * first:.0f} ms, then {1000 * max(later):.1f} ms")
    print(f"{100 * measured(folder, float(others[0]) if others else 60.0, *shown):.2f} % of a core")
