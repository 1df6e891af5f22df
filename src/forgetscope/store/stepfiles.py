"""What the record and the manifest of a step must be. Checked when they are read: whoever gets them can trust their form.

A store may be a stranger's. So everything is bounded before it is read, and nothing is believed that can be computed.
"""

import json
import re
from collections.abc import Mapping, Set as AbstractSet
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from forgetscope.foreign import Count, Id, StrictRecord, Text, first_problem, strict_json
from forgetscope.measuring.subsampled.quotas import FEWEST
from forgetscope.spec import HOW_MUCH_IS_KEPT, StepSpec, canonical_id, step_id

TableName = Literal[
    "classes", "probes", "pairs", "rehearsal", "confusion", "extra", "predictions", "keepsakes", "carried", "calibration"
]
STATE = "state.safetensors"
FREED = "state.freed"  # the SHA-256 of a state that was freed; written before the state goes
KEEPSAKES, CARRIED = "keepsakes.parquet", "carried.parquet"
# What may be left out on purpose, and what then stands for it.
MARKERS = {STATE: FREED, KEEPSAKES: "keepsakes.freed", CARRIED: "carried.freed"}

TABLE_BYTES = 256 * 2**20  # of a table's file
RECORD_BYTES = 16 * 2**20
PLAN_BYTES = 64 * 2**20  # of a plan.json
PLAN_ID = re.compile(r"[\w-][\w.-]{0,199}")  # and the name of its folder
STEPS = 100_000  # the highest number of a step
_LIMITS = {
    "manifest.json": 2**20,
    "step.json": RECORD_BYTES,
    "observed.json": RECORD_BYTES,
    "calibration.json": RECORD_BYTES,
    STATE: 8 * 2**30,
    **dict.fromkeys(MARKERS.values(), 1024),
}

_Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Scalar = str | int | float | bool | None


def limit_of(name: str) -> int:
    """How many bytes a file of a step may have."""
    return _LIMITS.get(name, TABLE_BYTES)


class _DataRecord(StrictRecord):
    name: Text
    digest: Text
    image_size: Annotated[int, Field(ge=1, le=65_536)] | None = None
    shape: Annotated[list[Annotated[int, Field(ge=1, le=65_536)]], Field(min_length=2, max_length=2)]
    classes: Annotated[int, Field(ge=1, lt=2**31)] | None = None  # of the whole data set; not in older records


class SimulationMark(StrictRecord):
    """What marks a step, and a plan, of which nothing was trained."""

    seed: int
    truth: dict[Text, float]
    forgetting: list[float | None] | None = None  # of a step's past classes, without the noise of test images


class _Record(StrictRecord):
    """Every key of step.json that anybody uses."""

    id: Id
    parent: Id | None
    status: Literal["done", "diverged"]
    spec: dict[str, Any]
    network: Text
    data: _DataRecord
    environment: dict[Text, Scalar]
    timings: dict[Text, float]
    history: list[dict[Text, float | None]]
    committed: Text
    divergence: dict[Text, Scalar] | None = None
    simulated: SimulationMark | None = None
    start: dict[Text, Text] = Field(default_factory=dict)
    kept: dict[Text, Count] | None = None


class _File(StrictRecord):
    sha256: _Sha256
    size: Count


class _Manifest(StrictRecord):
    files: dict[Text, _File]


def checked_manifest(content: bytes, needed: AbstractSet[str]) -> dict[str, dict[str, Any]]:
    """SHA-256 and size of each file, by name; raises ValueError."""
    manifest: dict[str, dict[str, Any]] = strict_json(content)
    try:
        _Manifest(files=manifest)  # type: ignore[arg-type]
    except ValidationError as error:
        raise ValueError(f"no list of files and checksums ({first_problem(error)})") from None
    if missing := needed - set(manifest):
        raise ValueError(f"no entry for {min(missing)}")
    if strange := [name for name in manifest if name in ("", ".", "..") or "/" in name or "\0" in name]:
        raise ValueError(f"{strange[0]!r} is no name of a file")
    return manifest


def checked_record(content: Mapping[str, Any], id: str) -> StepSpec:
    """The specification in a step.json that is of the form it must have, and is the one that its id promises; ValueError."""
    try:
        record = _Record.model_validate(content)
        spec = StepSpec.model_validate_json(json.dumps(record.spec), strict=True)
    except ValidationError as error:
        raise ValueError(f"no record of a step ({first_problem(error)})") from None
    if record.id != id:
        raise ValueError(f"it is the record of step {record.id}")
    if problem := _contradiction(spec, record.parent):
        raise ValueError(f"no record of a step ({problem})")
    # An older form was identified by what it held then: without options that came later, or with those that are not set.
    known = {step_id(record.parent, spec, record.data.digest)}
    if id not in known:
        known |= {canonical_id(record.parent, form, record.data.digest) for form in (record.spec, without_none(record.spec))}
    if id not in known:
        raise ValueError(f"its specification, parent and data have the id {min(known)[:8]}")
    return spec


def _contradiction(spec: StepSpec, parent: str | None) -> str | None:
    rehearsal, training = spec.rehearsal, spec.training
    if not 1 <= spec.step <= STEPS or spec.seed < 0:
        return f"step = {spec.step}, seed = {spec.seed}"
    if len({spec.step == 1, parent is None, rehearsal is None}) > 1:
        return f"step {spec.step} with {'no ' * (parent is None)}parent and {'no ' * (rehearsal is None)}rehearsal"
    if not spec.classes or min(spec.classes) < 0 or max(spec.classes) >= 2**31 or len(set(spec.classes)) < len(spec.classes):
        return "classes must be distinct numbers"
    if training.epochs < 1 or training.batch < 1:
        return f"epochs = {training.epochs}, batch = {training.batch}"
    if rehearsal is not None and (
        sum(getattr(rehearsal, name) is not None for name in HOW_MUCH_IS_KEPT) != 1 or rehearsal.probe_every < 0
    ):
        return f"one of {', '.join(HOW_MUCH_IS_KEPT)} must be set, and probe_every not be negative"
    if rehearsal is not None and rehearsal.forecast and (rehearsal.keepsake is None or not rehearsal.probe_every):
        return "a forecast without keepsakes, or without probes"
    if rehearsal is not None and not (
        2 <= (rehearsal.probes or 2) <= training.epochs + 1 and (rehearsal.probe_images or FEWEST) >= FEWEST
    ):
        return f"probes = {rehearsal.probes} in {training.epochs} epochs, probe_images = {rehearsal.probe_images}"
    return None


def without_none(value: Any) -> Any:
    return {key: without_none(item) for key, item in value.items() if item is not None} if isinstance(value, dict) else value
