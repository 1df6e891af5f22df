"""Rehearsal policies: in which order a class's training images are worth keeping. `docs/policies.md` cites the sources.

A policy gets one class's candidates, a quota and a random stream, and returns positions in the order of selection, so that a
quota that shrinks later keeps the first. It treats every class alike and never sees which class it is. Ties fall to the
lower position, or where noted to the stream.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forgetscope.errors import SpecError
from forgetscope.learning.candidates import Candidates
from forgetscope.learning.plugins import blaming_own_code, call_named, load_named

Positions = NDArray[np.int64]
Policy = Callable[[Candidates, int, np.random.Generator], ArrayLike]

AUGMENTED_COPIES = 12


def uniform(candidates: Candidates, quota: int, rng: np.random.Generator) -> Positions:
    """Without replacement, every image equally likely: the paper's policy."""
    return rng.permutation(len(candidates))[:quota]


def herding(candidates: Candidates, quota: int, rng: np.random.Generator) -> Positions:
    """Greedily, so that the mean of the chosen unit features follows the class mean."""
    features = _unit(candidates.features)
    return _follow_mean(features @ features.T, quota)


def nearest_mean(candidates: Candidates, quota: int, rng: np.random.Generator) -> Positions:
    """Unit features closest to the class mean first."""
    features = _unit(candidates.features)
    return _smallest(np.linalg.norm(features - features.mean(axis=0), axis=1), quota)


def entropy(candidates: Candidates, quota: int, rng: np.random.Generator) -> Positions:
    """Most uncertain predictions first."""
    p = candidates.probabilities
    return _smallest((p * np.log(np.where(p > 0, p, 1))).sum(axis=1), quota)


def boundary(candidates: Candidates, quota: int, rng: np.random.Generator) -> Positions:
    """Closest to the decision boundary first: smallest distance between the logit of the class and the largest other."""
    others = np.delete(candidates.logits, candidates.node, axis=1)
    return _smallest(np.abs(candidates.logits[:, candidates.node] - others.max(axis=1)), quota)


def uncertainty(candidates: Candidates, quota: int, rng: np.random.Generator) -> Positions:
    """Spread evenly over the whole range of uncertainty: how often augmented copies of an image are predicted otherwise."""
    predictions = candidates.augmented_predictions(AUGMENTED_COPIES)
    nodes = candidates.logits.shape[1]
    votes = np.stack([np.bincount(column, minlength=nodes) for column in predictions.T])
    ranked = np.argsort(1 - votes.max(axis=1) / AUGMENTED_COPIES, kind="stable")
    return ranked[_evenly(len(candidates))[:quota]]


def least_forgotten(candidates: Candidates, quota: int, rng: np.random.Generator) -> Positions:
    """Images whose correct prediction was lost least often in training; never learned ones last; ties by the stream."""
    shuffled = rng.permutation(len(candidates))
    lost = np.where(candidates.learned, candidates.lost_predictions, np.iinfo(np.int64).max)
    return shuffled[_smallest(lost[shuffled], quota)]


def gradient_diversity(candidates: Candidates, quota: int, rng: np.random.Generator) -> Positions:
    """Greedily, so that last-layer gradients differ: next is the image whose largest cosine with a chosen one is smallest.

    The first is the image whose gradient is least like the others'."""
    products = candidates.gradient_products
    norms = np.sqrt(np.diag(products))
    cosines = products / np.maximum(np.outer(norms, norms), np.finfo(np.float64).tiny)
    chosen = [int(cosines.sum(axis=1).argmin())]
    nearest = cosines[chosen[0]].copy()
    while len(chosen) < quota:
        nearest[chosen[-1]] = np.inf
        chosen.append(int(nearest.argmin()))
        nearest = np.maximum(nearest, cosines[chosen[-1]])
    return np.array(chosen[:quota], dtype=np.int64)


