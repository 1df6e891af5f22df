"""How fast a machine is can be measured for every run that can be run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import TINY
from forgetscope.data.library import load_data
from forgetscope.experiment import speed
from forgetscope.experiment.settings import choose_settings
from forgetscope.spec import RunSpec
from forgetscope.store import Store


@pytest.mark.parametrize("options", [{}, {"probes": "auto"}, {"probes": 3, "probe_images": 8}])
def test_the_speed_of_a_run_is_measured_however_many_probes_it_takes(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "PATIENCE", 0.02)
    run, store = RunSpec(**{**TINY, "epochs": 4, **options}), Store(tmp_path)
    store.prepare()
    data = load_data(run.dataset, run.image_size)
    rates = speed.measure_rates(run, data, store, choose_settings("cpu", 1))
    assert min(rates.first_image, rates.image, rates.step) > 0
