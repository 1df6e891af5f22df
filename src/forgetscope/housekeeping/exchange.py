"""Steps as one file that another machine can import and verify.

The file is a plain tar: `index.json` with the SHA-256 and size of each member, then `steps/<id>/<file>`, ancestors first, so
that an import that stops half-way leaves whole chains; then `observed/<name>/<number>/<file>` and `plans/<id>/plan.json`. Equal
steps give equal bytes: no times, owners or paths. With a name that ends in `.xz` it is compressed as a whole.
"""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from forgetscope.errors import DamagedExport, DamagedStep, SpecError, StoreError
from forgetscope.files import locked_if_free, read_regular, replacing, told, too_large
from forgetscope.foreign import strict_json
from forgetscope.housekeeping.verification import contents_damage, file_damage, lineage_problem, observed_damage, record_problem
from forgetscope.outputs import XZ_MEMORY, Progress, unheard
from forgetscope.store import (
    ALL_TABLES,
    KEEPSAKES,
    MARKERS,
    STATE,
    Store,
    StoredObserved,
    StoredStep,
    StoredTables,
    TellLeftOut,
    leaving_out,
)
from forgetscope.store.observed import MONITOR, NUMBER, OBSERVED_TABLES, RECORD
from forgetscope.store.stepfiles import PLAN_BYTES, PLAN_ID, limit_of

FORMAT = 1
INDEX = "index.json"
CHUNK = 2**20  # bytes that are read at once
INDEX_LIMIT = 256 * 2**20  # bytes; the index of ten thousand steps has about 15 MB
XZ = b"\xfd7zXZ\0"  # how a compressed file begins
XZ_RATIO, XZ_SMALL = 100, 2**26  # a compressed file may unpack to so many times its size, or to so many bytes
FILES = ("manifest.json", "step.json", *(f"{name}.parquet" for name in ALL_TABLES), STATE, *MARKERS.values())
SEEN = ("manifest.json", RECORD, *(f"{name}.parquet" for name in OBSERVED_TABLES))  # files of an observed step
MEMBER = re.compile(
    rf"steps/[0-9a-f]{{32}}/({'|'.join(map(re.escape, FILES))})|plans/{PLAN_ID.pattern}/plan\.json"
    rf"|observed/{MONITOR.pattern}/{NUMBER.pattern}/({'|'.join(map(re.escape, SEEN))})"
)


@dataclass(frozen=True)
class Entry:
    sha256: str
    size: int


Files = dict[str, tuple[tarfile.TarInfo | None, Entry]]  # of one step, observed step or plan, by name


@dataclass
class Imported:
    """What became of each step of an imported file, by id, and of each observed step, by `observed/<name>/<number>`."""

    new: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)  # were there already, and whole
    quarantined: list[Path] = field(default_factory=list)  # were there already, but damaged: replaced
    damaged: dict[str, str] = field(default_factory=dict)  # not imported, and why
    taken: list[str] = field(default_factory=list)  # not imported: another of the same name and number is there, and stays

    def __add__(self, other: Imported) -> Imported:
        """Of two files, one after the other."""
        present = [id for id in other.present if id not in self.new and id not in self.present]
        rest = self.quarantined + other.quarantined, self.damaged | other.damaged, self.taken + other.taken
        return Imported(self.new + other.new, self.present + present, *rest)