def gradient_matching(candidates: Candidates, quota: int, rng: np.random.Generator) -> Positions:
    """Greedily, so that the mean last-layer gradient of the chosen follows that of the class.

    What remains is the bias vector b_c at the start of the next step, and with it SIC."""
    return _follow_mean(candidates.gradient_products, quota)


FUNCTIONS: dict[str, Policy] = {
    "uniform": uniform,
    "herding": herding,
    "nearest-mean": nearest_mean,
    "entropy": entropy,
    "boundary": boundary,
    "uncertainty": uncertainty,
    "least-forgotten": least_forgotten,
    "gradient-diversity": gradient_diversity,
    "gradient-matching": gradient_matching,
}


@blaming_own_code()
def choose(name: str, candidates: Candidates, quota: int, rng: np.random.Generator, source: str | None = None) -> Positions:
    """Apply a policy by name, a user's own (the SHA-256 of its source) included, and check what it returns."""
    policy = FUNCTIONS[name] if name in FUNCTIONS else partial(call_named, name, load_named(name, source))
    return checked_choice(name, policy, candidates, quota, rng)


def checked_choice(name: str, policy: Policy, candidates: Candidates, quota: int, rng: np.random.Generator) -> Positions:
    """What a policy returns, or SpecError if that is no choice."""
    quota = min(quota, len(candidates))
    returned = policy(candidates, quota, rng)
    try:
        chosen = np.asarray(returned)
    except (TypeError, ValueError, RuntimeError):  # lists of different lengths, tensors that need a gradient
        raise SpecError(f"policy {name} returned {type(returned).__name__}, expected {quota} whole numbers.") from None
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or len(chosen) != quota:
        raise SpecError(f"policy {name} returned {chosen.dtype} of shape {chosen.shape}, expected {quota} whole numbers.")
    outside = chosen[(chosen < 0) | (chosen >= len(candidates))]
    values, counts = np.unique(chosen, return_counts=True)
    if len(outside) or len(values) < quota:
        wrong = f"{outside[0]}" if len(outside) else f"{values[counts > 1][0]} twice"
        raise SpecError(
            f"policy {name} must return {quota} different positions from 0 to {len(candidates) - 1}; it returned {wrong}."
        )
    return chosen.astype(np.int64)


def _unit(features: NDArray[np.float64]) -> NDArray[np.float64]:
    norms: NDArray[np.float64] = np.linalg.norm(features, axis=1, keepdims=True)
    unit: NDArray[np.float64] = features / np.maximum(norms, np.finfo(np.float64).tiny)
    return unit


def _smallest(values: NDArray[np.generic], quota: int) -> Positions:
    return np.argsort(values, kind="stable")[:quota]


def _follow_mean(products: NDArray[np.float64], quota: int) -> Positions:
    """Greedy choice of vectors whose running mean stays closest to the mean of all, from their inner products [n, n].

    After k vectors with sum S, adding v gives the squared distance |S + v|^2 / k^2 - 2 <S + v, mean> / k + |mean|^2."""
    to_mean = products.mean(axis=1)  # <v, mean>
    squares = np.diag(products)
    to_sum = np.zeros(len(products))  # <S, v>
    free = np.ones(len(products), bool)
    chosen: list[int] = []
    for k in range(1, quota + 1):
        distance = (2 * to_sum + squares) / k**2 - 2 * to_mean / k  # without what is the same for every v
        best = int(np.where(free, distance, np.inf).argmin())
        chosen.append(best)
        free[best] = False
        to_sum += products[best]
    return np.array(chosen, dtype=np.int64)


def _evenly(n: int) -> Positions:
    """All of 0 .. n - 1 in an order of which every beginning is spread over the range: bits of a counter, mirrored."""
    bits = max(1, (n - 1).bit_length())
    mirrored = np.array([int(f"{i:0{bits}b}"[::-1], 2) for i in range(2**bits)])
    return mirrored[mirrored < n]
