"""A server of a store for tests, in a thread of this process, and raw requests to it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from forgetscope.store import Store
from forgetscope.watching.serving import serve


@dataclass
class Served:
    address: str

    @property
    def host(self) -> str:
        return urlsplit(self.address).netloc

    @property
    def path(self) -> str:
        """With the token."""
        return urlsplit(self.address).path

    def connect(self) -> socket.socket:
        name, port = self.host.split(":")
        return socket.create_connection((name, int(port)), timeout=60)

    def sent(self, request: str) -> tuple[int, dict[str, str], bytes]:
        """What is answered to these bytes: status, headers, body. The lines end as HTTP wants it."""
        with self.connect() as client:
            client.sendall(request.replace("\n", "\r\n").encode("latin-1"))
            found = b"".join(iter(lambda: client.recv(1 << 16), b""))
        head, _, body = found.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body

    def asked(self, what: str = "", method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """As somebody with the token asks."""
        lines = {"Host": self.host, "Connection": "close", **{name.replace("_", "-"): value for name, value in headers.items()}}
        told = "".join(f"{name}: {value}\n" for name, value in lines.items())
        return self.sent(f"{method} {self.path}{what} HTTP/1.1\n{told}\n")

    def state(self) -> dict[str, Any]:
        status, _, body = self.asked("state")
        assert status == 200, body
        found: dict[str, Any] = json.loads(body)
        return found


@contextmanager
def serving(store: Path, every: float = 0.05) -> Iterator[Served]:
    loop, ready, found = asyncio.new_event_loop(), threading.Event(), list[str]()

    def told(address: str) -> None:
        found.append(address)
        ready.set()

    task = loop.create_task(serve(Store(store), every, 0, told))

    def run() -> None:
        with loop_of(loop):
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(60)
        yield Served(found[0])
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(60)
        assert not thread.is_alive()


@contextmanager
def loop_of(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    asyncio.set_event_loop(loop)
    try:
        yield
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.01))
    finally:
        loop.close()
