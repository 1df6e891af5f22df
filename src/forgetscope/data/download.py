"""Downloads that may be interrupted anywhere and go on from there: by a dropped connection, a full disk, Ctrl-C, kill -9.

What has arrived is in `<target>.part`; `<target>.part.json` says which version of which file it is a part of. A lock keeps a
second process from fetching the same. It need not: a part is never cut short, only begun anew as another file, so that two who
write to one write the same bytes to the same places.
"""

import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.client import HTTPException, HTTPResponse, InvalidURL
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, cast
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from forgetscope.errors import DataError
from forgetscope.files import cannot_write, file_digest, locked, replace_durably, sync_folder
from forgetscope.outputs import Note, unheard

Advance = Callable[[int, int], None]  # bytes so far, bytes in all (0: the server does not say it)
BLOCK = 1 << 20  # bytes in memory at a time
TIMEOUT = 30.0  # seconds of silence after which a connection counts as dropped
PAUSE = 1.0  # seconds before the next attempt; doubles with each one that brings nothing
LIMIT = 10_000_000_000  # bytes, where the caller knows nothing better
INTERVAL = 0.1  # seconds between two calls of progress
BEGUN_ANEW = "another process has begun to fetch it as well"
HINT = "Check the address, or name a local copy with `--from PATH`."


def download(
    url: str,
    target: Path,
    *,
    md5: str | None = None,
    limit: int = LIMIT,
    progress: Advance = unheard,
    note: Note = unheard,
    attempts: int = 4,
) -> Path:
    """Fetch a file, resuming what an earlier call left. `target` appears whole and, if `md5` is given, verified.

    Asks for nothing if it is there already. Gives up after `attempts` in a row that brought nothing new, and at once if more
    than `limit` bytes are promised or come. If another process is fetching the same target, notes that and waits for it.
    """
    if not url.lower().startswith(("http://", "https://")):
        raise DataError(f"Cannot download {url}: only http:// and https:// addresses are supported. {HINT}")
    part, lock = (target.with_name(target.name + suffix) for suffix in (".part", ".lock"))
    try:
        if not _is_there(target, md5):
            target.parent.mkdir(parents=True, exist_ok=True)
            with locked(lock, note, "Another process is downloading it; waiting for it.", done=lambda: True):
                _fetch(url, part, target, md5, limit, progress, attempts)
    except OSError as error:  # of the disk: those of the network became others where they arose
        raise cannot_write(target, error) from None
    return target


def _is_there(path: Path, md5: str | None) -> bool:
    return path.is_file() and (md5 is None or file_digest(path, "md5") == md5.lower())


def _finish(url: str, part: Path, size: int, target: Path, md5: str | None) -> None:
    """Under a name of our own first: what is verified is then what becomes the target, whoever else is at it."""
    ours = part.with_name(f"{part.name}.{uuid.uuid4().hex}")
    try:
        os.rename(part, ours)
    except FileNotFoundError:
        raise _Dropped(BEGUN_ANEW) from None
    if ours.stat().st_size != size:
        os.rename(ours, part)
        raise _Dropped(BEGUN_ANEW)
    if md5 is not None and (found := file_digest(ours, "md5")) != md5.lower():
        ours.unlink()  # it would never become right
        _memory(part).unlink(missing_ok=True)
        raise DataError(
            f"{target.name} from {url} is not the expected file and was deleted: its MD5 sum is {found}, expected "
            f"{md5.lower()}. Run the same command again; if that does not help, the file there has changed. {HINT}"
        )
    with ours.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(ours, target)
    sync_folder(target.parent)
    _memory(part).unlink(missing_ok=True)


@dataclass(frozen=True)
class _Remote:
    """The version of a file that a part belongs to."""

    url: str
    validator: str  # a strong ETag, else Last-Modified
    total: int  # bytes


class _Dropped(Exception):
    """An attempt failed in a way that the next one may not."""


class _TooMuch(Exception):
    """More bytes than were promised, or than the file can have."""


def _fetch(url: str, part: Path, target: Path, md5: str | None, limit: int, progress: Advance, attempts: int) -> None:
    """Complete the part and make it the target, unless another process does."""
    furthest, fruitless = _recall(url, part)[0], 0
    while not _is_there(target, md5):
        try:
            return _finish(url, part, _attempt(url, part, limit, progress), target, md5)
        except _TooMuch as error:
            part.unlink(missing_ok=True)
            _memory(part).unlink(missing_ok=True)
            raise DataError(
                f"Stopped downloading {url}: {error}. It cannot be the expected file: nothing of it is kept. {HINT}"
            ) from None
        except _Dropped as drop:
            have, remote = _recall(url, part)
            # Further than ever, not than this attempt began: a server that cannot resume would be asked for ever.
            fruitless = 0 if have > furthest else fruitless + 1
            furthest = max(furthest, have)
            if fruitless >= attempts:
                there = f"{have} of {remote.total}" if remote else "No"
                message = f"{there} bytes are there; run the same command again to {'resume' if remote else 'retry'}."
                raise DataError(f"Cannot download {url}: {drop}. {message} {HINT}") from None
        time.sleep(PAUSE * 2**fruitless)


