"""Where a network is measured, and the graph that begins there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from forgetscope.measuring.folding import Features
from forgetscope.measuring.watching import kind_of, logits_of

Run = Callable[[Tensor], object]


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


def _begin_graph() -> None:
    torch.set_grad_enabled(True)  # until no_grad around the network's forward ends
