"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

import forgetscope as fs
from forgetscope.errors import SpecError

Word = TypeVar("Word", bound=str)

DEFAULT_STORE = Path("forgetscope-store")

Store = Annotated[Path, typer.Option("--store", help="Folder for the results; made if missing.")]
StoreArgument = Annotated[Path, typer.Argument(help="The store to look at.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override an option; may be repeated.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Threads = Annotated[
    int | None,
    typer.Option(min=1, max=1024, help="CPU threads. Default: all cores; all but one if OpenMP threads are told to spin."),
]
ChannelsLast = Annotated[bool, typer.Option(help="Memory layout; channels last is the faster one.")]
Compile = Annotated[bool, typer.Option(help="Train through torch.compile; starts with minutes of compiling.")]
Jobs = Annotated[int | None, typer.Option(min=1, max=1024, help="Steps to run at a time. Default: one per core; 1 on a GPU.")]
JobThreads = Annotated[int, typer.Option(min=1, max=1024, help="CPU threads of each job.")]
Estimate = Annotated[bool, typer.Option("--estimate/--no-estimate", help="Measure the machine first, to tell the time.")]
Engine = Annotated[str, typer.Option(help="local: processes of this machine. ray: a Ray cluster.")]
Address = Annotated[str | None, typer.Option(help="Of a running Ray cluster, or auto. Default: one is started here.")]
GpusPerJob = Annotated[float, typer.Option(min=0, help="With ray: for example 0.25 puts four jobs on a GPU.")]
Benchmark = Annotated[
    str, typer.Argument(metavar="PRESET-or-FILE", help="A preset's name (see `bench preset`), or a TOML file.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
JsonOfOne = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def run_spec(file: Path | None, settings: list[str] | None) -> fs.RunSpec:
    """Of a file, or with the defaults."""
    given = overrides(settings)
    return fs.RunSpec(**given) if file is None else fs.RunSpec.from_toml(file, given)


def overrides(settings: list[str] | None) -> dict[str, object]:
    from forgetscope.options import parse_setting

    return dict(parse_setting(setting) for setting in settings or [])


def one_of(option: str, given: str, known: Sequence[Word], *others: str) -> Word:
    """What is given, if it is one of those known; others are suggested as well."""
    from forgetscope.options import nearest

    found = next((word for word in known if word == given), None)
    if found is None:
        raise SpecError(f"{option} {given!r} is not known.{nearest(given, (*others, *known))}")
    return found
