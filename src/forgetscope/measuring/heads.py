"""The last layer of any network: found by watching the network work on a few images, and checked before it is measured.

The head is the module whose output is the network's output; what it is fed are the features, so nothing needs a name. Where
logits and their derivatives are those of `features @ weight.T + bias`, gradients have a closed form (`gradients`). Where they
are not (cosine, temperature, weight norm, masked units, several heads), autograd measures the head's own parameters
(`own_gradients`), or the network is refused by name. All of this is to be called in evaluation mode: `watching.undisturbed`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from forgetscope.errors import InputError
from forgetscope.measuring.folding import Features, channels_last, folded, folded_module
from forgetscope.measuring.watching import ModuleCall, demanding_still_buffers, kind_of, logits_of, watched

Run = Callable[[Tensor], object]
Fed = Callable[[Tensor], tuple[Tensor, Tensor | None]]  # inputs -> features [n, d] and the network's own output


@dataclass(frozen=True)
class LastLayer:
    """Where a network is measured; of this moment, for heads grow."""

    run: Run  # the network, without wrappers such as DataParallel
    head: nn.Module
    nodes: int
    features: Features | None  # what the head is fed, where somebody named it; else it is captured
    weight: Tensor | None  # [k, d], and None where there is no closed form
    bias: Tensor | None = None  # [k], or a head without one
    masked: tuple[int, ...] = ()  # nodes whose output is -inf for every image
    is_called: bool = True  # else the network uses its parameters in a forward of its own

    @property
    def parameters(self) -> list[Tensor]:
        """Those that are trained; of a head that is frozen whole, all."""
        every: list[Tensor] = list(self.head.parameters())
        return [parameter for parameter in every if parameter.requires_grad] or every

    @property
    def frozen(self) -> list[str]:
        return [name for name, parameter in self.head.named_parameters() if not parameter.requires_grad]


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
    _demand_steady(run, images, logits, ~masked, calls)
    last = _last_call(network, calls, logits) if head is None else _call_of(network, head, calls)
    if features is not None:
        _demand_fed(features, images, last)
    nodes = tuple(masked.nonzero()[:, 0].tolist())
    named = None if run is network else features  # what a forward feeds its head is captured, with what becomes of it
    is_called = any(call is last for call in calls) or head is None
    found = LastLayer(run, last.module, logits.shape[1], named, None, masked=nodes, is_called=is_called)
    if is_called:
        _demand_untied(found, network, images)
    else:
        _demand_used(found, network, images)
    if head is None and not last.is_output:
        _demand_alone(found, network, images)
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


def logits_from_head_on(last: LastLayer, inputs: Tensor) -> Tensor:
    """The network's own output, with a graph that begins at its head: everything before it has none, and costs nothing."""
    if not last.is_called and isinstance(last.run, nn.Module):
        own = {id(parameter) for parameter in last.head.parameters()}
        others: list[Tensor] = [parameter for parameter in last.run.parameters() if id(parameter) not in own]
        with requiring_gradients(others, wanted=False), torch.enable_grad():
            return logits_of(last.run(inputs), kind_of(last.run))
    with torch.no_grad(), ExitStack() as hooks:
        for module in last.head.modules():
            hooks.callback(module.register_forward_pre_hook(lambda *_: _begin_graph(), prepend=True).remove)
        return logits_of(last.run(inputs), kind_of(last.run))


@contextmanager
def requiring_gradients(parameters: list[Tensor], wanted: bool = True) -> Iterator[None]:
    """Those of a frozen head too, for the block; or none of them."""
    others = [parameter for parameter in parameters if parameter.requires_grad != wanted]
    for parameter in others:
        parameter.requires_grad_(wanted)
    try:
        yield
    finally:
        for parameter in others:
            parameter.requires_grad_(not wanted)


@contextmanager
def feeding(last: LastLayer, few: Tensor) -> Iterator[Fed]:
    """Gives features and output of inputs, on a copy of the network that is folded, where that gives the same for a few."""
    if last.features is not None:
        own = last.features
        faster = folded(own)
        chosen = faster if _gives_the_same(faster, own, few) else own
        head = None if isinstance(last.run, nn.Module) else last.head  # known to be linear, or one of two named parts
        yield lambda inputs: _with_output(chosen(inputs), head)
        return
    assert isinstance(last.run, nn.Module)  # only two named parts are something else
    names = [name for name, module in last.run.named_modules() if module is last.head]
    twin = folded_module(last.run) if names else None  # a head that is not registered is in no copy
    with ExitStack() as hooks:
        plain = hooks.enter_context(_captured(last.run, last.head))
        if twin is None:
            yield plain
            return
        folded_one = hooks.enter_context(_captured(twin, twin.get_submodule(names[0]), channels_last))
        same = _gives_the_same(lambda inputs: folded_one(inputs)[0], lambda inputs: plain(inputs)[0], few)
        yield folded_one if same else plain


