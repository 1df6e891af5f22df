"""Downloads that may be interrupted anywhere and go on from there: by a dropped connection, a full disk, Ctrl-C, kill -9.

What has arrived is in `<target>.part`; `<target>.part.json` says which version of which file it is a part of.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from http.client import HTTPException, HTTPResponse, InvalidURL
from importlib.metadata import version
from pathlib import Path
from typing import cast
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from forgetscope.errors import DataError
from forgetscope.files import cannot_write, locked, replace_durably, sync_folder, write_durably

Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all if the server says it
BLOCK = 1 << 20  # bytes in memory at a time
TIMEOUT = 30.0  # seconds of silence after which a connection counts as dropped
PAUSE = 1.0  # seconds before the next attempt; doubles with each one that brings nothing
INTERVAL = 0.1  # seconds between two calls of progress
HINT = "Check the address, or name a local copy with `--from PATH`."


def download(
    url: str,
    target: Path,
    *,
    md5: str | None = None,
    progress: Progress = lambda done, total: None,
    blocked: Callable[[], None] = lambda: None,
    attempts: int = 4,
) -> Path:
    """Fetch a file, resuming what an earlier call left. `target` appears whole and, if `md5` is given, verified.

    Asks for nothing if it is there already. Gives up after `attempts` in a row that brought nothing new. If another
    process is fetching the same target, calls `blocked` and waits for it.
    """
    if not url.lower().startswith(("http://", "https://")):
        raise DataError(f"Cannot download {url}: only http:// and https:// addresses are supported. {HINT}")
    part, lock = (target.with_name(target.name + suffix) for suffix in (".part", ".lock"))
    try:
        if not _is_there(target, md5):
            target.parent.mkdir(parents=True, exist_ok=True)
            with locked(lock, blocked, done=lambda: True):
                if not _is_there(target, md5):  # whoever held the lock may have fetched it
                    _fetch(url, part, progress, attempts)
                    _finish(url, part, target, md5)
    except OSError as error:  # of the disk: those of the network became others where they arose
        raise cannot_write(target, error) from None
    return target


def _is_there(path: Path, md5: str | None) -> bool:
    return path.is_file() and (md5 is None or _md5(path) == md5.lower())


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _finish(url: str, part: Path, target: Path, md5: str | None) -> None:
    if md5 is not None and (found := _md5(part)) != md5.lower():
        part.unlink()  # it would never become right
        _memory(part).unlink(missing_ok=True)
        raise DataError(
            f"{target.name} from {url} is not the expected file and was deleted: its MD5 sum is {found}, expected "
            f"{md5.lower()}. Run the same command again; if that does not help, the file there has changed. {HINT}"
        )
    with part.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(part, target)
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


def _fetch(url: str, part: Path, progress: Progress, attempts: int) -> None:
    """Complete the part."""
    furthest, fruitless = _recall(url, part)[0], 0
    while True:
        try:
            return _attempt(url, part, progress)
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


def _attempt(url: str, part: Path, progress: Progress) -> None:
    """Complete the part over one connection, or keep what arrived."""
    have, remote = _recall(url, part)
    if remote and have == remote.total:
        return
    with _request(url, have, remote) as response:
        if response.status == 200:
            _begin(url, part, response)
            return _receive(response, part, 0, response.length, progress)
        if remote and response.status == 206 and _continues(response, have, remote):
            return _receive(response, part, have, remote.total, progress)
        if not remote:
            raise DataError(f"{url} answered {response.status}, not with a file. {HINT}")
    _memory(part).unlink()  # a range of another version, or none: this part is of no use
    _attempt(url, part, progress)


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
    """Empty the part before remembering the new version: old bytes must never stand beside it."""
    _memory(part).unlink(missing_ok=True)
    write_durably(part, b"")
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


def _receive(response: HTTPResponse, part: Path, have: int, total: int | None, progress: Progress) -> None:
    progress(have, total)
    told = time.monotonic()
    with part.open("ab") as file:
        for block in _blocks(response):
            file.write(block)
            have += len(block)
            if time.monotonic() - told >= INTERVAL:
                progress(have, total)
                told = time.monotonic()
    if total is not None and have != total:
        raise _Dropped("the connection closed early")
    progress(have, total)


def _blocks(response: HTTPResponse) -> Iterator[bytes]:
    try:
        while block := response.read1(BLOCK):  # what has come, not a full block: a drop then loses nothing of it
            yield block
    except (OSError, HTTPException) as error:
        raise _Dropped(_reason(error)) from None


def _reason(error: Exception) -> str:
    reason = error.reason if isinstance(error, URLError) else error
    return getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
