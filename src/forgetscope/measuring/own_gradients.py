"""Gradients of a head's own parameters by autograd, through the network's own forward: for heads without a closed form.

The graph begins at the head, so all of this costs a forward pass and some backward passes over the head alone.
"""

from itertools import chain

import torch
from torch import Tensor

from forgetscope.measuring.gradients import GradientSums, Loss, summed_loss
from forgetscope.measuring.heads import LastLayer, logits_from_head_on, requiring_gradients
from forgetscope.measuring.probe_data import Images
from forgetscope.measuring.watching import kind_of, logits_of


def own_gradient_sums(last: LastLayer, data: Images, loss: Loss | None) -> GradientSums:
    """As those of the closed form, with all parameters of the head in one column: [groups, s, 1]."""
    sums = GradientSums(data.groups, sum(parameter.numel() for parameter in last.parameters), 0, outputs=last.nodes)
    sums.eps = max(torch.finfo(parameter.dtype).eps for parameter in last.parameters)
    with requiring_gradients(last.parameters):
        for inputs, labels, groups in chain.from_iterable(data.chunks()):
            logits = logits_from_head_on(last, inputs)
            sums.make_room(groups)
            for group in torch.unique(groups).tolist():
                _add(sums, group, last.parameters, logits, labels, groups == group, loss)
        sums = data.settled(sums)
        sums.within = _within(last, data)
    return sums


def _add(
    sums: GradientSums, group: int, parameters: list[Tensor], logits: Tensor, labels: Tensor, mine: Tensor, loss: Loss | None
) -> None:
    """Of a batch, those images that are this group's: an image's output is its own, so the others get no weight.

    The gradient with respect to the logits is given in closed form: that of cross_entropy cancels for well-learned images."""
    at = mine.to(logits.device)
    value, residual = summed_loss(logits[at], labels[mine].to(logits.device), loss)
    weights = torch.zeros_like(logits)
    weights[at] = residual.to(logits.dtype)
    parts = torch.autograd.grad(logits, parameters, weights, retain_graph=True, allow_unused=True, materialize_grads=True)
    gradient = torch.cat([part.reshape(-1) for part in parts]).double().cpu()
    sums.gradients[group, :, 0] += gradient
    sums.lengths[group] += gradient.norm()
    sums.losses[group] += value
    sums.logits[group] += logits.detach()[at].double().sum(dim=0).cpu()
    sums.counts[group] += int(mine.sum())


def _within(last: LastLayer, data: Images) -> Tensor:
    """[P, s]: the parameters through which each past class's output of the head is computed.

    Row c of a matrix with a row per node, and what all nodes share, such as a cosine head's scale. Found row by row, because a
    feature may be 0 in all of a few images; a row of which nothing reaches an output does not belong to it."""
    return _reached(last, data, data.few()) | _reached(last, data, data.few(1))


def _reached(last: LastLayer, data: Images, inputs: Tensor) -> Tensor:
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
