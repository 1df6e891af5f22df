"""How much is noise, per partition of a store; and what a store without single test images says instead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from forgetscope.analysis.inputs.cache import Cache
from forgetscope.analysis.inputs.measured_steps import read_steps
from forgetscope.analysis.inputs.samples import collect
from forgetscope.analysis.questions.noise import COUNTS, PAIRS, noise
from forgetscope.benchmark.simulation import simulate
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.benchmark.truth import Truth
from forgetscope.outputs import unheard
from forgetscope.store import Store

SHAPE = {"experiments": 6, "epochs": 2, "increments": [0.1], "retentions": [0.2], "steps": 2}


@pytest.mark.parametrize(("share", "basis"), [(0.5, PAIRS), (0.0, COUNTS)])
def test_a_partition_has_its_floors_spread_and_ceiling_and_says_from_what(tmp_path: Path, share: float, basis: str) -> None:
    store = Store(tmp_path)
    simulate(BenchmarkSpec.load("glyphs", SHAPE), store, 1, Truth(image_share=share), reruns=0)
    read = read_steps(store, Cache(None), unheard)
    overall, partition = noise(collect(store, read), Cache(None)).to_dict("records")
    steps = list(read.measured.values())
    assert partition["basis"].startswith(basis)
    assert partition["paired_n"] == (6 if share else 0)
    assert (overall["rehearsal_pct"], partition["rehearsal_pct"], partition["n"]) == ("", "20", 6)
    assert partition["FG-R_floor"] == pytest.approx(np.mean([step.noise[0] for step in steps]))
    expected = np.mean([step.forgetting.var(ddof=1) - step.variances.mean() for step in steps])
    assert partition["variance"] == pytest.approx(expected)
    assert partition["spread"] == pytest.approx(np.sqrt(expected))
    assert 0 < partition["FG-R_floor"] < partition["FG-R"]
    assert partition["ceiling_lo"] < partition["ceiling"] < partition["ceiling_hi"] < 1
