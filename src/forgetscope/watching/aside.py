"""Work beside an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

Done = TypeVar("Done")


async def aside(work: Callable[[], Done]) -> Done:
    """Done in a thread that nobody waits for when the program ends, as those of an executor are: a page may take half a minute,
    and a disk that is away longer."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Done] = loop.create_future()

    def settle(how: Callable[[Any], None], what: object) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: None if done.done() else how(what))

    def run() -> None:
        try:
            settle(done.set_result, work())
        except Exception as error:
            settle(done.set_exception, error)

    threading.Thread(target=run, daemon=True).start()
    return await done
