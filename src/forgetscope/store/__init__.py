"""The store: immutable steps on disk, each named by the content that it was made from.

`folder` is the store itself, `stored` one step as it is read, and `settings` says which steps are alike; `tables` are made by
`tables`, read within bounds by `tablefiles`, and `stepfiles` says what the record and the manifest beside them must be.
"""

from forgetscope.measuring.quantities import COEFFICIENTS
from forgetscope.store.folder import (
    ALL_LAYERS,
    EVERY_ITERATION,
    RELEASED,
    StepRecord,
    Store,
    TellLeftOut,
    chains_of,
    leaving_out,
    parquet_bytes,
)
from forgetscope.store.settings import POLICY, Setting, first_step, told_apart
from forgetscope.store.stepfiles import FREED, STATE, TableName
from forgetscope.store.stored import ALL_TABLES, SCHEMA, TABLES, StoredStep, past_rows
