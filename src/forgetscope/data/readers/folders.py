"""One's own images as files: a folder per class. What is passed over there is counted and told."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from forgetscope.characters import counted
from forgetscope.data.limits import CLASSES, IMAGES, check_limit
from forgetscope.data.sources import FileChunk, Source, Split, in_chunks, not_there
from forgetscope.errors import DataError
from forgetscope.randomness import Streams

TEST_FOLDERS = ("test", "val", "valid", "validation")
ENDINGS = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}


def read_folders(path: Path, test_share: float | None = None) -> Source:
    """`train/<class>/*` and `test/<class>/*`; or `<class>/*` alone, of which a share is held out for testing."""
    if not path.is_dir():
        raise not_there(path, "Name a folder of images, or a .npz file.")
    passed = _PassedOver(path)
    if (path / "train").is_dir():
        tests = [path / name for name in TEST_FOLDERS if (path / name).is_dir()]
        if not tests:
            raise DataError(
                f"{path} has train/ but none of {', '.join(f'{name}/' for name in TEST_FOLDERS)}. Add the test images."
            )
        if test_share is not None:
            raise DataError(f"{path} has {tests[0].name}/ beside train/, so nothing is held out: leave --test-share out.")
        train_files, test_files = _class_files(path / "train", passed), _class_files(tests[0], passed)
        unknown = sorted(set(test_files) - set(train_files))
        if unknown:
            raise DataError(f"{tests[0]} has a class {unknown[0]!r} that {path / 'train'} has not.")
        files = {name: (images, test_files.get(name, [])) for name, images in train_files.items()}
        used = ("train", tests[0].name)
        others = sorted(f"{child.name}/" for child in path.iterdir() if child.is_dir() and child.name not in used)
        if others:
            passed.remarks.append(f"{', '.join(others[:5])} beside {used[0]}/ and {used[1]}/ in {path}: not used.")
    elif test_share is None:
        raise DataError(
            f"{path} has no train/ folder. If it holds a folder per class, say how much to hold out: --test-share 0.2."
        )
    else:
        found = _class_files(path, passed)
        files = {name: _hold_out(images, test_share, number) for number, (name, images) in enumerate(found.items())}
    classes = tuple(sorted(files))
    train, test = (_split([files[name][part] for name in classes]) for part in (0, 1))
    return Source(str(path), classes, train, test, remarks=passed.told())


class _PassedOver:
    """What was seen in class folders and not taken for an image of its own class."""

    def __init__(self, path: Path) -> None:
        self.path, self.images = path, 0
        self.left_out: Counter[str] = Counter()
        self.example: dict[str, str] = {}
        self.remarks: list[str] = []
        self.nested: list[Path] = []

    def leave_out(self, kind: str, path: Path | str) -> None:
        self.left_out[kind] += 1
        self.example.setdefault(kind, os.path.relpath(path, self.path))

    def told(self) -> tuple[str, ...]:
        kinds = [f"{counted(count, kind)} (such as {self.example[kind]})" for kind, count in self.left_out.most_common(10)]
        left = [f"Left out in {self.path}: {', '.join(kinds)}."] if kinds else []
        inner = [
            f"{counted(len(self.nested), 'image', 'lies/lie')} in folders within a class's folder and "
            f"{'counts as an image' if len(self.nested) == 1 else 'count as images'} of that class, such as "
            f"{os.path.relpath(path, self.path)}."
            for path in self.nested[:1]
        ]
        return (*left, *inner, *self.remarks)


def _class_files(folder: Path, passed: _PassedOver) -> dict[str, list[Path]]:
    classes = {}
    for child in sorted(folder.iterdir()):
        if child.is_dir() and not child.name.startswith("."):
            classes[child.name] = _images_below(child, passed)
            check_limit(str(folder), len(classes), "class folders", CLASSES, "Leave some out.")
        else:
            passed.leave_out("beside the class folders/beside the class folders", child)
    if not classes:
        raise DataError(f"{folder} holds no class folders.")
    return classes


def _images_below(folder: Path, passed: _PassedOver) -> list[Path]:
    images = []
    for parent, folders, files in os.walk(folder, onerror=lambda error: passed.leave_out("unreadable folder", error.filename)):
        for name in [name for name in folders if name.startswith(".") or Path(parent, name).is_symlink()]:
            folders.remove(name)
            passed.leave_out("hidden or linked folder", Path(parent, name))
        for file in (Path(parent, name) for name in files):
            if file.name.startswith("."):
                passed.leave_out("hidden file", file)
            elif file.suffix.lower() not in ENDINGS:
                passed.leave_out(f"{file.suffix} file" if file.suffix else "file without ending/files without ending", file)
            elif not file.is_file():
                passed.leave_out("broken link, pipe or device/broken links, pipes or devices", file)
            else:
                images.append(file)
                passed.images += 1
                check_limit(str(passed.path), passed.images, "image files", IMAGES, "Leave some out.")
    passed.nested += [file for file in images if file.parent != folder]
    return sorted(images)


def _hold_out(images: list[Path], share: float, number: int) -> tuple[list[Path], list[Path]]:
    """A fixed random share of a class's images, at least one and never all."""
    count = min(max(1, round(share * len(images))), len(images) - 1)
    held = set(Streams(0, 0)("test-share", number).permutation(len(images))[: max(0, count)].tolist())
    return [p for i, p in enumerate(images) if i not in held], [p for i, p in enumerate(images) if i in held]


def _split(files: Sequence[Sequence[Path]]) -> Split:
    labels = np.repeat(np.arange(len(files), dtype=np.int64), [len(paths) for paths in files])
    return Split(labels, [FileChunk(chunk) for chunk in in_chunks([path for paths in files for path in paths])])
