"""Checksums made good again after a file has changed, so that what reads behind them is reached: a forger can do so too."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from contextlib import suppress
from typing import Any

from forgetscope.files import with_checksum
from forgetscope.spec import canonical_id


def store(files: dict[str, bytes], changed: str) -> None:
    """The manifest of the step, or the checksum that leads a snapshot."""
    parts = changed.split("/")
    if parts[0] == "steps" and parts[-1] != "manifest.json":
        if parts[-1] == "step.json":
            changed = _renamed(files, changed)
        _manifest(files, changed)
    elif parts[-1].startswith("snapshot-"):
        files[changed] = with_checksum(files[changed][32:])


def _manifest(files: dict[str, bytes], changed: str) -> None:
    folder, _, name = changed.rpartition("/")
    with suppress(ValueError, TypeError, KeyError):
        manifest = json.loads(files[f"{folder}/manifest.json"])
        manifest[name] = _entry(files[changed])
        files[f"{folder}/manifest.json"] = json.dumps(manifest).encode()


def _entry(content: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def _renamed(files: dict[str, bytes], changed: str) -> str:
    """A step is named for what it holds: a forged one gets the name that it then has, wherever it can be computed."""
    folder = changed.rpartition("/")[0]
    try:
        info = json.loads(files[changed])
        info["id"] = canonical_id(info["parent"], info["spec"], info["data"]["digest"])
        files[changed] = json.dumps(info).encode(errors="surrogatepass")
    except (ValueError, TypeError, KeyError, RecursionError, AttributeError):
        return changed
    for name in [name for name in files if name.startswith(folder + "/")]:
        files[f"steps/{info['id']}/{name.rpartition('/')[2]}"] = files.pop(name)
    return f"steps/{info['id']}/step.json"


def converted(files: dict[str, bytes], changed: str) -> None:
    """The manifest of a converted data set: digests of its files, and a checksum of itself."""
    folder, _, name = changed.rpartition("/")
    key = f"{folder}/manifest.json"
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        manifest = json.loads(files[key])
        manifest.pop("checksum", None)
        if name != "manifest.json":
            manifest["files"][name.removesuffix(".npy")] = hashlib.sha256(files[changed]).hexdigest()
        manifest["checksum"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
        files[key] = json.dumps(manifest, ensure_ascii=False).encode(errors="surrogatepass")


def export(files: dict[str, bytes], changed: str) -> None:
    """The steps inside, each manifest, then the index of them all."""
    try:
        with tarfile.open(fileobj=io.BytesIO(files[changed])) as tar:
            inside = {info.name: tar.extractfile(info).read() for info in tar.getmembers() if info.isfile()}  # type: ignore[union-attr]
        index = json.loads(inside.pop("index.json"))
        original = {name: entry["sha256"] for name, entry in index["members"].items()}
    except (tarfile.TarError, ValueError, TypeError, KeyError, AttributeError, OSError, RecursionError):
        return
    for name in [name for name, content in inside.items() if original.get(name) != hashlib.sha256(content).hexdigest()]:
        if name in inside:
            store(inside, name)
    index["members"] = {name: _entry(content) for name, content in inside.items()}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in {"index.json": json.dumps(index).encode(), **inside}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    files[changed] = buffer.getvalue()
