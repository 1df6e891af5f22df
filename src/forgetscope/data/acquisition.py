"""How data sets get into the cache: public ones are fetched or taken from a file, one's own come from folders or arrays."""

import zipfile
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from numpy.typing import ArrayLike

from forgetscope.data import cache
from forgetscope.data.augmentation import augmentation_of
from forgetscope.data.conversion import Conversion
from forgetscope.data.decoding import Fit
from forgetscope.data.download import download
from forgetscope.data.images import DataSet
from forgetscope.data.known import KNOWN
from forgetscope.data.library import load_data
from forgetscope.data.ownership import demand_free
from forgetscope.data.readers.arrays import from_arrays, read_npz
from forgetscope.data.readers.folders import read_folders
from forgetscope.data.sources import Source
from forgetscope.errors import DataError
from forgetscope.files import file_digest
from forgetscope.options import nearest
from forgetscope.outputs import Note, Progress, unheard


def get_data(
    name: str, origin: str | None = None, *, workers: int = 1, progress: Progress | None = None, note: Note = print
) -> DataSet:
    """Fetch a known data set, or take it from a file, folder or address, and convert it.

    >>> import forgetscope as fs
    >>> fs.get_data("cifar100", "my-copy.tar.gz", note=lambda text: None).classes[:2]
    ('apple', 'aquarium_fish')
    """
    known = KNOWN.get(name)
    if known is None:
        raise DataError(
            f"{name!r} is not a public data set that is known.{nearest(name, sorted(KNOWN))} Your own: `forgetscope data add`."
        )
    if cache.is_here(folder := cache.folder_of(name)):
        note(f"{name} is here already. To make it anew, remove it first: `forgetscope data remove {name}`.")
        return load_data(name)
    demand_free(folder)
    address = origin or known.address
    remote = "://" in address
    cache.prepare_cache()

    def read() -> Source:
        if remote:
            note(f"Downloading {address}")
            told, target = partial(progress or unheard, "bytes"), _target(address)
            download(address, target, md5=known.archives.get(target.name), limit=known.limit, progress=told, note=note)
            return known.read(target)
        path = Path(address)
        expected = known.archives.get(path.name)  # an archive under the official name must be the official one
        if expected is not None and path.is_file() and (found := file_digest(path, "md5")) != expected:
            raise DataError(
                f"{path} is not the official archive: MD5 {found}, expected {expected}. It is incomplete or altered: get it "
                "again, or rename it if you made it yourself."
            )
        return known.read(path)

    try:
        cache.make(folder, read, Conversion(name, augmentation_of(name)), note, workers, progress)
    except DataError as error:
        if not remote or not _forget(address):
            raise
        raise DataError(
            f"{error} It came from {address} and was deleted: run the same command again, or name another mirror "
            "or a local copy with `--from`."
        ) from None
    if remote:
        _forget(address)
    return load_data(name)


def add_data(
    name: str,
    path: str | Path,
    *,
    test_share: float | None = None,
    size: int | None = None,
    fit: Fit = "crop",
    skip_broken: bool = False,
    workers: int = 1,
    progress: Progress | None = None,
    note: Note = print,
) -> DataSet:
    """Convert one's own images: folders of images per class, or a .npz file. `note` is told what was done to which images.

    `skip_broken` leaves out those that cannot be read, and tells which; otherwise they are an error that names them.

    >>> import forgetscope as fs
    >>> fs.add_data("birds", "birds", test_share=0.2, size=8, note=lambda text: None)  # birds/owl/1.png, birds/wren/1.png, ...
    DataSet('birds', 2 classes, 8 + 2 images, 8x8)
    """
    folder = _new_folder(name)
    path = Path(path)
    if not path.exists():
        raise DataError(f"There is nothing at {path}.")

    def read() -> Source:
        if path.is_file() and path.suffix != ".npz" and not zipfile.is_zipfile(path):
            raise DataError(f"{path} is no .npz file. Name a folder of images, or a .npz file.")
        if path.is_file() and test_share is not None:
            raise DataError(f"{path} says itself which images are for testing: leave --test-share out.")
        return read_npz(path) if path.is_file() else read_folders(path, test_share)

    cache.make(folder, read, Conversion(name, augmentation_of(name), size, fit, skip_broken), note, workers, progress)
    return load_data(name)


def add_arrays(
    name: str,
    train_images: ArrayLike,
    train_labels: ArrayLike,
    test_images: ArrayLike,
    test_labels: ArrayLike,
    classes: Iterable[str] | None = None,
) -> DataSet:
    """Keep arrays as a data set: uint8 images [n, h, w, 3] or [n, h, w], labels from 0.

    >>> import numpy as np, forgetscope as fs
    >>> images, labels = np.random.default_rng(0).integers(256, size=(10, 8, 8, 3), dtype=np.uint8), np.arange(10) % 2
    >>> fs.add_arrays("noise", images, labels, images[:4], labels[:4], classes=["even", "odd"])
    DataSet('noise', 2 classes, 10 + 4 images, 8x8)
    """
    folder = _new_folder(name)
    names = None if classes is None else list(classes)
    source = from_arrays(train_images, train_labels, test_images, test_labels, names)
    cache.make(folder, lambda: source, Conversion(name, augmentation_of(name)), unheard)
    return load_data(name)


def _new_folder(name: str) -> Path:
    """For a data set of one's own, whose name must be free."""
    folder, folded = cache.folder_of(name), name.casefold()  # for some file systems "Birds" and "birds" are one
    if folded in (*KNOWN, cache.DOWNLOADS, cache.QUARANTINE) or folded.startswith("glyphs"):
        remedy = f"`forgetscope data get {name} --from PATH`" if name in KNOWN else "another name"
        raise DataError(f"The name {name!r} is taken. Use {remedy}.")
    for other in cache.cache_folder().glob("*"):
        if other.name.casefold() == folded and other.name != name:
            raise DataError(f"{other.name!r} in the cache differs from {name!r} only by case. Use another name.")
    if cache.is_here(folder):
        raise DataError(f"There is a data set {name!r} already. Remove it first: `forgetscope data remove {name}`.")
    demand_free(folder)
    return folder


def _target(address: str) -> Path:
    """Where a download goes, under the name that it has there."""
    with suppress(ValueError):  # no address at all, as the attempt to fetch it will say
        name = Path(urlsplit(address).path).name
        if name not in ("", ".."):
            return cache.download_folder(address) / name[-50:]
    return cache.download_folder(address) / "download"


def _forget(address: str) -> bool:
    """Delete what was fetched from an address, if it is there whole, and say so. A part stays: it can be continued."""
    target = _target(address)
    there = target.is_file()
    target.unlink(missing_ok=True)
    with suppress(OSError):  # a part, or a lock
        target.parent.rmdir()
    return there
