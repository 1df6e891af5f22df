"""`forgetscope analyse`, as a user types it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import forgetscope as fs
from forgetscope.analysis.exhibits.figures import FIGURES
from forgetscope.analysis.exhibits.tables import MORE, TABLES
from forgetscope.analysis.results import Analysis
from forgetscope.cli.app import app
from forgetscope.errors import SpecError
from forgetscope.report.datafiles import write_analysis


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def store(paper_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a folder of its own for what was computed before."""
    folder = tmp_path_factory.mktemp("analysed")
    for name in ("steps", "plans"):
        (folder / name).symlink_to(paper_store / name)
    return folder


def test_every_table_and_figure_becomes_a_file(analysed: Analysis, tmp_path: Path) -> None:
    write_analysis(analysed, tmp_path / "a")
    write_analysis(analysed, tmp_path / "a")  # into a folder that is there
    assert {path.stem for path in (tmp_path / "a" / "tables").glob("*.csv")} == set(TABLES)
    assert {path.stem for path in (tmp_path / "a" / "tables").glob("*.tex")} == set(TABLES)
    assert {path.stem for path in (tmp_path / "a" / "figures").glob("*.csv")} == set(FIGURES)
    assert {path.stem for path in (tmp_path / "a" / "more").glob("*.csv")} == set(MORE) - {"joint_over_time"}
    for path in (tmp_path / "a").rglob("*.csv"):
        pd.testing.assert_index_equal(pd.read_csv(path).columns, pd.read_parquet(path.with_suffix(".parquet")).columns)


@pytest.mark.slow
def test_the_paper_s_shape_is_told_in_words_and_numbers(store: Path, tmp_path: Path) -> None:
    result = invoke("analyse", store, "--out", tmp_path / "a", "--resamples", "200")
    assert result.exit_code == 0, result.output
    assert "C100: 27 second steps (simulated: nothing was trained), retentions of" in result.stdout
    assert "C100: 18 third steps (simulated: nothing was trained), retentions of" in result.stdout
    assert "(mean rank correlation" in result.stdout
    assert f"The files: {tmp_path / 'a'}\nNext: " in result.stdout


def test_one_table_is_printed_and_nothing_written(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("analyse", store, "--table", "spearman_SIC_NIC", "--resamples", "200")
    assert result.exit_code == 0, result.output
    assert "2_10_20" in result.stdout
    assert list(tmp_path.iterdir()) == []
    document = json.loads(invoke("analyse", store, "--table", "spearman_SIC_NIC", "--resamples", "200", "--json").stdout)
    assert list(document["tables"]) == ["spearman_SIC_NIC"]
    assert [row["subset"] for row in document["tables"]["spearman_SIC_NIC"]] == ["2", "2_10_20", "3"] * 2
    label = "spearman_individual_coefficients"
    document = json.loads(
        invoke("analyse", store, "--table", label, "--controls", "paper", "--resamples", "200", "--json").stdout
    )
    assert document["controls"] == "paper"
    assert "CIC, NIC, ALL-NIC" in {row["given"] for row in document["tables"][label]}


def test_misspelt_names_are_told(store: Path) -> None:
    result = invoke("analyse", store, "--table", "spearman_SCI")
    assert (result.exit_code, "Did you mean 'spearman_SIC'?" in result.stderr) == (2, True)
    result = invoke("analyse", store, "--coding", "sums")
    assert (result.exit_code, "Did you mean 'sum'?" in result.stderr) == (2, True)
    result = invoke("analyse", store, "--controls", "papr")
    assert (result.exit_code, "--controls 'papr' is not known. Did you mean 'paper'?" in result.stderr) == (2, True)
    assert invoke("analyse", store / "nowhere").exit_code == 2


def test_a_store_with_one_experiment_says_what_is_missing(tiny_store: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_store, tmp_path / "store")
    result = invoke("analyse", copy, "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    assert "Missing: " in result.stdout
    assert "more experiments would do" in result.stdout


def test_estimates_come_one_by_one_with_interval_and_n(store: Path) -> None:
    found = fs.analyse(store, tables=["spearman_SIC"], resamples=200)
    keys = {"benchmark": "C100", "subset": "2", "rehearsal_pct": "8", "statistic": "rho"}
    estimate = found.estimate("spearman_SIC", **keys, class_pct="10")
    assert estimate.low < estimate.value < estimate.high
    assert estimate.n == 3
    with pytest.raises(SpecError, match=r"4 rows of spearman_SIC match .* differ in class_pct"):
        found.estimate("spearman_SIC", **keys)
    with pytest.raises(SpecError, match=r"no column 'statistics'\. Did you mean 'statistic'"):
        found.estimate("spearman_SIC", statistics="rho")


def test_tables_beyond_the_paper_are_tables_too(analysed: Analysis, store: Path) -> None:
    warning = {"benchmark": "TIN", "subset": "2", "group": "most forgotten quarter", "share": 1.0, "predictor": "SIC"}
    found = analysed.estimate("early_warning", **warning)
    assert found.low < found.value < found.high
    assert analysed.estimate("early_warning", of="auc", **warning).value > found.value
    assert analysed.estimate("spearman_SIC_NIC", of="sd", benchmark="C100", subset="2").n == 27
    with pytest.raises(SpecError, match=r"missing holds no estimates"):
        analysed.estimate("missing")
    result = invoke("analyse", store, "--table", "claim")
    assert (result.exit_code, "Did you mean 'claims'?" in result.stderr) == (2, True)


def test_estimates_and_analyses_show_themselves_in_a_notebook(analysed: Analysis) -> None:
    html = analysed.estimate("spearman_SIC_NIC", benchmark="C100", subset="2")._repr_html_()
    assert html.startswith("<b>0.")
    assert "n = 27" in html
    assert "(mean rank correlation" in analysed._repr_html_()


@pytest.mark.parametrize("table", ["claims", "claims_in_detail"])
def test_a_simulated_store_shows_no_verdict_and_its_files_have_them(store: Path, tmp_path: Path, table: str) -> None:
    result = invoke("analyse", store, "--table", table, "--resamples", "200", "--out", tmp_path / "a")
    assert result.exit_code == 0, result.output
    assert "Numbers of this store are made up (simulated)" in result.stdout
    assert "confirmed" not in result.stdout
    assert "confirmed" in (tmp_path / "a" / "more" / f"{table}.csv").read_text()
