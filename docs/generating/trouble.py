"""Exit codes, errors and environment variables, from where they are defined."""

from __future__ import annotations

import inspect

from forgetscope.errors import ForgetscopeError
from generating.marking import code, entry, table


def errors(which: str) -> str:
    """which: codes, or classes."""
    return _codes() if which == "codes" else _classes()


def _known() -> list[type[ForgetscopeError]]:
    """In the order in which they are written."""
    from forgetscope import errors

    return [one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, errors.ForgetscopeError)]


def _codes() -> str:
    from forgetscope.errors import EXIT_CODES

    names = {number: [code(one.__name__) for one in _known() if one.exit_code == number] for number in EXIT_CODES}
    return table(
        ["code", "when", "errors"], [[str(number), said, ", ".join(names[number])] for number, said in EXIT_CODES.items()]
    )


def _classes() -> str:
    return "\n".join(
        entry(code(one.__name__), f"{inspect.getdoc(one)} Is a `{one.__mro__[1].__name__}`; exit code {one.exit_code}.")
        for one in _known()
    )


def variables(_: str) -> str:
    from forgetscope.errors import VARIABLES

    return "\n".join(entry(code(name), said) for name, said in VARIABLES.items())
