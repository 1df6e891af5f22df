from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from forgetscope.benchmark.truth import Truth
from forgetscope.errors import SpecError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nois": 1}, r"There is no option 'nois'. Did you mean 'noise'\?"),
        ({"noise": -0.1}, "noise = -0.1 is not valid: it should be greater than or equal to 0"),
        ({"parent_share": 0}, "parent_share = 0 is not valid"),
        ({"sic_nic": 1}, "sic_nic = 1 is not valid"),
        ({"spread": "wide"}, "spread = 'wide' is not valid"),
        ({"sic_effect": float("nan")}, "sic_effect = nan is not valid"),
        (
            {"sic_cic": 0.9, "sic_nic": -0.9, "cic_nic": 0.9, "rerun_sic_nic": -0.9},
            "sic_cic = 0.9, sic_nic = -0.9, cic_nic = 0.9 cannot all hold: .* not positive definite",
        ),
        ({"sic_cic": 0.6, "cic_nic": 0.6, "rerun_sic_nic": -0.9}, "rerun_sic_nic = -0.9 is impossible with"),
        ({"sic_nic": 0.95}, "rerun_sic_nic = 0.55 and parent_share = 0.5 leave no possible correlation to the parent"),
    ],
)
def test_what_cannot_be_is_refused_with_its_value(options: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Truth(**options)


@given(st.floats(-0.4, 0.4), st.floats(-0.4, 0.4), st.floats(-0.4, 0.4), st.floats(-0.4, 0.4), st.floats(0.6, 0.9))
def test_the_parts_of_parent_and_new_classes_add_up_to_the_correlation(
    sic_cic: float, sic_nic: float, cic_nic: float, rerun: float, share: float
) -> None:
    try:
        truth = Truth(sic_cic=sic_cic, sic_nic=sic_nic, cic_nic=cic_nic, rerun_sic_nic=rerun, parent_share=share)
    except SpecError:
        return  # refused; what is accepted can be drawn
    parts = share * truth.parent_correlation + (1 - share) * truth.rerun_correlation
    assert np.allclose(parts, truth.correlation)
    assert np.allclose(np.diag(truth.parent_correlation), 1)
    np.linalg.cholesky(truth.parent_correlation)


def test_seed_and_truth_have_their_own_digest() -> None:
    digests = {Truth().digest(0), Truth().digest(1), Truth(noise=0.1).digest(0)}
    assert len(digests) == 3
    assert all(digest.startswith("simulated-") for digest in digests)
    assert Truth().digest(0) == Truth(noise=0.4).digest(0)


def test_without_effects_no_correlation_is_expected() -> None:
    assert set(Truth(sic_effect=0, cic_effect=0, nic_effect=0).expected_correlations().values()) == {0}
    nothing = Truth(sic_effect=0, cic_effect=0, nic_effect=0, noise=0, slope_sd=0)
    assert set(nothing.expected_correlations().values()) == {0}


def test_retention_changes_how_severe_forgetting_is() -> None:
    assert Truth().severity(0.08) > Truth().severity(0.2) == 1 > Truth().severity(0.4)
    assert Truth().severity(None) == Truth(retention_power=0).severity(0.08) == 1


def test_the_documentation_lists_every_key_with_its_default_and_meaning() -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulation.md").read_text(encoding="utf-8")
    for name, info in Truth.model_fields.items():
        assert f"| `{name}` | {info.default:g} | {info.description} |" in text
