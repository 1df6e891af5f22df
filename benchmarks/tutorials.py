"""The pages of the tutorials: each is a plain file in docs/tutorials, is run, and is shown with what it printed and drew.

    python benchmarks/tutorials.py make                   # all that this environment can run
    python benchmarks/tutorials.py make own_loop          # one
    python benchmarks/tutorials.py reword own_loop        # new prose over the output that is there, if the code is as it was
    python benchmarks/tutorials.py check own_loop         # run it again and compare with the page that is there

A file is divided into cells, as editors and jupytext know them: `# %% [markdown]` begins prose, in comment lines, and `# %%`
code. It runs in an empty folder, in one process, with one thread and the instructions that all processors of ten years have,
so that the same kind of machine prints the same bits. What is written to the standard output is in the page; progress is not.
Pictures that the prose shows from docs/images/tutorials are taken from that folder, by name.

`check` compares words and numbers. Times, sizes in bytes and the width of columns never count. On the kind of machine that the
page was made on all else must be equal. On another kind numbers may differ: training rounds differently there, and a class more
or less is right. There two thirds of a page's printed lines must have the same words, in any order, two thirds of their numbers
must lie within 0.3 or 30 %, and no output may have become half or twice as long.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
PICTURES = FOLDER.parent / "images" / "tutorials"
KINDS = FOLDER / "made.json"  # of machines, by tutorial
NEEDS = {"one_line": "avalanche"}  # what it takes beyond forgetscope; `make frameworks` has it
LANGUAGES = {".py": "python", ".sh": "sh"}
# Beside a torch of another build torchvision lacks operators, which nothing here uses: the tests know what to do.
BEFORE = (
    f"import sys; sys.path.append({str(FOLDER.parents[1] / 'tests')!r}); import frameworks; frameworks.import_torchvision(); "
)
MARK = "\x1e"  # between what two cells print
MARKING = {".py": f"print({MARK!r}, flush=True)", ".sh": r"printf '\036\n'"}

# One thread, and no instructions but those that every x86-64 server has: sums are then taken in one order.
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Haswell",
    "OPENBLAS_NUM_THREADS": "1",
    "COLUMNS": "100",
    "NO_COLOR": "1",
    "PYTHONUTF8": "1",
    "PYTHONWARNINGS": "ignore",
    "SOURCE_DATE_EPOCH": "0",
    "MPLBACKEND": "svg",
}


@dataclass(frozen=True)
class Cell:
    prose: bool
    text: str


def sources() -> list[Path]:
    return sorted(path for path in FOLDER.iterdir() if path.suffix in LANGUAGES)


def cells(source: str) -> list[Cell]:
    """All of a file: the first line begins a cell."""
    heads = re.split(r"^# %%(.*)\n", source, flags=re.MULTILINE)
    if heads[0].removeprefix("#!/usr/bin/env bash\n").strip():
        raise ValueError(f"A tutorial begins with `# %% [markdown]`, not with {heads[0][:40]!r}.")
    found = []
    for kind, text in zip(heads[1::2], heads[2::2], strict=True):
        prose = kind.strip() == "[markdown]"
        text = re.sub(r"^# ?", "", text, flags=re.MULTILINE) if prose else text
        found.append(Cell(prose, text.strip("\n")))
    return found


def page(file: Path, printed: list[str]) -> str:
    """`printed` by cell; without it, the page as it is before anything was run."""
    language, parts = LANGUAGES[file.suffix], []
    for cell, output in zip(cells(file.read_text(encoding="utf-8")), printed, strict=True):
        if cell.prose:
            title, _, rest = cell.text.partition("\n")
            parts.append(f"{title}\n\n{how_to_run(file)}\n{rest}" if title.startswith("# ") else cell.text)
        else:
            parts.append(f"```{language}\n{cell.text}\n```")
        if output.strip():
            parts.append(f"```text\n{output.strip(chr(10))}\n```")
    return "\n\n".join(parts) + "\n"


def how_to_run(file: Path) -> str:
    command = "bash" if file.suffix == ".sh" else "python"
    about = f"[the file]({file.name}), [about its output](index.md#the-output)"
    return f"`{command} {file.name}` runs this page in an empty folder: {about}."


def shown_pictures(text: str) -> list[str]:
    return re.findall(r"!\[[^]]*\]\(\.\./images/tutorials/([^)]+)\)", text)


def run(file: Path, pictures: Path) -> list[str]:
    """What each cell printed. Pictures that the page shows are copied to a folder."""
    source = file.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        beside, empty = Path(scratch, "source"), Path(scratch, "empty")
        beside.mkdir()
        empty.mkdir()
        (beside / "matplotlibrc").write_text("svg.hashsalt: forgetscope\n")
        marked = beside / file.name
        marks = re.sub(r"^# %%", lambda _: f"{MARKING[file.suffix]}  # %%", source, flags=re.MULTILINE)
        marked.write_text(f"{BEFORE}{marks}" if file.stem in NEEDS else marks)
        bin_folder = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, **SETTINGS, "PATH": bin_folder, "MATPLOTLIBRC": str(beside / "matplotlibrc")}
        program = ["bash", "-euo", "pipefail"] if file.suffix == ".sh" else [sys.executable]
        ran = subprocess.run(
            [*program, str(marked)], cwd=empty, env=environment, capture_output=True, encoding="utf-8", check=False
        )
        if ran.returncode:
            raise SystemExit(f"{file.name} ended with exit code {ran.returncode}.\n{ran.stdout[-2000:]}\n{ran.stderr[-4000:]}")
        for name in shown_pictures(source):
            (made,) = empty.rglob(name)
            pictures.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(made, pictures / name)
        printed = ran.stdout.replace(f"{empty.resolve()}/", "").replace(f"{empty}/", "").split(f"{MARK}\n")[1:]
    return ["\n".join(line.rstrip() for line in output.split("\n")) for output in printed]


def kind_of_machine() -> str:
    """Machines of one kind print the same bits from the same versions."""
    found = dict.fromkeys(("vendor_id", "cpu family", "model", "stepping", "cache size"), "?")
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        name, _, value = line.partition(":")
        if name.strip() in found:
            found[name.strip()] = value.strip()
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "pandas", "matplotlib"))
    return f"{platform.system()} {platform.machine()}, processor {' '.join(found.values())}, {versions}"


OUTPUT = re.compile(r"(?<=\n)```text\n(.*?)\n```\n", re.DOTALL)
UNITS = "seconds|second|minutes|minute|hours|hour|ms|min|s|h|kB|MB|GB|bytes|B|times the time"
PASSING = re.compile(rf"\b\d+:\d\d(:\d\d)?\b|\b\d[\d,]*(\.\d+)?[  ]({UNITS})\b|^ *seconds .*")
NUMBER = re.compile(r"[-−+]?\b\d[\d,]*(\.\d+)?\b|\b[0-9a-f]{8,}\b")


def differences(there: str, made: str, same_kind: bool) -> list[str]:
    """What a page that was made again has otherwise, as lines; none if it agrees."""
    if OUTPUT.sub("", there) != OUTPUT.sub("", made):
        return ["Words or code are not those of the file: `make tutorials`."]
    before, after = OUTPUT.findall(there), OUTPUT.findall(made)
    if len(before) != len(after):
        return [f"{len(after)} cells print something, {len(before)} did."]
    pages = [
        [[" ".join(PASSING.sub("…", line).split()) for line in text.splitlines()] for text in side] for side in (before, after)
    ]
    return list((changed if same_kind else unlike)(*pages))


def changed(before: list[list[str]], after: list[list[str]]) -> Iterator[str]:
    for number, (old, new) in enumerate(zip(before, after, strict=True), 1):
        for line in difflib.unified_diff(old, new, "the page", "made again", n=0, lineterm=""):
            yield f"output {number}: {line}"


def unlike(before: list[list[str]], after: list[list[str]]) -> Iterator[str]:
    """On another kind of machine: two thirds of all lines, and of their numbers, and no output that is half gone."""
    pairs = []
    for number, (old, new) in enumerate(zip(before, after, strict=True), 1):
        if not len(old) <= 2 * len(new) <= 4 * len(old):
            yield f"output {number}: {len(new)} lines where the page has {len(old)}"
        by_words: dict[str, list[str]] = defaultdict(list)
        for line in new:
            by_words[NUMBER.sub("#", line)].append(line)
        pairs += [(line, by_words[words].pop(0)) for line in old if by_words[words := NUMBER.sub("#", line)]]
    lines = max(sum(map(len, before)), sum(map(len, after)))
    if 3 * len(pairs) < 2 * lines:
        yield f"{len(pairs)} of {lines} lines have the same words"
    close = [near(a, b) for one, other in pairs for a, b in zip(numbers(one), numbers(other), strict=True)]
    if 3 * sum(close) < 2 * len(close):
        yield f"{sum(close)} of {len(close)} numbers are near"


def numbers(line: str) -> list[float]:
    found = [match.group() for match in NUMBER.finditer(line)]
    return [float(text.replace("−", "-").replace(",", "")) if re.fullmatch(r"[-−+]?[\d,.]+", text) else 0.0 for text in found]


def near(one: float, other: float) -> bool:
    return abs(one - other) <= max(0.3, 0.3 * abs(one))


def runnable(names: Iterable[str]) -> Iterator[Path]:
    files = {file.stem: file for file in sources()}
    for name in names or files:
        if name not in files:
            raise SystemExit(f"There is no tutorial {name}: {', '.join(files)}.")
        if importlib.util.find_spec(NEEDS.get(name, "forgetscope")) is None:
            print(f"{name}: left out, because there is no {NEEDS[name]} here; `make frameworks` has it")
            continue
        yield files[name]


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def make(names: Iterable[str]) -> None:
    for file in runnable(names):
        before = processor_seconds()
        file.with_suffix(".md").write_text(page(file, run(file, PICTURES)), encoding="utf-8")
        kinds = json.loads(KINDS.read_text()) if KINDS.exists() else {}
        kinds[file.stem] = kind_of_machine()
        KINDS.write_text(json.dumps(kinds, indent=2, sort_keys=True) + "\n")
        print(f"{file.stem}: made, {processor_seconds() - before:.0f} seconds of a processor", flush=True)


def reword(names: Iterable[str]) -> None:
    for file in runnable(names):
        there = file.with_suffix(".md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```(?:python|sh)\n(.*?)\n```\n(?:\n```text\n(.*?)\n```\n)?", there, re.DOTALL | re.MULTILINE)
        found = cells(file.read_text(encoding="utf-8"))
        if [code for code, _ in blocks] != [cell.text for cell in found if not cell.prose]:
            raise SystemExit(f"The code of {file.name} is not that of its page: `make tutorials ONLY={file.stem}`.")
        printed = iter(output for _, output in blocks)
        text = page(file, ["" if cell.prose else next(printed) for cell in found])
        file.with_suffix(".md").write_text(text, encoding="utf-8")


def check(names: Iterable[str]) -> None:
    kinds = json.loads(KINDS.read_text())
    for file in runnable(names):
        before = processor_seconds()
        with tempfile.TemporaryDirectory() as pictures:
            made = page(file, run(file, Path(pictures)))
        same = kinds[file.stem] == kind_of_machine()
        if found := differences(file.with_suffix(".md").read_text(encoding="utf-8"), made, same):
            raise SystemExit(
                "\n".join([f"{file.name} does not print what its page shows. If that is meant: `make tutorials`.", *found])
            )
        where = "the same kind of" if same else "another kind of"
        print(f"{file.stem}: as on its page, on {where} machine, {processor_seconds() - before:.0f} seconds of a processor")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("what", choices=["make", "reword", "check"])
    options.add_argument("names", nargs="*")
    given = options.parse_args()
    {"make": make, "reword": reword, "check": check}[given.what](given.names)
