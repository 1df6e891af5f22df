from __future__ import annotations

import mpmath
import torch
from hypothesis import given, settings, strategies as st

from forgetscope.measuring.coefficients import norms
from forgetscope.measuring.gradients import GradientSums, loss_residual, rounding_error
from rehearsed import class_mean_gradients, from_rehearsal


def random_batch(seed: int, n: int, d: int, k: int) -> tuple[torch.Tensor, torch.nn.Linear, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, d, generator=generator, dtype=torch.float64)
    head = torch.nn.Linear(d, k, dtype=torch.float64)
    with torch.no_grad():
        head.weight.copy_(torch.randn(k, d, generator=generator))
        head.bias.copy_(torch.randn(k, generator=generator))
    return features, head, torch.randint(k, (n,), generator=generator)


def autograd_gradient(features: torch.Tensor, head: torch.nn.Linear, labels: torch.Tensor) -> torch.Tensor:
    head.zero_grad()
    torch.nn.functional.cross_entropy(head(features), labels).backward()
    return torch.cat([head.weight.grad, head.bias.grad[:, None]], dim=1)


@given(seed=st.integers(0, 10**6), n=st.integers(1, 30), d=st.integers(1, 8), k=st.integers(2, 7))
def test_every_class_gradient_equals_autograd(seed: int, n: int, d: int, k: int) -> None:
    features, head, labels = random_batch(seed, n, d, k)
    gradients = class_mean_gradients(features, head(features).detach(), labels, k)
    assert gradients.shape == (k, k, d + 1)
    for label in range(k):
        mine = labels == label
        if mine.any():
            torch.testing.assert_close(
                gradients[label], autograd_gradient(features[mine], head, labels[mine]), rtol=1e-10, atol=1e-10
            )
        else:
            assert gradients[label].isnan().all()


