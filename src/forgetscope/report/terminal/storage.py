"""A store's files as tables on a terminal: what there is, what is damaged, what can go; and the answers to SQL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType

from forgetscope.characters import counted
from forgetscope.housekeeping.freeing import Freeable
from forgetscope.housekeeping.inventory import Inventory
from forgetscope.housekeeping.verification import Verification
from forgetscope.report.terminal.columns import make_table, plain, titled
from forgetscope.report.words.notation import PLAIN
from forgetscope.report.words.units import size_text

if TYPE_CHECKING:
    import pyarrow as pa

LISTED = 20  # of many files of one kind
ROWS = 1000  # of an SQL answer


def inventory_view(held: Inventory, path: str) -> RenderableType:
    """Sizes by kind, then working folders and quarantine one by one."""
    table = make_table(("files",), ("of steps", "size"))
    for kind, count in (("tables", held.steps), ("states", held.states), ("records", held.steps)):
        table.add_row(kind, f"{count:,}", size_text(held.bytes[kind]))
    if held.calibrations:
        table.add_row("calibrations", f"{held.calibrations:,}", size_text(held.bytes["calibrations"]))
    seen = f", {counted(held.observed, 'observed step')} of {counted(held.monitors, 'monitor')}" if held.observed else ""
    if held.observed:
        table.add_row("observed steps", f"{held.observed:,}", size_text(held.bytes["observed"]))
    title = f"{counted(held.experiments, 'experiment')}, {counted(held.steps, 'step')}{seen} in {path}"
    freeable = (
        f"`forgetscope store gc` could free {size_text(held.freeable)}, with --all {size_text(held.freeable_with_all)}."
        if held.freeable_with_all
        else "There is nothing to free."
    )
    parts: list[RenderableType] = [titled(title, table), plain(freeable)]
    for name, folders in (("Unfinished", held.working), ("Quarantine", held.quarantine)):
        if folders:
            rows = [(str(folder.path), "running" if folder.in_use else "", folder.bytes) for folder in folders]
            parts.append(_sized(name, ("where", ""), rows))
    return Group(*parts)


def damage_lines(verified: Verification) -> list[str]:
    """Every damaged file with the reason, a line each however long; nothing but a sentence if all is well."""
    seen = f", {counted(verified.calibrations, 'calibration')}" if verified.calibrations else ""
    seen += f", {counted(verified.observed, 'observed step')}" if verified.observed else ""
    read = f"{counted(verified.steps, 'step')}{seen} and {counted(verified.snapshots, 'snapshot')}, {size_text(verified.bytes)}"
    if not verified.damage:
        return [f"Everything is as it was written: {read}."]
    return [f"Of {read}, these are damaged:", *(f"{damage.path}: {damage.reason}" for damage in verified.damage)]


def freeable_view(found: Sequence[Freeable], done: bool, store: Path) -> RenderableType:
    """What can be freed or was, the largest first, and where in the store."""
    if not found:
        return plain("There is nothing to free.")
    ordered = sorted(found, key=lambda item: (-item.bytes, item.path))
    rows = [(item.kind, str(item.path.relative_to(store)), item.bytes) for item in ordered]
    return _sized("Freed" if done else "Can be freed", ("what", "where"), rows)


def answer_view(answer: pa.Table) -> RenderableType:
    """The first rows of an SQL answer; numbers to the right."""
    import pyarrow as pa

    def is_number(column: pa.DataType) -> bool:
        return bool(pa.types.is_integer(column) or pa.types.is_floating(column) or pa.types.is_decimal(column))

    table = make_table((), ())
    for name, column in zip(answer.column_names, answer.schema.types, strict=True):
        table.add_column(name, number=is_number(column))
    for row in zip(*(column.to_pylist() for column in answer.slice(0, ROWS).columns), strict=True):
        cells = (f"{value:.6g}" if isinstance(value, float) else value for value in row)  # as SQL takes it back
        table.add_row(*(PLAIN.missing if cell is None else str(cell) for cell in cells))
    cut = f"The first {ROWS} of {answer.num_rows:,} rows; --json prints all." if answer.num_rows > ROWS else None
    parts: list[RenderableType] = [plain(cut, "dim")] if cut else []
    return Group(table, *parts)


def _sized(title: str, names: Sequence[str], rows: Sequence[tuple[str, str, int]]) -> RenderableType:
    """The first rows, each with its size in bytes, under what all of them come to."""
    table = make_table(names, ("size",))
    for first, second, size in rows[:LISTED]:
        table.add_row(first, second, size_text(size))
    more = [f"and {len(rows) - LISTED} more"] if len(rows) > LISTED else []
    return titled(f"{title}: {size_text(sum(size for *_, size in rows))}", table, *more)
