"""Where a person lets results be written: what is there and was not written by forgetscope is left as it is. And who is told
what while results are made."""

import json
import lzma
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from forgetscope.errors import SpecError
from forgetscope.files import file_digest, replace_durably, told

Note = Callable[[str], None]  # a sentence for a person
Progress = Callable[[str, int, int], None]  # what is counted, how many are done, how many there are (0: unknown)
Listing = Mapping[str, Sequence[str]]  # name below the folder -> SHA-256 that the file may have

LISTING = ".forgetscope.json"  # in every folder that was written here: what was written into it
LISTING_BYTES = 1 << 24
UNFINISHED = ".making-"
ENDS = 1 << 16  # bytes at either end of a file among which its mark is

PAGE = (  # the second is in pages of before there was the first
    b'<meta name="generator" content="forgetscope">',
    b"content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-",
)
PDF = (b"/Creator (forgetscope)",)
SHEET = (b"Software\0forgetscope",)
XZ_MEMORY = 100 * 2**20  # bytes that unpacking .xz may take: enough for every preset of it
EXPORT = (b'{\n "forgetscope": "export"',)


def unheard(*told: object) -> None:
    """Notes and progress for nobody."""


def refuse_foreign_file(path: Path, marks: Sequence[bytes], what: str) -> None:
    """what: in words, for example "page". marks: one of them is in each that was written here."""
    if str(path) == "-":
        raise SpecError(f"-o -: a {what} goes into a file, not to standard output. Name one with -o.")
    if path.is_symlink():
        raise _left(path, "is a link", "-o")
    if not path.exists():
        return
    if not path.is_file():
        raise _left(path, "is a folder" if path.is_dir() else "is no regular file", "-o")
    try:
        with path.open("rb") as file:
            content = file.read(ENDS)
            file.seek(max(len(content), path.stat().st_size - ENDS))
            content += file.read(ENDS)
        if path.suffix == ".xz":
            content = lzma.LZMADecompressor(memlimit=XZ_MEMORY).decompress(content, ENDS)
    except (OSError, lzma.LZMAError) as error:
        raise _left(path, f"cannot be read ({getattr(error, 'strerror', error)})", "-o") from None
    if not any(mark in content for mark in marks):
        raise _left(path, f"is no {what} that was written here before", "-o")


def refuse_foreign_folder(path: Path, option: str = "-o") -> None:
    """Also where a file that was written here has been changed since. An empty folder is welcome."""
    if str(path) == "-":
        raise SpecError(f"{option} -: several files go into a folder, not to standard output. Name one with {option}.")
    try:
        if not path.is_dir():
            foreign = path.is_symlink()
            if path.exists():
                raise _left(path, "is a file, and no folder", option)
        else:
            foreign = any(not entry.name.startswith(UNFINISHED) for entry in path.iterdir())
    except OSError as error:
        raise _left(path, f"cannot be read ({error.strerror})", option) from None
    listed = _listed(path)
    if foreign and listed is None:
        raise _left(path, f"is no folder that was written here before: it has no {LISTING}", option)
    _refuse_changed(path, listed or {}, (), option)


def holds_earlier(path: Path) -> bool:
    """Whether files were written into this folder before, which those to come take the place of."""
    return bool(_listed(path))


@contextmanager
def writing_folder(path: Path, option: str = "-o") -> Iterator[Path]:
    """A folder to fill; what is in it when the block ends well takes its place in `path`, file by file.

    Only what was written here before, and is as it was written, is replaced."""
    refuse_foreign_folder(path, option)
    with told(path):
        path.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=UNFINISHED, dir=path) as building:
            yield Path(building)
            made = sorted(file.relative_to(building) for file in Path(building).rglob("*") if file.is_file())
            digests = {str(name): [file_digest(Path(building, name))] for name in made}
            listed = _listed(path) or {}
            _refuse_changed(path, listed, made, option)
            both = {name: [*listed.get(name, []), *digests.get(name, [])] for name in {**listed, **digests}}
            _list(path, both)  # a crash between two moves leaves files of either time, and all are ours
            for name in made:
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(Path(building, name), path / name)
        _list(path, {**listed, **digests})


def _refuse_changed(folder: Path, listed: Listing, more: Iterable[Path], option: str) -> None:
    """more: files that are to be written as well."""
    for name in (*map(Path, listed), *more):
        path = folder / name
        if any((folder / above).is_symlink() for above in (name, *name.parents)):
            raise _left(path, "is reached through a link", option)
        if path.exists() and (not path.is_file() or file_digest(path) not in listed.get(str(name), [])):
            raise _left(path, "is not as it was written here, or was never written here", option)


def _listed(folder: Path) -> Listing | None:
    """What was written into a folder, with the digests that each file may have; None: nothing that is known."""
    path = folder / LISTING
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > LISTING_BYTES:
            return None
        listed = {str(name): [str(digest) for digest in digests] for name, digests in json.loads(path.read_bytes()).items()}
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return None
    return None if any(Path(name).is_absolute() or ".." in Path(name).parts for name in listed) else listed


def _list(folder: Path, listing: Listing) -> None:
    replace_durably(folder / LISTING, json.dumps(listing, indent=1, sort_keys=True).encode())


def _left(path: Path, why: str, option: str) -> SpecError:
    return SpecError(f"{path} is there and {why}; it is left as it is. Name another with {option}.")
