"""Looking at a network at work without a trace: which modules ran and what they gave, and everything as it was before."""

from __future__ import annotations

import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized

from forgetscope.errors import ForgetscopeError, InputError

SMALL = 2**20  # numbers in a buffer that is copied


@dataclass(frozen=True, eq=False)
class ModuleCall:
    """One call of a module."""

    module: nn.Module
    args: tuple[object, ...]
    begun: int  # how many had begun before it
    output: Tensor | None
    version: int | None  # of the output, then: another one now says that it was changed in place
    is_output: bool = False

    @property
    def fed(self) -> Tensor | None:
        """Its only argument, if it has one."""
        (first,) = self.args if len(self.args) == 1 else (None,)
        return first if isinstance(first, Tensor) else None

    @property
    def has_matrix(self) -> bool:
        """Among its own parameters; those of a parametrisation, such as weight norm, are its module's."""
        own = [*self.module._parameters.values()]
        if is_parametrized(self.module):
            own += self.module.parametrizations.parameters()  # type: ignore[union-attr]
        return not isinstance(self.module, ParametrizationList) and any(part is not None and part.ndim > 1 for part in own)

    def gives(self, logits: Tensor) -> bool:
        """Whether these are its output, as it was."""
        mine = self.output
        same = mine is not None and mine.shape == logits.shape and mine.data_ptr() == logits.data_ptr()
        return same and logits._version == self.version


def watched(run: Callable[[Tensor], object], images: Tensor) -> tuple[object, list[ModuleCall]]:
    """What it gives, and the calls of modules on the way in the order in which they ended, whoever holds the modules."""
    calls: list[ModuleCall] = []
    open_calls: list[int] = []
    begun, here = 0, threading.get_ident()

    def enters(_module: nn.Module, _args: object) -> None:
        nonlocal begun
        if threading.get_ident() == here:
            open_calls.append(begun)
            begun += 1

    def leaves(module: nn.Module, args: tuple[object, ...], output: object) -> None:
        if threading.get_ident() == here:
            found = _tensor_in(output)
            calls.append(ModuleCall(module, args, open_calls.pop(), found, None if found is None else found._version))

    handles = [
        register_module_forward_pre_hook(enters),
        register_module_forward_hook(leaves),
    ]  # with_kwargs is not removed whole
    try:
        return run(images.clone()), calls
    except ForgetscopeError:
        raise
    except Exception as error:  # anything: this is a user's code
        raise cannot_take(run, images, error) from error
    finally:
        for handle in handles:
            handle.remove()


def cannot_take(run: Callable[[Tensor], object], images: Tensor, error: Exception) -> InputError:
    told = " ".join(str(error).split())[:300].removesuffix(".")
    weights = {parameter.dtype for parameter in run.parameters()} if isinstance(run, nn.Module) else set()
    kinds = f", its weights are {', '.join(map(str, weights))}" if weights - {images.dtype} else ""
    return InputError(
        f"{kind_of(run)} cannot be applied to a batch of shape {tuple(images.shape)} and type {images.dtype}{kinds} "
        f"({type(error).__name__}: {told}). Give images as the network takes them, or prepare=, which makes them so."
    )


@contextmanager
def demanding_still_buffers(network: nn.Module) -> Iterator[None]:
    """Refuses a network that changes its buffers in the block, which is to be short, and gives them back as they were.

    Those of more than SMALL numbers, such as a replay memory, are not copied: only that they were written to is known."""
    before = [
        (f"{path}.{name}".removeprefix("."), module, name, buffer, _version(buffer), _copy_of_small(buffer))
        for path, module in network.named_modules()
        for name, buffer in module._buffers.items()
        if buffer is not None
    ]
    changed = []
    try:
        yield
    finally:
        for path, module, name, buffer, version, kept in before:
            now = module._buffers.get(name)
            if now is buffer and _version(buffer) == version:
                continue
            if kept is not None and not _same(buffer, kept):
                changed.append(path)
                buffer.copy_(kept)
            elif kept is None and _version(buffer) != version:
                changed.append(path)
            if now is not buffer and (now is None or not _same(now, buffer)):
                changed.append(path)
                module._buffers[name] = buffer
    if changed:
        raise InputError(
            f"{kind_of(network)} changes its buffer {changed[0]} in evaluation mode, so a measurement would change the "
            "training. Let it do so in training alone: if self.training."
        )


def _version(buffer: Tensor) -> int:
    return 0 if buffer.is_inference() else buffer._version


