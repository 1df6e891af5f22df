"""Did the lemma's bound hold, how loose is it, and does it rank past classes as their losses really change?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forgetscope.analysis.statistics.rank_correlation import spearman

Values = NDArray[np.float64]

SURE = 3  # standard errors between measurement and bound, for a verdict

SMOOTHNESS = {
    "every": "certified for every possible draw",
    "made": "certified for the draws made",
    "estimated": "estimated, not certified",
}
BOUNDS = {"bound, certified L": "bound_every", "bound, estimated L": "bound_estimated", "first-order terms": "first_order"}
INTERFERENCE = {  # terms whose sum is taken as in the paper's I_c: without the factor lambda |f_c|
    "I_c, all four": ["sic", "cic", "nic", "fourth"],
    "SIC + CIC + NIC": ["sic", "cic", "nic"],
    **{name: [name.lower()] for name in ("SIC", "CIC", "NIC", "fourth")},
}


@dataclass(frozen=True)
class Verdicts:
    """Over all iterates and past classes, for one kind of L."""

    held: int
    failed: int
    undecided: int
    looseness: tuple[float, float, float] | None  # curvature term over measurement: least, median, most; None: not measurable
    decreases_promised: int  # negative bounds


@dataclass(frozen=True)
class LemmaSummary:
    classes: int
    epochs: tuple[int, ...]  # done, at each iterate
    draws: int  # at each iterate
    verdicts: Mapping[str, Verdicts]  # by kind of L
    draws_above: int  # pairs of draw and class in which the inequality itself failed, with L certified for the draws made
    decreases: int  # iterates and classes whose loss is expected to fall
    deviation: float  # root mean square z of the draws' mean first-order change against its exact expectation: about 1
    largest_deviation: float  # largest |z| among these
    correlations: Mapping[str, tuple[float, ...]]  # Spearman with the measured change, one per iterate


def judged(frame: pd.DataFrame) -> pd.DataFrame:
    """With `slack` and `holds` (yes, no, or undecided: less than three standard errors apart) for L certified for all."""
    return frame.assign(slack=frame["bound_every"] - frame["change"], holds=_holds(frame, "every"))


def summarise_lemma(frame: pd.DataFrame) -> LemmaSummary:
    epochs = tuple(frame["epoch"].unique().tolist())
    by_iterate = (len(epochs), -1)
    measured = frame["change"].to_numpy().reshape(by_iterate)
    factor = frame["learning_rate"] * frame["gradient_norm"]
    rankings = {name: frame[column] for name, column in BOUNDS.items()}
    rankings |= {name: frame[terms].sum(axis=1) / factor for name, terms in INTERFERENCE.items()}
    return LemmaSummary(
        classes=measured.shape[1],
        epochs=epochs,
        draws=int(frame["draws"].iloc[0]),
        verdicts={kind: _verdicts(frame, kind) for kind in SMOOTHNESS},
        draws_above=int(frame["draws_above"].sum()),
        decreases=int((frame["change"] < 0).sum()),
        deviation=float(np.sqrt((frame["first_order_deviation"] ** 2).mean())),
        largest_deviation=float(frame["first_order_deviation"].abs().max()),
        correlations={
            name: tuple(spearman(values.to_numpy().reshape(by_iterate), measured).tolist()) for name, values in rankings.items()
        },
    )


def second_order(frame: pd.DataFrame) -> pd.Series[float]:
    """What the draws did beyond first order, in expectation: what the curvature term is to bound."""
    return frame["change"] - frame["first_order"]


def _verdicts(frame: pd.DataFrame, kind: str) -> Verdicts:
    counts = _holds(frame, kind).value_counts()
    beyond = second_order(frame)
    known = beyond > SURE * frame["change_error"]
    times = (frame[f"curvature_{kind}"] / beyond)[known]
    looseness = (float(times.min()), float(times.median()), float(times.max())) if len(times) else None
    promised = int((frame[f"bound_{kind}"] < 0).sum())
    return Verdicts(int(counts.get("yes", 0)), int(counts.get("no", 0)), int(counts.get("undecided", 0)), looseness, promised)


def _holds(frame: pd.DataFrame, kind: str) -> pd.Series[str]:
    slack, margin = frame[f"bound_{kind}"] - frame["change"], SURE * frame["change_error"]
    verdicts = np.select([slack >= margin, slack <= -margin], ["yes", "no"], "undecided")
    return pd.Series(verdicts, index=frame.index)
