"""The numbers that the paper prints, beside those of a store that ran the same benchmark."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import pandas as pd

from forgetscope.analysis.inputs.samples import PAPER_NAMES, Collected, Sample
from forgetscope.analysis.paper.tables import KEYS, records
from forgetscope.benchmark.space import BenchmarkSpec

Row = dict[str, Any]

BASELINE = "uniform"
SETTINGS = ("epochs", "batch", "learning_rate", "momentum", "weight_decay", "alpha", "sampling", "image_size")
COLUMNS = ("paper", "paper_lo", "paper_hi", "paper_sd", "paper_p", "difference", "overlap")


def beside_paper(tables: Mapping[str, pd.DataFrame], collection: Collected) -> dict[str, pd.DataFrame]:
    """Per table that the paper prints values for: for each of its rows what it prints, ours minus that, and whether the 95 %
    intervals overlap.

    Of an ANOVA it is partial eta squared that is compared. Rows of benchmarks that are not the paper's are empty, and so is
    `overlap` where one of the two has no interval."""
    same = {(s.benchmark, s.policy): PAPER_NAMES[s.dataset] for s in collection.samples if deviations(s) == ()}
    found = {label: _beside(label, frame, same) for label, frame in tables.items()}
    return {label: frame for label, frame in found.items() if frame["paper"].notna().any()}


def deviations(sample: Sample) -> tuple[str, ...] | None:
    """How a sample differs from the paper's benchmark on its data set, as `epochs = 5 (paper: 170)`; None for other data."""
    if sample.dataset not in PAPER_NAMES or not sample.steps:
        return None
    paper, setting = BenchmarkSpec.load(sample.dataset).template, sample.steps[0].facts.setting
    options = {**setting.options, "image_size": setting.image_size}
    own = {"network": setting.network, "policy": sample.policy, **{name: options[name] for name in SETTINGS}}
    differing = {name: (value, getattr(paper, name)) for name, value in own.items() if value != getattr(paper, name)}
    return tuple(f"{name} = {_set(value)} (paper: {_set(printed)})" for name, (value, printed) in differing.items())


def overlap(first: tuple[float, float], second: tuple[float, float]) -> bool | None:
    """Whether two closed intervals have a point in common; None where an end is unknown."""
    if any(map(math.isnan, (*first, *second))):
        return None
    return first[0] <= second[1] and second[0] <= first[1]


def _set(value: object) -> str:
    return "not set" if value is None else str(value)


def _beside(label: str, frame: pd.DataFrame, same: Mapping[tuple[str, str], str]) -> pd.DataFrame:
    rows = []
    for row in records(frame):
        key = (label, same.get((row["benchmark"], row["policy"]), ""), *(str(row[name]) for name in KEYS[1:]))
        rows.append(_compared(row, _printed().get(key)))
    return pd.DataFrame(rows, columns=list(COLUMNS), index=frame.index)


def _compared(ours: Row, printed: Row | None) -> Row:
    if printed is None:
        return dict.fromkeys(COLUMNS, math.nan) | {"overlap": ""}
    name = "eta2p" if ours["statistic"] == "anova" else "mean"
    both = overlap((ours["mean_lo"], ours["mean_hi"]), (printed["mean_lo"], printed["mean_hi"]))
    return {
        **{"paper": printed[name], "paper_lo": printed["mean_lo"], "paper_hi": printed["mean_hi"]},
        **{"paper_sd": printed["sd"], "paper_p": printed["p"], "difference": ours[name] - printed[name]},
        "overlap": {True: "yes", False: "no", None: ""}[both],
    }


@cache
def _printed() -> dict[tuple[str, ...], Row]:
    """By table and keys, from the file beside this module."""
    with resources.files(__package__).joinpath("printed.csv").open(encoding="utf-8") as file:
        frame = pd.read_csv(file, dtype=dict.fromkeys(("table", *KEYS), str), keep_default_na=False, na_values=[""])
    frame[["table", *KEYS]] = frame[["table", *KEYS]].fillna("")
    return {tuple(str(row[name]) for name in ("table", *KEYS)): row for row in records(frame)}
