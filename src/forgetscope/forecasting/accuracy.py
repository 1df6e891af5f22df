"""How well a class was known when it was learned, from training images alone.

A network knows the images that it was trained on better than others. What the head owes to an image itself is taken out by
leaving it out: one Newton step away from the trained head, as approximate leave-one-out does (Rad and Maleki 2020), with the
Hessian of the cross-entropy node by node. What the features owe to the image stays in, so some optimism is left.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray

RIDGE = 0.01  # on the diagonal of each node's Hessian, as a share of its mean: heads are trained with decay, and not to the end
LEAST = 0.05  # of 1 - leverage, which is positive but for rounding


def leave_one_out(
    features: NDArray[np.float64], nodes: NDArray[np.int64], weight: NDArray[np.float64], bias: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Which of n training images a linear head would classify correctly without them.

    features [n, d], nodes [n]: of the images' classes; weight [k, d] and bias [k] of the head that was trained on them.

    Images of two classes along a line, and the last of them in between, on the right side of 0.4 by its own pull only:

    >>> import numpy as np
    >>> features, nodes = np.array([[0.0], [0.1], [0.2], [0.8], [0.9], [1.0], [0.45]]), np.array([0, 0, 0, 1, 1, 1, 1])
    >>> leave_one_out(features, nodes, np.array([[-5.0], [5.0]]), np.array([2.0, -2.0])).tolist()
    [True, True, True, True, True, True, False]
    """
    inputs = torch.tensor(np.concatenate([features, np.ones((len(features), 1))], axis=1), dtype=torch.float64)
    head = torch.tensor(np.concatenate([weight, bias[:, None]], axis=1), dtype=torch.float64)
    logits = inputs @ head.T
    probabilities = torch.softmax(logits, dim=1)
    residuals = probabilities - torch.nn.functional.one_hot(torch.from_numpy(nodes), len(head))
    curvature = probabilities * (1 - probabilities)
    for node in range(len(head)):
        hessian = (inputs * curvature[:, node, None]).T @ inputs
        mean = hessian.diagonal().mean()
        if mean > 0:  # else no image can move this node
            hessian.diagonal().add_(RIDGE * mean)
            reach = (torch.linalg.solve(hessian, inputs.T).T * inputs).sum(dim=1)
            logits[:, node] += reach * residuals[:, node] / (1 - curvature[:, node] * reach).clamp(min=LEAST)
    right: NDArray[np.bool_] = logits.argmax(dim=1).numpy() == nodes
    return right


def class_accuracies(
    features: Mapping[int, NDArray[np.float64]], weight: NDArray[np.float64], bias: NDArray[np.float64]
) -> dict[int, float]:
    """The share of each class's images that is right by `leave_one_out`, of classes that were learned together.

    features [n, d] by head node; a class of which some are not finite is left out.

    >>> import numpy as np
    >>> features = {0: np.array([[0.0], [0.1], [0.2]]), 1: np.array([[0.8], [0.9], [1.0], [0.45]])}
    >>> class_accuracies(features, np.array([[-5.0], [5.0]]), np.array([2.0, -2.0]))
    {0: 1.0, 1: 0.75}
    """
    finite = {node: found for node, found in features.items() if np.isfinite(found).all()}
    if not finite:
        return {}
    nodes = np.repeat(list(finite), [len(found) for found in finite.values()])
    right = leave_one_out(np.concatenate(list(finite.values())), nodes, weight, bias)
    return {node: float(right[nodes == node].mean()) for node in finite}
