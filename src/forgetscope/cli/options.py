"""Options and arguments that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import forgetscope as fs

DEFAULT_STORE = Path("forgetscope-store")

StoreOption = Annotated[Path, typer.Option("--store", help="Folder for the results; made if missing.")]
StoreArgument = Annotated[Path, typer.Argument(help="The store to look at.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override an option; may be repeated.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
ThreadsOption = Annotated[
    int | None,
    typer.Option(min=1, max=1024, help="CPU threads. Default: all cores; all but one if OpenMP threads are told to spin."),
]
ChannelsLastOption = Annotated[bool, typer.Option(help="Memory layout; channels last is the faster one.")]
CompileOption = Annotated[bool, typer.Option(help="Train through torch.compile; starts with minutes of compiling.")]
JobsOption = Annotated[
    int | None, typer.Option(min=1, max=1024, help="Steps to run at a time. Default: one per core; 1 on a GPU.")
]
JobThreadsOption = Annotated[int, typer.Option(min=1, max=1024, help="CPU threads of each job.")]
EstimateOption = Annotated[bool, typer.Option("--estimate/--no-estimate", help="Measure the machine first, to tell the time.")]
BenchmarkArgument = Annotated[
    str, typer.Argument(metavar="PRESET-or-FILE", help="A preset's name (see `bench preset`), or a TOML file.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def run_spec(file: Path | None, settings: list[str] | None) -> fs.RunSpec:
    """Of a file, or with the defaults."""

    given = overrides(settings)
    return fs.RunSpec(**given) if file is None else fs.RunSpec.from_toml(file, given)


def overrides(settings: list[str] | None) -> dict[str, object]:
    from forgetscope.options import parse_setting

    return dict(parse_setting(setting) for setting in settings or [])
