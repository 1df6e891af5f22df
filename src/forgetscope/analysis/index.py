"""All experiments of a store at a glance, however many: what each step says about itself is read once and kept in an index.

The index is in a folder of our own (`inputs.cache.kept_for`), never in the store: whoever filled the store could forge it. It
can be deleted at any time. An entry counts only for the manifest that it was made from and for files of the same size and time,
so that a step that was replaced or harmed is read again, and only for the code that it was made by; what is computed with is
read from the steps and verified.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from pydantic_core import from_json

from forgetscope.analysis.experiments import Experiment, StepSummary, summarise
from forgetscope.analysis.inputs.cache import code_version, kept_for, make_folder
from forgetscope.errors import StoreError
from forgetscope.files import read_regular, replace_soon
from forgetscope.outputs import Progress, unheard
from forgetscope.store import Store, StoredStep, TellLeftOut, chains_of
from forgetscope.store.folder import leaving_out
from forgetscope.store.stepfiles import limit_of

LEFT_OUT = ("history",)  # of step.json: long, and no part of a glance


def glance(store: Store, progress: Progress = unheard, left_out: TellLeftOut | None = None) -> list[Experiment]:
    """The experiments of a store, latest last, with their summaries; their steps' `info` is without what is `LEFT_OUT`.

    left_out: is told of each step that cannot be read; without it, the first is an error."""
    known, entries = _read(store), dict[str, dict[str, Any]]()
    steps = {step.id: step for step in store.steps()}
    fresh = False
    for done, (id, step) in enumerate(steps.items(), start=1):
        stamp = _stamp(step)
        entry = known.get(id)
        if entry is None or stamp is None or entry["manifest"] != stamp or _may_be_paired(entry, step):
            entry = None
            with leaving_out(left_out):
                entry, fresh = _entry(step, stamp, steps), True
            progress("steps", done, len(steps))
        if entry is not None:
            entries[id] = entry
    if fresh or len(entries) < len(known):
        _write(store, entries)
    found = [StoredStep(steps[id].folder, known=entry["info"]) for id, entry in entries.items()]
    summaries = {id: StepSummary(**entry["summary"]) for id, entry in entries.items() if entry["summary"] is not None}
    chains = chains_of(store.connected(found, left_out))
    return [Experiment(chain, [summaries[step.id] for step in chain if step.id in summaries]) for chain in chains]


def _may_be_paired(entry: dict[str, Any], step: StoredStep) -> bool:
    """Whether the ancestors of a step were missing or damaged when it was summarised, and may be there by now."""
    return entry["summary"] is not None and not entry["summary"]["paired"] and step.has("predictions")


def _entry(step: StoredStep, stamp: str | None, steps: Mapping[str, StoredStep]) -> dict[str, Any]:
    info = {name: value for name, value in step.info.items() if name not in LEFT_OUT}
    past = info["spec"]["step"] > 1 and step.divergence is None
    summary = asdict(summarise(step, _ancestors(step, steps))) if past else None
    return {"code": code_version(), "id": step.id, "manifest": stamp, "info": info, "summary": summary}


def _ancestors(step: StoredStep, steps: Mapping[str, StoredStep]) -> list[StoredStep]:
    """As far as they are there and can be read."""
    found: list[StoredStep] = []
    with suppress(StoreError):
        while step.parent in steps:
            step = steps[str(step.parent)]
            found += [step] if step.info else []  # which is an error where it is damaged
    return found


def _stamp(step: StoredStep) -> str | None:
    """What the step is: its manifest names the checksums of all its files, and none of these was changed or removed since."""
    try:
        digest = hashlib.sha256(read_regular(step.folder / "manifest.json", limit_of("manifest.json")))
        with os.scandir(step.folder) as files:
            stats = ((file.name, file.stat(follow_symlinks=False)) for file in files)
            facts = sorted((name, found.st_size, found.st_mtime_ns) for name, found in stats)
        digest.update(repr(facts).encode())
        return digest.hexdigest()
    except OSError:
        return None


def _read(store: Store) -> dict[str, dict[str, Any]]:
    """What is there of an index; a line that is not whole counts for nothing."""
    found: dict[str, dict[str, Any]] = {}
    try:
        lines = (kept_for(store.path) / "index.jsonl").read_bytes().splitlines()
    except OSError:
        return found
    for line in lines:
        body, _, checksum = line.rpartition(b"\t")
        if hashlib.sha256(body).hexdigest().encode() == checksum:
            entry = from_json(body)
            if entry.get("code") == code_version():
                found[entry["id"]] = entry
    return found


def _write(store: Store, entries: dict[str, dict[str, Any]]) -> None:
    """Where it cannot be kept, it is made again the next time."""
    folder, lines = kept_for(store.path), []
    for entry in entries.values():
        body = json.dumps(entry).encode()
        lines.append(body + b"\t" + hashlib.sha256(body).hexdigest().encode() + b"\n")
    with suppress(OSError):
        make_folder(folder, store.path)
        replace_soon(folder / "index.jsonl", b"".join(lines))
