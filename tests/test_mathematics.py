"""The numbers that docs/mathematics.md works out by hand are those of the code."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import forgetscope as fs
from forgetscope.lemma.terms import exact_gradients, lemma_terms

PAGE = Path(__file__).parents[1] / "docs" / "mathematics.md"
PAST, PAST_LABELS = torch.tensor([[2.0], [4.0], [-1.0], [-3.0]]), torch.tensor([0, 0, 1, 1])
STORED = torch.tensor([0, 3])  # x = 2 of the first class, x = -3 of the second
NEW, NEW_LABELS = torch.tensor([[1.0]]), torch.tensor([2])


def row(start: str) -> list[float]:
    """The two numbers in the page's row that begins so."""
    (line,) = re.findall(rf"^\| {re.escape(start)}.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [float(cell.replace("−", "-")) for cell in line.strip("| ").split(" | ")[-2:]]


def products(start: str) -> list[float]:
    """Of a row of calculations, what stands last in each of its two cells."""
    (line,) = re.findall(rf"^\| {re.escape(start)} \|.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    results = [cell.strip("$ ").split(" = ")[-1] for cell in line.strip("| ").split(" | ")[-2:]]
    return [float(Fraction(re.sub(r"\\frac\{(\d+)\}\{(\d+)\}", r"\1/\2", result))) for result in results]


def untrained() -> nn.Linear:
    head = nn.Linear(1, 3)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def test_the_page_has_the_images_that_are_computed_here() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for line in ("| 1 | 2, 4 | 2 | 3 | 2 |", "| 2 | −1, −3 | −3 | −2 | −3 |", "| 3, new | 1 | | 1 | |"):
        assert line in text


def test_one_probes_terms_are_those_of_the_example() -> None:
    probe = fs.Probe(PAST, PAST_LABELS, STORED, NEW, NEW_LABELS, alpha=0.5)
    probe.measure(nn.Sequential(nn.Identity(), untrained()))
    found = probe.coefficients
    for name in ("sic", "cic", "nic", "all_nic"):
        printed = row(f"{name.upper().replace('_', '-')}:")
        assert getattr(found, name).tolist() == pytest.approx(printed, abs=5e-5), name


def test_the_examples_inner_products_are_those_of_autograd() -> None:
    def gradient(x: Tensor, labels: Tensor) -> Tensor:
        head = untrained()
        weight, bias = torch.autograd.grad(nn.functional.cross_entropy(head(x), labels), [head.weight, head.bias])
        return torch.cat([weight, bias[:, None]], dim=1)

    full = [gradient(PAST[:2], PAST_LABELS[:2]), gradient(PAST[2:], PAST_LABELS[2:])]
    bias = [gradient(PAST[[i]], PAST_LABELS[[i]]) - full[c] for c, i in enumerate(STORED.tolist())]
    new = gradient(NEW, NEW_LABELS)
    for start, found in {
        r"$\langle b_c, f_c \rangle$": [torch.sum(bias[c] * full[c]) for c in (0, 1)],
        r"$\langle b_y, f_c \rangle$ of the other": [torch.sum(bias[1 - c] * full[c]) for c in (0, 1)],
        r"$\langle g_{new}, f_c \rangle$ in row $c$": [torch.sum(new[c] * full[c][c]) for c in (0, 1)],
    }.items():
        assert [value.item() for value in found] == pytest.approx(products(start), abs=1e-5), start


def test_the_lemmas_terms_are_those_of_the_example() -> None:
    x = PAST.double()
    full = [(x[:2], PAST_LABELS[:2]), (x[2:], PAST_LABELS[2:])]
    stored = [(x[:1], PAST_LABELS[:1]), (x[3:], PAST_LABELS[3:])]
    gradients = exact_gradients(untrained().double(), full, stored, (NEW.double(), NEW_LABELS), (2, 2))
    terms = lemma_terms(gradients, 0.1, torch.ones(2))
    rows = {"descent": "own descent | −", "sic": "its bias | 0", "cic": "others' biases | −", "nic": "new classes | 0"}
    rows |= {"fourth": "other old classes | −", "first_order": "sum: "}
    for name, start in rows.items():
        assert getattr(terms, name).tolist() == pytest.approx(row(start), abs=5e-5), name


@pytest.mark.parametrize("seed", range(5))
def test_where_no_feature_is_negative_no_term_of_nic_is(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def features(images: int) -> Tensor:
        return torch.rand(images, 4, generator=generator)

    head = nn.Linear(4, 5)
    with torch.no_grad():
        head.weight.copy_(torch.randn(5, 4, generator=generator))
    probe = fs.Probe(features(12), torch.arange(12) % 3, torch.arange(3), features(8), 3 + torch.arange(8) % 2, alpha=0.5)
    probe.measure(nn.Sequential(nn.Identity(), head))
    assert (probe.coefficients.nic >= 0).all()


def test_each_coefficient_has_a_picture_for_light_and_dark() -> None:
    for name in ("sic", "cic", "nic"):
        picture = (PAGE.parent / "images" / f"mathematics-{name}.svg").read_text(encoding="utf-8")
        assert "prefers-color-scheme: dark" in picture
        assert f"(images/mathematics-{name}.svg)" in PAGE.read_text(encoding="utf-8")
