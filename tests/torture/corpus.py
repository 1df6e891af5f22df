"""What is made hostile: one small thing of every kind that forgetscope opens, made by code, and read without complaint."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

import tiny_cifar100
from torture import repairs
from torture.damage import interrupted
from torture.harness import Bench

Files = Mapping[str, bytes]  # by path
Command = tuple[str, ...]
SMALL = ("epochs=1", "experiments=1", "image_size=8", "increments=[0.5]", "retentions=[0.4]")
QUERIES = tuple(f"SELECT * FROM {name}" for name in ("steps", "classes", "probes", "pairs", "rehearsal", "confusion"))


@dataclass(frozen=True)
class Target:
    """A source and the commands that read it, one line of them for each way; `{source}`, `{out}` and `{plan}` are filled in."""

    name: str
    weight: int
    files: Files
    ways: Sequence[Sequence[Command]]
    tries: int = 1  # how many of the ways each mutation goes
    repair: Callable[[dict[str, bytes], str], None] | None = None  # makes checksums good again after a file has changed
    trained: bool = False  # on glyphs, which must then be in the cache
    writable: bool = False  # a command that works on the source, instead of looking at it
    root: str = "source"  # where it lies, in the folder of a trial


def corpus(bench: Bench) -> list[Target]:
    """Everything, in order of how a user meets it."""
    store = _store(bench)
    plan = next(name.split("/")[1] for name in store if name.startswith("plans/"))
    exported = _exported(bench, store)
    looks = [tuple(part.replace("{plan}", plan) for part in way) for way in LOOKS]
    continued = ("run", str(bench.config()), "--store", "{source}", "--threads", "1", "--device", "cpu")
    return [
        *_data(bench),
        Target("a store", 16, store, [[look] for look in looks], tries=2, repair=repairs.store, trained=True),
        Target(
            "a store to continue", 1, _part(store, "working/"), [[continued]], repair=repairs.store, trained=True, writable=True
        ),
        Target("an export", 4, exported, [IMPORTS], repair=repairs.export),
        Target("a run's file", 1, {"run.toml": bench.config().read_bytes()}, [[("config", "{source}/run.toml")]]),
        Target("a benchmark's file", 1, {"bench.toml": _preset(bench)}, BENCHMARKS),
    ]


LOOKS: tuple[Command, ...] = (
    ("show", "{source}"),
    ("show", "{source}", "--json"),
    ("report", "{source}", "-o", "{out}/report.html"),
    ("analyse", "{source}", "--out", "{out}/analysis"),
    ("store", "verify", "{source}"),
    ("store", "list", "{source}"),
    ("store", "gc", "{source}"),
    ("store", "export", "{source}", "-o", "{out}/export.tar"),
    *(("store", "sql", query, "{source}") for query in QUERIES),
    ("bench", "status", "{plan}", "--store", "{source}"),
    ("bench", "status", "glyphs", "--store", "{source}", *(part for option in SMALL for part in ("--set", option))),
)
IMPORTS: tuple[Command, ...] = (
    ("store", "import", "{source}/export.tar", "{out}/imported"),
    ("store", "verify", "{out}/imported"),
    ("show", "{out}/imported"),
)
BENCHMARKS: tuple[tuple[Command, ...], ...] = (
    (("bench", "sample", "{source}/bench.toml"),),
    (("bench", "plan", "{source}/bench.toml", "--no-estimate", "--store", "{out}/new"),),
)


def _data(bench: Bench) -> list[Target]:
    get = ("data", "get", "--workers", "1")
    cifar = [(*get, "cifar100", "--from", "{source}"), ("data", "check", "cifar100", "-o", "{out}/sheet.png")]
    tiny = [(*get, "tiny-imagenet", "--from", "{source}"), ("data", "check", "tiny-imagenet", "-o", "{out}/sheet.png")]
    add = ("data", "add", "mine", "--workers", "1", "--size", "8")
    own = [(*add, "{source}", "--test-share", "0.3"), ("data", "check", "mine", "-o", "{out}/sheet.png")]

    def archive(commands: Sequence[Command], file: str) -> list[list[Command]]:
        return [[tuple(part.replace("{source}", f"{{source}}/{file}") for part in command) for command in commands]]

    python = _files(tiny_cifar100.FORMS["Python folder"](bench.folder / "forms"))
    return [
        Target("CIFAR-100's binary archive", 2, _form(bench, "binary archive"), archive(cifar, "b.tar.gz")),
        Target("CIFAR-100's Python archive", 2, _form(bench, "Python archive"), archive(cifar, "p.tar.gz")),
        Target("CIFAR-100's pickles", 2, python, [cifar]),
        Target("CIFAR-100 as Parquet", 2, _form(bench, "Parquet with PNG"), [cifar]),
        Target("Tiny-ImageNet's archive", 2, {"t.zip": _zipped(_tiny_imagenet())}, archive(tiny, "t.zip")),
        Target("Tiny-ImageNet's folder", 1, _tiny_imagenet(), [tiny]),
        Target("Tiny-ImageNet as Parquet", 1, _tiny_parquet(), [tiny]),
        Target("a folder of images", 3, _images(), [own]),
        Target(
            "an npz file",
            3,
            {"x.npz": _npz()},
            archive([("data", "add", "mine", "--workers", "1", "{source}"), own[1]], "x.npz"),
        ),
        Target("a converted data set", 2, _converted(bench), CONVERTED, repair=repairs.converted, root="cache"),
    ]


CONVERTED: tuple[tuple[Command, ...], ...] = (
    (("data", "check", "mine", "-o", "{out}/sheet.png"),),
    (("data", "list"),),
    (("data", "list", "--json"),),
)


def _store(bench: Bench) -> Files:
    """Finished steps, one under way with its snapshots, and a plan with its journal."""
    store = interrupted(bench)
    options = [part for option in SMALL for part in ("--set", option)]
    bench.launcher.run("bench", "run", "glyphs", "--store", store, "--no-estimate", "--jobs", "1", *options).demand(0)
    return _files(store)


def _exported(bench: Bench, store: Files) -> Files:
    folder, file = bench.folder / "to-export", bench.folder / "exported" / "export.tar"
    file.parent.mkdir()
    for name, content in store.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    bench.launcher.run("store", "export", folder, "-o", file).demand(0)
    return _files(file.parent)


def _part(store: Files, prefix: str) -> Files:
    """All of it, what lies below the prefix first: only that is mutated."""
    return {name: store[name] for name in sorted(store, key=lambda name: (not name.startswith(prefix), name))}


def _preset(bench: Bench) -> bytes:
    return bench.launcher.run("bench", "preset", "glyphs").demand(0).stdout.encode()


def _files(folder: Path) -> Files:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _form(bench: Bench, form: str) -> Files:
    folder = bench.folder / "forms" / form.replace(" ", "-")
    folder.mkdir(parents=True)
    made = tiny_cifar100.FORMS[form](folder)
    return _files(made if made.is_dir() else made.parent)


def _picture(seed: int, side: int = 12, mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(seed).integers(256, size=(side, side, 3), dtype=np.uint8)
    if mode == "I;16":
        return Image.fromarray((pixels[..., 0].astype(np.uint16) << 8) + 1)
    return Image.fromarray(pixels).convert(mode)


def _encoded(image: Image.Image, kind: str) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


KINDS = (
    ("png", "PNG", "RGB"),
    ("jpg", "JPEG", "RGB"),
    ("gif", "GIF", "P"),
    ("bmp", "BMP", "RGB"),
    ("tif", "TIFF", "RGB"),
    ("webp", "WEBP", "RGB"),
    ("ppm", "PPM", "RGB"),
    ("png", "PNG", "RGBA"),
    ("png", "PNG", "I;16"),
    ("png", "PNG", "P"),
    ("png", "PNG", "1"),
    ("tiff", "TIFF", "L"),
)


def _images() -> Files:
    """A folder per class, in every format that is usual, and one that says how it is to be turned."""
    files = {}
    for number, (suffix, kind, mode) in enumerate(KINDS * 2):
        files[f"{'owl' if number % 2 else 'wren'}/{number:02}.{suffix}"] = _encoded(_picture(number, mode=mode), kind)
    turned, exif = _picture(99), Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    turned.save(buffer, "JPEG", exif=exif)
    return {**files, "wren/turned.jpg": buffer.getvalue(), "owl/notes.txt": b"not an image\n"}


def _npz() -> bytes:
    buffer, rng = io.BytesIO(), np.random.default_rng(0)
    labels = np.arange(12) % 3
    images = rng.integers(256, size=(12, 8, 8, 3), dtype=np.uint8)
    np.savez_compressed(
        buffer,
        train_images=images,
        train_labels=labels,
        test_images=images,
        test_labels=labels,
        classes=np.array(["a", "b", "c"]),
    )
    return buffer.getvalue()


def _tiny_imagenet() -> Files:
    wnids = ("n02", "n01", "n03")
    files = {"wnids.txt": "\n".join(wnids).encode(), "words.txt": b"n01\tgoldfish, Carassius\nn02\tcrane\nn03\tcrane\n"}
    lines = []
    for label, wnid in enumerate(wnids):
        files[f"train/{wnid}/{wnid}_boxes.txt"] = b"boxes"
        for i in range(2):
            files[f"train/{wnid}/images/{wnid}_{i}.JPEG"] = _encoded(_picture(10 * label + i, 64), "JPEG")
        files[f"val/images/val_{label}.JPEG"] = _encoded(_picture(100 + label, 64, "L"), "JPEG")
        lines.append(f"val_{label}.JPEG\t{wnid}\t0\t0\t62\t62")
    return {**files, "val/val_annotations.txt": "\n".join(lines).encode()}


def _zipped(files: Files) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(f"tiny-imagenet-200/{name}"), content)
    return buffer.getvalue()


def _tiny_parquet() -> Files:
    names = {"info": {"features": {"label": {"names": ["a", "b", "c"], "_type": "ClassLabel"}}}}
    files = {}
    for split, seed in (("train", 0), ("valid", 50)):
        images = [{"bytes": _encoded(_picture(seed + i, 64), "JPEG"), "path": None} for i in range(6)]
        table = pa.table({"image": images, "label": np.arange(6) % 3})
        buffer = io.BytesIO()
        pq.write_table(table.replace_schema_metadata({b"huggingface": json.dumps(names).encode()}), buffer, row_group_size=4)
        files[f"{split}-00000-of-00001.parquet"] = buffer.getvalue()
    return files


def _converted(bench: Bench) -> Files:
    """A cache with one data set in it."""
    source, cache = bench.folder / "to-convert", bench.folder / "converted-cache"
    source.mkdir()
    (source / "x.npz").write_bytes(_npz())
    bench.launcher.run("data", "add", "mine", source / "x.npz", "--workers", "1", FORGETSCOPE_CACHE=str(cache)).demand(0)
    shutil.rmtree(source)
    return _files(cache)
