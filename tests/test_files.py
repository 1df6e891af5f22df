from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from forgetscope.errors import WriteError
from forgetscope.files import (
    is_locked,
    locked,
    locked_if_free,
    put_aside,
    read_regular,
    replace_durably,
    replacing,
    size_of,
    with_checksum,
    without_checksum,
    write_new,
)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_clear_error() -> None:
    with pytest.raises(WriteError, match=r"No space left on device\. It needs 100 bytes; .* are free there\. Nothing that"):
        write_new(Path("/dev/full"), b"x" * 100)


def test_replacing_a_file_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_durably(path, b"old")
    replace_durably(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_on_the_new_file(tmp_path: Path) -> None:
    """Two processes that wait for a lock whose holder removes the file must not both go on: one holds the old file's lock."""
    path, order, waiting = tmp_path / "lock", [], threading.Event()

    def second() -> None:
        with locked(path, lambda text: waiting.set(), "waiting", done=lambda: False):
            order.append("second")
            assert is_locked(path)  # what has the name now is what is held

    with locked(path, print, "waiting", done=lambda: True):
        thread = threading.Thread(target=second)
        thread.start()
        assert waiting.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_what_the_disk_refuses_leaves_the_old_file_and_nothing_else(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    replace_durably(path, b"old")

    def refuse(*args: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, failing, refuse)
    with pytest.raises(WriteError, match=r"Cannot write .*file: Input/output error. It needs 3 bytes"):
        replace_durably(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_damaged_things_are_put_aside_under_a_free_name(tmp_path: Path) -> None:
    for i in range(2):
        (tmp_path / "thing").write_text(str(i))
        put_aside(tmp_path / "thing", tmp_path / "quarantine", "thing")
    assert {p.name: p.read_text() for p in (tmp_path / "quarantine").iterdir()} == {"thing-1": "0", "thing-2": "1"}


def test_a_lock_s_file_goes_when_the_work_is_done_and_stays_when_it_is_not(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path, print, "waiting", done=lambda: False):
        assert path.exists()
    assert path.exists()
    with locked(path, print, "waiting", done=lambda: True):
        pass
    assert not path.exists()


def test_a_file_written_in_pieces_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replacing(path) as file:
        file.write(b"old")
        assert not path.exists()
    with pytest.raises(ZeroDivisionError), replacing(path) as file:
        file.writelines([b"half", b"x" * (1 // 0)])
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    with pytest.raises(WriteError, match=r"Cannot write .*none"), replacing(tmp_path / "none" / "file"):
        pass


@pytest.mark.parametrize("name", ["ENOLCK", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EINVAL"])
def test_where_there_are_no_locks_the_work_is_done_without_and_that_is_said_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, said, path = getattr(errno, name), [], tmp_path / "lock"

    def refuse(file: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    with locked(path, said.append, "waiting", done=lambda: False), locked(path, said.append, "waiting", done=lambda: True):
        assert is_locked(path)  # for all that can be seen
    assert said == [
        f"{tmp_path}: the file system has no locks ({os.strerror(number)}). Going on without: results are the same, but "
        "processes that work at the same thing at the same time may do it twice."
    ]
    assert not is_locked(path)
    with locked_if_free(path) as free:
        assert free
    assert not path.exists()


def test_a_lock_that_fails_otherwise_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: int, operation: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("fcntl.flock", refuse)
    lock = locked(tmp_path / "lock", print, "waiting", done=lambda: True)
    with pytest.raises(WriteError, match=r"Cannot write .*lock: Input/output error"), lock:
        pass


def test_reading_takes_the_memory_of_the_file_and_not_of_its_limit(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"content")
    tracemalloc.start()
    try:
        assert read_regular(tmp_path / "small", 2**33) == b"content"
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_lock_whose_file_cannot_be_removed_harms_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EIO, "Input/output error", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with locked(tmp_path / "lock", print, "waiting", done=lambda: True), locked_if_free(tmp_path / "other") as free:
        assert free
    assert not is_locked(tmp_path / "lock")
    assert not is_locked(tmp_path / "other")


def test_whoever_asks_for_a_lock_needs_no_file_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On NFS an exclusive lock needs a file that is open for writing."""
    real = fcntl.flock

    def flock(file: int, operation: int) -> None:
        if operation & fcntl.LOCK_EX and fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        real(file, operation)

    monkeypatch.setattr("fcntl.flock", flock)
    with locked(tmp_path / "lock", print, "waiting", done=lambda: False):
        assert is_locked(tmp_path / "lock")
    assert not is_locked(tmp_path / "lock")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_two_processes_put_aside_at_the_same_time_is_all_kept(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another puts something there under the same name right before the move, and yet another moves what we were to move."""

    def make(path: Path, text: str) -> None:
        if kind == "folder":
            path.mkdir()
        (path / "content" if kind == "folder" else path).write_text(text)

    quarantine, real = tmp_path / "quarantine", os.rename
    for name in ("ours", "theirs"):
        make(tmp_path / name, name)

    def rename(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "rename", real)
        assert put_aside(tmp_path / "theirs", quarantine, "thing") == quarantine / "thing-2"
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    assert put_aside(tmp_path / "ours", quarantine, "thing") == quarantine / "thing-1"
    assert put_aside(tmp_path / "ours", quarantine, "thing") == quarantine  # it is there already
    assert sorted(path.name for path in quarantine.iterdir()) == ["thing-1", "thing-2"]


def test_a_file_whose_folder_is_gone_is_not_missed_where_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="No such file or directory"):
        replace_durably(tmp_path / "gone" / "file", b"x")
    replace_durably(tmp_path / "gone" / "file", b"x", missing_ok=True)
    assert not (tmp_path / "gone").exists()


@given(st.binary(max_size=200), st.integers(0), st.integers(0, 7))
def test_a_checksum_notices_every_flipped_bit_and_every_cut(body: bytes, place: int, bit: int) -> None:
    content = bytearray(with_checksum(body))
    assert without_checksum(bytes(content)) == body
    assert without_checksum(bytes(content[: place % len(content)])) is None
    content[place % len(content)] ^= 1 << bit
    assert without_checksum(bytes(content)) is None


def test_a_lock_is_taken_if_free_and_never_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    assert not path.exists()
    with locked_if_free(path) as first, locked_if_free(path) as second:
        assert (first, second) == (True, False)
        assert is_locked(path)
    assert not path.exists()
    with locked(path, print, "waiting", done=lambda: False), locked_if_free(path) as free:
        assert not free
    assert path.exists()
    assert not is_locked(path)


def test_the_size_of_a_folder_is_that_of_all_files_in_it(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a").write_bytes(b"x" * 10)
    (tmp_path / "deep" / "b").write_bytes(b"x" * 5)
    assert [size_of(path) for path in (tmp_path, tmp_path / "a", tmp_path / "none")] == [15, 10, 0]


def strange(path: Path, kind: str) -> None:
    """Something that is no plain file. Opening a pipe as one would wait for ever."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(path.with_name("elsewhere"))
    elif kind == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))


@pytest.mark.parametrize("kind", ["pipe", "pipe that is read", "link", "folder", "socket"])
def test_a_lock_that_is_no_plain_file_is_refused_and_nobody_waits(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    path = Path("lock")
    strange(path, kind.split()[0])
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK) if "read" in kind else None
    assert not is_locked(path)
    for lock in (locked(path, print, "waiting", done=lambda: True), locked_if_free(path)):
        with pytest.raises(WriteError, match=r"^lock is a link, or something else that is no plain file\. Remove it"), lock:
            pass
    assert list(tmp_path.iterdir()) == [tmp_path / "lock"]
    if reader is not None:
        os.close(reader)


def test_what_is_not_empty_is_somebody_s_file_and_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.write_text("mine")
    for lock in (locked(path, print, "waiting", done=lambda: True), locked_if_free(path)):
        with pytest.raises(WriteError, match=r"lock is where a lock would be, and is not empty\. Move it elsewhere"), lock:
            pass
    assert path.read_text() == "mine"


@pytest.mark.parametrize("waits", [True, False])
def test_a_file_that_took_the_name_of_a_lock_meanwhile_is_left_alone(waits: bool, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path, print, "waiting", done=lambda: True) if waits else locked_if_free(path):
        (tmp_path / "other").write_text("mine")
        (tmp_path / "other").rename(path)
    assert path.read_text() == "mine"


def test_a_link_to_a_folder_is_moved_and_counted_itself(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"x" * 10_000)
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    assert size_of(tmp_path / "link") < 10_000
    moved = put_aside(tmp_path / "link", tmp_path / "quarantine", "link")
    assert moved.is_symlink()
    assert (tmp_path / "folder" / "file").exists()
