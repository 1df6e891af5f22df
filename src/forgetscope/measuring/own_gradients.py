"""Gradients of a head's own parameters by autograd, through the network's own forward: for heads without a closed form.

The graph begins at the head, so all of this costs a forward pass and some backward passes over the head alone.
"""

import torch
from torch import Tensor

from forgetscope.measuring.all_layers import gradient_sum
from forgetscope.measuring.gradients import GradientSums, Loss
from forgetscope.measuring.heads import LastLayer, logits_from_head_on, requiring_gradients
from forgetscope.measuring.probe_data import ProbeData
from forgetscope.measuring.watching import kind_of, logits_of


def own_gradient_sums(last: LastLayer, data: ProbeData, loss: Loss | None) -> GradientSums:
    """As those of the closed form, with all parameters of the head in one column: [groups, s, 1]."""
    size = sum(parameter.numel() for parameter in last.parameters)
    groups = 2 * len(data.past_nodes) + len(data.new_nodes)
    sums = GradientSums(groups, size, 0)
    sums.logits = torch.zeros(groups, last.nodes, dtype=torch.float64)
    sums.eps = max(torch.finfo(parameter.dtype).eps for parameter in last.parameters)
    with requiring_gradients(last.parameters):
        for group in range(groups):
            found = gradient_sum(
                lambda inputs: logits_from_head_on(last, inputs), last.parameters, data.batches_of(group), loss
            )
            sums.gradients[group, :, 0] = found.gradient
            sums.lengths[group], sums.losses[group] = found.length, found.loss
            sums.logits[group], sums.counts[group] = found.logits, found.images
        sums.within = _within(last, data)
    return sums


def _within(last: LastLayer, data: ProbeData) -> Tensor:
    """[P, s]: the parameters through which each past class's output of the head is computed.

    Row c of a matrix with a row per node, and what all nodes share, such as a cosine head's scale. Found row by row, because a
    feature may be 0 in all of a few images; a row of which nothing reaches an output does not belong to it."""
    return _reached(last, data, data.few()) | _reached(last, data, data.few(1))


def _reached(last: LastLayer, data: ProbeData, inputs: Tensor) -> Tensor:
    found: list[object] = []
    handle = last.head.register_forward_hook(lambda _module, _args, output: found.append(output))
    try:
        outputs = logits_from_head_on(last, inputs)
    finally:
        handle.remove()
    if len(found) == 1:  # one module with a node per class: what follows, such as a log-softmax, may mix the nodes
        own = logits_of(found[0], kind_of(last.head))
        outputs = own if own.shape == outputs.shape else outputs
    marks = []
    for node in data.past_nodes.tolist():
        weights = torch.zeros_like(outputs)
        weights[:, node] = torch.linspace(1, 2, len(outputs), device=outputs.device)
        given = (outputs, last.parameters, weights)
        parts = torch.autograd.grad(*given, retain_graph=True, allow_unused=True, materialize_grads=True)
        rows = [part.reshape(len(part) if part.ndim else 1, -1) for part in parts]
        marks.append(torch.cat([(row != 0).any(dim=1, keepdim=True).expand_as(row).reshape(-1) for row in rows]))
    return torch.stack(marks).cpu()