def export_steps(
    steps: Sequence[StoredStep],
    path: Path,
    *,
    observed: Sequence[StoredObserved] = (),
    plans: Sequence[Path] = (),
    states: bool = True,
    keepsakes: int | None = None,
    progress: Progress = unheard,
) -> int:
    """Write steps to one file, verifying each as it is read; returns how many bytes. Without states, markers stand for them.

    plans: the plan.json files that say which steps belong to which experiment. keepsakes: of steps up to this number, with
    markers for later ones; None: of all."""
    ordered = {f"steps/{step.id}": step for step in sorted(steps, key=lambda step: (step.spec.step, step.id))}
    seen = {f"observed/{step.id}": step for step in sorted(observed, key=lambda step: (step.name, step.number))}
    members = {place: _members(step, states, keepsakes) for place, step in ordered.items()}
    members |= {place: _listed(step) for place, step in seen.items()}
    entries = {f"{place}/{name}": entry for place, files in members.items() for name, entry in files.items()}
    recorded = {f"plans/{file.parent.name}/plan.json": _plan(file) for file in plans}
    entries |= {name: _entry(content) for name, content in recorded.items()}
    total, done = sum(entry.size for entry in entries.values()), 0
    listing = {name: {"sha256": entry.sha256, "size": entry.size} for name, entry in entries.items()}
    index = json.dumps({"forgetscope": "export", "format": FORMAT, "members": listing}, indent=1).encode()
    with (
        replacing(path) as file,
        _compressing(file) if path.suffix == ".xz" else nullcontext(file) as target,
        tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        _add(tar, INDEX, index)
        for place, step in (ordered | seen).items():
            for name, entry in members[place].items():
                _add(tar, f"{place}/{name}", _content(step, name, entry))
                done += entry.size
                progress("bytes", done, total)
        for name, content in recorded.items():
            _add(tar, name, content)
    return path.stat().st_size


def plan_files(store: Store, left_out: TellLeftOut | None = None) -> list[Path]:
    """What a store remembers of the plans that were run into it. left_out: is told of what no import would take."""
    store.refuse_links("plans")
    found = []
    for path in sorted((store.path / "plans").glob("*/plan.json")):
        with leaving_out(left_out):
            if not PLAN_ID.fullmatch(path.parent.name):
                raise StoreError(
                    f"{path} is not exported: {path.parent.name[:100]!r} is no id of a plan. Rename or delete its folder."
                )
            found.append(path)
    return found


def _plan(path: Path) -> bytes:
    try:
        if path.parent.is_symlink():
            raise OSError("its folder is a link")
        return read_regular(path, PLAN_BYTES)
    except OSError as error:
        raise StoreError(f"{path} is not exported: {error.strerror or error}. Delete it, and export again.") from None


def chains(store: Store, prefixes: Sequence[str]) -> list[StoredStep]:
    """The steps whose ids begin so, with their ancestors; all steps if none are named."""
    store.refuse_links("steps")
    if not prefixes:
        return store.steps()
    found = {step.id: step for prefix in prefixes for step in store.chain(store.find(prefix).id)}
    return list(found.values())


def monitored(store: Store, name: str) -> list[StoredObserved]:
    """The observed steps of one monitor; SpecError if there is none of this name."""
    found = store.observed(name)
    if not found:
        names = ", ".join(dict.fromkeys(step.name for step in store.observed()))
        raise SpecError(f"{store.path} holds no observed steps of {name!r}; of others: {names or 'none'}.")
    return found


def import_steps(path: Path, store: Store, progress: Progress = unheard) -> Imported:
    """Bring in every whole step of an exported file. What is there already stays; a damaged step is left out and named.

    Raises DamagedExport, before anything is imported, for a file that holds anything but what its index lists."""
    result = Imported()
    with _opened(path) as tar:
        index = _read_index(tar, path)
        members = _checked_members(tar, index, path)
        store.prepare()
        total, done = sum(entry.size for entry in index.values()), 0
        folders: dict[tuple[str, str], Files] = {}
        for path_in_file, entry in index.items():
            folder, _, name = path_in_file.rpartition("/")
            kind, _, id = folder.partition("/")
            folders.setdefault((kind, id), {})[name] = members.get(path_in_file), entry
        for (kind, id), files in sorted(folders.items(), key=lambda folder: list(_IMPORTS).index(folder[0][0])):
            _IMPORTS[kind](store, id, partial(_copy, tar, files), result)
            done += sum(entry.size for _, entry in files.values())
            progress("bytes", done, total)
    return result


def _import_plan(store: Store, id: str, copy: Callable[[Path], None], result: Imported) -> None:
    """What is there stays: a plan's id says what it is."""
    folder = store.path / "plans" / id
    if (folder / "plan.json").exists():
        return
    try:
        with told(folder), tempfile.TemporaryDirectory(dir=store.path / "working") as building:
            copy(Path(building))
            folder.mkdir(parents=True, exist_ok=True)
            os.replace(Path(building, "plan.json"), folder / "plan.json")
    except _Refused as refusal:
        result.damaged[f"plans/{id}/plan.json"] = str(refusal)


def _members(step: StoredStep, states: bool, keepsakes: int | None) -> dict[str, Entry]:
    """The files of a step as they will be in the file."""
    entries = _listed(step)
    wanted = {STATE: states, KEEPSAKES: keepsakes is None or step.number <= keepsakes}
    for name, marker in MARKERS.items():
        if name in entries and (not wanted[name] or step.left_out(name)):
            entries[marker] = _entry(entries.pop(name).sha256.encode())
    return dict(sorted(entries.items()))


def _listed(step: StoredTables) -> dict[str, Entry]:
    """By its manifest, and the manifest itself."""
    entries = {name: Entry(str(entry["sha256"]), int(entry["size"])) for name, entry in step.manifest.items()}
    entries["manifest.json"] = _entry(step.content("manifest.json"))
    return dict(sorted(entries.items()))


def _content(step: StoredTables, name: str, entry: Entry) -> bytes:
    for file, marker in MARKERS.items():
        if name == marker:
            return str(step.manifest[file]["sha256"]).encode()
    try:
        content = step.content(name) if name == "manifest.json" else step.verified(name)
    except DamagedStep:
        if not step.left_out(name):
            raise
        content = b""  # freed since it was listed
    if _entry(content) != entry:
        raise StoreError(f"{step.title} changed while it was exported: {step.folder / name}. Run the export again.")
    return content


def _entry(content: bytes) -> Entry:
    return Entry(hashlib.sha256(content).hexdigest(), len(content))


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)  # times, owners and mode are zero or fixed by default
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        if path.exists() and not path.is_file():
            raise OSError("no plain file")  # opening a pipe would wait for ever
        file = path.open("rb")
    except OSError as error:
        raise StoreError(f"Cannot read {path}: {error.strerror or error}.") from None
    with file, _plain(file, path) as plain:
        try:
            tar = tarfile.open(fileobj=_Bounded(plain), mode="r:")  # type: ignore[call-overload]  # noqa: SIM115
        except (tarfile.TarError, ValueError, RecursionError) as error:  # of names before names before names
            raise StoreError(f"{path} is no file of `forgetscope store export`: {error}.") from None
        with tar:
            yield tar