@given(seed=st.integers(0, 10**6))
def test_the_order_of_images_does_not_matter(seed: int) -> None:
    features, head, labels = random_batch(seed, 20, 5, 4)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(seed))
    straight = class_mean_gradients(features, head(features).detach(), labels, 4)
    shuffled = class_mean_gradients(features[order], head(features)[order].detach(), labels[order], 4)
    torch.testing.assert_close(straight, shuffled, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_a_well_learned_image_keeps_its_digits_in_float32() -> None:
    logits = torch.tensor([[40.0, 0.0, 1.0]])
    residual = loss_residual(logits, torch.tensor([0]))
    others = torch.exp(torch.tensor([-40.0, -39.0], dtype=torch.float64))
    assert float(torch.softmax(logits, dim=1)[0, 0] - 1) == 0.0  # what cancellation would give
    torch.testing.assert_close(residual[0, 0], -others.sum(), rtol=1e-12, atol=0)


def test_a_class_beyond_the_labels_is_missing_not_zero() -> None:
    gradients = class_mean_gradients(torch.ones(1, 2), torch.zeros(1, 3), torch.tensor([1]), 3)
    assert gradients[[0, 2]].isnan().all()
    assert gradients[1].isfinite().all()


def exact_gradients(features: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor, classes: int) -> list[list[mpmath.mpf]]:
    """By hand with 60 digits: each class's mean gradient, flattened."""
    result = []
    for c in range(classes):
        total = [mpmath.mpf(0)] * (logits.shape[1] * (features.shape[1] + 1))
        mine = [i for i in range(len(labels)) if labels[i] == c]
        for i in mine:
            values = [mpmath.mpf(v) for v in logits[i].tolist()]
            exponents = [mpmath.e**v for v in values]
            inputs = [*(mpmath.mpf(v) for v in features[i].tolist()), mpmath.mpf(1)]
            residual = [e / mpmath.fsum(exponents) - (j == c) for j, e in enumerate(exponents)]
            total = [t + g for t, g in zip(total, (r * h for r in residual for h in inputs), strict=True)]
        result.append([t / len(mine) for t in total])
    return result


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), gap=st.floats(0, 80), scale=st.floats(0.1, 10))
def test_norms_and_coefficients_agree_with_exact_arithmetic_on_the_same_float32_values(
    seed: int, gap: float, scale: float
) -> None:
    """Also for well-learned classes: with a gap of 80 the true class's probability differs from 1 by 1e-35."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.tensor([0, 1, 2] * 4)
    features = torch.randn(12, 3, generator=generator).abs() * scale  # as after a ReLU
    logits = torch.randn(12, 4, generator=generator)
    logits[torch.arange(12), labels] += gap
    mean = class_mean_gradients(features, logits, labels, 3)
    kept = class_mean_gradients(features[:6], logits[:6], labels[:6], 3)
    terms = from_rehearsal(mean[:2], kept[:2], mean[2], 0.5, torch.tensor([0.4, 0.6]))
    with mpmath.workdps(60):
        exact = exact_gradients(features, logits, labels, 3)
        bias = [
            [r - f for r, f in zip(*both, strict=True)]
            for both in zip(exact_gradients(features[:6], logits[:6], labels[:6], 3), exact, strict=True)
        ]
        for c, other, share, other_share in ((0, 1, 0.4, 0.6), (1, 0, 0.6, 0.4)):
            norm = mpmath.norm(exact[c])
            row = slice(4 * c, 4 * c + 4)
            expected = {
                "sic": -share * mpmath.fdot(bias[c], exact[c]) / norm / 2,
                "cic": -other_share * mpmath.fdot(bias[other], exact[c]) / norm / 2,
                "nic": -mpmath.fdot(exact[2][row], exact[c][row]) / mpmath.norm(exact[c][row]) / 2,
                "all_nic": -mpmath.fdot(exact[2], exact[c]) / norm / 2,
            }
            assert abs(float(norms(mean[c].flatten())) / norm - 1) < 1e-5
            for name, value in expected.items():
                assert abs(float(getattr(terms, name)[c]) - value) <= 1e-5 * abs(value), name


def test_a_gradient_that_is_all_rounding_error_counts_as_vanished() -> None:
    features = torch.tensor([[0.1], [-0.1]]) @ torch.tensor([[1.0, 3.0]])  # two images whose gradients cancel but for the bias
    residual_free = torch.zeros(2, 2)
    sums = GradientSums(2, 2, 2)
    sums.add(
        features, residual_free, torch.tensor([0, 1]), torch.tensor([0, 0])
    )  # labels 0 and 1: their residuals are opposite
    sums.add(-features, residual_free, torch.tensor([0, 1]), torch.tensor([0, 0]))
    length = norms(sums.gradients[0].flatten())
    bound = rounding_error(sums.lengths)
    assert sums.lengths[0] > 1
    assert length <= bound[0]
    tiny = sums.gradients.clone()
    tiny[0, 0, 0] += 4e-17  # what another order of summation might leave
    assert norms(tiny[0].flatten()) <= bound[0]
    terms = from_rehearsal(tiny[:1], tiny[:1] + 1, tiny[0] + 1, 0.5, torch.ones(1), rounding=bound[:1])
    assert all(getattr(terms, name).isnan().all() for name in ("sic", "cic", "nic", "all_nic"))
    without = from_rehearsal(tiny[:1], tiny[:1] + 1, tiny[0] + 1, 0.5, torch.ones(1))
    assert without.sic.isfinite().all()  # so it is the bound that decides


def test_a_gradient_far_below_one_is_still_a_gradient() -> None:
    """Squares of 1e-200 are zero in float64; the norm is not."""
    vector = torch.tensor([3e-200, 4e-200], dtype=torch.float64)
    torch.testing.assert_close(norms(vector), torch.tensor(5e-200, dtype=torch.float64), rtol=1e-14, atol=0)
    assert norms(torch.zeros(3, dtype=torch.float64)) == 0
