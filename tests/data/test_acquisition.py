from __future__ import annotations

import errno
import functools
import hashlib
import multiprocessing
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from own_data import own

from forgetscope.data import conversion, known
from forgetscope.data.acquisition import get_data
from forgetscope.data.known import KNOWN
from forgetscope.data.library import check_data, installed, leftovers, load_data
from forgetscope.data.sources import Source
from forgetscope.errors import DataError, WriteError
from tiny_cifar100 import SPLITS, binary, write_tar

pytestmark = pytest.mark.usefixtures("empty_cache")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "tiny.tar.gz", {f"cifar-100-binary/{name}.bin": binary(name) for name in SPLITS})


def test_arrays_from_python_become_a_data_set() -> None:
    data = own()
    assert data.classes == ("a", "b", "c")
    assert np.bincount(data.train.labels).tolist() == [4, 2, 1]
    assert installed() == ["mine"]
    assert load_data("mine").digest == data.digest


@pytest.mark.parametrize("name", ["../evil", "a/b", "", ".hidden", "x" * 65, "a@8px"])
def test_names_cannot_leave_the_cache(name: str) -> None:
    with pytest.raises(DataError, match="cannot be a data set's name"):
        own(name)


@pytest.mark.parametrize("name", ["cifar100", "glyphs", "glyphs-v1"])
def test_known_names_are_taken(name: str) -> None:
    with pytest.raises(DataError, match=f"The name '{name}' is taken"):
        own(name)


def test_a_name_is_not_overwritten() -> None:
    own()
    with pytest.raises(DataError, match=r"There is a data set 'mine' already. Remove it first"):
        own()


def test_an_archive_from_a_file(archive: Path) -> None:
    data = get_data("cifar100", str(archive), note=lambda text: None)
    assert data.augmentation.flip
    assert data.augmentation.crop == 4
    assert (data.train.images == SPLITS["train"][0]).all()
    assert archive.is_file()


def test_an_archive_under_the_official_name_must_be_the_official_one(archive: Path) -> None:
    official = archive.rename(archive.with_name("cifar-100-binary.tar.gz"))
    with pytest.raises(DataError, match=r"is not the official archive: MD5 \w{32}, expected 03b5dce01913d631647c71ecec9e9cb8"):
        get_data("cifar100", str(official), note=lambda text: None)
    assert installed() == []


