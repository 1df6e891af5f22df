"""Bounds on what a foreign file may ask for. Readers check them before they take the memory; docs/data.md lists them."""

from forgetscope.errors import DataError

IMAGE_PIXELS = 50_000_000  # of one image
IMAGE_BYTES = 2**28  # of one image as it is encoded
IMAGES = 20_000_000  # of a data set
CLASSES = 100_000
NAME_CHARACTERS = 1_000  # of a class's name
TEXT_BYTES = 2**24  # of a list of classes or labels; the largest real one, Tiny-ImageNet's words.txt, has 2.7 MB
MEMBER_BYTES = 2**29  # of a tar archive's member; the largest real one, CIFAR-100's training images, has 155 MB
TAR_MEMBERS = 10_000
TAR_HEADER_BYTES = 2**16  # of the names and attributes that precede a member
ZIP_DIRECTORY_BYTES = 2**26  # about half a million files
PICKLE_STEPS = 5_000_000  # CIFAR-100's training batch has 0.4 million
ROW_GROUPS = 10_000  # of a Parquet file
UNPACKED_BYTES = 2**30  # what any file may unpack to; more only if it is at most
UNPACKED_RATIO = 100  # times as large as the file itself
CONVERTED_BYTES = 2**40  # of a data set's images in the cache
SNAPSHOT_BYTES = 24 * 2**30  # of a state, as much again for the momentum, and what was measured

DISTRUST = "Do not trust this file."


def check_limit(where: str, value: int, what: str, limit: int, remedy: str = DISTRUST) -> None:
    """Raise an error that says where, how many of what, how many there may be, and what to do."""
    if value > limit:
        raise DataError(f"{where}: {value:,} {what}, at most {limit:,} are read. {remedy}")


def check_unpacked(where: str, asked: int, stored: int) -> None:
    """asked: bytes that are to be unpacked, of a file that has `stored`. Images and their labels shrink little."""
    limit = max(UNPACKED_BYTES, UNPACKED_RATIO * stored)
    check_limit(where, asked, f"bytes to unpack from a file of {stored:,}", limit)


def check_classes(where: str, count: int) -> None:
    check_limit(where, count, "classes", CLASSES, "Number the labels from 0 without gaps.")
