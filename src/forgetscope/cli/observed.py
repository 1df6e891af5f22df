"""What monitors saw: `--observed` of `show`, `report` and `analyse`, and what these do with a store that holds nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import forgetscope as fs
from forgetscope.characters import counted
from forgetscope.cli import options as option
from forgetscope.cli.console import Unreadable, echo, onward, print_json, print_view
from forgetscope.errors import SpecError

NAMED = 10  # monitors

if TYPE_CHECKING:
    from collections.abc import Sequence

NameOption = Annotated[
    str | None, typer.Option("--observed", metavar="NAME", help="What the monitor of this name saw.", show_default=False)
]
FlagOption = Annotated[
    bool, typer.Option("--observed", help="What monitors saw instead: means by settings, never mixed with planned steps.")
]


def only_observed(store: Path) -> bool:
    """Whether a store holds observed steps and nothing else."""
    opened = fs.Store.existing(store)
    return not opened.ids() and bool(opened.observed() or opened.observing())


def mention_observed(store: Path) -> None:
    """That there are observed steps beside the planned ones that were shown, if there are."""
    found = fs.Store(store).readable_observed(lambda error: None)
    if found:
        names = list(dict.fromkeys(step.name for step in found))
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        echo(
            f"{counted(len(found), 'observed step', 'is/are')} in {store} too, and not in this: --observed shows them "
            f"(monitors: {', '.join(names[:NAMED])}{more})."
        )


def mention_others(shown: fs.Observed) -> None:
    """Which monitor a page is of that nobody named, where there are several."""
    if others := shown.others():
        echo(f"It is of the monitor {shown.name}, whose last step is the latest; --observed NAME: {', '.join(others[:NAMED])}")


def pick(store: Path, name: str | None) -> fs.Observed:
    """Of what can be read; the rest is named on standard error."""
    from forgetscope.analysis.observed import chosen, monitors

    opened, left_out = fs.Store.existing(store), Unreadable()
    found = monitors(opened, left_out)
    left_out.tell(any(name in (None, one.name) for one in found))
    return chosen(opened, found, name)


def show_observed(store: Path, name: str, step: int | None, as_json: bool) -> None:
    from forgetscope.report.document import observed_document
    from forgetscope.report.terminal.observed import observed_view

    observed = pick(store, name)
    refuse_step(observed, step)
    if as_json:
        print_json(observed_document(observed))
    else:
        print_view(observed_view(observed, step))
        onward(("report", store, "--observed", name), ("explain", "SIC"), found=f"\nShown: the monitor {name}, in {store}.")


def refuse_step(observed: fs.Observed, step: int | None) -> None:
    numbers = [summary.step for summary in observed.summaries]
    if step is not None and step not in numbers:
        known = ", ".join(map(str, numbers)) or "none"
        raise SpecError(f"--step {step}: steps of {observed.name!r} that have past classes: {known}.")


def refuse_both(option: str, value: object) -> None:
    if value is not None:
        raise SpecError(f"{option} and --observed name two things to show: leave out one.")


def show_monitors_alone(store: fs.Store, found: Sequence[fs.Observed], step: int | None, as_json: bool) -> None:
    """Of a store without experiments: all monitors, and the classes of the latest."""
    from forgetscope.analysis.observed import chosen
    from forgetscope.report.document import observed_document, store_document
    from forgetscope.report.terminal.columns import apart
    from forgetscope.report.terminal.experiments import caution_view, experiment_view
    from forgetscope.report.terminal.observed import monitors_view

    latest = chosen(store, found, None)
    refuse_step(latest, step)
    if as_json:
        print_json({**store_document([], [], [], found), "experiment": None, "latest": observed_document(latest)})
        return
    print_view(apart(*caution_view(latest, step), monitors_view(found), experiment_view(latest, step, cautioned=True)))
    said = f"\nThe classes above are of the monitor {latest.name}, the latest of {len(found)}, in {store.path}."
    onward(("report", store.path), ("show", store.path, "--observed", found[0].name), ("explain", "SIC"), found=said)


def analyse_observed(store: Path, out: Path | None, table: str | None, as_json: bool, replaced: bool) -> None:
    """Means by settings; with --table, one table. out: where files go, if anywhere; replaced: in place of earlier ones."""
    import pyarrow as pa

    from forgetscope.report.datafiles import write_observed
    from forgetscope.report.document import observed_analysis_document
    from forgetscope.report.terminal.observed import observed_analysis_view
    from forgetscope.report.terminal.storage import answer_view

    left_out = Unreadable()
    found = fs.analyse_observed(store, left_out)
    left_out.tell(bool(found.monitors))
    if not found.monitors:
        raise SpecError(f"{store} holds no observed steps. `fs.Monitor` writes them (docs/monitor.md).")
    label = None if table is None else option.one_of("--table", table, list(found.tables))
    if out is not None:
        write_observed(found, out)
    if as_json:
        print_json(observed_analysis_document(found))
        return
    shown = observed_analysis_view(found) if label is None else answer_view(pa.Table.from_pandas(found.tables[label]))
    print_view(shown)
    onward(("report", store, "--observed", found.monitors[0].name), found=files_said(out, replaced))


def files_said(folder: Path | None, replaced: bool) -> str:
    """Where the files of an analysis are. replaced: earlier ones were there, perhaps of another store."""
    earlier = ", in place of those of an earlier analysis" if replaced else ""
    return "" if folder is None else f"\nThe files{earlier}: {folder.resolve()}"