@pytest.fixture
def mirror(archive: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None: ...

    class Server(ThreadingHTTPServer):
        def handle_error(self, *arguments: object) -> None: ...  # a client that had enough

    with Server(("127.0.0.1", 0), functools.partial(Quiet, directory=str(archive.parent))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_an_archive_from_a_mirror_is_fetched_converted_and_not_kept(mirror: str, empty_cache: Path) -> None:
    data = get_data("cifar100", f"{mirror}/tiny.tar.gz", note=lambda text: None)
    assert (data.test.labels == SPLITS["test"][1]).all()
    assert not list((empty_cache / "downloads").iterdir())


def test_a_mirror_s_archive_is_checked_against_the_official_sum(
    mirror: str, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(archive, archive.with_name("cifar-100-python.tar.gz"))
    with pytest.raises(DataError, match="eb9058c3a382ffc7106e4002c42a8d85"):
        get_data("cifar100", f"{mirror}/cifar-100-python.tar.gz", note=lambda text: None)
    right = hashlib.md5(archive.read_bytes()).hexdigest()
    changed = replace(KNOWN["cifar100"], archives={"cifar-100-python.tar.gz": right})
    monkeypatch.setitem(known.KNOWN, "cifar100", changed)
    assert len(get_data("cifar100", f"{mirror}/cifar-100-python.tar.gz", note=lambda text: None).classes) == 100


def refuse(address: str) -> str:
    with pytest.raises(DataError) as error:
        get_data("cifar100", address, note=lambda text: None)
    return str(error.value)


@pytest.mark.parametrize("content", ["a page, not an archive", "the first half", "an archive of something else"])
def test_a_download_that_cannot_be_read_is_deleted_and_the_next_attempt_fetches_it_again(
    content: str, mirror: str, archive: Path, empty_cache: Path
) -> None:
    whole = archive.read_bytes()
    if content == "the first half":
        archive.write_bytes(whole[: len(whole) // 2])
    elif content == "a page, not an archive":
        archive.write_text("<html>Please log in</html>")
    else:
        write_tar(archive, {"something.txt": b"else"})
    refused = refuse(f"{mirror}/tiny.tar.gz")
    assert f"It came from {mirror}/tiny.tar.gz and was deleted: run the same command again, or name another" in refused
    assert not list((empty_cache / "downloads").rglob("*"))
    archive.write_bytes(whole)
    assert len(get_data("cifar100", f"{mirror}/tiny.tar.gz", note=lambda text: None).classes) == 100


def test_images_that_cannot_be_converted_do_not_stay_either(mirror: str, archive: Path, empty_cache: Path) -> None:
    write_tar(archive, {f"{name}.bin": binary(name)[: 3074 * 50] for name in SPLITS})
    assert "55 of 100 classes have no training images" in refuse(f"{mirror}/tiny.tar.gz")
    assert not list((empty_cache / "downloads").rglob("*"))


def test_what_one_mirror_sent_is_not_taken_for_another_s(mirror: str, archive: Path, empty_cache: Path) -> None:
    stopped = empty_cache.parent / "stopped"
    stopped.mkdir()
    shutil.copy(archive, stopped / "tiny.tar.gz")
    archive.write_text("broken, and kept by somebody who pressed Ctrl-C before it was read")

    def stop(path: Path) -> Source:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(known.KNOWN, "cifar100", replace(KNOWN["cifar100"], read=stop))
        with pytest.raises(KeyboardInterrupt):
            get_data("cifar100", f"{mirror}/tiny.tar.gz", note=lambda text: None)
    ((left, size, remark),) = leftovers()
    assert size == archive.stat().st_size
    assert left.parent == empty_cache / "downloads"
    assert "the same `forgetscope data get` continues" in remark
    assert len(get_data("cifar100", f"{mirror}/stopped/tiny.tar.gz", note=lambda text: None).classes) == 100
    assert [path for path, _, _ in leftovers()] == [left]


def test_a_full_disk_does_not_cost_the_download(
    mirror: str, archive: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(conversion.os, "posix_fallocate", no_room)
        with pytest.raises(WriteError, match="No space left"):
            get_data("cifar100", f"{mirror}/tiny.tar.gz", note=lambda text: None)
    archive.unlink()  # it is not asked for again
    assert len(get_data("cifar100", f"{mirror}/tiny.tar.gz", note=lambda text: None).classes) == 100
    assert not list((empty_cache / "downloads").rglob("*"))


def test_the_user_s_own_archive_in_a_folder_called_downloads_is_neither_used_nor_deleted(
    mirror: str, archive: Path, empty_cache: Path
) -> None:
    (empty_cache / "downloads").mkdir(parents=True)
    mine = empty_cache / "downloads" / "tiny.tar.gz"
    mine.write_text("mine")
    get_data("cifar100", f"{mirror}/tiny.tar.gz", note=lambda text: None)
    assert mine.read_text() == "mine"
    assert leftovers() == []


def test_a_mirror_that_sends_ten_times_the_size_is_cut_off(
    mirror: str, archive: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(known.KNOWN, "cifar100", replace(KNOWN["cifar100"], limit=archive.stat().st_size // 10))
    assert "more than the" in refuse(f"{mirror}/tiny.tar.gz")
    assert not [path for path in (empty_cache / "downloads").rglob("*") if path.is_file() and path.stat().st_size]


@pytest.mark.parametrize("address", ["http://[::1/x.tar.gz", "http://127.0.0.1:x/.."])
def test_an_address_that_is_none_is_one_clear_error(address: str) -> None:
    assert f"Cannot download {address}: " in refuse(address)


def _convert(archive: Path) -> None:
    get_data("cifar100", str(archive), note=lambda text: None)


def test_two_processes_converting_at_once_agree(archive: Path, empty_cache: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_convert, args=(archive,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0]
    assert check_data("cifar100").name == "cifar100"
    assert sorted(path.name for path in empty_cache.iterdir() if not path.name.endswith(".lock")) == ["cifar100"]
