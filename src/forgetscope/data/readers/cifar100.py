"""CIFAR-100 in every form in which it is around: Parquet, the official archives or their folders, image folders."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from forgetscope.data.limits import MEMBER_BYTES
from forgetscope.data.readers.archives import read_tar
from forgetscope.data.readers.folders import read_folders
from forgetscope.data.readers.parquet import parquet_files, read_split
from forgetscope.data.readers.pickles import load_plain, read_uint8
from forgetscope.data.sources import Source, Split, not_there, read_regular
from forgetscope.errors import DataError

# fmt: off
CLASSES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy", "bridge",
    "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock", "cloud", "cockroach",
    "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest", "fox", "girl", "hamster",
    "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion", "lizard", "lobster", "man", "maple_tree",
    "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck",
    "pine_tree", "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea",
    "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower",
    "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle",
    "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
)
SUPERCLASSES = (
    "aquatic_mammals", "fish", "flowers", "food_containers", "fruit_and_vegetables", "household_electrical_devices",
    "household_furniture", "insects", "large_carnivores", "large_man-made_outdoor_things", "large_natural_outdoor_scenes",
    "large_omnivores_and_herbivores", "medium_mammals", "non-insect_invertebrates", "people", "reptiles", "small_mammals",
    "trees", "vehicles_1", "vehicles_2",
)
# fmt: on
SIDE = 32
PIXELS = 3 * SIDE * SIDE
_Batch = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]  # rows of pixels, labels, labels of superclasses
_ReadBatch = Callable[[Path, str, bytes], _Batch]
BINARY, PICKLED = ("train.bin", "test.bin"), ("train", "test")


def read_cifar100(path: Path) -> Source:
    """Find out in which form `path` holds CIFAR-100, and read that."""
    if path.is_file():
        contents = read_tar(path, {*BINARY, *PICKLED})
    elif path.is_dir():
        if parquet_files(path):
            return _read_parquet(path)
        inner = next((path / name for name in ("cifar-100-binary", "cifar-100-python") if (path / name).is_dir()), path)
        if (inner / "train").is_dir():
            return read_folders(inner)
        contents = {name: read_regular(inner / name, MEMBER_BYTES) for name in (*BINARY, *PICKLED) if (inner / name).is_file()}
    else:
        raise not_there(path, "Name the archive or folder that holds CIFAR-100.")
    if any(name in contents for name in BINARY):
        return _read_batches(path, contents, BINARY, _binary_batch)
    if any(name in contents for name in PICKLED):
        return _read_batches(path, contents, PICKLED, _pickled_batch)
    raise DataError(
        f"{path} holds CIFAR-100 in no form that is known: Parquet files, train.bin and test.bin, the pickles train and test, "
        "or a folder of images per class in train/ and test/."
    )


def _read_parquet(folder: Path) -> Source:
    labels = ("fine_label", "coarse_label")
    (train, columns), (test, _) = (read_split(folder, split, "img", labels) for split in ("train", "test"))
    return Source(str(folder), CLASSES, train, test, _superclasses(folder, columns["fine_label"], columns["coarse_label"]))


def _read_batches(path: Path, contents: Mapping[str, bytes], names: Sequence[str], read: _ReadBatch) -> Source:
    """The official files, training images first."""
    splits, superclasses = [], []
    for name in names:
        if name not in contents:
            raise DataError(f"{path} has no {name}: a split is missing. Get it again.")
        rows, fine, coarse = read(path, name, contents[name])
        # Rows of red, then green, then blue pixels.
        splits.append(Split(fine, rows.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)))
        superclasses.append(coarse)
    return Source(str(path), CLASSES, splits[0], splits[1], _superclasses(path, splits[0].labels, superclasses[0]))


def _binary_batch(path: Path, name: str, content: bytes) -> _Batch:
    """Records of one coarse label, one fine label and 3 x 32 x 32 pixels."""
    data = np.frombuffer(content, np.uint8)
    if len(data) == 0 or len(data) % (2 + PIXELS):
        raise DataError(f"{path}: {name} has {len(data)} bytes, not a whole number of records of {2 + PIXELS}. Get it again.")
    records = data.reshape(-1, 2 + PIXELS)
    return records[:, 2:], records[:, 1].astype(np.int64), records[:, 0].astype(np.int64)


def _pickled_batch(path: Path, name: str, content: bytes) -> _Batch:
    batch = load_plain(f"{path}, {name}", content)
    try:
        pixels, fine, coarse = batch[b"data"], *(_pickled_labels(batch[key]) for key in (b"fine_labels", b"coarse_labels"))
        rows = read_uint8(pixels)
        if rows.shape != (len(fine), PIXELS):
            raise ValueError(f"data is {rows.dtype} of shape {rows.shape}")
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(f"{path}: {name} is not a CIFAR-100 batch ({error}). Get it again.") from None
    return rows, fine, coarse


def _pickled_labels(labels: object) -> NDArray[np.int64]:
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise ValueError("labels are no list of small whole numbers")
    return np.array(labels, dtype=np.int64)


def _superclasses(path: Path, fine: NDArray[np.int64], coarse: NDArray[np.int64]) -> tuple[str, ...]:
    """Each class's superclass, as the training images have it."""
    if len(fine) != len(coarse):
        raise DataError(f"{path}: {len(fine)} labels of classes, but {len(coarse)} of superclasses. Get it again.")
    of: dict[int, int] = dict(zip(fine.tolist(), coarse.tolist(), strict=True))
    known = (fine >= 0) & (fine < len(CLASSES)) & (coarse >= 0) & (coarse < len(SUPERCLASSES))
    if not known.all():
        at = int(np.flatnonzero(~known)[0])
        raise DataError(
            f"{path}: image {at} has the labels {fine[at]} and {coarse[at]}; there are 100 classes and 20 superclasses."
        )
    if not all(of[label] == group for label, group in zip(fine.tolist(), coarse.tolist(), strict=True)):
        raise DataError(f"{path}: images of one class have different superclasses. The labels are damaged: get it again.")
    return tuple(SUPERCLASSES[of[label]] if label in of else "" for label in range(len(CLASSES)))
