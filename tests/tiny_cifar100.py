"""A tiny CIFAR-100, three images per class, in every form in which the real one is around."""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from forgetscope.data.readers.cifar100 import CLASSES

COARSE_OF = np.random.default_rng(0).integers(20, size=100)


def split(each: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(100), each)[rng.permutation(100 * each)]
    return rng.integers(256, size=(len(labels), 32, 32, 3), dtype=np.uint8), labels


SPLITS = {"train": split(2, 1), "test": split(1, 2)}


def rows(images: np.ndarray) -> np.ndarray:
    return images.transpose(0, 3, 1, 2).reshape(len(images), -1)


def binary(name: str) -> bytes:
    images, labels = SPLITS[name]
    return np.column_stack([COARSE_OF[labels], labels, rows(images)]).astype(np.uint8).tobytes()


def pickled(name: str, **changes: object) -> bytes:
    images, labels = SPLITS[name]
    batch = {
        b"data": rows(images),
        b"fine_labels": labels.tolist(),
        b"coarse_labels": COARSE_OF[labels].tolist(),
        b"batch_label": b"x",
    }
    return pickle.dumps({**batch, **{key.encode(): value for key, value in changes.items()}}, protocol=2)


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def write_files(folder: Path, members: dict[str, bytes]) -> Path:
    for name, data in members.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def encoded(image: np.ndarray, kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return buffer.getvalue()


def write_parquet(
    folder: Path, kind: str = "PNG", drop: str | None = None, fine: Callable[[np.ndarray], np.ndarray] = lambda x: x
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (images, labels) in SPLITS.items():
        columns = {
            "img": [{"bytes": encoded(image, kind), "path": None} for image in images],
            "fine_label": fine(labels),
            "coarse_label": COARSE_OF[labels],
        }
        columns.pop(drop, None)
        pq.write_table(pa.table(columns), folder / f"{name}-00000-of-00001.parquet", row_group_size=64)
    return folder


def write_folders(folder: Path) -> Path:
    for name, (images, labels) in SPLITS.items():
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            write_files(folder, {f"{name}/{CLASSES[label]}/{i:04}.png": encoded(image, "PNG")})
    return folder


FORMS: dict[str, Callable[[Path], Path]] = {
    "Parquet with PNG": lambda tmp: write_parquet(tmp / "parquet"),
    "Parquet with WebP": lambda tmp: write_parquet(tmp / "parquet", "WEBP"),
    "binary archive": lambda tmp: write_tar(tmp / "b.tar.gz", {f"cifar-100-binary/{n}.bin": binary(n) for n in SPLITS}),
    "binary folder": lambda tmp: write_files(tmp / "b", {f"{n}.bin": binary(n) for n in SPLITS}),
    "binary folder's parent": lambda tmp: write_files(tmp / "b", {f"cifar-100-binary/{n}.bin": binary(n) for n in SPLITS}),
    "Python archive": lambda tmp: write_tar(tmp / "p.tar.gz", {f"cifar-100-python/{n}": pickled(n) for n in SPLITS}),
    "Python folder": lambda tmp: write_files(tmp / "p", {n: pickled(n) for n in SPLITS}),
    "image folders": lambda tmp: write_folders(tmp / "folders"),
}
