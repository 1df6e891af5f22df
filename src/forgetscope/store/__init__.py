"""The store: immutable steps on disk, each named by the content that it was made from.

`folder` is the store itself, `stored` one step as it is read, `observed` what a monitor saw of one, `calibrated` what acts on
the predictions of one, `verified` what all have in common, and `condition` says which steps are alike; `columns` has the
tables' columns, with their units; tables are made by `tables`, read within bounds by `tablefiles` and held against one another
by `contents`, and `stepfiles` says what the record and the manifest beside them must be.
"""

from forgetscope.measuring.quantities import COEFFICIENTS as COEFFICIENTS
from forgetscope.store.calibrated import (
    CalibrationRecord as CalibrationRecord,
    StoredCalibration as StoredCalibration,
    all_calibrations as all_calibrations,
    calibrations_of as calibrations_of,
    commit_calibration as commit_calibration,
    has_calibrations as has_calibrations,
    stored_calibration as stored_calibration,
)
from forgetscope.store.condition import (
    BESIDE_IMAGES as BESIDE_IMAGES,
    METHOD as METHOD,
    POLICY as POLICY,
    PROBING as PROBING,
    Recording as Recording,
    Setting as Setting,
    counting as counting,
    exactness as exactness,
    first_step as first_step,
    told_apart as told_apart,
    trainings as trainings,
)
from forgetscope.store.folder import (
    ALL_LAYERS as ALL_LAYERS,
    EVERY_ITERATION as EVERY_ITERATION,
    OF_METHOD as OF_METHOD,
    RELEASED as RELEASED,
    StepRecord as StepRecord,
    Store as Store,
    TellLeftOut as TellLeftOut,
    chains_of as chains_of,
    leaving_out as leaving_out,
)
from forgetscope.store.observed import (
    ObservedRecord as ObservedRecord,
    RunningObserved as RunningObserved,
    StoredObserved as StoredObserved,
    commit_observed as commit_observed,
    write_running as write_running,
)
from forgetscope.store.stepfiles import (
    CARRIED as CARRIED,
    FREED as FREED,
    KEEPSAKES as KEEPSAKES,
    MARKERS as MARKERS,
    STATE as STATE,
    TableName as TableName,
)
from forgetscope.store.stored import ALL_TABLES as ALL_TABLES, SCHEMA as SCHEMA, TABLES as TABLES, StoredStep as StoredStep
from forgetscope.store.tables import parquet_bytes as parquet_bytes
from forgetscope.store.verified import StoredTables as StoredTables, past_rows as past_rows
