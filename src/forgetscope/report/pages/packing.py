"""Data and scripts inside a page: compact JSON, compressed, inflated by the browser when it is needed."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Iterable
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd

from forgetscope.report.words.definitions import definitions
from forgetscope.report.words.notation import PLAIN

DIGITS = 6  # significant; more than a chart can show


def asset(name: str) -> str:
    """A file of `assets/`."""
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def page(template: str, **content: object) -> str:
    """A whole page from a template of `assets/`: what is filled in is escaped, and what is missing is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader(__package__, "assets")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"number": PLAIN.number, "percent": PLAIN.percent}
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "ensure_ascii": False, "separators": (",", ":")}
    return environment.get_template(template).render(**content, definitions=definitions())


def packed(value: Any) -> str:
    """JSON, compressed, as base64: characters that need no escaping in a page. The same value gives the same text."""
    text = value if isinstance(value, str) else json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def script_digest(script: str) -> str:
    """As a Content-Security-Policy names a script."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def packed_frame(frame: pd.DataFrame) -> dict[str, Any]:
    """Column by column: numbers as they are, null where missing; texts as codes of their distinct values."""
    return {str(name): _column(frame[name]) for name in frame.columns}


def numbers(values: Iterable[float], digits: int = DIGITS) -> list[float | None]:
    return [number(value, digits) for value in values]


def number(value: float, digits: int = DIGITS) -> float | None:
    if not math.isfinite(value):
        return None
    text = f"{value:.{digits}g}"
    rounded = float(text)
    if rounded != value and text.partition("e")[0].endswith("5") and len(text.strip("-0.").replace(".", "")) < digits:
        return float(value)  # half-way between what a page shows, which would round it a second time
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def _column(column: pd.Series[Any]) -> Any:
    if pd.api.types.is_bool_dtype(column) or not pd.api.types.is_numeric_dtype(column):
        codes, levels = pd.factorize(column.astype(str).to_numpy(dtype=object))
        return {"levels": list(levels), "codes": codes.tolist()}
    return numbers(column.to_numpy(dtype=np.float64).tolist())
