"""Converting CIFAR-100 from Parquet on all cores, against a bare Pillow loop over the same images on one.

    python benchmarks/conversion.py FOLDER-WITH-PARQUET

Prints the ratio of images per second: with two cores, 2 would be as fast as the decoder can go, start-up included.
"""

from __future__ import annotations

import io
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from forgetscope.data.conversion import Conversion, convert
from forgetscope.data.images import open_data
from forgetscope.data.readers.cifar100 import read_cifar100
from forgetscope.spec import AugmentationSpec

ROUNDS = 3


def bare_loop(folder: Path) -> float:
    """Images per second of decoding alone, nothing stored."""
    images = 0
    seconds = 0.0
    for path in sorted(folder.rglob("*.parquet")):
        encoded = [row["bytes"] for row in pq.read_table(path, columns=["img"])["img"].to_pylist()]
        started = time.perf_counter()
        for data in encoded:
            np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        seconds += time.perf_counter() - started
        images += len(encoded)
    return images / seconds


def conversion(folder: Path) -> float:
    """Images per second of everything: reading, decoding, writing, checksums, statistics."""
    target = Path(tempfile.mkdtemp()) / "cifar100"
    started = time.perf_counter()
    convert(read_cifar100(folder), target, Conversion("cifar100", lambda side: AugmentationSpec()), workers=os.cpu_count() or 1)
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    data = open_data(target)
    print(f"  opened in {1000 * (time.perf_counter() - started):.1f} ms")
    images = len(data.train.labels) + len(data.test.labels)
    shutil.rmtree(target.parent)
    return images / seconds


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    ratios = []
    for _ in range(ROUNDS):
        bare, ours = bare_loop(folder), conversion(folder)
        ratios.append(ours / bare)
        print(f"  bare loop {bare:,.0f} images/s, conversion {ours:,.0f} images/s: {ratios[-1]:.2f}")
    print(
        f"conversion on {os.cpu_count()} cores / bare Pillow loop on one: {statistics.median(ratios):.2f} (median of {ROUNDS})"
    )


if __name__ == "__main__":
    main()
