"""The command line: parse, call the library, print."""

from __future__ import annotations


def main() -> None:
    """Entry point of the command `forgetscope`."""
    from forgetscope.cli.app import app

    app(prog_name="forgetscope")
