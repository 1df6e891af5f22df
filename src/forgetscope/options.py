"""What a person writes down as options: TOML files and `key=value`, and what is wrong with them in words."""

import difflib
import json
import os
import re
import reprlib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from forgetscope.errors import SpecError

_short = reprlib.Repr()  # of values in messages
_short.maxstring = 100
Model = TypeVar("Model", bound=BaseModel)
LONGEST_FILE = 1_000_000  # characters of what a person writes down
SHARES = ("increment", "increments", "retention", "retentions", "alpha", "validation")  # easily given in percent


def read_toml(path: Path, advice: str) -> dict[str, Any]:
    """What a person wrote down; whatever else the file is, is one sentence and the advice."""
    try:
        # Unlike that of <(command), a pipe with a name may wait for ever. `resolve` would raise where links turn round.
        if Path(os.path.realpath(path)).is_fifo():
            raise OSError("it is a named pipe")
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(LONGEST_FILE + 1)
        if len(text) > LONGEST_FILE:
            raise SpecError(f"Cannot read {path}: it has more than {LONGEST_FILE:,} characters. {advice}")
        if not text.strip():
            raise SpecError(f"Cannot read {path}: it is empty. {advice}")
        return tomllib.loads(text)
    except OSError as error:
        reason = error.strerror or str(error)
    except UnicodeDecodeError:
        reason = "it is not text in UTF-8"
    except (ValueError, RecursionError) as error:  # of a number or a list beyond all measure, too
        reason = f"it is not TOML: {error}"
    raise SpecError(f"Cannot read {path}: {reason}. {advice}")


def checked(make: type[Model], source: str, values: Mapping[str, Any], overrides: Mapping[str, object]) -> Model:
    """What a file's values and the overrides make together; an error names those that it is about."""

    def flaw(options: Mapping[str, object]) -> str | None:
        try:
            make(**options)
        except SpecError as error:
            return str(error)
        return None

    try:
        return make(**{**values, **overrides})
    except SpecError as error:
        kept = {name: value for name, value in values.items() if name not in overrides}
        required = {name for name, field in make.model_fields.items() if field.is_required()}
        of_file = None
        if flaw(values) is not None:
            of_file = flaw(kept)
            # Beside a file that is wrong an override is looked at by itself.
            values = {name: value for name, value in kept.items() if not of_file or name in required}
        wrong = {name: value for name, value in overrides.items() if flaw({**values, name: value})}
        blamed = " ".join(f"--set {name}={toml_value(value)[:60]}" for name, value in (wrong or overrides).items())
        if of_file is None:
            raise SpecError(f"{blamed}: {error}") from None
        more = f" {blamed}: {flaw({**values, **wrong})}" if wrong else ""
        raise SpecError(f"{source}: {of_file}{more}") from None


def demand(name: str, value: object, kind: type, example: str) -> None:
    """An error unless the value is of this kind; a string is no list of names, though Python takes it for one of letters."""
    if not isinstance(value, kind) or isinstance(value, str):
        raise SpecError(f"{name} = {_short.repr(value)} is not valid: it should be {example}.")


def demand_at_least(least: int, **given: int | None) -> None:
    for name, value in given.items():
        if value is not None and value < least:
            raise SpecError(f"{name} = {value} is not valid: it should be greater than or equal to {least}.")


def parse_setting(setting: str, option: str = "--set", example: str = "epochs=5") -> tuple[str, object]:
    """`key=value` from the command line; the value is TOML, or a plain word."""
    name, equals, text = setting.partition("=")
    if not equals or not name.strip():
        raise SpecError(f"{option} {setting!r} is not of the form key=value, for example {option} {example}.")
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return name.strip(), text.strip()
    return name.strip(), parsed["value"] if len(parsed) == 1 else text.strip()


def toml_value(value: object) -> str:
    """Strings, numbers, truth values and lists of them are written alike in JSON and in TOML."""
    return json.dumps(value, default=str)  # of what TOML has beside them there is no option, but a message about it


def nearest(name: str, names: Sequence[str]) -> str:
    """A hint for a misspelt name, ready to append to a sentence."""
    close = difflib.get_close_matches(name, names, n=1)
    return f" Did you mean {close[0]!r}?" if close else f" Known: {', '.join(names)}."


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """All of pydantic's findings as one paragraph in the user's terms."""
    names = list(model.model_fields)
    of_each: dict[str, ErrorDetails] = {}
    for finding in error.errors():  # an option of two types has two: the one that came further knows more
        name = "".join(map(str, finding["loc"][:1]))
        if name not in of_each or len(finding["loc"]) > len(of_each[name]["loc"]):
            of_each[name] = finding
    return " ".join(_sentence(name, finding, model, names) for name, finding in of_each.items())


def _sentence(name: str, finding: ErrorDetails, model: type[BaseModel], names: Sequence[str]) -> str:
    kind, value = finding["type"], finding["input"]
    message = finding["msg"].removeprefix("Input ").removeprefix("Value error, ")
    if kind == "extra_forbidden":
        return f"There is no option {name!r}.{nearest(name, names)}"
    if not name:
        return message if message.endswith("?") else f"{message}."
    if kind == "literal_error":
        known = get_args(model.model_fields[name].annotation)
        return f"{name} = {_short.repr(value)} is not known.{nearest(str(value), known)}"
    if kind == "string_pattern_mismatch":
        return f"{name} = {_short.repr(value)} is not valid: {model.model_fields[name].description}"
    if kind == "tuple_type" and isinstance(value, str | int | float):
        return f"{name} = {_short.repr(value)} is not valid: it is a list. Write {name} = [{toml_value(value)}]."
    return f"{name} = {_short.repr(value)} is not valid: it {message}.{_in_percent(name, value)}"


def _in_percent(name: str, value: object) -> str:
    """A hint for a share that was probably meant in percent."""
    percent = re.fullmatch(r"([\d.]+)\s*%?", str(value)) if name in SHARES else None
    try:
        share = float(percent[1]) / 100 if percent else 0.0
    except ValueError:
        return ""
    return f" Did you mean {share:g}?" if 0.02 <= share < 1 else ""
