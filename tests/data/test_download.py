"""Downloads against a real server on this machine that can be told to misbehave."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from forgetscope.data.download import download
from forgetscope.errors import DataError, WriteError

CONTENT = random.Random(0).randbytes(300_000)
OTHER = random.Random(1).randbytes(200_000)
MODIFIED = "Thu, 01 Jan 2026 00:00:00 GMT"


@dataclass
class Site:
    """One file on a server, how it is served, and what was asked for."""

    url: str = ""
    content: bytes = CONTENT
    etag: str | None = '"one"'
    modified: str | None = None
    ranges: bool = True  # honour Range
    if_range: bool = True  # honour If-Range
    length: bool = True  # send Content-Length; else chunks
    cut: list[int] = field(default_factory=list)  # the next answers stop after so many bytes of their body
    reset: bool = False  # a cut resets the connection instead of closing it
    answers: list[int] = field(default_factory=list)  # the next answers are these errors
    surplus: bytes = b""  # sent after the rest of a file, with a Content-Length that says so
    redirect: str | None = None  # from this path to the file
    stop: threading.Event | None = None  # a cut body is held open until then
    asked: list[dict[str, str]] = field(default_factory=list)  # headers of each request

    @property
    def asked_ranges(self) -> list[str | None]:
        return [headers.get("Range") for headers in self.asked]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open unless closed on purpose

    def do_GET(self) -> None:
        site: Site = self.server.site  # type: ignore[attr-defined]
        if self.path == site.redirect:
            self.send_response(302)
            self.send_header("Location", "/file")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        site.asked.append(dict(self.headers))
        if site.answers:
            self.send_error(site.answers.pop(0))
            return
        start, total = self.start(site), len(site.content)
        if start >= total > 0:
            self.send_error(416)
            return
        body = site.content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
            body += site.surplus
        for name, value in {"ETag": site.etag, "Last-Modified": site.modified}.items():
            if value:
                self.send_header(name, value)
        if site.length:
            self.send_header("Content-Length", str(len(body)))
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        cut = site.cut.pop(0) if site.cut else None
        self.send(body[:cut], chunked=not site.length)
        if cut is None:
            if not site.length:
                self.wfile.write(b"0\r\n\r\n")
            return
        if site.stop:
            site.stop.wait(20)
            self.send(body[cut:], chunked=False)
        if site.reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True

    def start(self, site: Site) -> int:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if not (asked and site.ranges):
            return 0
        current = self.headers.get("If-Range") in (None, site.etag, site.modified)
        return int(asked[1]) if current or not site.if_range else 0

    def send(self, body: bytes, *, chunked: bool) -> None:
        for i in range(0, len(body), 50_000):
            piece = body[i : i + 50_000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = False  # closing waits for the handlers, so that no socket is left open

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that went away


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr("forgetscope.data.download.PAUSE", 0.001)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    site = Site()
    with Server(("127.0.0.1", 0), Handler) as server:
        server.site = site  # type: ignore[attr-defined]
        site.url = f"http://127.0.0.1:{server.server_port}/file"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield site
        if site.stop:
            site.stop.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "file.bin"


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def left(target: Path) -> list[str]:
    """What stands in the target's folder."""
    return sorted(path.name for path in target.parent.iterdir())


def leave_part(site: Site, target: Path, size: int = 100_000) -> None:
    """As after a download that gave up."""
    site.cut = [size, 0]
    with pytest.raises(DataError, match=f"{size} of 300000 bytes are there"):
        download(site.url, target, attempts=1)
    assert target.with_name("file.bin.part").read_bytes() == site.content[:size]
    site.asked.clear()


def test_a_download_arrives_whole_and_leaves_nothing_else(site: Site, target: Path) -> None:
    assert download(site.url, target, md5=md5(CONTENT).upper()) == target
    assert target.read_bytes() == CONTENT
    assert left(target) == ["file.bin"]
    assert site.asked[0]["User-Agent"].startswith("forgetscope/")
    assert site.asked_ranges == [None]


