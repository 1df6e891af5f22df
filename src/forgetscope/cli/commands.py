"""A group of commands whose list in `--help` has the whole first sentence of each, however long."""

from __future__ import annotations

import sys
from typing import Any

from typer.core import TyperGroup


class Commands(TyperGroup):
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for name in self.list_commands(ctx):
            if command := self.get_command(ctx, name):
                command.short_help = command.get_short_help_str(limit=sys.maxsize)  # else it is cut to the line
        super().format_commands(ctx, formatter)
