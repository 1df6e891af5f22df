"""One's own images: class folders, and arrays in .npz files."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forgetscope.data.sources import FileChunk, Source, Split, in_chunks
from forgetscope.errors import DataError
from forgetscope.randomness import Streams

TEST_FOLDERS = ("test", "val", "valid", "validation")
ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}
ARRAYS = (("train_images", "x_train"), ("train_labels", "y_train"), ("test_images", "x_test"), ("test_labels", "y_test"))


def read_folders(path: Path, test_share: float | None = None) -> Source:
    """`train/<class>/*` and `test/<class>/*`; or `<class>/*` alone, of which a share is held out for testing."""
    if (path / "train").is_dir():
        tests = next((path / name for name in TEST_FOLDERS if (path / name).is_dir()), None)
        if tests is None:
            raise DataError(
                f"{path} has train/ but none of {', '.join(f'{name}/' for name in TEST_FOLDERS)}. Add the test images."
            )
        train_files, test_files = _class_files(path / "train"), _class_files(tests)
        unknown = sorted(set(test_files) - set(train_files))
        if unknown:
            raise DataError(f"{tests} has a class {unknown[0]!r} that {path / 'train'} has not.")
        files = {name: (images, test_files.get(name, [])) for name, images in train_files.items()}
    elif test_share is None:
        raise DataError(
            f"{path} has no train/ folder. If it holds a folder per class, say how much to hold out: --test-share 0.2."
        )
    else:
        files = {
            name: _hold_out(images, test_share, number) for number, (name, images) in enumerate(_class_files(path).items())
        }
    classes = tuple(sorted(files))
    train, test = (_split([files[name][part] for name in classes]) for part in (0, 1))
    return Source(str(path), classes, train, test)


def read_npz(path: Path) -> Source:
    """train_images, train_labels, test_images, test_labels (or x_train, y_train, ...), and optionally `classes`, the names."""
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            arrays = {}
            for names in ARRAYS:
                name = next((name for name in names if name in file), None)
                if name is None:
                    raise DataError(
                        f"{path} has no array {names[0]!r} (or {names[1]!r}); it has {', '.join(file.files) or 'none'}."
                    )
                arrays[names[0]] = file[name]
            classes = [str(name) for name in file["classes"]] if "classes" in file else None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} cannot be read as a .npz file of plain arrays ({error}).") from None
    return from_arrays(**arrays, classes=classes, origin=str(path))


def from_arrays(
    train_images: ArrayLike,
    train_labels: ArrayLike,
    test_images: ArrayLike,
    test_labels: ArrayLike,
    classes: Sequence[str] | None = None,
    origin: str = "arrays",
) -> Source:
    """uint8 images [n, h, w, 3] or, in grey, [n, h, w]; labels from 0. Class names default to the numbers."""
    splits = [
        Split(_labels(labels, origin), _rgb(images, origin))
        for images, labels in ((train_images, train_labels), (test_images, test_labels))
    ]
    shapes = [split.images.shape[1:] for split in splits if isinstance(split.images, np.ndarray)]
    if shapes[0] != shapes[1]:
        raise DataError(f"{origin}: training images are {shapes[0]}, test images {shapes[1]}. Give both one size.")
    known = max((int(split.labels.max(initial=-1)) for split in splits), default=-1) + 1
    names = tuple(map(str, range(known))) if classes is None else tuple(map(str, classes))
    return Source(origin, names, splits[0], splits[1])


def _class_files(folder: Path) -> dict[str, list[Path]]:
    classes = {}
    for child in sorted(folder.iterdir()) if folder.is_dir() else ():
        if child.is_dir() and not child.name.startswith("."):
            classes[child.name] = sorted(p for p in child.rglob("*") if p.is_file() and p.suffix.lower() in ENDINGS)
    if not classes:
        raise DataError(f"{folder} holds no class folders.")
    return classes


def _hold_out(images: list[Path], share: float, number: int) -> tuple[list[Path], list[Path]]:
    """A fixed random share of a class's images, at least one and never all."""
    count = min(max(1, round(share * len(images))), len(images) - 1)
    held = set(Streams(0, 0)("test-share", number).permutation(len(images))[: max(0, count)].tolist())
    return [p for i, p in enumerate(images) if i not in held], [p for i, p in enumerate(images) if i in held]


def _split(files: Sequence[Sequence[Path]]) -> Split:
    labels = np.repeat(np.arange(len(files), dtype=np.int64), [len(paths) for paths in files])
    return Split(labels, [FileChunk(chunk) for chunk in in_chunks([path for paths in files for path in paths])])


def _rgb(images: ArrayLike, origin: str) -> NDArray[np.uint8]:
    array = np.asarray(images)
    if array.dtype != np.uint8:
        raise DataError(f"{origin}: images are {array.dtype}, expected uint8 from 0 to 255. Convert them first.")
    if array.ndim == 4 and array.shape[3] == 1:
        array = array[..., 0]
    if array.ndim == 3:
        return np.repeat(array[..., None], 3, axis=3)
    if array.ndim == 4 and array.shape[3] == 3:
        return array
    raise DataError(f"{origin}: images have shape {array.shape}, expected [n, h, w, 3] or [n, h, w].")


def _labels(labels: ArrayLike, origin: str) -> NDArray[np.int64]:
    array = np.asarray(labels)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise DataError(f"{origin}: labels are {array.dtype} of shape {array.shape}, expected whole numbers [n].")
    return array.astype(np.int64)
