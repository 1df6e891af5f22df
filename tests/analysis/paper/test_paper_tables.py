"""The paper's tables: the same rows, columns and margins, whatever the store holds."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from forgetscope.analysis.exhibits.figures import FIGURES
from forgetscope.analysis.exhibits.tables import TABLES
from forgetscope.analysis.paper.cells import BY_NOISE, COLUMNS, KEYS
from forgetscope.analysis.results import Analysis, analyse

PAPER = Path(__file__).parents[4] / "shared" / "paper" / "tables.csv"
ROWS = {
    "FG-R_FG-HSG_overall": 12,
    "spearman_individual_coefficients": 36,
    "SW-LOO_protocol": 12,
    "spearman_SIC_NIC": 6,
    "spearman_ALL-NIC_and_NIC": 24,
    "spearman_interference_bias": 12,
    "FG-R_FG-HG_fine_grained": 104,
    "anova_FG-R_FG-HSG": 36,
    "spearman_SIC": 104,
    "spearman_CIC": 104,
    "spearman_NIC": 104,
    "anova_SIC": 36,
    "anova_CIC": 36,
    "anova_NIC": 36,
    "spearman_All_coef_SIC_fine_grained": 104,
    "anova_all_coefficients": 18,
    "SW-LOO_protocol_MAE": 24,
    "coefficients": 90,
    "SW-LOO_protocol_LOG_similarity": 18,
    "spearman_NIC-SIC": 52,
    "anova_SIC_NIC": 18,
    "all_partial_spearmans_NIC": 24,
    "spearman_pairwise_Imbalanced_Forgetting_Coefficients": 18,
    "controlled_experiments": 24,
}


def row(frame: pd.DataFrame, **keys: str) -> pd.Series:
    (only,) = frame[(frame[list(keys)] == pd.Series(keys)).all(axis=1)].to_dict("records")
    return pd.Series(only)


def test_all_tables_and_figures_are_there_with_the_paper_s_numbers_of_rows(analysed: Analysis) -> None:
    assert {label: len(frame) for label, frame in analysed.tables.items()} == ROWS
    assert list(analysed.tables) == list(TABLES) == list(ROWS)
    assert list(analysed.figures) == list(FIGURES)
    uneven = {"FG-R_FG-HSG_overall", "FG-R_FG-HG_fine_grained"}  # with what noise alone would show
    assert {label for label, frame in analysed.tables.items() if BY_NOISE in frame} == uneven
    assert all(tuple(frame.columns.drop(BY_NOISE, errors="ignore")) == COLUMNS for frame in analysed.tables.values())
    assert all(analysed.tables[label][BY_NOISE].notna().all() for label in uneven)
    assert all(len(frame) for frame in analysed.figures.values())


@pytest.mark.realdata
@pytest.mark.skipif(not PAPER.is_file(), reason=f"the paper's printed tables are not at {PAPER}")
def test_every_row_has_the_key_and_the_place_that_it_has_in_the_paper(analysed: Analysis) -> None:
    with PAPER.open(newline="", encoding="utf-8") as file:
        printed = list(csv.DictReader(file))
    for label, frame in analysed.tables.items():
        expected = [tuple(line[key] for key in KEYS) for line in printed if line["table"] == label]
        assert list(frame[list(KEYS)].itertuples(index=False, name=None)) == expected, label


def test_severity_pools_by_hand(analysed: Analysis) -> None:
    sample = analysed.collection.samples[0]
    ranges = {}
    for step, part in zip(sample.steps, sample.cells, strict=True):
        if part.step == 2:
            ranges.setdefault((part.retention, part.increment), []).append(float(step.forgetting.max() - step.forgetting.min()))
    cell = row(
        analysed.tables["FG-R_FG-HG_fine_grained"],
        benchmark="C100",
        subset="2",
        rehearsal_pct="8",
        class_pct="10",
        quantity="FG-R",
    )
    values = ranges["8", "10"]
    low, high = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert [cell["mean"], cell["mean_lo"], cell["mean_hi"]] == pytest.approx([np.mean(values), low, high])
    assert (cell["sd"], cell["n"]) == (pytest.approx(np.std(values)), 3)
    margin = row(
        analysed.tables["FG-R_FG-HG_fine_grained"],
        benchmark="C100",
        subset="2",
        rehearsal_pct="pooled",
        class_pct="10",
        quantity="FG-R",
    )
    pooled = [value for (_, increment), values in ranges.items() if increment == "10" for value in values]
    assert (margin["mean"], margin["n"]) == (pytest.approx(np.mean(pooled)), 9)
    overall = row(analysed.tables["FG-R_FG-HSG_overall"], benchmark="C100", subset="2_10_20", quantity="FG-R")
    pooled = [value for (_, increment), values in ranges.items() if increment != "50" for value in values]
    assert (overall["mean"], overall["n"]) == (pytest.approx(np.mean(pooled)), 18)


def test_correlations_are_averaged_in_z(analysed: Analysis) -> None:
    sample = analysed.collection.samples[1]
    rho = sample.values["NIC", "rho"][sample.number == 3]
    told = row(
        analysed.tables["spearman_individual_coefficients"], benchmark="TIN", subset="3", quantity="NIC", statistic="rho"
    )
    assert told["mean"] == pytest.approx(np.tanh(np.arctanh(rho).mean()))
    assert told["sd"] == pytest.approx(rho.std())


def test_the_same_quantity_is_the_same_in_every_table(analysed: Analysis) -> None:
    grids = analysed.tables["spearman_SIC"]
    joint = analysed.tables["spearman_All_coef_SIC_fine_grained"]
    sic = grids[grids["statistic"] == "rho"]["mean"].to_numpy()
    np.testing.assert_array_equal(sic, joint[joint["quantity"] == "SIC"]["mean"].to_numpy())


def test_an_empty_store_gives_every_table_and_figure_without_rows(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    empty = analyse(tmp_path)
    assert list(empty.tables) == list(ROWS)
    assert all(len(frame) == 0 and tuple(frame.columns) == COLUMNS for frame in empty.tables.values())
    assert list(empty.figures) == list(FIGURES)
    assert all(len(frame) == 0 and len(frame.columns) for frame in empty.figures.values())


def test_one_experiment_gives_what_one_experiment_can_give(tiny_store: Path) -> None:
    one = analyse(tiny_store, cached=False, resamples=200)
    told = row(one.tables["FG-R_FG-HSG_overall"], subset="2", quantity="FG-R")
    assert (told["n"], told["benchmark"]) == (1, "glyphs")
    assert np.isfinite(told["mean"])
    assert np.isnan(told["mean_lo"])
    rho = row(one.tables["spearman_individual_coefficients"], subset="2", quantity="SIC", statistic="rho")
    assert (rho["n"], rho["no_value"]) == (0, 1)  # two past classes rank nothing
    assert one.tables["coefficients"]["mean"].isna().all()
    assert len(one.tables["controlled_experiments"]) == 0
    assert len(one.figures["fig:swarm_plots_forgetting_glyphs_1"]) == 2
