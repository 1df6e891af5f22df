"""Converting CIFAR-100 from Parquet on all cores, against bare Pillow loops over the same images on one core and on all.

    python benchmarks/conversion.py FOLDER-WITH-PARQUET

A bare loop decodes and stores nothing. The conversion is timed whole: starting the workers, reading, decoding, writing,
checksums, statistics. Against loops on all cores, 1 would be as fast as the decoder can go.
"""

from __future__ import annotations

import io
import os
import shutil
import statistics
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from forgetscope.data.conversion import Conversion, convert
from forgetscope.data.images import open_data
from forgetscope.data.readers.cifar100 import read_cifar100
from forgetscope.spec import AugmentationSpec

ROUNDS = 3
CORES = os.cpu_count() or 1


def bare_loop(folder: Path, part: int, parts: int) -> tuple[int, float]:
    """Images and seconds of decoding alone."""
    encoded = [
        row["bytes"]
        for path in sorted(folder.rglob("*.parquet"))
        for row in pq.read_table(path, columns=["img"])["img"].to_pylist()[part::parts]
    ]
    started = time.perf_counter()
    for data in encoded:
        np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    return len(encoded), time.perf_counter() - started


def bare_loops(folder: Path, processes: int) -> float:
    """Images per second of so many loops at once, each over its share."""
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        done = list(pool.map(bare_loop, [folder] * processes, range(processes), [processes] * processes))
    return sum(images for images, _ in done) / max(seconds for _, seconds in done)


def conversion(folder: Path) -> float:
    """Images per second of everything."""
    target = Path(tempfile.mkdtemp()) / "cifar100"
    started = time.perf_counter()
    convert(read_cifar100(folder), target, Conversion("cifar100", lambda side: AugmentationSpec()), workers=CORES)
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
    to_one, to_all = [], []
    for _ in range(ROUNDS):
        one, everywhere, ours = bare_loops(folder, 1), bare_loops(folder, CORES), conversion(folder)
        print(f"  images/s: bare loop {one:,.0f}, {CORES} bare loops {everywhere:,.0f}, conversion {ours:,.0f}")
        to_one.append(ours / one)
        to_all.append(ours / everywhere)
    print(f"conversion / bare Pillow loop on one core: {statistics.median(to_one):.2f} (median of {ROUNDS})")
    print(f"conversion / bare Pillow loops on all {CORES} cores: {statistics.median(to_all):.2f} (median of {ROUNDS})")


if __name__ == "__main__":
    main()
