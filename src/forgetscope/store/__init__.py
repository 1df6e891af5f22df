"""The store: immutable steps on disk, each named by the content that it was made from.

`folder` is the store itself, `stored` one step as it is read; `tables` are made by `tables`, read within bounds by
`tablefiles`, and `stepfiles` says what the record and the manifest beside them must be.
"""

from forgetscope.measuring.quantities import COEFFICIENTS
from forgetscope.store.folder import (
    ALL_LAYERS,
    EVERY_ITERATION,
    RELEASED,
    LeftOut,
    StepRecord,
    Store,
    chains_of,
    parquet_bytes,
)
from forgetscope.store.stepfiles import FREED, STATE, TableName
from forgetscope.store.stored import ALL_TABLES, SCHEMA, TABLES, StoredStep

__all__ = [
    "ALL_LAYERS",
    "ALL_TABLES",
    "COEFFICIENTS",
    "EVERY_ITERATION",
    "FREED",
    "RELEASED",
    "SCHEMA",
    "STATE",
    "TABLES",
    "LeftOut",
    "StepRecord",
    "Store",
    "StoredStep",
    "TableName",
    "chains_of",
    "parquet_bytes",
]
