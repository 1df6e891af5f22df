from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from forgetscope.lemma.smoothness import certified_smoothness
from forgetscope.lemma.terms import Gradients, exact_gradients, image_squares, lemma_terms, mean_gradient, one_step_changes
from tiny_problem import PER_BATCH, Problem, tiny_problem

RATE = 0.3


def by_hand(problem: Problem, inputs: Tensor, nodes: Tensor) -> Tensor:
    """The gradient of the mean loss by backward passes image by image, flat."""
    network = copy.deepcopy(problem.network)
    for x, node in zip(inputs, nodes, strict=True):
        (-torch.log_softmax(network(x), dim=0)[node] / len(nodes)).backward()
    return torch.cat([parameter.grad.flatten() for parameter in network.parameters() if parameter.grad is not None])


def exact(problem: Problem) -> Gradients:
    return exact_gradients(problem.network, problem.full, problem.rehearsed, problem.new, PER_BATCH)


def certified(problem: Problem, radius: float) -> Tensor:
    parts = enumerate(problem.full)
    found = [certified_smoothness(inputs, c, problem.hidden, problem.head, radius) for c, (inputs, _) in parts]
    return torch.tensor(found, dtype=torch.float64)


def test_terms_are_those_of_the_lemma_as_it_is_printed() -> None:
    problem, smoothness = tiny_problem(0), torch.tensor([2.0, 3.0], dtype=torch.float64)
    alpha, p, rate = 2 / 3, (2 / 3, 1 / 3), RATE
    full, kept = ([by_hand(problem, *part) for part in parts] for parts in (problem.full, problem.rehearsed))
    new = by_hand(problem, *problem.new)
    bias = [r - f for r, f in zip(kept, full, strict=True)]
    terms = lemma_terms(exact(problem), rate, smoothness)
    chances, gradients = zip(*((chance, by_hand(problem, *batch)) for chance, batch in problem.batches()), strict=True)
    squared = sum(chance * float(g @ g) for chance, g in zip(chances, gradients, strict=True))
    for c, y in ((0, 1), (1, 0)):
        norm = full[c].norm()

        def interf(v: Tensor, c: int = c, norm: Tensor = norm) -> Tensor:
            return -(v @ full[c]) / norm

        torch.testing.assert_close(terms.descent[c], -rate * alpha * p[c] * norm**2)
        torch.testing.assert_close(terms.sic[c], rate * norm * alpha * p[c] * interf(bias[c]))
        torch.testing.assert_close(terms.cic[c], rate * norm * alpha * p[y] * interf(bias[y]))
        torch.testing.assert_close(terms.nic[c], rate * norm * (1 - alpha) * interf(new))
        torch.testing.assert_close(terms.fourth[c], rate * norm * alpha * p[y] * interf(full[y]))
        assert float(terms.curvature[c]) == pytest.approx(rate**2 * float(smoothness[c]) / 2 * squared)
    torch.testing.assert_close(terms.bound, terms.first_order + terms.curvature)


@given(seed=st.integers(0, 10**6), units=st.sampled_from([0, 2]))
@settings(max_examples=8)
def test_expectations_equal_those_over_every_mini_batch(seed: int, units: int) -> None:
    problem = tiny_problem(seed, units=units)
    gradients = exact(problem)
    draws = list(problem.batches())
    chances = torch.tensor([chance for chance, _ in draws], dtype=torch.float64)
    assert float(chances.sum()) == pytest.approx(1)
    g = torch.stack([mean_gradient(problem.network, batch) for _, batch in draws])
    torch.testing.assert_close(gradients.expected, chances @ g)
    assert gradients.squared == pytest.approx(float(chances @ g.square().sum(dim=1)))
    assert gradients.longest >= float(g.norm(dim=1).max()) * (1 - 1e-12)
    found = one_step_changes(problem.network, problem.full, (batch for _, batch in draws), RATE)
    # The first five terms are the first-order change, exactly: nothing is lost before the curvature.
    first_order = lemma_terms(gradients, RATE, torch.ones(2)).first_order
    torch.testing.assert_close(chances @ found.first_order, first_order)
    torch.testing.assert_close(first_order, -RATE * gradients.full @ gradients.expected)


PROBLEMS = given(
    seed=st.integers(0, 10**6),
    units=st.sampled_from([0, 1, 2]),
    scale=st.sampled_from([0.1, 1.0, 4.0]),
    rate=st.floats(1e-3, 5.0),
)


@PROBLEMS
@settings(max_examples=20)
def test_the_inequality_holds_with_a_certified_smoothness(seed: int, units: int, scale: float, rate: float) -> None:
    inequality_holds(seed, units, scale, rate)


@pytest.mark.slow
@PROBLEMS
@settings(max_examples=400)
def test_the_inequality_holds_in_many_problems(seed: int, units: int, scale: float, rate: float) -> None:
    inequality_holds(seed, units, scale, rate)


def inequality_holds(seed: int, units: int, scale: float, rate: float) -> None:
    problem = tiny_problem(seed, units=units, scale=scale)
    gradients, draws = exact(problem), list(problem.batches())
    smoothness = certified(problem, rate * gradients.longest)
    found = one_step_changes(problem.network, problem.full, (batch for _, batch in draws), rate)
    rounding = 1e-12 * (1 + found.change.abs())
    per_draw = found.first_order + rate**2 / 2 * smoothness * found.squares[:, None]
    assert bool((found.change <= per_draw + rounding).all())
    chances = torch.tensor([chance for chance, _ in draws], dtype=torch.float64)
    bound = lemma_terms(gradients, rate, smoothness).bound
    assert bool((chances @ found.change <= bound + rounding.amax(dim=0)).all())


def test_the_inequality_can_fail_where_smoothness_is_too_small() -> None:
    problem = tiny_problem(1, units=0)
    gradients, draws = exact(problem), [batch for _, batch in problem.batches()]
    found = one_step_changes(problem.network, problem.full, draws, RATE)
    too_small = 1e-3 * certified(problem, RATE * gradients.longest)
    assert bool((found.change > found.first_order + RATE**2 / 2 * too_small * found.squares[:, None]).any())


def test_updates_are_taken_back() -> None:
    problem = tiny_problem(2)
    before = copy.deepcopy(problem.network.state_dict())
    one_step_changes(problem.network, problem.full, [problem.new], RATE)
    assert all(torch.equal(before[name], value) for name, value in problem.network.state_dict().items())

    def broken() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        one_step_changes(problem.network, problem.full, [problem.new], RATE, broken)
    assert all(torch.equal(before[name], value) for name, value in problem.network.state_dict().items())


def test_each_image_has_its_own_gradient() -> None:
    problem = tiny_problem(3)
    inputs, nodes = problem.new
    alone = [by_hand(problem, inputs[i : i + 1], nodes[i : i + 1]).square().sum() for i in range(len(nodes))]
    torch.testing.assert_close(image_squares(problem.network, problem.new), torch.stack(alone))
