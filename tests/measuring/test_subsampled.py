"""Probes that look at some images: unbiased, with errors that are right, and missing where an exact probe would be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from forgetscope.errors import InputError, SpecError
from forgetscope.measuring.measurement import Measurement, measure
from forgetscope.measuring.probe import Probe
from forgetscope.measuring.probe_data import ProbeData
from forgetscope.measuring.quantities import COEFFICIENTS
from forgetscope.measuring.subsampled.drawing import subsampled
from forgetscope.measuring.subsampled.estimates import LEAST
from forgetscope.measuring.subsampled.quotas import FEWEST, quotas
from forgetscope.spec import RunSpec

FEATURES = 5


class Direct(nn.Module):
    """Its features are the images themselves."""

    def __init__(self, nodes: int, seed: int = 0) -> None:
        super().__init__()
        self.features, self.head = nn.Identity(), nn.Linear(FEATURES, nodes)
        weights = torch.randn(nodes, FEATURES, generator=torch.Generator().manual_seed(seed))
        self.head.load_state_dict({"weight": weights, "bias": weights[:, 0] / 3})
        self.double()

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.features(images))
        return outputs


def data_of(sizes: tuple[tuple[int, int], ...], new: tuple[int, ...], seed: int = 1, alpha: float = 0.4) -> ProbeData:
    """sizes: of each past class, how many images are rehearsed and how many are not."""
    draws = torch.Generator().manual_seed(seed)
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor([sum(size) for size in sizes]))
    rehearsed = torch.cat([torch.arange(sum(size)) < size[0] for size in sizes])
    new_labels = torch.repeat_interleave(torch.arange(len(new)), torch.tensor(new)) + len(sizes)
    centres = torch.randn(len(sizes) + len(new), FEATURES, generator=draws)
    past, fresh = (centres[of] + 0.7 * torch.randn(len(of), FEATURES, generator=draws) for of in (labels, new_labels))
    past[rehearsed] *= 0.8  # they are learned otherwise
    return ProbeData(past.double(), labels, rehearsed, fresh.double(), new_labels, alpha)


def some_of(data: ProbeData, images: int, seed: int) -> ProbeData:
    return subsampled(data, images, lambda node: np.random.default_rng([seed, node]))


def rows(measured: Measurement, name: str = "terms") -> Tensor:
    """[coefficients, P]"""
    return torch.stack([getattr(getattr(measured, name), coefficient) for coefficient in COEFFICIENTS])


def test_a_sample_of_everything_is_the_exact_probe_without_an_error() -> None:
    data, network = data_of(((3, 9), (0, 8), (7, 0), (2, 4)), (5, 6)), Direct(6)
    exact, all_images = measure(network, data), measure(network, some_of(data, 40, seed=0))
    torch.testing.assert_close(rows(all_images), rows(exact), rtol=1e-9, atol=1e-12, equal_nan=True)
    for name in ("pairs", "gradient_norm", "bias_norm", "loss_full", "loss_rehearsal", "rounding", "new_logits"):
        found, expected = getattr(all_images, name), getattr(exact, name)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12, equal_nan=True, msg=name)
    errors = rows(all_images, "variances")
    assert torch.equal(errors.isnan(), rows(exact).isnan())  # SIC of the class without a stored image
    assert float(errors.nan_to_num().abs().max()) == 0


@dataclass(frozen=True)
class Case:
    rehearsed: int  # drawn of class 0, of 4
    others: int  # of 5


def every_sample(data: ProbeData, case: Case) -> Iterator[ProbeData]:
    """All samples of class 0's images; of all other classes everything."""
    base = some_of(data, 1000, seed=0)
    images, labels, groups = data.parts[0]
    strata = [torch.nonzero(groups == group)[:, 0].tolist() for group in (len(data.past_nodes), 0)]
    rest = torch.nonzero(labels != 0)[:, 0].tolist()
    for kept, others in product(combinations(strata[0], case.rehearsed), combinations(strata[1], case.others)):
        at = torch.tensor(sorted([*kept, *others, *rest]))
        base.parts = ((images[at], labels[at], groups[at]), data.parts[1])
        yield base


