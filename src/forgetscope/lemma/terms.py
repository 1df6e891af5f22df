"""The paper's Class-Wise R-SGD lemma at one iterate: what one update is expected to do to the loss of each past class.

The lemma bounds the expected change of the loss over D_c by the sum of the terms below. lambda is the learning rate; f_c, r_c
and b_c = r_c - f_c are gradients over *all* parameters; g is the random gradient of the update.

    descent      -lambda alpha p_c |f_c|^2
    sic          -lambda alpha p_c <b_c, f_c>
    cic          -lambda sum over past y != c of alpha p_y <b_y, f_c>
    nic          -lambda (1 - alpha) <g_new, f_c>
    fourth       -lambda sum over past y != c of alpha p_y <f_y, f_c>         the interference term that is no coefficient
    curvature     lambda^2 L_c / 2 E|g|^2,    E|g|^2 = |E g|^2 + E|g - E g|^2

The first five add up to -lambda <f_c, E g> exactly, so all slack is in the last: L_c instead of the curvature along g.
Everything is in units of the loss. Divided by lambda |f_c|, sic, cic, nic and fourth are the four parts of the paper's I_c.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

CHUNK = 64  # images whose gradients are held at once

Images = tuple[Tensor, Tensor]  # inputs [n, ...], head nodes [n]


@dataclass(frozen=True)
class Gradients:
    """At one iterate, flat over all s parameters, for P past classes."""

    full: Tensor  # f_c [P, s]
    rehearsed: Tensor  # r_c [P, s]
    new: Tensor  # over D^m [s]
    shares: Tensor  # p_c [P]
    alpha: float
    noise: float  # E|g - E g|^2
    longest: float  # no possible draw has a longer g

    @property
    def expected(self) -> Tensor:
        """E g [s]."""
        return self.alpha * self.shares @ self.rehearsed + (1 - self.alpha) * self.new

    @property
    def squared(self) -> float:
        """E|g|^2."""
        return float(self.expected @ self.expected) + self.noise


@dataclass(frozen=True)
class Terms:
    """The lemma's terms for each past class, each [P]."""

    descent: Tensor
    sic: Tensor
    cic: Tensor
    nic: Tensor
    fourth: Tensor
    curvature: Tensor

    @property
    def first_order(self) -> Tensor:
        return self.descent + self.sic + self.cic + self.nic + self.fourth

    @property
    def bound(self) -> Tensor:
        return self.first_order + self.curvature


@dataclass(frozen=True)
class Changes:
    """What each of N draws did to P past classes."""

    change: Tensor  # of the loss over D_c [N, P]
    first_order: Tensor  # -lambda <f_c, g> [N, P]
    squares: Tensor  # |g|^2 [N]


def exact_gradients(
    network: nn.Module, full: Sequence[Images], rehearsed: Sequence[Images], new: Images, per_batch: tuple[int, int]
) -> Gradients:
    """From every image once, no draw. `full` and `rehearsed`: an entry per past class; per_batch: images rehearsed and new.

    A multinomial over classes with p_c, then i.i.d. draws within each class, are i.i.d. draws from the whole rehearsal set. So
    the noise of either part of a batch is the variance of a single image's gradient, divided by the images drawn.
    """
    sizes = torch.tensor([len(nodes) for _, nodes in rehearsed], dtype=torch.float64)
    shares, alpha = sizes / sizes.sum(), per_batch[0] / sum(per_batch)
    of_rehearsed = torch.stack([mean_gradient(network, part) for part in rehearsed])
    of_new = mean_gradient(network, new)
    squares = torch.cat([image_squares(network, part) for part in rehearsed]), image_squares(network, new)
    means = shares @ of_rehearsed, of_new
    variances = [float(each.mean() - mean @ mean) for each, mean in zip(squares, means, strict=True)]
    longest = [float(each.max().sqrt()) for each in squares]
    return Gradients(
        full=torch.stack([mean_gradient(network, part) for part in full]),
        rehearsed=of_rehearsed,
        new=of_new,
        shares=shares,
        alpha=alpha,
        noise=alpha**2 * variances[0] / per_batch[0] + (1 - alpha) ** 2 * variances[1] / per_batch[1],
        longest=alpha * longest[0] + (1 - alpha) * longest[1],
    )


def lemma_terms(gradients: Gradients, learning_rate: float, smoothness: Tensor) -> Terms:
    """smoothness [P]: L_c, valid wherever the update may lead: within learning_rate * gradients.longest."""
    f, weights = gradients.full, gradients.alpha * gradients.shares
    by_bias, by_full = (-learning_rate * weights * (f @ v.T) for v in (gradients.rehearsed - f, f))  # [P, P]: of y on c
    return Terms(
        descent=by_full.diagonal(),
        sic=by_bias.diagonal(),
        cic=by_bias.sum(dim=1) - by_bias.diagonal(),
        nic=-learning_rate * (1 - gradients.alpha) * (f @ gradients.new),
        fourth=by_full.sum(dim=1) - by_full.diagonal(),
        curvature=learning_rate**2 / 2 * smoothness * gradients.squared,
    )


def one_step_changes(
    network: nn.Module,
    full: Sequence[Images],
    draws: Iterable[Images],
    learning_rate: float,
    on_draw: Callable[[], None] = lambda: None,
) -> Changes:
    """Make each draw's plain SGD update from the present parameters, see what it does to every class, and take it back."""
    start = parameters_to_vector(network.parameters()).detach()
    sizes = [len(nodes) for _, nodes in full]
    everything = torch.cat([inputs for inputs, _ in full]), torch.cat([nodes for _, nodes in full])
    before, f = class_losses(network, everything, sizes), torch.stack([mean_gradient(network, part) for part in full])
    changes, linear, squares = [], [], []
    try:
        for draw in draws:
            vector_to_parameters(start, network.parameters())
            g = mean_gradient(network, draw)
            vector_to_parameters(start - learning_rate * g, network.parameters())
            changes.append(class_losses(network, everything, sizes) - before)
            linear.append(-learning_rate * (f @ g))
            squares.append(g @ g)
            on_draw()
    finally:
        vector_to_parameters(start, network.parameters())
    return Changes(torch.stack(changes), torch.stack(linear), torch.stack(squares))


@torch.no_grad()
def class_losses(network: nn.Module, images: Images, sizes: Sequence[int]) -> Tensor:
    """Mean loss over each class [P], whose images lie class after class, `sizes` of each."""
    losses = F.cross_entropy(network(images[0]), images[1], reduction="none")
    return torch.stack([part.mean() for part in torch.split(losses, list(sizes))])


def mean_gradient(network: nn.Module, images: Images) -> Tensor:
    """Of the mean loss over these images, flat over all parameters [s]."""
    inputs, nodes = images
    slopes = torch.autograd.grad(F.cross_entropy(network(inputs), nodes), list(network.parameters()))
    return torch.cat([slope.flatten() for slope in slopes])


def image_squares(network: nn.Module, images: Images) -> Tensor:
    """The squared norm of each single image's gradient [n]."""
    parameters = {name: parameter.detach() for name, parameter in network.named_parameters()}

    def loss(parameters: dict[str, Tensor], inputs: Tensor, node: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(network, parameters, (inputs[None],)), node[None])

    def square(inputs: Tensor, node: Tensor) -> Tensor:
        slopes = grad(loss)(parameters, inputs, node)
        return torch.stack([slope.square().sum() for slope in slopes.values()]).sum()

    squares: Tensor = vmap(square, chunk_size=CHUNK)(*images)
    return squares
