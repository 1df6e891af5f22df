"""How data sets get into the cache: public ones are fetched or taken from a file, one's own come from folders or arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from numpy.typing import ArrayLike

from forgetscope.data.cache import Note, Progress, cache_folder, folder_of, is_here, make
from forgetscope.data.conversion import Conversion
from forgetscope.data.download import download
from forgetscope.data.images import DataSet
from forgetscope.data.known import KNOWN, Known, own_images, photographs
from forgetscope.data.library import load_data
from forgetscope.data.readers.folders import from_arrays, read_folders, read_npz
from forgetscope.data.sources import Fit
from forgetscope.errors import DataError
from forgetscope.spec import nearest


def get_data(
    name: str, origin: str | None = None, *, workers: int = 1, progress: Progress | None = None, note: Note = print
) -> DataSet:
    """Fetch a known data set, or take it from a file, folder or address, and convert it."""
    known = KNOWN.get(name)
    if known is None:
        raise DataError(
            f"{name!r} is not a public data set that is known.{nearest(name, sorted(KNOWN))} Your own: `forgetscope data add`."
        )
    if is_here(folder := folder_of(name)):
        note(f"{name} is here already. To make it anew, remove it first: `forgetscope data remove {name}`.")
        return load_data(name)
    address = origin or known.address
    remote = "://" in address
    path = _downloaded(address, known, progress, note) if remote else Path(address)
    if path.is_file():
        _verify_archive(path, known)
    make(folder, known.read(path), Conversion(name, photographs), note, workers, progress)
    if remote:
        path.unlink(missing_ok=True)
    return load_data(name)


def add_data(
    name: str,
    path: str | Path,
    *,
    test_share: float | None = None,
    size: int | None = None,
    fit: Fit = "crop",
    workers: int = 1,
    progress: Progress | None = None,
    note: Note = print,
) -> DataSet:
    """Convert one's own images: folders of images per class, or a .npz file."""
    folder = _new_folder(name)
    path = Path(path)
    if not path.exists():
        raise DataError(f"There is nothing at {path}.")
    source = read_npz(path) if path.is_file() else read_folders(path, test_share)
    make(folder, source, Conversion(name, own_images, size, fit), note, workers, progress)
    return load_data(name)


def add_arrays(
    name: str,
    train_images: ArrayLike,
    train_labels: ArrayLike,
    test_images: ArrayLike,
    test_labels: ArrayLike,
    classes: Iterable[str] | None = None,
) -> DataSet:
    """Keep arrays as a data set: uint8 images [n, h, w, 3] or [n, h, w], labels from 0."""
    folder = _new_folder(name)
    names = None if classes is None else list(classes)
    source = from_arrays(train_images, train_labels, test_images, test_labels, names)
    make(folder, source, Conversion(name, own_images), lambda text: None)
    return load_data(name)


def _new_folder(name: str) -> Path:
    """For a data set of one's own, whose name must be free."""
    folder = folder_of(name)
    if name in KNOWN or name.startswith("glyphs") or name == "downloads":
        remedy = f"`forgetscope data get {name} --from PATH`" if name in KNOWN else "another name"
        raise DataError(f"The name {name!r} is taken. Use {remedy}.")
    if is_here(folder):
        raise DataError(f"There is a data set {name!r} already. Remove it first: `forgetscope data remove {name}`.")
    return folder


def _downloaded(address: str, known: Known, progress: Progress | None, note: Note) -> Path:
    file = Path(urlsplit(address).path).name or "download"
    target = cache_folder() / "downloads" / file
    note(f"Downloading {address}")
    return download(
        address,
        target,
        md5=known.archives.get(file),
        progress=lambda done, total: progress("bytes", done, total or 0) if progress else None,
        blocked=lambda: note("Another process is downloading it; waiting for it."),
    )


def _verify_archive(path: Path, known: Known) -> None:
    """An archive under the official name must be the official one."""
    expected = known.archives.get(path.name)
    if expected is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "md5").hexdigest()
    if found != expected:
        raise DataError(
            f"{path} is not the official archive: MD5 {found}, expected {expected}. It is incomplete or altered: get it again, "
            "or rename it if you made it yourself."
        )
