from __future__ import annotations

import functools
import hashlib
import multiprocessing
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from own_data import own

from forgetscope.data import known
from forgetscope.data.acquisition import get_data
from forgetscope.data.known import KNOWN
from forgetscope.data.library import check_data, installed, load_data
from forgetscope.errors import DataError
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

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(archive.parent))) as server:
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
