"""The same features faster: on a copy of the network, each BatchNorm is folded into the convolution before it.

In evaluation mode a BatchNorm is a fixed scale and shift, which the convolution's own weights can carry. The copy shares all
tensors but these weights, and whatever arrays hang on the module, such as a replay memory.
"""

import io
import pickle
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

Features = Callable[[Tensor], Tensor]
SHARED = (Tensor, type, FunctionType, BuiltinFunctionType, ModuleType, str, bytes, int, float, torch.Generator)


def folded(features: Features) -> Features:
    """What `features` computes in evaluation mode, up to rounding; `features` itself where nothing can be folded.

    A module or a module's method can be folded if its flow can be followed without running it. The weights are those of now.
    """
    owner = features if isinstance(features, nn.Module) else getattr(features, "__self__", None)
    if not isinstance(owner, nn.Module):
        return features
    method = "forward" if isinstance(features, nn.Module) else features.__name__
    twin = folded_module(owner, method)
    if twin is None:
        return features
    run: Features = getattr(twin, method)
    return lambda inputs: run(channels_last(inputs))


def channels_last(inputs: Tensor) -> Tensor:
    """Images, in the layout in which folded networks are fastest; what is no batch of images stays as it is."""
    return inputs.contiguous(memory_format=torch.channels_last) if inputs.ndim == 4 else inputs


def folded_module(owner: nn.Module, method: str = "forward") -> nn.Module | None:
    """A copy whose method computes the same in evaluation mode, up to rounding; None where nothing can be folded."""
    if not any(type(module) is nn.BatchNorm2d for module in owner.modules()):
        return None
    try:
        twin = _copied(owner, lambda tensor: tensor)
        # Another copy is followed: a forward that keeps what it sees keeps stand-ins for tensors. Without values, because fx
        # leaves reference cycles behind, and weights in them would stay until the garbage collector comes.
        graph = _follow(_copied(owner, _without_values), method)
    except Exception:  # anything: this runs a user's code on something that is no tensor
        return None
    pairs = list(_foldable(twin, graph))
    for convolution, norm in pairs:
        _fold(twin.get_submodule(convolution), twin.get_submodule(norm))
        twin.set_submodule(norm, nn.Identity())
    for module in twin.modules() if pairs else ():
        if isinstance(module, nn.Conv2d) and "weight" in module._parameters:
            module.weight = nn.Parameter(channels_last(module.weight.detach()), requires_grad=False)
    return twin if pairs else None


class _Structure(pickle.Pickler):
    """Of an object and all that hangs on it; what holds data, and what never changes, is left out and shared."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.shared: dict[int, object] = {}

    def persistent_id(self, value: object) -> int | None:
        if not isinstance(value, SHARED) and not hasattr(type(value), "__array_interface__"):
            return None
        self.shared[id(value)] = value
        return id(value)


class _Copy(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: dict[int, object]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, key: int) -> object:
        return self._shared[key]


def _copied(module: nn.Module, tensor: Callable[[Tensor], Tensor]) -> nn.Module:
    """A deep copy in evaluation mode with this in place of each tensor; a tensor that occurs twice stays one."""
    file = io.BytesIO()
    structure = _Structure(file)
    structure.dump(module)
    file.seek(0)
    shared = {key: tensor(value) if isinstance(value, Tensor) else value for key, value in structure.shared.items()}
    copy: nn.Module = _Copy(file, shared).load()
    for part in copy.modules():
        part.training = False  # not eval(), which may be somebody's own and work on the weights
    return copy


def _without_values(tensor: Tensor) -> Tensor:
    empty = tensor.detach().to("meta")
    return nn.Parameter(empty, requires_grad=False) if isinstance(tensor, nn.Parameter) else empty


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