@pytest.mark.parametrize("case", [Case(2, 2), Case(2, 3), Case(3, 4), Case(4, 2)], ids=str)
def test_products_and_squared_norms_are_unbiased_over_all_samples_there_are(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forgetscope.measuring.subsampled.estimates.LEAST", 1e-9)
    data, network = data_of(((4, 5), (2, 4), (3, 3)), (4, 3)), Direct(5)
    exact, found = measure(network, data), [measure(network, sample) for sample in every_sample(data, case)]
    assert len(found) > 5
    squares = torch.stack([one.gradient_norm[0] ** 2 for one in found])
    assert float(squares.mean()) == pytest.approx(float(exact.gradient_norm[0] ** 2), rel=1e-9)
    for name in ("sic", "cic", "all_nic"):  # term x norm of f_c is a product alone
        products = torch.stack([getattr(one.terms, name)[0] * one.gradient_norm[0] for one in found])
        expected = getattr(exact.terms, name)[0] * exact.gradient_norm[0]
        assert float(products.mean()) == pytest.approx(float(expected), rel=1e-9), name
    assert float(torch.stack([one.loss_full[0] for one in found]).mean()) == pytest.approx(float(exact.loss_full[0]))


def test_uncorrected_squares_would_be_far_off() -> None:
    data, network = data_of(((4, 5), (2, 4), (3, 3)), (4, 3)), Direct(5)
    exact, plain = measure(network, data), []
    for sample in every_sample(data, Case(2, 2)):
        images, _, groups = sample.parts[0]
        r, u = (_mean_gradient(network, images[groups == group], 0) for group in (len(data.past_nodes), 0))
        plain.append(float((4 / 9 * r + 5 / 9 * u).square().sum()))
    assert np.mean(plain) > 1.05 * float(exact.gradient_norm[0] ** 2)


def _mean_gradient(network: Direct, images: Tensor, label: int) -> Tensor:
    """By autograd."""
    loss = nn.functional.cross_entropy(network(images), torch.full((len(images),), label))
    weight, bias = torch.autograd.grad(loss, [network.head.weight, network.head.bias])
    return torch.cat([weight, bias[:, None]], dim=1).double()


def test_errors_are_what_estimates_deviate_by_over_many_samples() -> None:
    data, network = data_of(((40, 260), (60, 240), (30, 120)), (200, 100)), Direct(5)
    exact = rows(measure(network, data))
    found = [measure(network, some_of(data, 60, seed)) for seed in range(300)]
    values, variances = torch.stack([rows(one) for one in found]), torch.stack([rows(one, "variances") for one in found])
    deviation = (values - exact).square().mean(dim=0).sqrt()
    told = variances.mean(dim=0).sqrt()
    assert ((told / deviation - 1).abs() < 0.15).all(), told / deviation  # 300 samples know a deviation to 4 %
    assert ((values.mean(dim=0) - exact).abs() < 0.15 * deviation + 3 * deviation / 300**0.5).all()
    within = ((values - exact).abs() <= 1.96 * variances.sqrt()).double().mean(dim=0)
    assert ((within > 0.9) & (within < 0.99)).all(), within


def test_what_noise_hides_is_bounded_and_not_missing() -> None:
    """Two images that pull in opposite directions: their mean is nearly nothing, and a sample of two of them knows it badly."""
    network = Direct(4)
    draws = torch.Generator().manual_seed(3)
    images = torch.randn(40, FEATURES, generator=draws).double() * torch.tensor([3.0, -3.0]).repeat(20)[:, None]
    with torch.no_grad():
        network.head.weight.mul_(0.01)
    labels = torch.zeros(40, dtype=torch.long)
    labels[20:] = 1
    data = ProbeData(images, labels, torch.arange(40) % 20 < 4, images[:10] + 1, labels[:10] + 2)
    exact = measure(network, data)
    assert rows(exact).isfinite().all()
    at_the_bound = 0
    for seed in range(50):
        sample = some_of(data, FEWEST, seed)
        found = measure(network, sample)
        assert rows(found).isfinite().all()
        assert rows(found, "variances").isfinite().all()
        images_, _, groups = sample.parts[0]
        for c in (0, 1):
            r, u = (_mean_gradient(network, images_[groups == group], c) for group in (2 + c, c))
            plain = float((0.2 * r + 0.8 * u).norm())
            assert float(found.gradient_norm[c]) >= LEAST**0.5 * plain * (1 - 1e-6)
            at_the_bound += float(found.gradient_norm[c]) < LEAST**0.5 * plain * (1 + 1e-6)
    assert at_the_bound > 5


def test_a_gradient_that_vanished_is_missing_as_in_an_exact_probe() -> None:
    data, network = data_of(((4, 30), (5, 20)), (20,)), Direct(3)
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.copy_(torch.tensor([2000.0, 0.0, 0.0]))  # class 0 is learned beyond all doubt, the others not at all
    exact, found = measure(network, data), measure(network, some_of(data, 8, seed=0))
    assert rows(exact)[:, 0].isnan().all()
    assert torch.equal(rows(found).isnan(), rows(exact).isnan())
    assert torch.equal(rows(found, "variances").isnan(), rows(exact).isnan())
    assert torch.equal(found.pairs.isnan(), exact.pairs.isnan())


def test_what_is_not_finite_is_missing() -> None:
    data, network = data_of(((4, 30), (5, 20)), (20,)), Direct(3)
    with torch.no_grad():
        network.head.weight[0, 0] = torch.nan
    found = measure(network, some_of(data, 8, seed=0), trusted=True)
    assert rows(found).isnan().all()


@pytest.mark.parametrize("sizes", [(40, 460), (200, 300), (3, 400), (1, 499), (0, 30), (30, 0), (2, 5), (500, 3)])
@pytest.mark.parametrize("images", [FEWEST, 25, 60, 1000])
def test_quotas_fill_up_and_leave_no_stratum_with_a_single_image_of_many(images: int, sizes: tuple[int, int]) -> None:
    few, rest = quotas(images, *sizes)
    assert few + rest == min(images, sum(sizes))
    for taken, there in ((few, sizes[0]), (rest, sizes[1])):
        assert min(2, there) <= taken <= there


def test_draws_are_of_each_class_for_itself_and_repeat_nobody() -> None:
    data = data_of(((40, 60), (40, 60)), (50,))
    first, again, other = (some_of(data, 20, seed) for seed in (0, 0, 1))
    assert torch.equal(first.parts[0][0], again.parts[0][0])
    assert not torch.equal(first.parts[0][0], other.parts[0][0])
    assert len(torch.unique(first.parts[0][0], dim=0)) == 40
    assert torch.bincount(first.parts[0][2], minlength=5).tolist() == [12, 12, 8, 8, 0]
    assert len(first.parts[1][1]) == 20
    fewer = ProbeData(data.parts[0][0][:100], data.parts[0][1][:100], data.parts[0][2][:100] >= 2, *data.parts[1][:2])
    assert torch.equal(some_of(fewer, 20, seed=0).parts[0][0], first.parts[0][0][:20])  # whatever other classes there are


def test_a_head_without_a_closed_form_is_refused_by_name() -> None:
    class Cosine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, FEATURES, generator=torch.Generator().manual_seed(0)))

        def forward(self, images: Tensor) -> Tensor:
            return nn.functional.normalize(images, dim=1) @ nn.functional.normalize(self.weight, dim=1).T

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.top = nn.Linear(FEATURES, FEATURES), Cosine()
            self.double()

        def forward(self, images: Tensor) -> Tensor:
            outputs: Tensor = self.top(self.body(images))
            return outputs

    with pytest.raises(InputError, match=r"The last layer is Cosine, which does not give .* some images cannot stand for the"):
        measure(Network(), some_of(data_of(((4, 30), (5, 20)), (20,)), 8, seed=0))


