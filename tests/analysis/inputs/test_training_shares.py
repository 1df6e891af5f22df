"""When in training something is known, and what is said of a store that was not probed along it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from forgetscope.analysis.inputs.training_shares import BEFORE, SHARES, probes_within, seen_shares
from forgetscope.analysis.results import Analysis, analyse
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.report.words.headlines import headlines, moment, since
from forgetscope.store import Store


def test_a_share_of_training_counts_the_probe_before_it() -> None:
    assert [probes_within(share, 171) for share in (0, 0.1, 0.5, 1)] == [1, 18, 86, 171]
    assert probes_within(1, 0) == 0


@given(st.integers(2, 400))
def test_shares_that_are_told_apart_use_more_and_more_probes(probes: int) -> None:
    used = [probes_within(SHARES[position], probes) for position in seen_shares(probes)]
    assert used == sorted(set(used))
    assert used[-1] == probes
    assert all((share == BEFORE) == (n == 1) for share, n in zip(seen_shares(probes).values(), used, strict=True))


def test_a_moment_is_called_what_it_is() -> None:
    assert list(seen_shares(171).values()) == list(SHARES)
    assert list(seen_shares(2).values()) == [BEFORE, 1.0]
    assert moment(0.25, 171) == "after 25\u202f% of training"
    assert moment(BEFORE, 5) == "at the probe before training"
    assert moment(BEFORE, 2) == "at the probe before training (the store has none between it and the end)"
    assert [since(share) for share in (BEFORE, 0.12, 1.0)] == [
        *("already before training", "from 12\u202f% of training on", "only at the end of training")
    ]


def test_a_store_without_probes_during_training_does_not_speak_of_a_quarter_of_it(ends: Analysis) -> None:
    assert sorted(ends.more["early_warning"]["share"].unique()) == [BEFORE, 1.0]
    assert set(ends.more["flagged"]["moment"]) == {moment(BEFORE, 2), moment(1.0, 2)}
    told = " ".join(sentence for headline in headlines(ends) for sentence in headline.sentences)
    assert "At the probe before training (the store has none between it and the end), 0." in told
    assert "25\u202f%" not in ends.reading
    assert "quarter of training" not in " ".join(ends.more["claims"]["claim"])
    assert "Missing: glyphs, step 2: no probe in the first quarter of training but the one before it" in ends.reading
    assert "asked; three epochs or more are needed, and probe_every = 1 measures after every epoch." in ends.reading


def test_a_store_that_was_probed_along_training_is_asked_about_its_first_quarter(same: Analysis) -> None:
    assert "A quarter of training is enough for SIC" in set(same.more["claims"]["claim"])
    assert "no probe in the first quarter" not in same.reading


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """Of a store that was probed before and after training only."""
    path: Path = tmp_path_factory.mktemp("ends")
    shape = {"experiments": 4, "epochs": 1, "increments": [0.1], "retentions": [0.08], "steps": 2}
    simulate(BenchmarkSpec.load("glyphs", shape), Store(path), seed=1, reruns=0)
    return analyse(path, resamples=100, cached=False)