def _copy_of_small(buffer: Tensor) -> Tensor | None:
    return buffer.detach().clone() if buffer.numel() <= SMALL else None


def _same(one: Tensor, other: Tensor) -> bool:
    """Bit for bit, also where something is not a number."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or (one.is_floating_point() and torch.allclose(one, other, 0, 0, equal_nan=True))


def logits_of(output: object, name: str) -> Tensor:
    """Of what a network or layer returns: the tensor, or its "logits"."""
    found = _tensor_in(output)
    if found is None:
        raise InputError(
            f"{name} returns {_described(output)}, which does not say what the logits are. "
            'Return a tensor, or {"logits": tensor} with whatever else.'
        )
    return found


def kind_of(run: object) -> str:
    """The class of a module, or the name of a function."""
    return type(run).__name__ if isinstance(run, nn.Module) else getattr(run, "__name__", type(run).__name__)


def device_of(network: nn.Module) -> torch.device:
    """Where its first parameter is; the CPU if there is none."""
    parameters = network.parameters() if isinstance(network, nn.Module) else ()
    return next((parameter.device for parameter in parameters), torch.device("cpu"))


@contextmanager
def undisturbed(network: nn.Module) -> Iterator[None]:
    """The block runs in evaluation mode, in full precision and without gradients; modes and random streams are as before.

    Each module gets its own mode back: some may have been frozen on purpose. Modules that nobody registered, such as an encoder
    in a function, are met when they are called. Modes are set as they are, because somebody's own `train()` may do more.
    """
    if not isinstance(network, nn.Module):
        raise InputError(f"{type(network).__name__} is not a torch.nn.Module. Pass the network itself.")
    modes: dict[nn.Module, bool] = {}
    here = threading.get_ident()

    def evaluate(module: nn.Module, _args: object = None) -> None:
        if module.training and threading.get_ident() == here:
            modes.setdefault(module, True)
            module.training = False  # else BatchNorm statistics of the run that is observed would move

    device = device_of(network).type
    streams, numpys, pythons = (
        [torch.cuda.current_device()] if device == "cuda" else [],
        np.random.get_state(),
        random.getstate(),
    )
    handle = register_module_forward_pre_hook(evaluate)
    try:
        for module in network.modules():
            evaluate(module)
        # no_grad comes last: leaving the inference mode switches gradients on.
        full_precision = torch.autocast(device, enabled=False, cache_enabled=False)
        with torch.random.fork_rng(streams), full_precision, _eagerly(), torch.inference_mode(False), torch.no_grad():
            yield
    finally:
        handle.remove()
        for module, training in modes.items():
            module.training = training
        np.random.set_state(numpys)
        random.setstate(pythons)
        if _keeps_casts_without_graph():
            torch.clear_autocast_cache()  # what was cast without a graph must not meet the next training batch


@cache
def _keeps_casts_without_graph() -> bool:
    """Whether this PyTorch gives what autocast made without gradients to those who want them; newer ones do not.

    Where it does not, somebody's own cache is left alone: within one autocast block it is part of the training."""
    with torch.inference_mode(False), torch.autocast("cpu", torch.bfloat16, cache_enabled=True):
        weight = torch.ones(1, 1, requires_grad=True)
        with torch.no_grad():
            torch.mm(weight, weight)
        with torch.enable_grad():
            return not torch.mm(weight, weight).requires_grad


@contextmanager
def _eagerly() -> Iterator[None]:
    """Compiled modules run as they were written: hooks within compiled code are not called."""
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:  # nothing is compiled, and importing it takes seconds
        yield
        return
    with warnings.catch_warnings(), torch.compiler.set_stance("force_eager"):
        warnings.filterwarnings("ignore", "Using `torch.compile", UserWarning)  # that global hooks see it twice: so be it
        yield


def _tensor_in(output: object) -> Tensor | None:
    if isinstance(output, Mapping):
        output = output.get("logits")
    elif not isinstance(output, Tensor):
        output = output[0] if isinstance(output, tuple | list) and len(output) == 1 else getattr(output, "logits", None)
    return output if isinstance(output, Tensor) else None


def _described(output: object) -> str:
    if isinstance(output, Mapping):
        return f"a {type(output).__name__} of {', '.join(map(repr, list(output)[:4]))}"
    if isinstance(output, tuple | list):
        return f"a {type(output).__name__} of {len(output)}"
    return f"a {type(output).__name__}"
