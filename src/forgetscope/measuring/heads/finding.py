"""The last layer of any network, found by watching it, and whether it is linear."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from forgetscope.errors import InputError
from forgetscope.measuring.folding import Features
from forgetscope.measuring.heads.agreement import agree, same_logits
from forgetscope.measuring.heads.demands import demand_alone, demand_fed, demand_steady, demand_untied, demand_used, unfound
from forgetscope.measuring.heads.last_layer import LastLayer, Run, logits_from_head_on, requiring_gradients
from forgetscope.measuring.watching import ModuleCall, demanding_still_buffers, kind_of, logits_of, watched


def plain_last_layer(network: nn.Module) -> LastLayer:
    """Of a network that is known to have `features` and a linear `head`, such as those that runs train; nothing is checked."""
    head, features = network.head, network.features
    assert isinstance(head, nn.Linear)
    return LastLayer(network, head, head.out_features, features, head.weight, head.bias)  # type: ignore[arg-type]


def find_last_layer(
    network: nn.Module, images: Tensor, *, features: Features | None = None, head: nn.Module | None = None
) -> LastLayer:
    """Of this network, which can be a wrapper, on a few images, which are what it eats.

    head: where the network's output is computed from that of several modules, or in its own forward. features: only where the
    network has no forward; if it has one, they must be what its head is fed.
    """
    network = unwrapped(network)
    run: Run = network
    if type(network).forward is nn.Module.forward and features is not None and head is not None:
        run = lambda inputs: head(features(inputs))  # noqa: E731
    with torch.no_grad(), demanding_still_buffers(network):
        output, calls = watched(run, images)
    logits = logits_of(output, kind_of(network))
    if logits.ndim != 2 or len(logits) != len(images):
        raise InputError(
            f"The output of {kind_of(network)} for {len(images)} images has the shape {tuple(logits.shape)}, expected "
            f"[{len(images)}, classes]. Pass a module that gives one logit per class."
        )
    masked = (logits == -torch.inf).all(dim=0)
    demand_steady(run, images, logits, ~masked, calls)
    last = _last_call(network, calls, logits) if head is None else _call_of(network, head, calls)
    if features is not None:
        demand_fed(features, images, last)
    nodes = tuple(masked.nonzero()[:, 0].tolist())
    named = None if run is network else features  # what a forward feeds its head is captured, with what becomes of it
    is_called = any(call is last for call in calls) or head is None
    found = LastLayer(run, last.module, logits.shape[1], named, None, masked=nodes, is_called=is_called)
    if is_called:
        demand_untied(found, network, images)
    else:
        demand_used(found, network, images)
    if head is None and not last.is_output:
        demand_alone(found, network, images)
    uses = sum(call.module is last.module for call in calls)  # of several, the closed form would be that of one
    parts = _linear_parts(found) if uses == 1 else None
    if parts is None or last.fed is None or not _is_linear(found, parts, last.fed, images, logits):
        return found
    return replace(found, weight=parts[0], bias=parts[1])


def unwrapped(network: nn.Module) -> nn.Module:
    """Without DataParallel, DistributedDataParallel and torch.compile around it: compiled code does not call our hooks."""
    while True:
        inner = getattr(network, "_orig_mod", None)
        if isinstance(network, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = network.module
        if not isinstance(inner, nn.Module):
            return network
        network = inner


def is_linear_layer(head: nn.Module, features: Tensor) -> bool:
    """Whether a module makes `features @ weight.T + bias` of these features, and nothing else, of parameters of that shape."""
    with torch.no_grad():
        logits = logits_of(head(features), kind_of(head))
    alone = LastLayer(head, head, logits.shape[1], None, None)
    parts = _linear_parts(alone)
    return parts is not None and _is_linear(alone, parts, features, features, logits)


def _last_call(network: nn.Module, calls: list[ModuleCall], logits: Tensor) -> ModuleCall:
    """The innermost module whose output is the network's; or, where that does more, the last in it with a logit per class."""
    candidates = [call for call in calls if call.gives(logits) and any(part.ndim > 1 for part in call.module.parameters())]
    if not candidates:
        raise InputError(unfound(network, "none of its modules gives its output"))
    whole = candidates[0]
    inside = [call for call in calls[: calls.index(whole)] if call.begun > whole.begun and call.has_matrix]
    if not inside and (whole.module is not network or not any(True for _ in network.children())):
        return replace(whole, is_output=True)
    if not inside:
        raise InputError(unfound(network, "its output is computed in its own forward"))
    if inside[-1].output is None or inside[-1].output.shape != logits.shape:
        names = ", ".join(dict.fromkeys(kind_of(call.module) for call in inside[-2:]))
        raise InputError(unfound(network, f"{kind_of(whole.module)} computes its output from that of {names}"))
    return inside[-1]


def _call_of(network: nn.Module, head: nn.Module, calls: list[ModuleCall]) -> ModuleCall:
    if not isinstance(head, nn.Module):
        raise InputError(
            f"head is {type(head).__name__}, not a torch.nn.Module. Pass the last layer: measure(network, head=...)."
        )
    mine = [call for call in calls if call.module is unwrapped(head) or call.module is head]
    return mine[0] if len(mine) == 1 else ModuleCall(head, (), 0, None, None)


def _linear_parts(last: LastLayer) -> tuple[Tensor, Tensor | None] | None:
    """Weight [k, d] and bias [k], if these are all its parameters."""
    by_rank = {parameter.ndim: parameter for parameter in last.parameters}
    weight, bias = by_rank.get(2), by_rank.get(1)
    if weight is None or len(last.parameters) != len(by_rank) or by_rank.keys() > {1, 2}:
        return None
    fits = len(weight) == last.nodes and (bias is None or len(bias) == last.nodes)
    return (weight, bias) if fits else None


def _is_linear(last: LastLayer, parts: tuple[Tensor, Tensor | None], fed: Tensor, inputs: Tensor, logits: Tensor) -> bool:
    """Not only the logits: those of a head that begins with zeros say nothing, but their derivatives do."""
    weight, bias = parts
    if fed.ndim != 2 or fed.shape[1] != weight.shape[1] or not fed.is_floating_point() or not bool(fed.any()):
        return False
    with torch.no_grad():
        again = F.linear(fed.to(weight.dtype), weight, bias)
    if not same_logits(again, logits, fed):
        return False
    weights = torch.linspace(-1, 1, logits.numel(), device=logits.device, dtype=torch.float64).exp().view_as(logits)
    given = [part for part in parts if part is not None]
    with requiring_gradients(last.parameters):
        own = logits_from_head_on(last, inputs)
        if not own.requires_grad:
            return True  # a forward without gradients, whose logits agree
        found = torch.autograd.grad(own, given, weights.to(own.dtype), allow_unused=True, materialize_grads=True)
    expected = [weights.T @ fed.double(), weights.sum(dim=0)]
    return all(agree(one, other, fed, own) for one, other in zip(found, expected, strict=False))
