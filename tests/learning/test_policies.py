"""One contract suite for all policies, and each against a slow, literal version of what its docstring says."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from forgetscope.errors import SpecError
from forgetscope.learning.candidates import Candidates
from forgetscope.learning.plugins import source_digests
from forgetscope.learning.policies import AUGMENTED_COPIES, FUNCTIONS, _evenly, choose
from forgetscope.spec import POLICIES
from forgetscope.testing import check_policy, make_candidates


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_names_and_functions_agree() -> None:
    assert tuple(FUNCTIONS) == POLICIES


# ---- The contract


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=8)
@given(n=st.integers(1, 12), quota=st.integers(1, 15), seed=st.integers(0, 100))
def test_quotas_are_filled_with_different_images(name: str, n: int, quota: int, seed: int) -> None:
    chosen = choose(name, make_candidates(n, seed), quota, rng(seed))
    assert len(chosen) == min(n, quota)  # a class smaller than its quota is kept whole
    assert len(set(chosen.tolist())) == len(chosen)
    assert set(chosen.tolist()) <= set(range(n))


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_keeps_the_contract_that_users_policies_are_held_to(name: str) -> None:
    check_policy(FUNCTIONS[name])


# ---- Each policy against a literal version


def test_uniform_chooses_every_image_equally_often() -> None:
    counts, given = np.zeros(10), make_candidates(10)
    for seed in range(3000):
        counts[choose("uniform", given, 3, rng(seed))] += 1
    assert np.abs(counts - 900).max() < 5 * (3000 * 0.3 * 0.7) ** 0.5


def literal_follow_mean(vectors: np.ndarray, quota: int) -> list[int]:
    target, chosen = vectors.mean(axis=0), []
    for _ in range(quota):
        free = [i for i in range(len(vectors)) if i not in chosen]
        distances = [np.linalg.norm(np.mean([vectors[j] for j in [*chosen, i]], axis=0) - target) for i in free]
        chosen.append(free[int(np.argmin(distances))])
    return chosen


def test_herding_follows_the_class_mean() -> None:
    given = make_candidates()
    unit = given.features / np.linalg.norm(given.features, axis=1, keepdims=True)
    assert choose("herding", given, 10, rng()).tolist() == literal_follow_mean(unit, 10)


def test_nearest_mean_sorts_by_distance() -> None:
    given = make_candidates()
    unit = given.features / np.linalg.norm(given.features, axis=1, keepdims=True)
    distance = [math.dist(row, unit.mean(axis=0)) for row in unit]
    assert choose("nearest-mean", given, 10, rng()).tolist() == sorted(range(24), key=lambda i: distance[i])[:10]


def test_entropy_takes_the_most_uncertain() -> None:
    given = make_candidates()
    uncertainty = [-sum(p * math.log(p) for p in row if p > 0) for row in given.probabilities]
    assert choose("entropy", given, 10, rng()).tolist() == sorted(range(24), key=lambda i: -uncertainty[i])[:10]


def test_boundary_takes_the_smallest_margin() -> None:
    given = make_candidates()
    margins = [abs(row[1] - max(row[j] for j in (0, 2, 3))) for row in given.logits]
    assert choose("boundary", given, 10, rng()).tolist() == sorted(range(24), key=lambda i: margins[i])[:10]


def test_uncertainty_spans_the_whole_range() -> None:
    given = make_candidates(16)
    copies = given.augmented_predictions(AUGMENTED_COPIES)
    spread = [1 - max(np.mean(copies[:, i] == node) for node in range(4)) for i in range(16)]
    ranked = sorted(range(16), key=lambda i: spread[i])
    chosen = choose("uncertainty", given, 4, rng()).tolist()
    assert sorted(ranked.index(i) for i in chosen) == [0, 4, 8, 12]  # every fourth of sixteen
    assert max(spread) > 0


@pytest.mark.parametrize("n", [1, 2, 7, 16, 100])
def test_even_orders_hold_everything_and_begin_spread_out(n: int) -> None:
    order = _evenly(n)
    assert sorted(order.tolist()) == list(range(n))
    if n == 100:
        for quota in (4, 8, 16):
            gaps = np.diff(sorted([*order[:quota].tolist(), n]))
            assert gaps.max() <= 2.6 * n / quota


def test_least_forgotten_takes_images_that_stayed_learned() -> None:
    given = replace(make_candidates(6), history=np.array([0, 5, 1, 3, 1, 0]))  # two never learned; lost 2, 0, 1, 0 times
    chosen = choose("least-forgotten", given, 6, rng()).tolist()
    assert set(chosen[:2]) == {2, 4}
    assert chosen[2:4] == [3, 1]
    assert set(chosen[4:]) == {0, 5}
    assert {choose("least-forgotten", given, 1, rng(seed)).tolist()[0] for seed in range(20)} == {2, 4}  # ties by the stream


def gradients(given: Candidates) -> np.ndarray:
    """By autograd, image by image: weights and biases of the head, flattened."""
    rows = []
    head = given.network.head
    for features in given.features:
        head.zero_grad()
        logits = torch.from_numpy(features) @ head.weight.double().T + head.bias.double()
        torch.nn.functional.cross_entropy(logits[None], torch.tensor([given.node])).backward()
        rows.append(torch.cat([head.weight.grad.flatten(), head.bias.grad]).double().numpy().copy())
    return np.array(rows)


def test_gradient_products_are_those_of_autograd() -> None:
    given = make_candidates()
    vectors = gradients(given)
    np.testing.assert_allclose(given.gradient_products, vectors @ vectors.T, rtol=1e-4, atol=1e-5)


def test_gradient_matching_follows_the_class_s_gradient() -> None:
    given = make_candidates()
    vectors = gradients(given)
    chosen = choose("gradient-matching", given, 8, rng()).tolist()
    assert chosen == literal_follow_mean(vectors, 8)
    bias = np.linalg.norm(vectors[chosen].mean(axis=0) - vectors.mean(axis=0))
    others = [np.linalg.norm(vectors[rng(s).permutation(24)[:8]].mean(axis=0) - vectors.mean(axis=0)) for s in range(50)]
    assert bias < min(others)  # b_c is smaller than for any of fifty random sets


def test_gradient_diversity_keeps_gradients_apart() -> None:
    given = make_candidates()
    vectors = gradients(given)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit.T
    chosen = [int(cosines.sum(axis=1).argmin())]
    while len(chosen) < 8:
        free = [i for i in range(24) if i not in chosen]
        chosen.append(min(free, key=lambda i: max(cosines[i, j] for j in chosen)))
    assert choose("gradient-diversity", given, 8, rng()).tolist() == chosen


# ---- A user's own


def choose_own(name: str, n: int, quota: int) -> list[int]:
    return choose(name, make_candidates(n), quota, rng(), source_digests([name])[name]).tolist()


def test_a_user_s_own_policy_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "my_policies.py"
    source.write_text("def last(candidates, quota, rng):\n    return list(range(len(candidates)))[::-1][:quota]\n")
    assert choose_own("my_policies:last", 5, 2) == [4, 3]
    source.write_text("def last(candidates, quota, rng):\n    return range(quota)\n")
    assert choose_own("my_policies:last", 5, 2) == [0, 1]  # what runs is what is recorded


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return [3, 3]", "must return 2 different positions from 0 to 4; it returned 3 twice"),
        ("return [0, 5]", "must return 2 different positions from 0 to 4; it returned 5"),
        ("return [0, -1]", "it returned -1"),
        ("return [0]", r"returned int64 of shape \(1,\), expected 2 whole numbers"),
        ("return [0.5, 1.5]", "returned float64"),
        ("return None", r"returned object of shape \(\), expected 2 whole numbers"),
        ("return [[0], [0, 1]]", "returned list, expected 2 whole numbers"),
        ("return 'ab'", "returned <U2 of shape"),
        ("return (i for i in range(2))", r"returned object of shape \(\)"),
    ],
)
def test_a_policy_that_breaks_the_contract_is_told_so(
    body: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(f"def choose(candidates, quota, rng):\n    {body}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SpecError, match=message):
        choose_own("broken:choose", 5, 2)


def test_code_that_cannot_be_found_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cannot import nets/own.py: there is no such module. Write nets.own:late."):
        source_digests(["nets/own.py:late"])
    with pytest.raises(SpecError, match="no_such_module:f: cannot import no_such_module"):
        choose_own("no_such_module:f", 2, 1)
    with pytest.raises(SpecError, match="statistics has no function 'nothing'"):
        choose_own("statistics:nothing", 2, 1)
    with pytest.raises(SpecError, match=r"time has no source file"):
        choose_own("time:sleep", 2, 1)
