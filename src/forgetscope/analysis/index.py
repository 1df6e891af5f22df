"""All experiments of a store at a glance, however many: what each step says about itself is read once and kept in an index.

The index (`STORE/index.jsonl`) is never trusted and can be deleted at any time. An entry counts only for the manifest that it
was made from, so a step that was replaced is read again; whatever is computed with is read from the steps and verified.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pydantic_core import from_json

from forgetscope.analysis.experiments import Experiment, StepSummary, summarise
from forgetscope.store import Store, StoredStep

VERSION = 1  # of what an entry holds
LEFT_OUT = ("history",)  # of step.json: long, and no part of a glance


def glance(store: Store, progress: Callable[[str, int, int], None] = lambda what, done, total: None) -> list[Experiment]:
    """The experiments of a store, latest last, with their summaries; their steps' `info` is without what is `LEFT_OUT`."""
    known, entries = _read(store), dict[str, dict[str, Any]]()
    steps = {step.id: step for step in store.steps()}
    fresh = False
    for done, (id, step) in enumerate(steps.items(), start=1):
        stamp = _stamp(step)
        entry = known.get(id)
        if entry is None or stamp is None or entry["manifest"] != stamp:
            entry, fresh = _entry(step, stamp), True
            progress("steps", done, len(steps))
        entries[id] = entry
        step.__dict__["info"] = entry["info"]  # takes the place of what would be read
    if fresh or len(entries) < len(known):
        _write(store, entries)
    return _experiments(store, steps, entries)


def _experiments(store: Store, steps: dict[str, StoredStep], entries: dict[str, dict[str, Any]]) -> list[Experiment]:
    parents = {entry["info"]["parent"] for entry in entries.values()}
    tips = sorted((entry["info"]["committed"], id) for id, entry in entries.items() if id not in parents)
    found = []
    for _, tip in tips:
        chain: list[str] = [tip]
        while (parent := entries[chain[0]]["info"]["parent"]) is not None:
            if parent not in entries:
                store.chain(tip)  # says what is missing
            chain.insert(0, parent)
        experiment = Experiment([steps[id] for id in chain])
        summaries = [entries[step.id]["summary"] for step in experiment.steps[1:]]
        experiment.__dict__["summaries"] = [StepSummary(**summary) for summary in summaries]
        found.append(experiment)
    return found


def _entry(step: StoredStep, stamp: str | None) -> dict[str, Any]:
    info = {name: value for name, value in step.info.items() if name not in LEFT_OUT}
    summary = None if info["spec"]["step"] == 1 or step.divergence is not None else asdict(summarise(step))
    return {"version": VERSION, "id": step.id, "manifest": stamp, "info": info, "summary": summary}


def _stamp(step: StoredStep) -> str | None:
    """What the step is: its manifest names the checksums of all its files."""
    try:
        return hashlib.sha256((step.folder / "manifest.json").read_bytes()).hexdigest()
    except OSError:
        return None


def _read(store: Store) -> dict[str, dict[str, Any]]:
    """What is there of an index; a line that is not whole counts for nothing."""
    found: dict[str, dict[str, Any]] = {}
    try:
        lines = (store.path / "index.jsonl").read_bytes().splitlines()
    except OSError:
        return found
    for line in lines:
        body, _, checksum = line.rpartition(b"\t")
        if hashlib.sha256(body).hexdigest().encode() == checksum:
            entry = from_json(body)
            if entry["version"] == VERSION:
                found[entry["id"]] = entry
    return found


def _write(store: Store, entries: dict[str, dict[str, Any]]) -> None:
    """A store that cannot be written is read all the same."""
    path = store.path / "index.jsonl"
    temporary = path.with_name(f".index.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            for entry in entries.values():
                body = json.dumps(entry).encode()
                file.write(body + b"\t" + hashlib.sha256(body).hexdigest().encode() + b"\n")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
