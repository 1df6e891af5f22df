"""The paper's printed tables against themselves: what follows from their cells comes out of our functions, within rounding."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from forgetscope.analysis.exhibits.tables import TABLES
from forgetscope.analysis.statistics.estimates import correlation_estimate, mean_estimate
from forgetscope.analysis.statistics.pooling import spread_of

PAPER = Path(__file__).parents[4] / "shared" / "paper" / "tables.csv"
HALF = 0.005 + 1e-9  # of the last printed digit
CLASSES = 1000  # no printed correlation is perfect, so how one would be counted does not matter
OVERALL = {
    "FG-R_FG-HG_fine_grained": ["FG-R_FG-HSG_overall"],
    "spearman_SIC": ["spearman_individual_coefficients"],
    "spearman_CIC": ["spearman_individual_coefficients"],
    "spearman_NIC": ["spearman_individual_coefficients", "all_partial_spearmans_NIC", "spearman_ALL-NIC_and_NIC"],
    "spearman_All_coef_SIC_fine_grained": ["SW-LOO_protocol", "SW-LOO_protocol_MAE"],
    "spearman_NIC-SIC": ["spearman_SIC_NIC", "spearman_pairwise_Imbalanced_Forgetting_Coefficients"],
}

pytestmark = [
    pytest.mark.realdata,
    pytest.mark.skipif(not PAPER.is_file(), reason=f"the paper's printed tables are not at {PAPER}"),
]


@pytest.fixture(scope="module")
def printed() -> list[dict[str, str]]:
    with PAPER.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def pooled(statistic: str) -> Callable[[Sequence[float]], float]:
    if statistic.startswith("rho"):
        return lambda means: correlation_estimate(means, CLASSES).value
    return lambda means: mean_estimate(means).value


def agrees(cells: Sequence[float], told: float, statistic: str) -> bool:
    """Both means grow with every cell, so the rounding of the cells gives the ends of what the margin can be."""
    mean = pooled(statistic)
    return mean([c - HALF for c in cells]) - HALF <= told <= mean([c + HALF for c in cells]) + HALF


def is_inconsistent(row: dict[str, str], overall: bool) -> bool:
    """Blocks that were made from other samples, or with other controls, than those that they belong to."""
    if row["table"] == "FG-R_FG-HG_fine_grained":
        return (row["benchmark"], row["subset"]) == ("TIN", "2")
    return overall and row["statistic"] == "rho_p" and row["quantity"] in ("SIC", "CIC")


def cells_of(margin: dict[str, str], printed: list[dict[str, str]]) -> list[dict[str, str]]:
    same = ("table", "benchmark", "subset", "quantity", "statistic")
    fixed = [name for name in ("rehearsal_pct", "class_pct") if margin[name] != "pooled"]
    alike = [row for row in printed if all(row[name] == margin[name] for name in (*same, *fixed))]
    return [row for row in alike if "pooled" not in (row["rehearsal_pct"], row["class_pct"])]


def margins(printed: list[dict[str, str]]) -> list[dict[str, str]]:
    found = [row for row in printed if "pooled" in (row["rehearsal_pct"], row["class_pct"])]
    return [row for row in found if not is_inconsistent(row, overall=False)]


def test_margins_follow_from_their_cells(printed: list[dict[str, str]]) -> None:
    for row in margins(printed):
        cells = cells_of(row, printed)
        assert len(cells) in (2, 3)
        assert agrees([float(cell["mean"]) for cell in cells], float(row["mean"]), row["statistic"]), row
    assert len(margins(printed)) == 11 * 22 - 12  # eleven grids of 22 margins, without the block that is inconsistent


def test_standard_deviations_of_margins_follow_from_their_cells(printed: list[dict[str, str]]) -> None:
    """Those of severity: 40 values with a cell's mean and standard deviation stand for its steps."""
    rows = [row for row in margins(printed) if row["statistic"] == "value"]
    for row in rows:
        cells = [(float(cell["mean"]), float(cell["sd"])) for cell in cells_of(row, printed)]
        pooled = spread_of(np.concatenate([np.tile([mean - sd, mean + sd], 20) for mean, sd in cells]))
        # rounding moves no value by more than that of its cell's mean and standard deviation together
        assert float(row["sd"]) == pytest.approx(pooled, abs=3 * HALF), row
    assert len(rows) == 2 * 22 - 12


def test_overall_values_follow_from_the_cells_of_the_grids(printed: list[dict[str, str]]) -> None:
    checked = 0
    for grid, tables in OVERALL.items():
        for row in (row for row in printed if row["table"] in tables):
            step, *increments = row["subset"].split("_")
            cells = [
                cell
                for cell in printed
                if cell["table"] == grid
                and all(cell[name] == row[name] for name in ("benchmark", "quantity", "statistic"))
                and cell["subset"] == step
                and "pooled" not in (cell["rehearsal_pct"], cell["class_pct"])
                and cell["class_pct"] in (increments or (cell["class_pct"],))
            ]
            if not cells or is_inconsistent(cells[0], overall=True):
                continue
            assert len(cells) in (6, 9)
            assert agrees([float(cell["mean"]) for cell in cells], float(row["mean"]), row["statistic"]), row
            checked += 1
    assert checked > 80


def levels(subset: str, factor: str) -> tuple[int, int]:
    """Degrees of freedom of an effect and of the residual: three retentions, two or three increments, 40 steps in a cell."""
    increments = 3 if subset == "2" else 2
    df1 = {"rehearsal": 2, "classes": increments - 1, "interaction": 2 * (increments - 1)}[factor]
    return df1, 3 * increments * (40 - 1)


def test_partial_eta_squared_follows_from_the_printed_f(printed: list[dict[str, str]]) -> None:
    """It grows with F, so the rounding of F gives the ends of what it can be. No block of the paper is inconsistent here."""
    checked = 0
    for row in (row for row in printed if row["F"]):
        f, told, df = float(row["F"]), float(row["eta2p"]), levels(row["subset"], row["factor"])
        half_f, half = (0.5 * 10.0 ** -len(row[name].partition(".")[2]) + 1e-9 for name in ("F", "eta2p"))
        low, high = (end * df[0] / (end * df[0] + df[1]) for end in (max(0, f - half_f), f + half_f))
        assert low - half <= told <= high + half, row
        checked += 1
    assert checked == 180


def test_every_table_of_the_paper_is_known_here(printed: list[dict[str, str]]) -> None:
    assert list(dict.fromkeys(row["table"] for row in printed)) == list(TABLES)
