"""How features have moved: a linear map from where images lay before a step to where they lie now, and draws to send."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forgetscope.measuring.keepsakes import Spread

RIDGE = 0.01  # as a share of the features' mean square


@dataclass(frozen=True)
class Fitted:
    """Images whose features are known before the step and now: some of each new class, and of each past one in memory."""

    before: Tensor  # [n, d]
    nodes: Tensor  # [n]
    is_new: Tensor  # [n]

    @cached_property
    def is_clamped(self) -> bool:
        """Whether features are those of a ReLU, so that what is drawn or translated is cut off at 0."""
        return bool((self.before >= 0).all())

    def translation(self, now: Tensor, without: Tensor | None = None) -> Tensor:
        """[d + 1, d], the last row a constant; new and past images weigh the same. without [n]: images to leave out."""
        used = torch.ones(len(self.nodes), dtype=torch.bool) if without is None else ~without
        weights = torch.zeros(len(self.nodes), dtype=torch.float64)
        for group in (self.is_new & used, ~self.is_new & used):
            weights[group] = 1 / group.sum().clamp(min=1)
        inputs = _with_ones(self.before)
        gram = (inputs * weights[:, None]).T @ inputs
        ridge = torch.full((len(gram),), RIDGE * float(gram.diagonal()[:-1].mean()), dtype=torch.float64)
        ridge[-1] = 0
        gram.diagonal().add_(ridge.clamp(min=torch.finfo(torch.float64).tiny))
        solved: Tensor = torch.linalg.solve(gram, (inputs * weights[:, None]).T @ now)
        return solved

    def translated(self, draws: Tensor, translation: Tensor) -> Tensor:
        found = _with_ones(draws) @ translation
        return found.clamp(min=0) if self.is_clamped else found

    @cached_property
    def root(self) -> Tensor:
        """[d, d]: of the correlation. With 512 features it takes longer than a hundred draws."""
        return _root(self.correlation())

    def correlation(self) -> Tensor:
        """[d, d]: of the features before the step within classes, pooled over them."""
        _, place, counts = torch.unique(self.nodes, return_inverse=True, return_counts=True)
        sums = torch.zeros(len(counts), self.before.shape[1], dtype=torch.float64).index_add_(0, place, self.before)
        centred = self.before - (sums / counts[:, None])[place]
        products = centred.T @ centred
        scale = products.diagonal().sqrt()
        found: Tensor = products / torch.where(scale > 0, scale, 1).outer(torch.where(scale > 0, scale, 1))
        found.diagonal().fill_(1)
        return found


def drawn(mean: NDArray[np.floating], spread: NDArray[np.floating], kind: Spread, root: Tensor, normals: Tensor) -> Tensor:
    """Features [N, d] with this mean and these variances or covariances; normals [N, d]: independent. Nothing is clamped.

    Variances alone say nothing about how features go together: there they do so as in the correlation that `root` is of."""
    centre, deviations = torch.tensor(np.asarray(mean, np.float64)), torch.tensor(np.asarray(spread, np.float64))
    if kind == "variance":
        return centre + (normals @ root.T) * deviations.sqrt()
    upper = torch.zeros(len(centre), len(centre), dtype=torch.float64)
    upper[tuple(torch.triu_indices(len(centre), len(centre)))] = deviations
    return centre + normals @ _root(upper + upper.triu(1).T).T


def spread_of(draws: Tensor, kind: Spread) -> NDArray[np.float64]:
    """Variances [d], or the upper triangle of the covariance row by row, as a keepsake has them."""
    centred = draws - draws.mean(dim=0)
    if kind == "variance":
        return centred.square().mean(dim=0).numpy()
    whole = centred.T @ centred / len(draws)
    return whole[tuple(torch.triu_indices(*whole.shape))].numpy()


@dataclass(frozen=True)
class Deletion:
    """Classes that are left out together."""

    nodes: frozenset[int]
    images: Tensor  # [n]: which are theirs
    parts: int  # of the stratum, new or past, that they are one of


def deletions(fitted: Fitted, most: int = 10) -> list[Deletion]:
    """New classes, and past ones, in at most so many parts each.

    A stratum of one class is never left out: nothing would stand for it."""
    found = []
    for stratum in (fitted.is_new, ~fitted.is_new):
        classes = torch.unique(fitted.nodes[stratum])
        parts = min(most, len(classes))
        for part in range(parts if parts > 1 else 0):
            nodes = classes[part::parts]
            found.append(Deletion(frozenset(nodes.tolist()), stratum & torch.isin(fitted.nodes, nodes), parts))
    return found


def _with_ones(features: Tensor) -> Tensor:
    return torch.cat([features, torch.ones(len(features), 1, dtype=features.dtype)], dim=1)


def _root(matrix: Tensor) -> Tensor:
    """Of a covariance, whose rounding may have made an eigenvalue negative."""
    values, vectors = torch.linalg.eigh(matrix)
    root: Tensor = vectors * values.clamp(min=0).sqrt()
    return root
