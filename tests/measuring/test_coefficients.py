"""Against a literal, slow transcription of the paper's definitions: loops over classes and flattened parameter vectors."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from forgetscope.measuring.coefficients import coefficients, new_interference, past_interference, released_nic
from rehearsed import from_rehearsal, literal_coefficients, literal_interference


def random_case(seed: int, past: int, new: int, d: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    k = past + new
    arrays = rng.normal(size=(past, k, d + 1)), rng.normal(size=(past, k, d + 1)), rng.normal(size=(k, d + 1))
    shares = rng.uniform(0.1, 1, past)
    return (*(torch.from_numpy(a) for a in arrays), torch.from_numpy(shares / shares.sum()))


cases = given(
    seed=st.integers(0, 10**6), past=st.integers(1, 6), new=st.integers(1, 4), d=st.integers(1, 5), alpha=st.floats(0.05, 0.95)
)


@cases
def test_coefficients_equal_the_definitions(seed: int, past: int, new: int, d: int, alpha: float) -> None:
    full, rehearsal, g_new, shares = random_case(seed, past, new, d)
    computed = from_rehearsal(full, rehearsal, g_new, alpha, shares)
    expected = literal_coefficients(full.numpy(), rehearsal.numpy(), g_new.numpy(), alpha, shares.numpy())
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(computed, name).numpy(), values, rtol=1e-10, atol=1e-12, err_msg=name)


@cases
def test_permuting_classes_permutes_coefficients(seed: int, past: int, new: int, d: int, alpha: float) -> None:
    full, rehearsal, g_new, shares = random_case(seed, past, new, d)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(past))
    rows = torch.cat([order, torch.arange(past, past + new)])  # head nodes move with their classes
    straight = from_rehearsal(full, rehearsal, g_new, alpha, shares)
    permuted = from_rehearsal(full[order][:, rows], rehearsal[order][:, rows], g_new[rows], alpha, shares[order])
    for name in ("sic", "cic", "nic", "all_nic"):
        torch.testing.assert_close(getattr(permuted, name), getattr(straight, name)[order], rtol=1e-10, atol=1e-12)


@cases
def test_scaling_alpha_scales_sic_and_cic(seed: int, past: int, new: int, d: int, alpha: float) -> None:
    full, rehearsal, g_new, shares = random_case(seed, past, new, d)
    whole, half = (from_rehearsal(full, rehearsal, g_new, a, shares) for a in (alpha, alpha / 2))
    torch.testing.assert_close(half.sic, whole.sic / 2)
    torch.testing.assert_close(half.cic, whole.cic / 2)
    torch.testing.assert_close(half.nic * (1 - alpha), whole.nic * (1 - alpha / 2))


@cases
def test_a_class_gradient_s_length_does_not_matter_for_nic(seed: int, past: int, new: int, d: int, alpha: float) -> None:
    full, rehearsal, g_new, shares = random_case(seed, past, new, d)
    short = from_rehearsal(full * 1e-30, rehearsal, g_new, alpha, shares)
    torch.testing.assert_close(short.nic, from_rehearsal(full, rehearsal, g_new, alpha, shares).nic)


@cases
def test_pairs_add_up_to_the_coefficients(seed: int, past: int, new: int, d: int, alpha: float) -> None:
    full, rehearsal, _, shares = random_case(seed, past, new, d)
    rng = np.random.default_rng(seed)
    by_class = torch.from_numpy(rng.normal(size=(new, past + new, d + 1)))
    new_shares = torch.from_numpy(rng.dirichlet(np.ones(new)))
    g_new = torch.einsum("n,nkd->kd", new_shares, by_class)
    terms = from_rehearsal(full, rehearsal, g_new, alpha, shares)
    from_past = past_interference(full, rehearsal - full, alpha, shares)
    torch.testing.assert_close(from_past.diagonal(), terms.sic)
    torch.testing.assert_close(from_past.sum(dim=1) - from_past.diagonal(), terms.cic, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(new_interference(full, by_class, new_shares, alpha).sum(dim=1), terms.nic, rtol=1e-9, atol=1e-12)


def test_a_class_whose_gradient_vanishes_is_missing_and_leaves_the_others_alone() -> None:
    full, rehearsal, g_new, shares = random_case(1, 3, 2, 4)
    full[1] = 0
    terms = from_rehearsal(full, rehearsal, g_new, 0.5, shares)
    for values in (terms.sic, terms.cic, terms.nic, terms.all_nic):
        assert values.isnan().tolist() == [False, True, False]


def test_one_past_class_alone_has_no_cross_class_interference() -> None:
    full, rehearsal, g_new, shares = random_case(2, 1, 1, 3)
    assert from_rehearsal(full, rehearsal, g_new, 0.5, shares).cic.tolist() == [0.0]


def test_head_nodes_can_be_named() -> None:
    full, rehearsal, g_new, shares = random_case(3, 2, 3, 4)
    nodes = torch.tensor([4, 1])
    terms = from_rehearsal(full, rehearsal, g_new, 0.5, shares, nodes)
    expected = [0.5 * literal_interference(g_new[n].numpy(), full[i, n].numpy()) for i, n in enumerate(nodes.tolist())]
    assert terms.nic.tolist() == pytest.approx(expected)


def test_interference_is_positive_where_the_gradients_oppose() -> None:
    full = torch.zeros(1, 2, 2)
    full[0, 0, 0] = 2.0
    new = torch.zeros(2, 2)
    new[0, 0] = -3.0
    terms = from_rehearsal(full, full, new, 0.25, torch.ones(1))
    assert terms.nic.tolist() == [0.75 * 3.0]
    assert terms.sic.tolist() == [0.0]


@cases
def test_the_released_nic_takes_another_entry_for_the_bias(seed: int, past: int, new: int, d: int, alpha: float) -> None:
    """By the flattened head: the weights of the past classes' rows, then what the scripts take for their biases."""
    full, _, g_new, _ = random_case(seed, past, new, d)
    found = released_nic(full, g_new, alpha)
    for c in range(past):
        f, g = (torch.cat([a[:, :-1].flatten(), a[:, -1]]) for a in (full[c], g_new))
        entries = [*range(c * d, (c + 1) * d), past * d + c]
        expected = (1 - alpha) * literal_interference(g[entries].numpy(), f[entries].numpy())
        assert float(found[c]) == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_the_stranger_is_a_weight_of_the_first_new_class() -> None:
    full, _, g_new, _ = random_case(0, past=3, new=2, d=4)
    before = released_nic(full, g_new, 0.5)
    full[:, :, -1], g_new[:, -1] = 7.0, 7.0  # no bias plays a part
    torch.testing.assert_close(released_nic(full, g_new, 0.5), before)
    full[1, 3, 1] += 1.0  # class 1's f_c: node 3 is the first new class, and class 1 is offered its weight 1
    assert (released_nic(full, g_new, 0.5) != before).tolist() == [False, True, False]


@pytest.mark.parametrize("call", [lambda *a: coefficients(*a), lambda f, r, n, a, p: coefficients(full=f, rehearsal=r)])
def test_a_call_in_the_old_sense_says_the_new_names(call: Any) -> None:
    full, rehearsal, new, shares = random_case(0, 2, 1, 3)
    with pytest.raises(TypeError, match=r"by name: full=, bias= \(.* minus full\), new=, alpha=, shares="):
        call(full, rehearsal, new, 0.5, shares)
    names = list(inspect.signature(coefficients).parameters.values())
    assert {one.kind for one in names} == {inspect.Parameter.KEYWORD_ONLY}
    assert [one.name for one in names] == ["full", "bias", "new", "alpha", "shares", "nodes", "rounding"]
