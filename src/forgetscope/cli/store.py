"""`forgetscope store`: look after a store."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import forgetscope as fs
from forgetscope.characters import counted, visible
from forgetscope.cli import options as option
from forgetscope.cli.console import Unreadable, command_group, echo, onward, patiently, print_either, print_json, print_view
from forgetscope.cli.observed import only_observed
from forgetscope.errors import SpecError

if TYPE_CHECKING:
    from forgetscope.housekeeping.importing import Imported

app = command_group("Look after a store: what it holds, whether it is whole, what can be freed; export, import, SQL.")

OBSERVED_ONCE = (
    "An observed step cannot be made again: import it from a copy of the store, if there is one. "
    "What a monitor sees of another training is another step."
)
StoreArgument = Annotated[Path, typer.Argument(help="The store.")]


@app.command("list", epilog="Example: forgetscope store list results")
def list_contents(store: StoreArgument = option.DEFAULT_STORE, as_json: option.JsonOfOne = False) -> None:
    """Show what a store holds, what takes space, and what could be freed."""
    from forgetscope.housekeeping.inventory import take_inventory
    from forgetscope.report.terminal.storage import inventory_view

    left_out = Unreadable()
    held = take_inventory(fs.Store.existing(store), left_out)
    left_out.tell(held.steps + held.observed > 0)
    print_either(lambda: {"store": str(store), **asdict(held)}, lambda: inventory_view(held, str(store)), as_json)
    if not as_json:
        onward(("store", "verify", store), ("show", store))


@app.command(epilog="Example: forgetscope store verify results")
def verify(
    store: StoreArgument = option.DEFAULT_STORE,
    quarantine: Annotated[
        bool, typer.Option("--quarantine", help="Move what is damaged out of the way; what made it then makes it again.")
    ] = False,
    as_json: option.JsonOfOne = False,
) -> None:
    """Read every file and check it, and name what is damaged; exit code 1 if anything is. Changes nothing by itself."""
    from forgetscope.housekeeping.verification import expel_damaged, is_observed, verify_store
    from forgetscope.report.terminal.storage import damage_lines

    opened = fs.Store.existing(store)
    if quarantine:
        opened.prepare()
    with patiently() as progress:
        verified = verify_store(opened, progress)
    moved, left = expel_damaged(opened, verified) if quarantine and verified.damage else ([], verified.damage)
    if as_json:
        print_json(asdict(verified) | {"moved": moved})
    else:
        for line in [*damage_lines(verified), *moved]:  # not a table: paths are there to be copied
            echo(visible(line))
        if moved:
            of_monitors = {is_observed(opened, damage.move) for damage in verified.damage if damage.move}
            if False in of_monitors:
                echo("Now run what made them again: it goes on from what is whole.")
            if True in of_monitors:
                echo(OBSERVED_ONCE)
        if left and quarantine:
            echo(
                f"{len(left)} are left, because no move mends them: run what made a step again and it makes a missing parent, "
                "or the step that a calibration lacks; upgrade forgetscope for a newer record; wait for what is running."
            )
        elif left:
            onward(("store", "verify", store, "--quarantine"), found="Nothing was changed. To move it out of the way:")
        else:
            onward(("show", store))
    if left:
        raise typer.Exit(1)


@app.command(epilog="Example: forgetscope store gc results --yes")
def gc(
    store: StoreArgument = option.DEFAULT_STORE,
    every_state: Annotated[bool, typer.Option("--all", help="Every state, also of steps that others build on.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this, only list what would be freed.")] = False,
    as_json: option.JsonOfOne = False,
) -> None:
    """List, or with --yes free, what the results do not need: states that no step builds on, and leftovers."""
    from forgetscope.housekeeping.freeing import free, freeable, without_step
    from forgetscope.report.terminal.storage import freeable_view

    opened = fs.Store.existing(store)
    found = listed = freeable(opened, every_state=every_state)
    if yes and listed:
        opened.prepare()
        found = [item for item in listed if free(opened, item)]
    if as_json:
        items = [{"what": item.kind, "step": item.id, "path": item.path, "bytes": item.bytes} for item in found]
        kept = [{"step": one.step.id, "path": one.folder} for one in without_step(opened)]
        print_json({"freed": yes, "bytes": sum(item.bytes for item in found), "items": items, "without_step": kept})
        return
    print_view(freeable_view(found, yes, store))
    if len(found) < len(listed):
        echo(f"{len(listed) - len(found)} more were left: they have come into use meanwhile.")
    if lonely := without_step(opened):
        echo(f"Calibrations of steps that are not in {store} stay: {counted(len(lonely), 'folder')}, which `verify` names.")
    if found and not yes:
        said = "Nothing was changed. Results stay; a run that needs a freed state recomputes it. To free this:"
        onward(("store", "gc", store, *["--all"][:every_state], "--yes"), found=said)
    else:
        onward(("store", "list", store))


@app.command("export", epilog="Example: forgetscope store export results -o results.tar --id 3f2a")
def export_to(
    store: StoreArgument = option.DEFAULT_STORE,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.")] = Path("forgetscope-store.tar"),
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id", metavar="PREFIX", help="A step whose id begins so, with its ancestors; may be repeated. Default: all."
        ),
    ] = None,
    plan: Annotated[
        list[str] | None,
        typer.Option(metavar="PLAN-ID", help="The steps of this plan that are done, with their ancestors; may be repeated."),
    ] = None,
    observed: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="The observed steps of this monitor; may be repeated.", show_default=False),
    ] = None,
    without_states: Annotated[bool, typer.Option("--without-states", help="Results only: much smaller.")] = False,
    keepsakes_up_to: Annotated[
        int | None, typer.Option(min=0, metavar="STEP", help="Leave out the keepsakes of later steps.", show_default=False)
    ] = None,
) -> None:
    """Write steps to one file that another machine can import and verify; compressed if its name ends in .xz."""
    from forgetscope.benchmark.records import steps_of_plan
    from forgetscope.housekeeping.exporting import chains, export_steps, monitored, plan_files
    from forgetscope.outputs import EXPORT, refuse_foreign_file
    from forgetscope.report.words.units import size_text
    from forgetscope.store import calibrations_of

    refuse_foreign_file(output, EXPORT, "export")
    opened, left_out = fs.Store.existing(store), Unreadable()
    ids = [*(ids or []), *(id for name in plan or [] for id in steps_of_plan(opened, name))]
    everything = not ids and not observed
    plans = [file for file in plan_files(opened, left_out) if file.parent.name in (plan or []) or everything]
    left_out.tell(True)
    steps = chains(opened, ids) if ids or everything else []
    beside = [one for step in steps for one in calibrations_of(opened, step)]
    seen = opened.observed() if everything else [step for name in observed or [] for step in monitored(opened, name)]
    with patiently() as progress:
        size = export_steps(
            *(steps, output),
            calibrations=beside,
            observed=seen,
            plans=plans,
            states=not without_states,
            keepsakes=keepsakes_up_to,
            progress=progress,
        )
    also = f" with {counted(len(beside), 'calibration')}" if beside else ""
    also += f" and {counted(len(seen), 'observed step')}" if seen else ""
    said = f"Exported {counted(len(steps), 'step')}{also} to {output.resolve()}, {size_text(size)}. Elsewhere:"
    onward(("store", "import", output.name), found=said)


@app.command("import", epilog="Example: forgetscope store import results.tar elsewhere")
def import_from(
    file: Annotated[Path, typer.Argument(help="A file that `forgetscope store export` wrote.")],
    store: Annotated[Path, typer.Argument(help="The store to add to; made if missing.")] = option.DEFAULT_STORE,
    as_json: option.JsonOfOne = False,
) -> None:
    """Add the steps of an exported file to a store, each verified. Run it again to continue."""
    from forgetscope.housekeeping.importing import import_steps

    with patiently() as progress:
        result = import_steps(file, fs.Store(store), progress)
    if as_json:
        print_json(asdict(result))
    else:
        tell_imported(result, str(file), store)
        onward(("show", store), ("report", store))
    if result.damaged or result.taken:
        raise typer.Exit(1)


@app.command(epilog='Example: forgetscope store sql "SELECT step, avg(forgetting) FROM classes GROUP BY step" results')
def sql(
    query: Annotated[
        str,
        typer.Argument(
            help="Over steps, classes, probes, pairs, rehearsal, confusion, predictions, keepsakes and carried; of what acts "
            "on predictions, over calibrated; of observed steps, over observed, observed_classes, observed_probes and so on."
        ),
    ],
    store: StoreArgument = option.DEFAULT_STORE,
    as_json: option.JsonOfOne = False,
) -> None:
    """Ask a question in SQL (DuckDB) over the tables of all steps."""
    from forgetscope.housekeeping.sql import query as ask, rows
    from forgetscope.report.terminal.storage import answer_view
    from forgetscope.store.observed import ALL_OBSERVED_TABLES
    from forgetscope.store.stored import ALL_TABLES

    if _is_folder(query):
        raise SpecError(f"{query} is a folder, and no question. Ask one: {_command('sql', 'FROM steps')} {shlex.quote(query)}")
    if re.search(r"\b(observed_)?(predictions|confusion)\b", query) and re.search(
        r"""(?<![\w."'])true(?![\w."'])""", query, re.IGNORECASE
    ):
        echo('In SQL, true is a truth value. If you mean the column, write "true", with the quotes.', err=True)
    if re.search(rf"\b({'|'.join(('steps', *ALL_TABLES))})\b", query, re.IGNORECASE) and only_observed(store):
        tables = ", ".join(("observed", *(f"observed_{name}" for name in ALL_OBSERVED_TABLES)))
        echo(f"{store} holds observed steps only; their tables are {tables}.", err=True)
    left_out = Unreadable()
    answer = ask(fs.Store.existing(store), query, left_out)
    left_out.tell(True)
    print_either(lambda: rows(answer), lambda: answer_view(answer), as_json)
    if not as_json:
        more = ("store", "sql", query, store, "--json")
        onward(more, found=f"\n{counted(answer.num_rows, 'row')}. For a program:", err=True)


def _is_folder(text: str) -> bool:
    """What is too long for a path, or has a character that none has, is not one."""
    try:
        return Path(text).is_dir()
    except (OSError, ValueError):
        return False


def _command(name: str, path: Path | str) -> str:
    """To be copied into a shell, whatever the path is called."""
    return shlex.join(["forgetscope", "store", name, str(path)])


def tell_imported(result: Imported, source: str, store: Path) -> None:
    (new, beside), (present, beside_present) = (_with_calibrations(places) for places in (result.new, result.present))
    echo(f"{counted(new, 'step')} imported into {store}, {present} there already.")
    if beside or beside_present:
        echo(f"Of their calibrations {beside} imported, {beside_present} there already.")
    for path in result.quarantined:
        echo(f"What was there was damaged: moved to {path} and replaced.")
    for place in result.taken:
        echo(f"{place} was not imported: another observed step of this name and number is in {store}, and stays.", err=True)
    if result.taken:
        echo(f"{source} is whole. Import it into another store to have both: {_command('import', source)} ANOTHER", err=True)
    if result.damaged:
        for id, reason in result.damaged.items():
            echo(f"{id if '/' in id else f'Step {id[:8]}'} was not imported: {reason}", err=True)
        echo(f"{source} is damaged. Get it, or export it, again and import that: what is here stays.", err=True)


def _with_calibrations(places: Sequence[str]) -> tuple[int, int]:
    """How many steps and how many calibrations these are."""
    calibrations = sum(place.startswith("calibrated/") for place in places)
    return len(places) - calibrations, calibrations
