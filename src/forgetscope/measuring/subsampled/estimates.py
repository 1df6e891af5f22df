"""What an exact probe would find, from the gradients of some images of each class.

A past class's images are two strata, those that are rehearsed (mean gradient r) and the others (u); some of each are drawn
without replacement. With w, the known share of the rehearsed ones, f = w r + (1 - w) u and b = (1 - w) (r - u). Products of
means over different strata are unbiased. The square of one stratum's mean is too large by the variance of that mean,
(1 - n/N) s^2 / n, which the same images tell (Cochran 1977, theorem 2.4): it is taken off. What is left is a U-statistic, the
mean over all ways to take the two factors from disjoint parts of the sample, two halves for example. Of a class whose rehearsed
images are not among its images (prepared in another way, or twice in the memory) w is 0, and b = r - u.

Variances are by the delta method: near where it is, a term is linear in the strata's means, so its variance is the sum over
strata of (1 - n/N) s^2 / n, where s^2 is the variance over images of a product with their gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from forgetscope.measuring.coefficients import Coefficients, Products, norms, terms
from forgetscope.measuring.gradients import GradientSums, rounding_error

# The least share of a squared norm that is left when its noise is taken off. Below it the sample hardly knows the norm: a
# length is never less than half of what the sample has, so a term stays finite, and within twice of what it is uncorrected.
LEAST = 0.25


class SampledGradients(GradientSums):
    """Sums over the images of each group, and the two factors of which each image's gradient is the outer product."""

    seen: tuple[tuple[Tensor, Tensor, Tensor], ...] = ()  # residual [n, k], inputs [n, d + 1], groups [n]

    def add_gradients(self, residual: Tensor, inputs: Tensor, groups: Tensor) -> None:
        super().add_gradients(residual, inputs, groups)
        self.seen = (*self.seen, (residual, inputs, groups))


@dataclass(frozen=True)
class Estimates:
    """One probe of P past classes and N new ones, as `Measurement` has it."""

    terms: Coefficients
    variances: Coefficients  # of the terms, over samples like this one
    pairs: Tensor
    gradient_norm: Tensor
    bias_norm: Tensor
    loss_full: Tensor
    loss_rehearsal: Tensor
    rounding: Tensor
    new_logits: Tensor  # of all outputs


def estimate(
    sums: SampledGradients, population: Tensor, nodes: Tensor, alpha: float, shares: Tensor, foreign: Tensor | None = None
) -> Estimates:
    """population [groups]: how many images each group has in all; nodes [P]: of past classes; shares [P]: p_c; foreign [P]: of
    which of them what is rehearsed is not among the class's images, by default of none."""
    s = _Strata(sums, population, nodes, foreign)
    f, b, rows = s.full.flatten(1), s.bias.flatten(1), s.full[torch.arange(s.past), nodes]
    products = f @ b.T  # [P, P]: <b_y, f_c> in row c, column y
    products.diagonal().sub_((1 - s.w) * (s.w * s.noise[s.kept] - (1 - s.w) * s.noise[s.rest]))
    own, weighted = products.diagonal(), products * shares
    of_full = [s.w**2 * noise[s.kept] + (1 - s.w) ** 2 * noise[s.rest] for noise in (s.noise, s.noise_within)]
    norm, norm_within = _length(f, of_full[0]), _length(rows, of_full[1])
    rounding = rounding_error(s.of_class(sums.lengths), sums.eps)
    new_within = torch.einsum("nkd,kd->kn", s.by_class[:, nodes], rows) * s.share  # [P, N]
    found = Products(
        own=own,
        others=weighted.sum(dim=1) - weighted.diagonal(),
        new=f @ s.new.flatten(),
        new_within=new_within.sum(dim=1),
        length=norm.masked_fill(norms(f) <= rounding, torch.nan),
        length_within=norm_within.masked_fill(norms(rows) <= rounding, torch.nan),
    )
    from_past, from_new = -alpha * weighted / found.length[:, None], -(1 - alpha) * new_within / found.length_within[:, None]
    return Estimates(
        terms=terms(found, alpha, shares),
        variances=_variances(s, found, nodes, alpha, shares),
        pairs=torch.cat([from_past, from_new], dim=1),
        gradient_norm=norm,
        bias_norm=_length(b, (1 - s.w) ** 2 * (s.noise[s.kept] + s.noise[s.rest])),
        loss_full=s.of_class(sums.losses) / s.images,
        loss_rehearsal=sums.losses[s.kept] / sums.counts[s.kept],
        rounding=rounding,
        new_logits=s.share @ (sums.logits[s.fresh] / sums.counts[s.fresh, None]),
    )


