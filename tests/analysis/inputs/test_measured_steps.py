"""What one step contributes, against scipy, pingouin's definition by hand, and the store's own frames."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from forgetscope.analysis.inputs.associations import ASSOCIATIONS
from forgetscope.analysis.inputs.cache import Cache
from forgetscope.analysis.inputs.measured_steps import ReadSteps, partial_sums, read_steps
from forgetscope.analysis.inputs.training_shares import SHARES, probes_within
from forgetscope.store import COEFFICIENTS, Store


def read(store: Path, cache: Path | None = None) -> tuple[ReadSteps, Cache]:
    kept = Cache(cache)
    return read_steps(Store(store), kept, lambda what, done, total: None), kept


@pytest.fixture(scope="module")
def steps(paper_store: Path) -> ReadSteps:
    return read(paper_store)[0]


def test_every_step_is_read_and_those_with_past_classes_are_measured(paper_store: Path, steps: ReadSteps) -> None:
    assert set(steps.facts) == Store(paper_store).ids()
    assert set(steps.measured) == {id for id, facts in steps.facts.items() if facts.step > 1}
    assert steps.damaged == ()


def test_associations_are_those_of_the_step_s_table(paper_store: Path, steps: ReadSteps) -> None:
    for id in sorted(steps.measured)[:4]:
        measured = steps.measured[id]
        table = Store(paper_store).step(id).table("classes").to_pandas().dropna(subset="forgetting")
        columns = {
            **{name.upper().replace("_", "-"): table[name] for name in (*COEFFICIENTS, "log_sim")},
            "FG": table.forgetting,
        }
        ranks = pd.DataFrame({name: stats.rankdata(values) for name, values in columns.items()})
        for asked, found in zip(ASSOCIATIONS, measured.associations, strict=True):
            names = [asked.x, asked.y, *asked.given]
            inverse = np.linalg.inv(ranks[names].corr().to_numpy())
            expected = -inverse[0, 1] / np.sqrt(inverse[0, 0] * inverse[1, 1])
            assert found == pytest.approx(expected, abs=1e-9), asked


def test_the_course_ends_in_the_associations_and_uses_the_first_probes_only(paper_store: Path, steps: ReadSteps) -> None:
    id = min(steps.measured)
    measured = steps.measured[id]
    assert measured.course[-1] == pytest.approx(measured.associations, abs=1e-6)
    probes = Store(paper_store).step(id).table("probes").to_pandas()
    first_two = probes[probes["probe"] < 2].groupby("class_id", sort=False)["sic"].sum()
    rho = stats.spearmanr(first_two.loc[measured.class_ids], measured.forgetting).statistic
    assert measured.course[1, 0] == pytest.approx(rho, abs=1e-6)
    sums = partial_sums(Store(paper_store).step(id))
    assert sums[1, 0] == pytest.approx(first_two.loc[measured.class_ids].to_numpy())
    assert measured.early[-1] == pytest.approx(measured.measures[:3])
    assert measured.early[1] == pytest.approx(sums[probes_within(SHARES[1], len(sums)) - 1])


def test_classes_that_were_never_learned_are_left_out(tmp_path: Path) -> None:
    from forgetscope.benchmark.simulation import simulate
    from forgetscope.benchmark.space import BenchmarkSpec
    from forgetscope.benchmark.truth import Truth

    spec = BenchmarkSpec.load("glyphs", {"experiments": 1, "epochs": 2, "increments": [0.2], "retentions": [0.2], "steps": 2})
    simulate(spec, Store(tmp_path), truth=Truth(never_learned=0.3), reruns=0)
    (measured,) = read(tmp_path)[0].measured.values()
    undefined = np.isnan(measured.forgetting)
    assert 0 < undefined.sum() < 20
    assert (measured.complete == ~undefined).all()
    assert measured.early.shape[1:] == (3, (~undefined).sum())
    rho = stats.spearmanr(measured.measures[0, ~undefined], measured.ranked).statistic
    assert measured.associations[0] == pytest.approx(rho)


def test_what_was_read_once_is_not_read_again(paper_store: Path, tmp_path: Path, steps: ReadSteps) -> None:
    first, cache = read(paper_store, tmp_path)
    kept = len(steps.facts) + len(steps.measured)  # what a step is, and how its test images compare with those of before
    assert (cache.computed, cache.found) == (kept, 0)
    again, cache = read(paper_store, tmp_path)
    assert (cache.computed, cache.found) == (0, kept)
    for id, measured in steps.measured.items():
        assert again.facts[id] == first.facts[id] == steps.facts[id]
        for name in (
            "class_ids",
            "forgetting",
            "complete",
            "measures",
            "early",
            "associations",
            "course",
            "paired",
            "variances",
            "noise",
        ):
            np.testing.assert_array_equal(getattr(again.measured[id], name), getattr(measured, name))
    damaged = sorted((tmp_path / "step").rglob("*"))[-1]
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    assert read(paper_store, tmp_path)[1].computed == 1


def test_a_damaged_step_is_named_and_the_others_are_read(paper_store: Path, tmp_path: Path) -> None:
    ids = sorted(Store(paper_store).ids())[:3]
    for id in ids:
        shutil.copytree(paper_store / "steps" / id, tmp_path / "steps" / id)
    (tmp_path / "steps" / ids[1] / "step.json").write_text("{}")
    found = read(tmp_path)[0]
    assert found.damaged == (ids[1],)
    assert set(found.facts) == {ids[0], ids[2]}
