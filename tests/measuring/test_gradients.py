from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from forgetscope.measuring.gradients import class_mean_gradients, loss_residual


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
