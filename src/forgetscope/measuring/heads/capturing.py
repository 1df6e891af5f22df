"""What a head is fed, as fast as a network gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn

from forgetscope.errors import InputError
from forgetscope.measuring.folding import Features, channels_last, folded, folded_module
from forgetscope.measuring.heads.agreement import agree
from forgetscope.measuring.heads.last_layer import LastLayer
from forgetscope.measuring.watching import kind_of, logits_of

Fed = Callable[[Tensor], tuple[Tensor, Tensor | None]]  # inputs -> features [n, d] and the network's own output


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
