"""What is refused before it is measured, by name: a network whose last layer has no gradient of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from forgetscope.errors import InputError
from forgetscope.measuring.folding import Features
from forgetscope.measuring.heads.agreement import agree, same_logits
from forgetscope.measuring.heads.last_layer import LastLayer, Run, logits_from_head_on, requiring_gradients
from forgetscope.measuring.watching import ModuleCall, kind_of, logits_of, watched


def demand_steady(run: Run, images: Tensor, logits: Tensor, shown: Tensor, calls: list[ModuleCall]) -> None:
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


def demand_fed(features: Features, images: Tensor, last: ModuleCall) -> None:
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


def demand_used(last: LastLayer, network: nn.Module, images: Tensor) -> None:
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


def demand_untied(last: LastLayer, network: nn.Module, images: Tensor) -> None:
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


def demand_alone(last: LastLayer, network: nn.Module, images: Tensor) -> None:
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
        raise InputError(unfound(network, f"its output depends on {others[0]} besides its {kind_of(last.head)}"))


def unfound(network: nn.Module, why: str) -> str:
    return (
        f"{kind_of(network)} has no last layer that could be told: {why}. Name the module whose parameters are to be measured, "
        "several heads in a torch.nn.ModuleList for example: measure(network, head=...)."
    )