def test_a_probe_of_somebody_s_own_loop_estimates_and_goes_on_where_it_was() -> None:
    data, network = data_of(((20, 80), (30, 70)), (50,)), Direct(3)

    def probe() -> Probe:
        (past, labels, groups), (new, new_labels, _) = data.parts
        return Probe(past, labels, groups >= 2, new, new_labels, 0.4)

    exact, whole, some = probe(), probe(), probe()
    exact.measure(network)
    for _ in range(2):
        measured = whole.measure(network, images=20, seed=7)
    assert "Estimated from 60 images of these." in repr(measured)
    first, second = whole.sums.values
    assert not torch.equal(first, second)
    errors = whole.sums.errors
    assert errors is not None
    assert (((whole.coefficients.sic - 2 * exact.coefficients.sic) / errors.sic).abs() < 5).all()
    assert list(whole.to_frame().columns)[:9] == ["stored", *COEFFICIENTS, *(f"{name}_se" for name in COEFFICIENTS)]
    some.measure(network, images=20, seed=7)
    resumed = probe()
    resumed.sums.load_state_dict(some.sums.state_dict())
    resumed.measure(network, images=20, seed=7)
    assert resumed.to_frame().equals(whole.to_frame())
    assert "sic_se" not in exact.to_frame()
    with pytest.raises(InputError, match="images = 3 of each past class: a probe needs 4 or more"):
        exact.measure(network, images=3)
    with pytest.raises(InputError, match="seed = -1 is no whole number"):
        exact.measure(network, images=30, seed=-1)


def test_a_run_takes_what_a_sample_can_be_made_of() -> None:
    assert RunSpec(probe_images=FEWEST).probe_images == FEWEST
    with pytest.raises(SpecError, match=f"probe_images = {FEWEST - 1} is not valid"):
        RunSpec(probe_images=FEWEST - 1)
