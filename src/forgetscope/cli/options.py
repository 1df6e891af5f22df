"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_STORE = Path("forgetscope-store")

StoreOption = Annotated[Path, typer.Option("--store", help="Folder for the results; made if missing.")]
StoreArgument = Annotated[Path, typer.Argument(help="The store to look at.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override an option; may be repeated.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
ThreadsOption = Annotated[
    int | None,
    typer.Option(min=1, max=1024, help="CPU threads. Default: all cores; all but one if OpenMP threads are told to spin."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def overrides(settings: list[str] | None) -> dict[str, object]:
    from forgetscope.spec import parse_setting

    return dict(parse_setting(setting) for setting in settings or [])
