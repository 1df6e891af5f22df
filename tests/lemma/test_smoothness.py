from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.autograd.functional import hessian
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from forgetscope.lemma.smoothness import certified_smoothness, largest_curvature
from tiny_problem import Problem, tiny_problem


def eigenvalues(problem: Problem, inputs: Tensor, nodes: Tensor) -> Tensor:
    """Of the exact Hessian over all parameters, ascending."""
    names, values = zip(*problem.network.named_parameters(), strict=True)
    sizes = [value.numel() for value in values]

    def loss(flat: Tensor) -> Tensor:
        parts = zip(names, values, torch.split(flat, sizes), strict=True)
        return F.cross_entropy(functional_call(problem.network, {n: p.view_as(v) for n, v, p in parts}, (inputs,)), nodes)

    return torch.linalg.eigvalsh(hessian(loss, parameters_to_vector(values).detach()))


BALLS = given(
    seed=st.integers(0, 10**6),
    units=st.sampled_from([0, 1, 2, 5]),
    scale=st.sampled_from([0.1, 1.0, 3.0]),
    radius=st.sampled_from([0.0, 0.01, 0.3, 2.0]),
)


@BALLS
@settings(max_examples=15)
def test_no_hessian_in_the_ball_exceeds_the_certified_smoothness(seed: int, units: int, scale: float, radius: float) -> None:
    no_hessian_exceeds(seed, units, scale, radius)


@pytest.mark.slow
@BALLS
@settings(max_examples=400)
def test_no_hessian_exceeds_it_in_many_balls(seed: int, units: int, scale: float, radius: float) -> None:
    no_hessian_exceeds(seed, units, scale, radius)


def no_hessian_exceeds(seed: int, units: int, scale: float, radius: float) -> None:
    problem = tiny_problem(seed, units=units, scale=scale)
    inputs, nodes = problem.full[0]
    bound = certified_smoothness(inputs, 0, problem.hidden, problem.head, radius)
    centre = parameters_to_vector(problem.network.parameters()).detach()
    generator = torch.Generator().manual_seed(seed)
    for share in (0.0, 0.5, 1.0):  # the centre, within, and on the surface
        direction = torch.randn(len(centre), generator=generator, dtype=torch.float64)
        vector_to_parameters(centre + share * radius * direction / direction.norm(), problem.network.parameters())
        assert float(eigenvalues(problem, inputs, nodes).abs().max()) <= bound * (1 + 1e-12)


def test_a_larger_ball_needs_a_larger_constant() -> None:
    problem = tiny_problem(0)
    inputs, _ = problem.full[0]
    found = [certified_smoothness(inputs, 0, problem.hidden, problem.head, radius) for radius in (0.0, 0.1, 1.0, 10.0)]
    assert found == sorted(found)
    assert found[0] < found[-1]


def test_the_linear_models_constant_is_attained() -> None:
    """Two classes at even odds have S of norm 1/2; with a single image nothing is lost on the way."""
    inputs, head = torch.tensor([[3.0, 4.0]], dtype=torch.float64), torch.zeros(2, 3)
    assert certified_smoothness(inputs, 0, None, head, 7.0) == pytest.approx((9 + 16 + 1) / 2)
    linear = torch.nn.Linear(2, 2, dtype=torch.float64)
    torch.nn.init.zeros_(linear.weight)
    torch.nn.init.zeros_(linear.bias)
    assert largest_curvature(linear, inputs, torch.tensor([0])) == pytest.approx(13)


@pytest.mark.parametrize("seed", range(5))
def test_power_iteration_finds_the_hessians_largest_eigenvalue(seed: int) -> None:
    problem = tiny_problem(seed)
    inputs, nodes = problem.full[0]
    largest = float(eigenvalues(problem, inputs, nodes).abs().max())
    found = largest_curvature(problem.network, inputs, nodes, iterations=500, tolerance=1e-9)
    assert found == pytest.approx(largest, rel=1e-4)
