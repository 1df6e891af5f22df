from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forgetscope.errors import WriteError
from forgetscope.files import (
    is_locked,
    locked,
    locked_if_free,
    put_aside,
    replace_durably,
    replacing,
    size_of,
    with_checksum,
    without_checksum,
    write_durably,
)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_clear_error() -> None:
    with pytest.raises(WriteError, match=r"No space left on device\. It needs 100 bytes; .* are free there\. Nothing that"):
        write_durably(Path("/dev/full"), b"x" * 100)


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
        with locked(path, waiting.set, done=lambda: False):
            order.append("second")
            assert is_locked(path)  # what has the name now is what is held

    with locked(path, lambda: None, done=lambda: True):
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
    with locked(path, lambda: None, done=lambda: False):
        assert path.exists()
    assert path.exists()
    with locked(path, lambda: None, done=lambda: True):
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
    with locked(path, lambda: None, done=lambda: False), locked_if_free(path) as free:
        assert not free
    assert path.exists()
    assert not is_locked(path)


def test_the_size_of_a_folder_is_that_of_all_files_in_it(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "a").write_bytes(b"x" * 10)
    (tmp_path / "deep" / "b").write_bytes(b"x" * 5)
    assert [size_of(path) for path in (tmp_path, tmp_path / "a", tmp_path / "none")] == [15, 10, 0]