def _compressing(file: BinaryIO) -> lzma.LZMAFile:
    return lzma.LZMAFile(file, "wb", preset=9 | lzma.PRESET_EXTREME)


@contextmanager
def _plain(file: BinaryIO, path: Path) -> Iterator[BinaryIO]:
    """The file itself, or what is compressed in it."""
    compressed = file.read(len(XZ)) == XZ
    file.seek(0)
    if not compressed:
        yield file
        return
    with tempfile.TemporaryFile() as plain:
        with told(Path(tempfile.gettempdir(), path.name)):
            for chunk in _unpacked(file, path):
                plain.write(chunk)
            plain.seek(0)
        yield cast(BinaryIO, plain)


def _unpacked(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Piece by piece, no more than such a file can hold; whatever it is instead is told before much is written."""
    decompressor, size = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY), 0
    limit = max(XZ_SMALL, XZ_RATIO * file.seek(0, os.SEEK_END))
    file.seek(0)
    while not decompressor.eof:
        given = file.read(CHUNK) if decompressor.needs_input else b""
        try:
            chunk = decompressor.decompress(given, CHUNK)
        except lzma.LZMAError as error:
            raise _not_unpacked(path, str(error).lower()) from None
        if not given and not chunk:
            raise _not_unpacked(path, "it ends too early")
        if size == 0 and chunk and not chunk.startswith(INDEX.encode()):
            raise StoreError(f"{path} is no file of `forgetscope store export`: it does not begin with {INDEX}.")
        if (size := size + len(chunk)) > limit:
            raise _not_unpacked(path, f"it holds more than {limit:,} bytes")
        yield chunk
    if decompressor.unused_data or file.read(1):
        raise _not_unpacked(path, "something follows after its end")


def _not_unpacked(path: Path, reason: str) -> DamagedExport:
    return DamagedExport(f"{path} cannot be unpacked: {reason}. Nothing was imported. Get it, or export it, again.")


class _Bounded:
    """A file of which nobody reads much at once: a header may announce more than there is room for."""

    def __init__(self, file: BinaryIO) -> None:
        self.seek, self.tell, self._read = file.seek, file.tell, file.read

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= CHUNK:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._read(size)


def _read_index(tar: tarfile.TarFile, path: Path) -> dict[str, Entry]:
    first = tar.next()
    if first is None or first.name != INDEX or first.type != tarfile.REGTYPE or first.size > INDEX_LIMIT:
        raise StoreError(f"{path} is no file of `forgetscope store export`: it does not begin with {INDEX}.")
    try:
        index = strict_json(b"".join(_chunks(tar, first)))
        if index["format"] != FORMAT:
            raise StoreError(f"{path} has format {index['format']}; this forgetscope reads {FORMAT}. Upgrade it.")
        return {name: Entry(str(entry["sha256"]), int(entry["size"])) for name, entry in index["members"].items()}
    except (tarfile.TarError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedExport(f"{path} is damaged: its index cannot be read ({error}). Export it again.") from None


def _checked_members(tar: tarfile.TarFile, index: Mapping[str, Entry], path: Path) -> dict[str, tarfile.TarInfo]:
    """The members after the index, each exactly as listed. A file that ends early just has fewer."""
    found: dict[str, tarfile.TarInfo] = {}
    while (member := _next(tar)) is not None:
        reason = None
        if not MEMBER.fullmatch(member.name):
            reason = "no name of a step's or a plan's file"
        elif member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse() or member.pax_headers:
            reason = "no plain file"
        elif member.size > (limit := PLAN_BYTES if member.name.startswith("plans/") else limit_of(member.name.split("/")[-1])):
            reason = too_large(member.size, limit).strerror
        elif member.name in found:
            reason = "there twice"
        elif member.name not in index:
            reason = "not in the index"
        elif member.size != index[member.name].size:
            reason = f"{member.size} bytes, {index[member.name].size} in the index"
        if reason:
            raise DamagedExport(f"{path} is refused: {member.name!r} is {reason}. Nothing was imported. Export it again.")
        found[member.name] = member
    for name in index:
        if not MEMBER.fullmatch(name):
            raise DamagedExport(f"{path} is refused: its index lists {name!r}, which is no name of a step's or a plan's file.")
    return found


def _next(tar: tarfile.TarFile) -> tarfile.TarInfo | None:
    try:
        return tar.next()
    except (tarfile.TarError, ValueError, OSError, RecursionError):
        return None  # cut off; what is missing is found by the index


def _copy(tar: tarfile.TarFile, files: Files, folder: Path) -> None:
    """Every file, durably; raises _Refused at the first that is missing or altered."""
    for name, (member, entry) in files.items():
        if member is None:
            raise _Refused(f"{name} is missing: the file ends before it, or is damaged there")
        digest, size = hashlib.sha256(), 0
        try:
            with told(folder / name), (folder / name).open("xb") as file:
                for chunk in _chunks(tar, member):
                    digest.update(chunk)
                    size += len(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
        except tarfile.TarError as error:
            raise _Refused(f"{name} cannot be read: {error}") from None
        if Entry(digest.hexdigest(), size) != entry:
            raise _Refused(f"{name}: {size} bytes that do not match the checksum")


class _Refused(Exception):
    """Why a step is not imported."""


class _Taken(Exception):
    """Another has its name and number."""


def _import_step(store: Store, id: str, copy: Callable[[Path], None], result: Imported) -> None:
    if id in store and store.damage(id) is None:
        result.present.append(id)
        return

    def write(folder: Path) -> None:
        copy(folder)
        _refuse_unless_whole(StoredStep(folder, id), store)
        if store.damage(id):  # asked again: another process may have brought in a whole one since; ours is whole
            result.quarantined.append(store.quarantine(store.step(id).folder))

    try:
        # Whoever builds a commit holds the step's lock, or `gc` would take it for a leftover. If another process holds
        # the lock, it computes the same step: then that protects us too, and whoever is first wins.
        with locked_if_free(store.lock_file(id)):
            (result.new if store.install(id, write) else result.present).append(id)
    except _Refused as refusal:
        result.damaged[id] = str(refusal)


def _import_observed(store: Store, id: str, copy: Callable[[Path], None], result: Imported) -> None:
    """A number is never written again: what is there and whole stays, and another of its name and number is refused."""
    name, number = id.split("/")
    step, place = StoredObserved(store.path / "observed" / name / number), f"observed/{id}"

    def write(folder: Path) -> None:
        copy(folder)
        for damage in observed_damage(StoredObserved(folder, (name, int(number)))):
            raise _Refused(f"{damage.path.name}: {damage.reason}")
        if step.folder.exists() and observed_damage(step):
            result.quarantined.append(store.quarantine(step.folder))
        elif step.folder.exists() and step.content("manifest.json") != (folder / "manifest.json").read_bytes():
            raise _Taken

    try:
        store.refuse_links("observed", f"observed/{name}")
        with told(step.folder):
            step.folder.parent.mkdir(parents=True, exist_ok=True)
        with locked_if_free(store.lock_file(step.key)):
            (result.new if store.put_in_place(step.folder, step.key, write) else result.present).append(place)
    except _Taken:
        result.taken.append(place)
    except _Refused as refusal:
        result.damaged[place] = str(refusal)


_IMPORTS = {"steps": _import_step, "observed": _import_observed, "plans": _import_plan}  # in this order


def _refuse_unless_whole(step: StoredStep, store: Store) -> None:
    for damage in file_damage(step):
        raise _Refused(f"{damage.path.name}: {damage.reason}")
    problem = record_problem(step)[0] or lineage_problem(step, store)
    if problem:
        raise _Refused(f"step.json: {problem}")
    for damage in contents_damage(step):
        raise _Refused(f"{damage.path.name}: {damage.reason}")
    if step.parent is not None and step.parent not in store:
        raise _Refused(f"its parent {step.parent[:8]} is neither in the store nor whole in this file")


def _chunks(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    try:
        file = tar.extractfile(member)
        if file is None:
            raise tarfile.ReadError("no plain file")
        with file:
            while chunk := file.read(CHUNK):
                yield chunk
    except OSError as error:
        raise tarfile.ReadError(str(error)) from None