class _Strata:
    """The groups of a sample: what is rehearsed of each past class (`kept`), the `rest` of it, and each new class (`fresh`)."""

    def __init__(self, sums: SampledGradients, population: Tensor, nodes: Tensor, foreign: Tensor | None) -> None:
        self.past = past = len(nodes)
        self.rest, self.kept, self.fresh = slice(0, past), slice(past, 2 * past), slice(2 * past, None)
        self.residual, self.inputs, self.groups = (torch.cat(parts) for parts in zip(*sums.seen, strict=True))
        self.counts, self.population = sums.counts.clamp(min=1), population
        # Of the variance over images: what part of it a mean over a sample without replacement has.
        self.part = (1 - self.counts / population.clamp(min=1)).clamp(min=0) / self.counts
        own = population[self.kept] if foreign is None else population[self.kept].masked_fill(foreign, 0.0)
        self.images = population[self.rest] + own
        self.w = own / self.images
        self.share = population[self.fresh] / population[self.fresh].sum()
        means = sums.gradients / self.counts[:, None, None]
        r, u, self.by_class = means[self.kept], means[self.rest], means[self.fresh]
        w = self.w[:, None, None]
        self.full, self.bias, self.new = (
            w * r + (1 - w) * u,
            (1 - w) * (r - u),
            (self.share[:, None, None] * self.by_class).sum(0),
        )
        squares, own = self.inputs.square().sum(dim=1), nodes[self.groups % past]
        self.noise = self._of_square(squares * self.residual.square().sum(dim=1), means.flatten(1))
        rows = means[torch.arange(2 * past), nodes.repeat(2)]
        within = squares * self.residual.gather(1, own[:, None])[:, 0].square()
        self.noise_within = self._of_square(within, torch.cat([rows, means.new_zeros(len(self.share), rows.shape[1])]))

    def _of_square(self, squares: Tensor, means: Tensor) -> Tensor:
        """[groups]: by how much the square of a mean over a sample is too large; squares [n]: of the single images."""
        total = torch.zeros_like(self.counts).index_add_(0, self.groups, squares)
        return self.part * (total - self.counts * means.square().sum(dim=1)).clamp(min=0) / (self.counts - 1).clamp(min=1)

    def of_class(self, sums: Tensor) -> Tensor:
        """[P]: sums over samples, as they would be over all images of a past class."""
        all_images = sums / self.counts * self.population
        return all_images[self.rest] + all_images[self.kept].masked_fill(self.w == 0, 0.0)

    def products(self, direction: Tensor, images: Tensor | slice = slice(None)) -> Tensor:
        """[n]: of these images' gradients with a direction [k, d + 1]."""
        return ((self.inputs[images] @ direction.T) * self.residual[images]).sum(dim=1)

    def variance(self, values: Tensor, images: Tensor | slice = slice(None)) -> Tensor:
        """[groups, ...]: of the mean over each group's sample of a value [n, ...] per image."""
        groups, shape = self.groups[images], (len(self.counts), *values.shape[1:])
        counts = self.counts.view(-1, *[1] * (values.ndim - 1))
        means = values.new_zeros(shape).index_add_(0, groups, values) / counts
        squares = values.new_zeros(shape).index_add_(0, groups, (values - means[groups]).square())
        return self.part.view_as(counts) * squares / (counts - 1).clamp(min=1)


def _length(vectors: Tensor, noise: Tensor) -> Tensor:
    """Norms [P] of what the vectors [P, s] estimate; noise [P]: by how much their squares are too large."""
    lengths = norms(vectors)
    known = 1 - noise / lengths.square()
    return lengths * known.nan_to_num(1.0).clamp(min=LEAST).sqrt()


def _variances(s: _Strata, p: Products, nodes: Tensor, alpha: float, shares: Tensor) -> Coefficients:
    """Class by class: at 200 classes an array over images, classes and nodes would not fit in memory."""
    everyone = torch.einsum("p,pkd->kd", shares, s.bias)
    found = []
    for c, node in enumerate(nodes.tolist()):
        f, row = s.full[c] / p.length[c], s.full[c, node] / p.length_within[c]
        other_bias = (everyone - shares[c] * s.bias[c]) / p.length[c]
        all_products = torch.stack([s.products(f), s.residual[:, node] * (s.inputs @ row)], dim=1)
        of_others = s.variance(all_products)  # [groups, 2]: what other classes' images add to CIC, new ones' to both NIC
        past = (shares * (1 - s.w)).square() * (of_others[s.rest, 0] + of_others[s.kept, 0])
        fresh = s.share.square() @ of_others[s.fresh]
        mine = torch.nonzero(s.groups[:, None] == torch.tensor([c, s.past + c]))[:, 0]
        by_f, by_row = all_products[mine].T
        rehearsed = s.groups[mine] >= s.past
        part = torch.where(rehearsed, s.w[c], 1 - s.w[c])  # of f_c that this stratum's mean is; of b_c it is +-(1 - w)
        by_new_row = s.residual[mine, node] * (s.inputs[mine] @ s.new[node]) / p.length_within[c]
        values = [
            (1 - s.w[c]) * torch.where(rehearsed, by_f, -by_f)
            + part * (s.products(s.bias[c] / p.length[c], mine) - p.own[c] / p.length[c] ** 2 * by_f),
            part * (s.products(other_bias, mine) - p.others[c] / p.length[c] ** 2 * by_f),
            part * (by_new_row - p.new_within[c] / p.length_within[c] ** 2 * by_row),
            part * (s.products(s.new / p.length[c], mine) - p.new[c] / p.length[c] ** 2 * by_f),
        ]
        sic, cic, nic, all_nic = s.variance(torch.stack(values, dim=1), mine).sum(dim=0)
        found.append(torch.stack([sic, cic + past.sum() - past[c], nic + fresh[1], all_nic + fresh[0]]))
    weights = torch.stack([alpha * shares, *(torch.full_like(shares, part) for part in (alpha, 1 - alpha, 1 - alpha))])
    return Coefficients(*(weights.square() * torch.stack(found, dim=1)))
