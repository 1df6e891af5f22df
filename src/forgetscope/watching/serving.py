"""A server on this machine's own address, for whoever has its token, of what `sight` sees, and of nothing else.

Refused are: other hosts, so that no name that is made to point here reaches it; other origins; other methods than GET and HEAD;
whatever has no token. No part of an address becomes a path: three names are known, and steps are looked up among those listed.
A client that stalls is let go after some seconds, or at once where there are too many."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import socket
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream, StreamClosedError
from tornado.web import Application, HTTPError, RequestHandler

from forgetscope.characters import visible
from forgetscope.errors import ForgetscopeError, SpecError
from forgetscope.report.pages.live import render_live
from forgetscope.store import Store
from forgetscope.watching.sight import Sight

LOOPBACK = "127.0.0.1"
TOKEN_BYTES = 32
CONNECTIONS = 100  # at a time; a browser opens six
HEADERS_SECONDS = 10.0  # for all of a request
TAKEN_SECONDS = 60.0  # for all of an answer
HEADERS_BYTES = 2**14

# Besides what a page says itself: a page of a finished step names the digests of its scripts in its own policy.
FRAMED = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"default-src 'none'; {FRAMED}",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
HTML, JSON, TEXT = (f"{kind}; charset=utf-8" for kind in ("text/html", "application/json", "text/plain"))


async def serve(store: Store, every: float, port: int, told: Callable[[str], object]) -> None:
    """Until it is cancelled. port: 0 is any that is free; told: hears the address, once it can be asked."""
    try:
        listening = socket.create_server((LOOPBACK, port), backlog=CONNECTIONS)
    except OSError as error:
        why = error.strerror or error
        raise SpecError(f"--port {port} cannot be used: {why}. Name another, or leave it out for one that is free.") from None
    listening.setblocking(False)
    bound, token = listening.getsockname()[1], secrets.token_urlsafe(TOKEN_BYTES)
    page, policy = render_live(str(store.path), every)
    for name in ("tornado.access", "tornado.general"):  # what strangers send is no news
        logging.getLogger(name).setLevel(logging.CRITICAL)
    about = {"bound": bound, "token": token, "sight": Sight(store, every), "page": page.encode(), "policy": policy}
    application = Application([(r".*", Reply, about)], log_function=lambda handler: None)
    door = Door(
        application,
        idle_connection_timeout=HEADERS_SECONDS,
        max_header_size=HEADERS_BYTES,
        max_body_size=0,
        max_buffer_size=2**16,
    )
    about["door"] = door
    door.add_socket(listening)
    try:
        told(f"http://{LOOPBACK}:{bound}/{token}/")
        await asyncio.Event().wait()
    finally:
        door.stop()
        door.let_go()


class Door(HTTPServer):
    """Lets in so many at a time. Who comes then takes the place of whoever has been there longest without showing the token."""

    def initialize(self, *args: Any, **options: Any) -> None:
        super().initialize(*args, **options)
        self._inside: dict[IOStream, bool] = {}  # whether the token was shown; who came first is first

    def handle_stream(self, stream: IOStream, address: Any) -> None:
        self._inside = {one: known for one, known in self._inside.items() if not one.closed()}
        if len(self._inside) >= CONNECTIONS:
            strangers = (one for one, known in self._inside.items() if not known)
            leaving = next(strangers, next(iter(self._inside)))
            del self._inside[leaving]
            leaving.close()
        self._inside[stream] = False
        super().handle_stream(stream, address)

    def knows(self, stream: IOStream) -> None:
        if stream in self._inside:
            self._inside[stream] = True

    def let_go(self) -> None:
        for stream in self._inside:
            stream.close()


class Reply(RequestHandler):
    """To one request."""

    SUPPORTED_METHODS = ("GET", "HEAD")

    def initialize(self, bound: int, token: str, sight: Sight, page: bytes, policy: str, door: Door) -> None:
        self._hosts = {f"{name}:{bound}" for name in (LOOPBACK, "localhost")}
        self._token, self._sight, self._page, self._policy, self._door = token, sight, page, policy, door

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def prepare(self) -> None:
        """Refused before anything is looked at."""
        hosts, origins = (self.request.headers.get_list(name) for name in ("Host", "Origin"))
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            raise HTTPError(403, reason="This is not the host that was asked for")
        if any(origin != f"http://{hosts[0]}" for origin in origins):
            raise HTTPError(403, reason="Other origins are refused")
        root, _, rest = self.request.path.partition("/")
        token, *names = rest.split("/")
        if root or not hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self._token.encode()):
            raise HTTPError(403, reason="The address that `forgetscope watch --page` printed has a token")
        self._names = names
        stream: IOStream = self.request.connection.stream  # type: ignore[union-attr]
        self._door.knows(stream)

    async def get(self) -> None:
        if self._names == [""]:
            await self._give(self._page, HTML, f"{self._policy}; {FRAMED}")
        elif self._names == ["state"]:
            await self._give(await self._sight.state(), JSON)
        elif self._names == ["step"] and len(asked := self.get_query_arguments("id", strip=False)) == 1:
            await self._give(await self._step(asked[0]), HTML, FRAMED)
        else:
            raise HTTPError(404, reason="Nothing is here")

    head = get

    async def _step(self, asked: str) -> bytes:
        try:
            page = await self._sight.page(asked)
        except ForgetscopeError as error:
            raise HTTPError(409, reason="This step cannot be shown", log_message=str(error)) from None
        if page is None:
            raise HTTPError(404, reason="The store lists no such step now")
        return page

    async def _give(self, content: bytes, kind: str, policy: str = "") -> None:
        self.set_header("Content-Type", kind)
        if policy:
            self.set_header("Content-Security-Policy", policy)
        self.write(content)
        try:
            with suppress(StreamClosedError):
                await asyncio.wait_for(self.finish(), TAKEN_SECONDS)
        except TimeoutError:
            self.request.connection.stream.close()  # type: ignore[union-attr]

    def log_exception(self, kind: Any, error: Any, trace: Any) -> None:
        """What went wrong here, on the terminal; not what was asked for: that may be a stranger's text, or hold the token."""
        if not isinstance(error, HTTPError):
            told = visible("".join(traceback.format_exception(kind, error, trace)), lines=True)
            logging.getLogger("tornado.application").error("No answer could be given. %s", told)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """As text; what a step's files are told to be is said to whoever showed the token, and to nobody else."""
        error = (kwargs.get("exc_info") or (None, None))[1]
        more = f": {error.log_message}" if isinstance(error, HTTPError) and error.log_message else ""
        self.set_header("Content-Type", TEXT)
        self.set_header("Connection", "close")
        self.finish(f"{self._reason}{more}.\n")
