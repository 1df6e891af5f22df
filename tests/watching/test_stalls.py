"""Clients that connect and stall: a thousand of them, and one that wants to be served."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from forgetscope.watching import serving as server
from underway.test_lookout import halted, stopped
from watching.served import Served, serving

__all__ = ["halted", "stopped"]  # fixtures
pytestmark = pytest.mark.slow

CLIENTS = 1000


@pytest.fixture
def room() -> Iterator[None]:
    """For the clients' own files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CLIENTS + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this machine lets a process open {hard} files, fewer than {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_closed(client: socket.socket) -> bool:
    client.settimeout(0)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("begun", ["", "GET / HTTP/1.1\r\nHost: ", "GET {path}state HTTP/1.1\r\nHost: {host}\r\nX: "])
def test_a_thousand_that_stall_keep_nobody_out(halted: Path, room: None, begun: str) -> None:
    with serving(halted) as served, ExitStack() as stack:
        clients = []
        for _ in range(CLIENTS):
            clients.append(stack.enter_context(served.connect()))
            clients[-1].sendall(begun.format(path=served.path, host=served.host).encode())
        assert served.state()["silent"]
        assert served.asked()[0] == 200
        assert sum(not is_closed(client) for client in clients) <= server.CONNECTIONS


def test_who_showed_the_token_is_not_turned_out_for_who_did_not(halted: Path, room: None) -> None:
    with serving(halted) as served, ExitStack() as stack:
        known = stack.enter_context(served.connect())
        request = f"GET {served.path}state HTTP/1.1\r\nHost: {served.host}\r\n\r\n".encode()
        known.sendall(request)
        assert known.recv(1 << 16).startswith(b"HTTP/1.1 200")
        for _ in range(3 * server.CONNECTIONS):
            stack.enter_context(served.connect())
        assert served.state()["silent"]
        while not is_closed(known):  # the rest of the first answer
            known.settimeout(1)
            known.sendall(request)
            assert b"HTTP/1.1 200" in known.recv(1 << 20)
            break
        else:
            pytest.fail("turned out")


def test_headers_that_do_not_come_are_not_waited_for(halted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEADERS_SECONDS", 0.3)
    with serving(halted) as served, served.connect() as slow, served.connect() as mute:
        until = time.monotonic() + 30
        slow.sendall(b"GET / HTTP/1.1\r\n")
        while not (is_closed(slow) and is_closed(mute)):
            assert time.monotonic() < until
            try:
                slow.sendall(b"X")  # a byte now and then is no reason to wait on
            except OSError:
                break
            time.sleep(0.05)
        assert served.state()["silent"]


def test_an_answer_that_nobody_takes_is_given_up(tiny_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TAKEN_SECONDS", 0.3)
    with serving(tiny_store) as served:
        last = next(one for one in served.state()["finished"] if one["number"] == 3)["step"]
        whole = len(served.asked(f"step?id={last}")[2])
        assert whole > 2**22
        with served.connect() as client:
            client.sendall(f"GET {served.path}step?id={last} HTTP/1.1\r\nHost: {served.host}\r\n\r\n".encode())
            time.sleep(1.5)
            client.settimeout(10)
            taken = 0
            try:
                while found := client.recv(1 << 20):
                    taken += len(found)
            except OSError:
                pass
        assert 0 < taken < whole


def test_clients_that_leave_in_the_middle_are_no_trouble(served_twice: Served) -> None:
    for _ in range(50):
        client = served_twice.connect()
        client.sendall(f"GET {served_twice.path}state HTTP/1.1\r\nHost: {served_twice.host}\r\n\r\n".encode())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset, not an end
        client.close()
    assert served_twice.state()["silent"]


@pytest.fixture
def served_twice(halted: Path, capfd: pytest.CaptureFixture[str]) -> Iterator[Served]:
    with serving(halted) as found:
        yield found
    assert capfd.readouterr().err == ""