def _attempt(url: str, part: Path, limit: int, progress: Advance) -> int:
    """Complete the part over one connection, or keep what arrived; its size."""
    have, remote = _recall(url, part)
    if remote and have == remote.total:
        return have
    with _request(url, have, remote) as response:
        if response.status == 200:
            if (response.length or 0) > limit:
                raise _TooMuch(f"the server promises {response.length:,} bytes, more than the {limit:,} that are allowed")
            _begin(url, part, response)
            return _receive(response, part, 0, response.length, limit, progress)
        if remote and response.status == 206 and _continues(response, have, remote):
            return _receive(response, part, have, remote.total, limit, progress)
        if not remote:
            raise DataError(f"{url} answered {response.status}, not with a file. {HINT}")
    _memory(part).unlink(missing_ok=True)  # a range of another version, or none: this part is of no use
    return _attempt(url, part, limit, progress)


def _request(url: str, have: int, remote: _Remote | None) -> HTTPResponse:
    headers = {"User-Agent": f"forgetscope/{version('forgetscope')}"}
    if remote:
        headers |= {"Range": f"bytes={have}-", "If-Range": remote.validator}
    try:
        return cast(HTTPResponse, urlopen(Request(url, headers=headers), timeout=TIMEOUT))
    except HTTPError as error:
        if error.code == 416 and remote:
            return cast(HTTPResponse, error)  # it is a response, too
        error.close()
        if error.code >= 500:
            raise _Dropped(f"the server answered {error.code} {error.reason}") from None
        raise DataError(f"Cannot download {url}: the server answered {error.code} {error.reason}. {HINT}") from None
    except (ValueError, InvalidURL) as error:
        raise DataError(f"Cannot download {url}: {error}. {HINT}") from None
    except (OSError, HTTPException) as error:
        raise _Dropped(_reason(error)) from None


def _continues(response: HTTPResponse, have: int, remote: _Remote) -> bool:
    """Not every server heeds If-Range, so this looks at the answer."""
    same_range = re.fullmatch(rf"bytes {have}-\d+/{remote.total}", response.headers.get("Content-Range", ""))
    name = "ETag" if remote.validator.startswith('"') else "Last-Modified"
    return bool(same_range) and response.headers.get(name, remote.validator) == remote.validator


def _begin(url: str, part: Path, response: HTTPResponse) -> None:
    """Empty the part before remembering the new version: old bytes must never stand beside it.

    It becomes another file: whoever is still writing to the old one does no harm."""
    _memory(part).unlink(missing_ok=True)
    replace_durably(part, b"")
    etag = response.headers.get("ETag", "")
    validator = etag if etag.startswith('"') else response.headers.get("Last-Modified")
    if validator and response.length:  # without them no later answer can be known to be of the same version
        replace_durably(_memory(part), json.dumps(asdict(_Remote(url, validator, response.length))).encode())


def _recall(url: str, part: Path) -> tuple[int, _Remote | None]:
    """How many bytes can be resumed, and of what."""
    try:
        have, remote = part.stat().st_size, _Remote(**json.loads(_memory(part).read_bytes()))
    except (FileNotFoundError, ValueError, TypeError):  # nothing, or nothing that this module wrote
        return 0, None
    return (have, remote) if remote.url == url and 0 < have <= remote.total else (0, None)


def _memory(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _receive(response: HTTPResponse, part: Path, have: int, total: int | None, limit: int, progress: Advance) -> int:
    progress(have, total or 0)
    told = time.monotonic()
    with _opened(part, have) as file:
        file.seek(have)
        for block in _blocks(response):
            have += len(block)
            if have > (allowed := limit if total is None else total):
                raise _TooMuch(f"the server sends more than {allowed:,} bytes")
            file.write(block)
            if time.monotonic() - told >= INTERVAL:
                progress(have, total or 0)
                told = time.monotonic()
    if total is not None and have != total:
        raise _Dropped("the connection closed early")
    progress(have, total or 0)
    return have


@contextmanager
def _opened(part: Path, have: int) -> Iterator[BinaryIO]:
    """To be written on from there, if it still is that part, and still is when it has been written."""
    try:
        with part.open("r+b") as file:
            if os.fstat(file.fileno()).st_size < have:
                raise _Dropped(BEGUN_ANEW)
            yield file
            if not os.path.samestat(os.fstat(file.fileno()), part.stat()):
                raise _Dropped(BEGUN_ANEW)
    except FileNotFoundError:
        raise _Dropped(BEGUN_ANEW) from None


def _blocks(response: HTTPResponse) -> Iterator[bytes]:
    try:
        while block := response.read1(BLOCK):  # what has come, not a full block: a drop then loses nothing of it
            yield block
    except (OSError, HTTPException) as error:
        raise _Dropped(_reason(error)) from None


def _reason(error: Exception) -> str:
    reason = error.reason if isinstance(error, URLError) else error
    return getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
