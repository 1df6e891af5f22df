"""What a stranger may have done to a store, checksums made to fit."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forgetscope.spec import canonical_id
from forgetscope.store import Store, StoredStep, StoredTables

GOLDEN = Path(__file__).parent / "golden" / "schema-1"
FIRST, SECOND = "f20597d033216fbfca4c78c5dd6c9c8f", "f3fa24f9a0557b800d1137b8758595ee"


def no_plain_file(path: Path, kind: str) -> None:
    """Put a pipe, a link without end, a folder or a file of a terabyte in a file's place."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.touch()
        os.truncate(path, 2**40)


def golden_copy(folder: Path) -> Store:
    """A small store with two steps, free to be harmed."""
    return Store(shutil.copytree(GOLDEN, folder))


def put(step: StoredTables, name: str, content: bytes) -> None:
    """Replace a file of a step, and its checksum."""
    manifest = json.loads((step.folder / "manifest.json").read_bytes())
    (step.folder / name).write_bytes(content)
    manifest[name] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    (step.folder / "manifest.json").write_text(json.dumps(manifest))


def rewrite(step: StoredStep, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a record, under the id that it has."""
    info = json.loads((step.folder / "step.json").read_bytes())
    change(info)
    put(step, "step.json", json.dumps(info).encode())


def forge(store: Store, id: str, change: Callable[[dict[str, Any]], object]) -> StoredStep:
    """Change a record and move it to the id that it then has."""
    step = store.step(id)
    info = json.loads((step.folder / "step.json").read_bytes())
    change(info)
    info["id"] = canonical_id(info["parent"], info["spec"], info["data"]["digest"])
    put(step, "step.json", json.dumps(info).encode())
    return StoredStep(step.folder.rename(step.folder.with_name(info["id"])))
