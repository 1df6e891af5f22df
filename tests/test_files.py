from __future__ import annotations

from pathlib import Path

import pytest

from forgetscope.errors import WriteError
from forgetscope.files import locked, replace_durably, write_durably


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_clear_error() -> None:
    with pytest.raises(WriteError, match=r"No space left on device. Nothing that was finished is lost"):
        write_durably(Path("/dev/full"), b"x" * 100)


def test_replacing_a_file_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_durably(path, b"old")
    replace_durably(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_lock_s_file_goes_when_the_work_is_done_and_stays_when_it_is_not(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path, lambda: None, done=lambda: False):
        assert path.exists()
    assert path.exists()
    with locked(path, lambda: None, done=lambda: True):
        pass
    assert not path.exists()