@contextmanager
def _captured(network: nn.Module, head: nn.Module, laid_out: Features = lambda inputs: inputs) -> Iterator[Fed]:
    """Of a network that is somebody's own, inputs keep the layout in which they come: `view` works with no other."""
    fed: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, args: fed.append(args[0]))

    def both(inputs: Tensor) -> tuple[Tensor, Tensor]:
        fed.clear()
        logits = logits_of(network(laid_out(inputs)), kind_of(network))
        if len(fed) != 1 or fed[0].shape[0] != len(inputs):
            raise InputError(f"{kind_of(network)} used its head {len(fed)} times for one batch, expected once.")
        return fed[0], logits

    try:
        yield both
    finally:
        handle.remove()


def _with_output(features: Tensor, head: nn.Module | None) -> tuple[Tensor, Tensor | None]:
    return features, None if head is None else logits_of(head(features.clone()), kind_of(head))


def _gives_the_same(one: Features, other: Features, few: Tensor) -> bool:
    try:
        return one is other or agree(one(few.clone()), other(few.clone()))
    except Exception:  # anything: a forward may read a layer that was folded away
        return False


def agree(one: Tensor, other: Tensor, *as_coarse_as: Tensor) -> bool:
    """Up to the rounding of the coarsest of these, relative to the largest."""
    eps = max(torch.finfo(tensor.dtype).eps for tensor in (one, other, *as_coarse_as))
    if one.shape != other.shape:
        return False
    scale = float(torch.maximum(one.abs().max(), other.abs().max()))
    if not math.isfinite(scale):
        return False
    return bool(((one.double() - other.double()).abs() <= eps**0.5 * scale).all()) and _as_large(one, other, eps)


def same_logits(one: Tensor, other: Tensor, *as_coarse_as: Tensor) -> bool:
    """Up to rounding, relative to each logit, or to what is usual among them where it is less.

    Never to the largest: that may be a mask of -1e9, beside which everything else is the same."""
    eps = max(torch.finfo(tensor.dtype).eps for tensor in (one, other, *as_coarse_as))
    if one.shape != other.shape or not bool((one.isfinite() & other.isfinite()).all()):
        return False
    values, others = one.double(), other.double()
    sizes = torch.maximum(values.abs(), others.abs())
    varied = (values != values[:1]).any(dim=0)  # a masked column is the same for all images
    usual = (sizes[:, varied] if bool(varied.any()) else sizes).amax(dim=0).median().clamp(max=100)
    close = (values - others).abs() <= eps**0.5 * sizes.clamp(min=float(usual))
    return bool(close.all()) and _as_large(values, others, eps)


def _as_large(one: Tensor, other: Tensor, eps: float) -> bool:
    """On the whole: rounding evens out over many numbers, and a factor does not, such as a temperature in half precision."""
    values, others = one.double(), other.double()
    return bool(((values - others) * others).sum().abs() <= max(2 * eps, 1e-3) * others.square().sum())


def _begin_graph() -> None:
    torch.set_grad_enabled(True)  # until no_grad around the network's forward ends


