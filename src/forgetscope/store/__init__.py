"""The store: immutable steps on disk, each named by the content that it was made from.

`folder` is the store itself, `stored` one step as it is read, and `settings` says which steps are alike; `tables` are made by
`tables`, read within bounds by `tablefiles`, and `stepfiles` says what the record and the manifest beside them must be.
"""

from forgetscope.measuring.quantities import COEFFICIENTS as COEFFICIENTS
from forgetscope.store.folder import ALL_LAYERS as ALL_LAYERS
from forgetscope.store.folder import EVERY_ITERATION as EVERY_ITERATION
from forgetscope.store.folder import RELEASED as RELEASED
from forgetscope.store.folder import StepRecord as StepRecord
from forgetscope.store.folder import Store as Store
from forgetscope.store.folder import TellLeftOut as TellLeftOut
from forgetscope.store.folder import chains_of as chains_of
from forgetscope.store.folder import leaving_out as leaving_out
from forgetscope.store.folder import parquet_bytes as parquet_bytes
from forgetscope.store.settings import POLICY as POLICY
from forgetscope.store.settings import Setting as Setting
from forgetscope.store.settings import first_step as first_step
from forgetscope.store.settings import told_apart as told_apart
from forgetscope.store.stepfiles import FREED as FREED
from forgetscope.store.stepfiles import STATE as STATE
from forgetscope.store.stepfiles import TableName as TableName
from forgetscope.store.stored import ALL_TABLES as ALL_TABLES
from forgetscope.store.stored import SCHEMA as SCHEMA
from forgetscope.store.stored import TABLES as TABLES
from forgetscope.store.stored import StoredStep as StoredStep
from forgetscope.store.stored import past_rows as past_rows
