"""The same features faster: on a copy of the network, each BatchNorm is folded into the convolution before it.

In evaluation mode a BatchNorm is a fixed scale and shift, which the convolution's own weights can carry.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

Features = Callable[[Tensor], Tensor]


def folded(features: Features) -> Features:
    """What `features` computes in evaluation mode, up to rounding; `features` itself where nothing can be folded.

    A module or a module's method can be folded if its flow can be followed without running it. The weights are those of now.
    """
    owner = features if isinstance(features, nn.Module) else getattr(features, "__self__", None)
    if not isinstance(owner, nn.Module):
        return features
    method = "forward" if isinstance(features, nn.Module) else features.__name__
    try:
        twin = copy.deepcopy(owner).eval()
        # Another copy is followed: a forward that keeps what it sees keeps stand-ins for tensors. Without values, because fx
        # leaves reference cycles behind, and weights in them would stay until the garbage collector comes.
        graph = _follow(copy.deepcopy(twin).to("meta"), method)
    except Exception:  # anything: this runs a user's code on something that is no tensor
        return features
    pairs = list(_foldable(twin, graph))
    if not pairs:
        return features
    for convolution, norm in pairs:
        _fold(twin.get_submodule(convolution), twin.get_submodule(norm))
        twin.set_submodule(norm, nn.Identity())
    twin.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    run: Features = getattr(twin, method)
    return lambda inputs: run(inputs.contiguous(memory_format=torch.channels_last))


def _follow(network: nn.Module, method: str) -> fx.Graph:
    tracer = fx.Tracer()
    tracer.traced_func_name = method
    return tracer.trace(network)


def _foldable(network: nn.Module, graph: fx.Graph) -> Iterator[tuple[str, str]]:
    """Names of a convolution and of the BatchNorm that alone takes its output, each of them used once."""
    calls = [node for node in graph.nodes if node.op == "call_module"]
    targets = [node.target for node in calls]
    for node in calls:
        source = node.args[0] if node.args else None
        if isinstance(source, fx.Node) and source.op == "call_module" and len(source.users) == 1:
            names = str(source.target), str(node.target)
            used_once = all(targets.count(name) == 1 for name in names)
            if used_once and _fit(*(network.get_submodule(name) for name in names)):
                yield names


def _fit(convolution: nn.Module, norm: nn.Module) -> bool:
    """Exactly these types (a subclass may compute anything), with running statistics and without anybody's hooks."""
    return (
        type(convolution) is nn.Conv2d
        and type(norm) is nn.BatchNorm2d
        and norm.running_mean is not None
        and not any(module._forward_hooks or module._forward_pre_hooks for module in (convolution, norm))
    )


def _fold(convolution: nn.Module, norm: nn.Module) -> None:
    """In float64, so that each weight is rounded once."""
    assert isinstance(convolution, nn.Conv2d)  # as _fit saw
    assert isinstance(norm, nn.BatchNorm2d)
    given = (convolution.weight, convolution.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
    weight, bias = fuse_conv_bn_weights(*(_double(value) for value in given))  # type: ignore[arg-type]
    convolution.weight, convolution.bias = (nn.Parameter(value.to(convolution.weight)) for value in (weight, bias))


def _double(value: Tensor | float | None) -> Tensor | float | None:
    return value.detach().cpu().double() if isinstance(value, Tensor) else value