def _demand_steady(run: Run, images: Tensor, logits: Tensor, shown: Tensor, calls: list[ModuleCall]) -> None:
    """That an image's output is finite but for masked nodes, the same again, and the same in another batch."""
    odd = (~logits.isfinite() & shown).nonzero()
    if len(odd):
        value, node = float(logits[tuple(odd[0])]), int(odd[0, 1])
        remedy = "Training has diverged, or an image is not finite."
        if value == -math.inf:
            remedy = "Mask the node for all images, or with a large negative number, such as -1e9."
        raise InputError(
            f"The output of {kind_of(run)} is not finite: {value} at node {node} for one of {len(images)} images. {remedy}"
        )
    steps = [call.output for call in calls if call.output is not None and call.output.is_floating_point()]
    for parts, why, remedy in (
        (
            (images,),
            "the same images twice",
            "Let it draw nothing in evaluation mode: F.dropout(x, p, training=self.training).",
        ),
        (
            torch.split(images, max(len(images) // 2, 1)),
            "the same images in other batches",
            "In evaluation mode an image's output must not depend on others: BatchNorm needs track_running_stats=True.",
        ),
    ):
        with torch.no_grad():
            again = torch.cat([logits_of(watched(run, part)[0], kind_of(run)) for part in parts])
        if again.shape != logits.shape or not same_logits(again[:, shown], logits[:, shown], *steps):
            raise InputError(f"{kind_of(run)} gives something else for {why}, so no gradient is its own. {remedy}")


def _last_call(network: nn.Module, calls: list[ModuleCall], logits: Tensor) -> ModuleCall:
    """The innermost module whose output is the network's; or, where that does more, the last in it with a logit per class."""
    candidates = [call for call in calls if call.gives(logits) and any(part.ndim > 1 for part in call.module.parameters())]
    if not candidates:
        raise InputError(_unfound(network, "none of its modules gives its output"))
    whole = candidates[0]
    inside = [call for call in calls[: calls.index(whole)] if call.begun > whole.begun and call.has_matrix]
    if not inside and (whole.module is not network or not any(True for _ in network.children())):
        return replace(whole, is_output=True)
    if not inside:
        raise InputError(_unfound(network, "its output is computed in its own forward"))
    if inside[-1].output is None or inside[-1].output.shape != logits.shape:
        names = ", ".join(dict.fromkeys(kind_of(call.module) for call in inside[-2:]))
        raise InputError(_unfound(network, f"{kind_of(whole.module)} computes its output from that of {names}"))
    return inside[-1]


def _call_of(network: nn.Module, head: nn.Module, calls: list[ModuleCall]) -> ModuleCall:
    if not isinstance(head, nn.Module):
        raise InputError(
            f"head is {type(head).__name__}, not a torch.nn.Module. Pass the last layer: measure(network, head=...)."
        )
    mine = [call for call in calls if call.module is unwrapped(head) or call.module is head]
    return mine[0] if len(mine) == 1 else ModuleCall(head, (), 0, None, None)


def _demand_used(last: LastLayer, network: nn.Module, images: Tensor) -> None:
    """That the output depends on a head that is not called once: on its parts, or on its parameters in a forward elsewhere."""
    with requiring_gradients(last.parameters):
        logits = logits_from_head_on(last, images)
        given = (logits, last.parameters, torch.ones_like(logits))
        if logits.requires_grad and any(part is not None for part in torch.autograd.grad(*given, allow_unused=True)):
            return
    raise InputError(
        f"{kind_of(network)} does not use the {kind_of(last.head)} that was passed as its head, or without gradients. Pass the "
        "module in it that holds the parameters of its last layer, or leave head= out."
    )


def _demand_untied(last: LastLayer, network: nn.Module, images: Tensor) -> None:
    """That what the head is fed does not depend on its own parameters: the graph of what is measured begins at the head."""
    with requiring_gradients(last.parameters), torch.enable_grad():
        _, calls = watched(last.run, images)
        parts = set(last.head.modules())
        first = min((call for call in calls if call.module in parts), key=lambda call: call.begun)
        fed = [value for value in first.args if isinstance(value, Tensor) and value.requires_grad]
        given = (fed, last.parameters, [torch.ones_like(value) for value in fed])
        found = torch.autograd.grad(*given, allow_unused=True) if fed else ()
    tied = [parameter for parameter, gradient in zip(last.parameters, found, strict=False) if gradient is not None]
    if tied:
        name = next(name for name, parameter in last.head.named_parameters() if parameter is tied[0])
        holders = (
            at for at, module in network.named_modules() if module not in parts and tied[0] in set(module.parameters(False))
        )
        raise InputError(
            f"{name} of the last layer {kind_of(last.head)} is used before it too, by {next(holders, 'a forward')}: its "
            "gradient is not that of a last layer. Give the last layer parameters of its own."
        )


def _demand_fed(features: Features, images: Tensor, last: ModuleCall) -> None:
    with torch.no_grad():
        given, _ = watched(features, images)
    if not isinstance(given, Tensor) or given.ndim != 2:
        shape = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
        raise InputError(
            f"features(images) of {len(images)} images gives {shape}, expected [{len(images)}, d]: pool and flatten them, or "
            "leave features= out, and what the last layer is fed is found."
        )
    if last.fed is not None and not (given.is_floating_point() and agree(given, last.fed)):
        raise InputError(
            f"features(images) is not what the network feeds its {kind_of(last.module)}: {_difference(given, last.fed)}. "
            "The gradients would not be those of its training. Leave features= out, and what it is fed is found."
        )


def _difference(given: Tensor, fed: Tensor) -> str:
    if given.shape != fed.shape:
        return f"{tuple(given.shape)} instead of {tuple(fed.shape)}"
    return f"they differ by up to {float((given.double() - fed.double()).abs().max()):.3g}"


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


def _demand_alone(last: LastLayer, network: nn.Module, images: Tensor) -> None:
    """That nothing else that is trained reaches the output but through this head: of several heads it would be one."""

    def cut(_module: nn.Module, _args: object, output: object) -> object:
        if isinstance(output, Mapping):
            return {**output, "logits": output["logits"].detach()}
        return output.detach() if isinstance(output, Tensor) else output

    handle = last.head.register_forward_hook(cut)
    try:
        with torch.enable_grad():
            logits = logits_of(last.run(images), kind_of(network))
    finally:
        handle.remove()
    if not logits.requires_grad:
        return
    named = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
    found = torch.autograd.grad(logits, [p for _, p in named], torch.ones_like(logits), allow_unused=True)
    others = [name for (name, _), gradient in zip(named, found, strict=True) if gradient is not None]
    if others:
        raise InputError(_unfound(network, f"its output depends on {others[0]} besides its {kind_of(last.head)}"))


def _unfound(network: nn.Module, why: str) -> str:
    return (
        f"{kind_of(network)} has no last layer that could be told: {why}. Name the module whose parameters are to be measured, "
        "several heads in a torch.nn.ModuleList for example: measure(network, head=...)."
    )
