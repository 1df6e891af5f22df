"""Foreign JSON: what others wrote, read strictly and within bounds, before anybody believes it."""

import json
import math
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

TEXT = 1000  # characters
Text = Annotated[str, Field(max_length=TEXT)]
Id = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
VALUES = 4_000_000  # a plan of 100,000 steps has 0.4 million; empty lists take 26 times as much memory as in their file
Count = Annotated[int, Field(ge=0, lt=2**63)]


class StrictRecord(BaseModel):
    """Further keys are of a later version, and nobody's business here."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


def strict_json(content: bytes) -> Any:
    """JSON in UTF-8 with unique keys and finite numbers; ValueError for anything else, however deep it is nested."""
    if sum(map(content.count, (b",", b"[", b"{"))) > VALUES:
        raise ValueError(f"more than {VALUES:,} values")
    try:
        value = json.loads(content.decode(), object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
        if rb"\ud" in content.lower():
            json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is no text
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def first_problem(error: ValidationError) -> str:
    """What pydantic found first, in one line."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f"{'.'.join(map(str, found['loc']))[:100]}: {found['msg'][:200]}"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key that is there twice")
    return found


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)