def test_progress_goes_from_nothing_to_everything(site: Site, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forgetscope.data.download.INTERVAL", 0.0)
    seen: list[tuple[int, int]] = []
    download(site.url, target, progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 300_000)
    assert seen[-1] == (300_000, 300_000)
    assert len(seen) > 2
    assert seen == sorted(seen)


def test_a_file_in_chunks_has_no_total(site: Site, target: Path) -> None:
    site.length = False
    seen: list[tuple[int, int]] = []
    download(site.url, target, progress=lambda done, total: seen.append((done, total)))
    assert target.read_bytes() == CONTENT
    assert seen[-1] == (300_000, 0)


def test_a_file_in_chunks_that_breaks_off_starts_over(site: Site, target: Path) -> None:
    site.length, site.cut = False, [100_000]
    download(site.url, target)
    assert target.read_bytes() == CONTENT
    assert site.asked_ranges == [None, None]


def test_an_empty_file_is_a_file(site: Site, target: Path) -> None:
    site.content = b""
    assert download(site.url, target).read_bytes() == b""


def test_a_redirect_is_followed(site: Site, target: Path) -> None:
    site.redirect, site.cut = "/old", [100_000]
    download(site.url.replace("/file", "/old"), target)
    assert target.read_bytes() == CONTENT
    assert site.asked_ranges == [None, "bytes=100000-"]


# What is there already


def test_a_file_that_is_there_is_not_asked_for(site: Site, target: Path) -> None:
    download(site.url, target)
    site.asked.clear()
    download(site.url, target)
    download(site.url, target, md5=md5(CONTENT))
    assert not site.asked


def test_a_file_that_is_there_but_wrong_is_replaced(site: Site, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(b"wrong")
    download(site.url, target, md5=md5(CONTENT))
    assert target.read_bytes() == CONTENT


def test_a_file_that_is_there_but_wrong_stays_until_the_right_one_has_come(site: Site, target: Path) -> None:
    target.parent.mkdir()
    target.write_bytes(b"wrong")
    site.answers = [404]
    with pytest.raises(DataError):
        download(site.url, target, md5=md5(CONTENT))
    assert target.read_bytes() == b"wrong"


# Resuming


@pytest.mark.parametrize("reset", [False, True])
def test_a_dropped_connection_is_resumed_where_it_stopped(site: Site, target: Path, reset: bool) -> None:
    site.cut, site.reset = [100_000, 50_000], reset
    download(site.url, target, md5=md5(CONTENT))
    assert target.read_bytes() == CONTENT
    assert len(site.asked) == 3
    assert site.asked[1]["If-Range"] == '"one"'
    if not reset:  # a reset may overtake bytes on their way
        assert site.asked_ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_a_later_call_resumes_where_an_earlier_one_gave_up(site: Site, target: Path) -> None:
    leave_part(site, target)
    seen: list[int] = []
    download(site.url, target, progress=lambda done, total: seen.append(done))
    assert target.read_bytes() == CONTENT
    assert site.asked_ranges == ["bytes=100000-"]
    assert seen[0] == 100_000
    assert left(target) == ["file.bin"]


def test_an_interrupted_download_resumes_where_it_stopped(site: Site, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forgetscope.data.download.INTERVAL", 0.0)
    site.cut, site.stop = [100_000], threading.Event()

    def interrupt(done: int, total: int | None) -> None:
        if done > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(site.url, target, progress=interrupt)
    site.stop.set()
    have = target.with_name("file.bin.part").stat().st_size
    download(site.url, target)
    assert target.read_bytes() == CONTENT
    assert site.asked_ranges == [None, f"bytes={have}-"]


def test_a_killed_download_resumes(site: Site, target: Path) -> None:
    site.cut, site.stop = [100_000], threading.Event()
    program = "import sys, pathlib, forgetscope.data.download as d; d.download(sys.argv[1], pathlib.Path(sys.argv[2]))"
    part = target.with_name("file.bin.part")
    with subprocess.Popen([sys.executable, "-c", program, site.url, str(target)]) as process:
        deadline = time.monotonic() + 20
        while not (part.exists() and part.stat().st_size > 50_000) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    have = part.stat().st_size
    site.stop.set()
    download(site.url, target)
    assert target.read_bytes() == CONTENT
    assert site.asked_ranges == [None, f"bytes={have}-"]
    assert left(target) == ["file.bin"]


def test_last_modified_serves_where_the_etag_is_weak(site: Site, target: Path) -> None:
    site.etag, site.modified, site.cut = 'W/"weak"', MODIFIED, [100_000]
    download(site.url, target)
    assert target.read_bytes() == CONTENT
    assert site.asked[1]["If-Range"] == MODIFIED
    assert site.asked_ranges == [None, "bytes=100000-"]


def test_a_version_that_cannot_be_recognised_is_never_resumed(site: Site, target: Path) -> None:
    site.etag, site.cut = None, [100_000]
    download(site.url, target)
    assert target.read_bytes() == CONTENT
    assert site.asked_ranges == [None, None]


def test_a_server_that_ignores_ranges_starts_over(site: Site, target: Path) -> None:
    leave_part(site, target)
    site.ranges = False
    download(site.url, target)
    assert target.read_bytes() == CONTENT
    assert site.asked_ranges == ["bytes=100000-"]


@pytest.mark.parametrize("heeded", [True, False])
@pytest.mark.parametrize("content", [OTHER, bytes(300_000)], ids=["other size", "same size"])
def test_a_file_that_changed_starts_over(site: Site, target: Path, heeded: bool, content: bytes) -> None:
    leave_part(site, target)
    site.content, site.etag, site.if_range = content, '"two"', heeded
    download(site.url, target)
    assert target.read_bytes() == content
    assert site.asked_ranges == ["bytes=100000-", None][: 1 if heeded else 2]


def test_a_file_whose_size_changed_under_the_same_etag_starts_over(site: Site, target: Path) -> None:
    leave_part(site, target)
    site.content = OTHER
    download(site.url, target)
    assert target.read_bytes() == OTHER
    assert site.asked_ranges == ["bytes=100000-", None]


def test_a_file_that_shrank_below_the_part_starts_over(site: Site, target: Path) -> None:
    leave_part(site, target)
    site.content, site.if_range = OTHER[:50_000], False  # answers 416
    download(site.url, target, attempts=1)
    assert target.read_bytes() == OTHER[:50_000]
    assert site.asked_ranges == ["bytes=100000-", None]


def test_a_part_of_another_address_starts_over(site: Site, target: Path) -> None:
    leave_part(site, target)
    download(site.url + "?other", target)
    assert target.read_bytes() == CONTENT
    assert site.asked_ranges == [None]


@pytest.mark.parametrize("memory", [None, b"", b"[]", b'{"url": 1}'])
def test_a_part_that_nothing_is_known_about_starts_over(site: Site, target: Path, memory: bytes | None) -> None:
    target.parent.mkdir()
    target.with_name("file.bin.part").write_bytes(OTHER)
    if memory is not None:
        target.with_name("file.bin.part.json").write_bytes(memory)
    download(site.url, target)
    assert target.read_bytes() == CONTENT
    assert left(target) == ["file.bin"]


def test_a_complete_part_needs_no_request(site: Site, target: Path) -> None:
    leave_part(site, target)
    target.with_name("file.bin.part").write_bytes(CONTENT)
    download(site.url, target, md5=md5(CONTENT))
    assert target.read_bytes() == CONTENT
    assert not site.asked


# Giving up


def test_attempts_that_bring_something_are_not_counted(site: Site, target: Path) -> None:
    site.cut = [30_000] * 8
    download(site.url, target, attempts=1)
    assert target.read_bytes() == CONTENT
    assert len(site.asked) == 9


def test_attempts_that_bring_nothing_end_with_what_is_there(site: Site, target: Path) -> None:
    site.cut = [100_000, 0, 0, 0]
    with pytest.raises(DataError, match=r"100000 of 300000 bytes are there; run the same command again to resume") as error:
        download(site.url, target, attempts=3)
    assert site.url in str(error.value)
    assert len(site.asked) == 4
    download(site.url, target)
    assert target.read_bytes() == CONTENT
    assert site.asked_ranges[-1] == "bytes=100000-"


def test_a_server_that_neither_resumes_nor_finishes_is_not_asked_for_ever(site: Site, target: Path) -> None:
    site.ranges, site.cut = False, [100_000] * 50
    with pytest.raises(DataError, match="100000 of 300000 bytes are there"):
        download(site.url, target)
    assert len(site.asked) == 5


def test_a_server_that_falls_silent_counts_as_dropped(site: Site, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forgetscope.data.download.TIMEOUT", 0.3)
    site.cut, site.stop = [100_000], threading.Event()
    download(site.url, target)
    assert target.read_bytes() == CONTENT
    assert site.asked_ranges == [None, "bytes=100000-"]


def test_a_server_s_error_is_retried(site: Site, target: Path) -> None:
    site.answers = [500, 503]
    download(site.url, target)
    assert target.read_bytes() == CONTENT
    assert len(site.asked) == 3


def test_a_server_s_lasting_error_is_reported(site: Site, target: Path) -> None:
    site.answers = [500] * 9
    with pytest.raises(DataError, match=r"/file: the server answered 500 Internal Server Error.* `--from PATH`"):
        download(site.url, target)
    assert len(site.asked) == 4


@pytest.mark.parametrize("status", [404, 403, 416])
def test_a_wrong_address_is_reported_at_once(site: Site, target: Path, status: int) -> None:
    site.answers = [status]
    with pytest.raises(DataError, match=rf"{site.url}: the server answered {status} .* Check the address.* `--from PATH`"):
        download(site.url, target)
    assert len(site.asked) == 1


def test_an_unreachable_host_is_reported(site: Site, target: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        with pytest.raises(DataError, match=r"Connection refused. No bytes are there; run the same command again to retry"):
            download(f"http://127.0.0.1:{free.getsockname()[1]}/file", target)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/file", "/etc/passwd", "data:,x", ""])
def test_only_web_addresses_are_accepted(target: Path, url: str) -> None:
    with pytest.raises(DataError, match=f"Cannot download {url}: only http:// and https://"):
        download(url, target)
    assert not target.parent.exists()


@pytest.mark.parametrize("url", ["http://host:port/", "http://[::1/", "http://127.0.0.1/a b", "http://127.0.0.1/ä"])
def test_an_impossible_address_is_reported_at_once(target: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forgetscope.data.download.time", None)  # no waiting, so no second attempt
    with pytest.raises(DataError, match="Check the address"):
        download(url, target)


# Too much


def test_a_file_that_promises_more_than_is_allowed_is_not_begun(site: Site, target: Path) -> None:
    with pytest.raises(DataError, match=r"the server promises 300,000 bytes, more than the 299,999 that are allowed.*`--from"):
        download(site.url, target, limit=299_999)
    assert left(target) == ["file.bin.lock"]
    assert len(site.asked) == 1
    download(site.url, target, limit=300_000)
    assert target.read_bytes() == CONTENT


def test_a_file_in_chunks_is_cut_off_where_it_exceeds_what_is_allowed(site: Site, target: Path) -> None:
    site.length = False
    with pytest.raises(
        DataError, match=r"Stopped downloading .*: the server sends more than 30,000 bytes.*nothing of it is kept"
    ):
        download(site.url, target, limit=30_000)
    assert left(target) == ["file.bin.lock"]
    assert len(site.asked) == 1


def test_a_continuation_is_held_to_the_size_that_was_promised(site: Site, target: Path) -> None:
    leave_part(site, target)
    site.surplus = 10 * CONTENT
    with pytest.raises(DataError, match=r"the server sends more than 300,000 bytes"):
        download(site.url, target)
    assert left(target) == ["file.bin.lock"]
    site.surplus = b""
    download(site.url, target)
    assert target.read_bytes() == CONTENT


# Checksums and disks


def test_a_wrong_checksum_deletes_what_came_and_names_both_sums(site: Site, target: Path) -> None:
    with pytest.raises(DataError) as error:
        download(site.url, target, md5=md5(OTHER))
    for part in ("file.bin", site.url, md5(OTHER), md5(CONTENT), "Run the same command again", "--from PATH"):
        assert part in str(error.value)
    assert left(target) == ["file.bin.lock"]
    site.content = OTHER
    download(site.url, target, md5=md5(OTHER))
    assert target.read_bytes() == OTHER


def test_a_full_disk_keeps_the_part_and_a_later_call_resumes(site: Site, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class FullDisk(io.FileIO):
        def write(self, data: Any) -> int:
            room = 120_000 - self.tell()
            if room <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(memoryview(data)[:room])

    real = Path.open

    def opened(path: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        return io.BufferedRandom(FullDisk(path, "r+")) if mode == "r+b" else real(path, mode, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", opened)
        with pytest.raises(WriteError, match=r"Cannot write .*file.bin: No space left on device"):
            download(site.url, target)
    assert target.with_name("file.bin.part").read_bytes() == CONTENT[:120_000]
    assert json.loads(target.with_name("file.bin.part.json").read_bytes())["total"] == 300_000
    download(site.url, target)
    assert target.read_bytes() == CONTENT
    assert site.asked_ranges == [None, "bytes=120000-"]


def test_a_folder_that_cannot_be_made_is_reported(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="Cannot write"):
        download(site.url, tmp_path / "file" / "file.bin")
    assert not site.asked


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_folder_is_reported(site: Site, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(WriteError, match="Permission denied"):
        download(site.url, tmp_path / "file.bin")
    tmp_path.chmod(0o700)


def test_two_downloads_of_one_file_make_one_request(site: Site, target: Path) -> None:
    site.cut, site.stop = [100_000], threading.Event()
    blocked: list[str] = []

    def waits(text: str) -> None:
        blocked.append(text)
        if len(blocked) == 2:
            site.stop.set()  # type: ignore[union-attr]

    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(download, site.url, target, md5=md5(CONTENT), note=waits) for _ in range(3)]
        assert [call.result(20) for call in calls] == [target] * 3
    assert target.read_bytes() == CONTENT
    assert blocked == ["Another process is downloading it; waiting for it."] * 2
    assert site.asked_ranges == [None]
    assert left(target) == ["file.bin"]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("etag", ['"one"', None])
def test_downloads_of_one_file_at_a_time_need_no_lock(
    known: bool, etag: str | None, site: Site, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four at once, each begins anew, some are cut off and go on: what appears is whole, for all of them."""
    monkeypatch.setattr("fcntl.flock", lambda file, operation: None)
    site.etag, site.cut = etag, [100_000, 50_000, 200_000, 150_000, 10_000]
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(download, site.url, target, md5=md5(CONTENT) if known else None) for _ in range(4)]
        assert [call.result(20).read_bytes() == CONTENT for call in calls] == [True] * 4


def test_a_part_that_another_process_begins_anew_is_left_to_it(
    site: Site, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut short under our hands it would have a hole; so we write to what was, and then go on from what is."""
    part, others = target.with_name("file.bin.part"), iter([CONTENT[:1000]])
    monkeypatch.setattr("forgetscope.data.download.INTERVAL", 0.0)

    def begin_anew(done: int, total: int | None) -> None:
        if done > 0 and (content := next(others, None)) is not None:
            part.with_name("new").write_bytes(content)
            part.with_name("new").replace(part)

    download(site.url, target, progress=begin_anew)
    assert target.read_bytes() == CONTENT
    assert site.asked_ranges == [None, "bytes=1000-"]
    assert left(target) == ["file.bin"]
