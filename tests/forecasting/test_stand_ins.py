"""Estimates of the coefficients from features that stand for past images, against the probe of the images themselves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import forgetscope as fs
from forgetscope.forecasting.stand_ins import SeenImages, estimated_terms

PAST, NEW, WIDTH = (0, 1, 2), (3, 4), 5
REHEARSED = torch.tensor([i % 12 < 4 for i in range(36)])


@pytest.fixture
def drawn() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, nn.Linear]:
    generator = torch.Generator().manual_seed(0)
    head = nn.Linear(WIDTH, len(PAST) + len(NEW)).double()
    with torch.no_grad():
        head.weight.normal_(generator=generator)
        head.bias.normal_(generator=generator)
    past = torch.randn(36, WIDTH, generator=generator, dtype=torch.float64)
    new = torch.randn(15, WIDTH, generator=generator, dtype=torch.float64)
    return past, torch.arange(36) // 12, new, torch.tensor([3] * 5 + [4] * 10), head


def estimated(drawn: tuple, stand_ins: dict[int, torch.Tensor], kept: dict[int, int] | None = None):  # type: ignore[no-untyped-def]
    past, labels, new, new_labels, head = drawn
    features, nodes = torch.cat([past[REHEARSED], new]), torch.cat([labels[REHEARSED], new_labels])
    seen = SeenImages(features, nodes, kept or dict.fromkeys(PAST, 4), {3: 5, 4: 10}, dict.fromkeys(PAST, 8))
    return estimated_terms(seen, stand_ins, head.weight.detach(), head.bias.detach(), 0.25)


def test_of_a_class_s_own_images_they_are_what_the_probe_measures(drawn) -> None:  # type: ignore[no-untyped-def]
    past, labels, new, new_labels, head = drawn
    exact = fs.Probe(past, labels, REHEARSED, new, new_labels, alpha=0.25).measure(head, features=nn.Identity(), head=head)
    found = estimated(drawn, {c: past[(labels == c) & ~REHEARSED] for c in PAST})
    for name in ("sic", "cic", "nic", "all_nic"):
        torch.testing.assert_close(getattr(found, name), getattr(exact.terms, name), rtol=1e-10, atol=1e-12)


def test_how_many_stand_in_changes_nothing(drawn) -> None:  # type: ignore[no-untyped-def]
    past, labels, *_ = drawn
    own = {c: past[(labels == c) & ~REHEARSED] for c in PAST}
    twice = {c: features.repeat(2, 1) for c, features in own.items()}
    for name in ("sic", "cic", "nic"):
        one, other = (getattr(estimated(drawn, given), name) for given in (own, twice))
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_without_stand_ins_a_class_is_unknown_and_so_is_what_it_does_to_others(drawn) -> None:  # type: ignore[no-untyped-def]
    past, labels, *_ = drawn
    found = estimated(drawn, {c: past[(labels == c) & ~REHEARSED] for c in (0, 2)})
    assert found.sic.isnan().tolist() == [False, True, False]
    assert found.nic.isnan().tolist() == [False, True, False]
    assert found.cic.isnan().all()
