"""One probe: a function of a network and the images to measure on, which leaves no trace in either.

It works on any network (`heads`). Evaluation mode, no augmentation; weights, BatchNorm statistics, gradients, modes and random
streams are as before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from forgetscope.characters import counted
from forgetscope.errors import InputError
from forgetscope.measuring.all_layers import AllLayers, Parameters, interference_in_all_layers
from forgetscope.measuring.coefficients import (
    Coefficients,
    coefficients,
    method_coefficients,
    new_interference,
    norms,
    past_interference,
    released_nic,
)
from forgetscope.measuring.folding import Features
from forgetscope.measuring.gradients import GradientSums, Loss, checked_loss, rounding_error
from forgetscope.measuring.heads import LastLayer, feeding, find_last_layer, plain_last_layer, same_logits, unwrapped
from forgetscope.measuring.method_gradients import KeptOutputs, MethodBatches, method_gradients, wanted_images
from forgetscope.measuring.own_gradients import own_gradient_sums
from forgetscope.measuring.probe_data import Images, ProbeData as ProbeData
from forgetscope.measuring.quantities import COEFFICIENTS, QUANTITIES
from forgetscope.measuring.subsampled.estimates import SampledGradients, estimate
from forgetscope.measuring.watching import kind_of, logits_of, undisturbed, watched

if TYPE_CHECKING:
    import pandas as pd


class AllNeededError(InputError):
    """Some images cannot stand for the others."""


@dataclass(frozen=True, repr=False)
class Measurement:
    """One probe. P past classes in the order of `ProbeData.past_nodes`, N new ones in that of `new_nodes`; on the CPU.

    >>> import torch, forgetscope as fs
    >>> images, labels, head = torch.eye(4), torch.arange(4) // 2, torch.nn.Linear(4, 4)
    >>> probe = fs.Probe(images, labels, torch.tensor([0, 2]), images, labels + 2)
    >>> measured = probe.measure(head, features=torch.nn.Identity(), head=head)
    >>> bool(torch.allclose(measured.pairs[:, 2:].sum(dim=1), measured.terms.nic))
    True
    """

    terms: Coefficients
    pairs: Tensor  # [P, P + N]: term of each source; past sources add up to SIC and CIC, new sources to NIC
    gradient_norm: Tensor  # [P] norm of f_c
    bias_norm: Tensor  # [P] norm of b_c
    loss_full: Tensor  # [P] mean loss on D_c
    loss_rehearsal: Tensor  # [P] mean loss on R_c
    rounding: Tensor  # [P] bound for the error in the norm of f_c: where the norm is not above it, the terms are NaN
    new_logits: Tensor  # [P] mean logit of each past class over the new images; at the first probe this is LOG-SIM
    released_nic: Tensor  # [P] NIC's term with the entry that the released scripts read in second steps
    variances: Coefficients | None = None  # of the terms, where some images stand for the others
    nodes: tuple[int, ...] = ()  # of the past classes
    head_nodes: int = 0  # how many the head has
    names: Mapping[int, str] = field(default_factory=dict)  # of the past classes by node, where somebody named them
    said: tuple[str, ...] = ()  # what was measured, and what could not be, in sentences

    def to_frame(self) -> pd.DataFrame:
        """A row per past class, named by its head node: its terms at this probe, norms and losses."""
        return frame_of(self.nodes, self.names, {name: values.numpy() for name, values in self._columns()})

    def _columns(self) -> list[tuple[str, Tensor]]:
        return [(name, getattr(self.terms if name in COEFFICIENTS else self, name)) for name in QUANTITIES]

    def __repr__(self) -> str:
        return f"Measurement({' '.join(self.said)})"

    def _repr_html_(self) -> str:
        return html_of(self.said, self.to_frame())


def measure(
    network: nn.Module, data: Images, *, features: Features | None = None, head: nn.Module | None = None, trusted: bool = False
) -> Measurement:
    """The terms in the last layer, now. `features` and `head` name them where they cannot be found by looking.

    trusted: the network has `features` and a linear `head`, and was checked when its training began."""
    with undisturbed(network):
        last = plain_last_layer(network) if trusted else _looked_at(network, data, features, head)
        data.check_nodes(last.nodes, last.masked)
        loss = checked_loss(data.loss, data.nodes, last.nodes, torch.device("cpu"))
        sums = None if last.weight is None else _gradient_sums(last, data, loss)
        if sums is None:
            _demand_all(last, data)
            last = replace(last, weight=None, bias=None)
            loss = checked_loss(data.loss, data.nodes, last.nodes, last.parameters[0].device)
            sums = own_gradient_sums(last, data, loss)
        if not trusted:
            data.check_nodes(last.nodes, last.masked)  # again: of images that are passed over the classes are known by now
            data.check_losses(sums.losses)
        looked_at = int(sums.counts.sum())  # before the sums are used up
        return replace(_combine(sums, data), head_nodes=last.nodes, said=_said(last, data, loss is not None, looked_at))


def measure_with_method(network: nn.Module, data: ProbeData, batches: MethodBatches) -> tuple[Measurement, Coefficients]:
    """As `measure` of a trusted network, and from the same pass the terms of what a method does with it."""
    with undisturbed(network):
        last = plain_last_layer(network)
        data.check_nodes(last.nodes, last.masked)
        kind = partial(KeptOutputs, wanted=wanted_images(data, batches))
        sums = _gradient_sums(last, data, None, kind)
        assert isinstance(sums, KeptOutputs)
        past, new = method_gradients(sums, data, batches, biased=last.bias is not None)
        measurement = replace(_combine(sums, data), head_nodes=last.nodes)
        full = sums.gradients[: len(data.past_nodes)]  # f_c: what combining has made of the sums
        rounding, nodes = measurement.rounding, data.past_nodes
        terms = method_coefficients(
            full=full, past=past, new=new, alpha=data.alpha, shares=data.shares, nodes=nodes, rounding=rounding
        )
        return measurement, _known(terms, data)


def measure_all_layers(
    network: nn.Module, data: ProbeData, *, head: nn.Module | None = None, trusted: bool = False
) -> AllLayers:
    """The terms over all trainable parameters, now; costs a backward pass over every image."""
    past, (new_images, new_labels, _) = len(data.past_nodes), data.parts[1]
    with undisturbed(network):
        last = plain_last_layer(network) if trusted else _looked_at(network, data, None, head)
        data.check_nodes(last.nodes, last.masked)
        if last.frozen:
            raise InputError(
                f"{', '.join(last.frozen)} of the last layer {kind_of(last.head)} is frozen: in all layers everything counts "
                "that is trained, and what belongs to a class is not known. Use measure(network)."
            )
        if last.weight is None:
            raise InputError(
                f"The last layer of {kind_of(unwrapped(network))} is {kind_of(last.head)}, which does not give "
                "features @ weight.T + bias: in all layers it is not known which parameters belong to a class. "
                "Use measure(network)."
            )
        found = interference_in_all_layers(
            lambda inputs: logits_of(last.run(inputs), kind_of(last.run)),
            Parameters(unwrapped(network), last.weight, last.bias),
            ((data.batches_of(c), data.batches_of(past + c)) for c in range(past)),
            data.batches(new_images, new_labels),
            data.alpha,
            data.shares,
            data.past_nodes.tolist(),
            checked_loss(data.loss, data.nodes, last.nodes, last.weight.device),
        )
        return replace(found, terms=_known(found.terms, data))


def _looked_at(network: nn.Module, data: Images, features: Features | None, head: nn.Module | None) -> LastLayer:
    few = data.few()
    if not torch.allclose(few, data.few(), equal_nan=True):
        raise InputError("prepare gives other inputs for the same images the second time. Leave out what is random in it.")
    last = find_last_layer(network, few, features=features, head=head)
    with torch.no_grad():
        watched(last.run, data.few(1))  # of another size or type perhaps: then this says so
    return last


def _gradient_sums(
    last: LastLayer, data: Images, loss: Loss | None, kind: Callable[..., GradientSums] | None = None
) -> GradientSums | None:
    """None where the network's own output is not that of a linear layer for all images. kind: of sums, by default as the images
    ask for."""
    assert last.weight is not None
    kind = kind or (GradientSums if data.population is None else SampledGradients)
    sums = kind(data.groups, *last.weight.shape, biased=last.bias is not None, loss=loss)
    with feeding(last, data.few()) as features:
        for chunk in data.chunks():
            found = [(*features(inputs), labels, groups) for inputs, labels, groups in chunk]
            outputs = torch.cat([fed for fed, *_ in found]).to(last.weight.dtype)
            # The head is applied here, so that one pass gives features and logits; then on to the CPU, for float64.
            logits = F.linear(outputs, last.weight, last.bias)
            own = [output for _, output, *_ in found if output is not None]
            if own and not same_logits(torch.cat(own), logits, found[0][0]):
                return None
            labels, groups = (torch.cat(parts) for parts in list(zip(*found, strict=True))[2:])
            sums.add(outputs.cpu(), logits.cpu(), labels, groups)
    return data.settled(sums)


def _combine(sums: GradientSums, data: Images) -> Measurement:
    """Uses the sums up: at 200 classes each of these gradients is 20 MB, and copies would cost more than the arithmetic."""
    if isinstance(sums, SampledGradients):
        return _estimated(sums, data)
    past = len(data.past_nodes)
    rest, kept, new = slice(0, past), slice(past, 2 * past), slice(2 * past, None)
    if data.apart:
        for array in (sums.gradients, sums.lengths, sums.losses, sums.counts):
            array[rest].add_(array[kept])
    counts, kept_counts, new_counts = sums.counts[rest], sums.counts[kept], sums.counts[new]
    new_images = new_counts.sum()
    mean_new = sums.gradients[new].sum(dim=0) / new_images
    full = sums.gradients[rest].div_(counts[:, None, None])  # f_c
    bias = sums.gradients[kept].div_(kept_counts.clamp(min=1)[:, None, None]).sub_(full)  # b_c, with a share of 0 if not kept
    by_class = sums.gradients[new].div_(new_counts[:, None, None])
    rounding = rounding_error(sums.lengths[rest], sums.eps)
    nodes = data.past_nodes if sums.within is None else sums.within
    from_past = past_interference(full, bias, data.alpha, data.shares, rounding)
    from_new = new_interference(full, by_class, new_counts / new_images, data.alpha, nodes, rounding)
    terms = coefficients(
        full=full, bias=bias, new=mean_new, alpha=data.alpha, shares=data.shares, nodes=nodes, rounding=rounding
    )
    unknown = (data.kept == 0) | data.only_memory
    from_past.masked_fill_(_unknown_pairs(data), torch.nan)
    return Measurement(
        terms=_known(terms, data),
        pairs=torch.cat([from_past, from_new], dim=1),
        gradient_norm=norms(full.flatten(1)),
        bias_norm=norms(bias.flatten(1)).masked_fill(unknown, torch.nan),
        loss_full=sums.losses[rest] / counts,
        loss_rehearsal=sums.losses[kept] / kept_counts,
        rounding=rounding,
        new_logits=sums.logits[new].sum(dim=0)[data.past_nodes] / new_images,
        released_nic=torch.full_like(rounding, torch.nan)
        if sums.within is not None
        else released_nic(full, mean_new, data.alpha, data.past_nodes, rounding),
        nodes=tuple(data.past_nodes.tolist()),
        names=data.names,
    )


def _estimated(sums: SampledGradients, data: Images) -> Measurement:
    """The same from some images of each class."""
    assert data.population is not None
    found = estimate(sums, data.population, data.past_nodes, data.alpha, data.shares, data.foreign)
    past = len(data.past_nodes)
    found.pairs[:, :past].masked_fill_(_unknown_pairs(data), torch.nan)
    return Measurement(
        terms=_known(found.terms, data),
        variances=_known(found.variances, data),
        pairs=found.pairs,
        gradient_norm=found.gradient_norm,
        bias_norm=found.bias_norm.masked_fill((data.kept == 0) | data.only_memory, torch.nan),
        loss_full=found.loss_full,
        loss_rehearsal=found.loss_rehearsal,
        rounding=found.rounding,
        new_logits=found.new_logits[data.past_nodes],
        released_nic=torch.full_like(found.rounding, torch.nan),
        nodes=tuple(data.past_nodes.tolist()),
        names=data.names,
    )


def _unknown_pairs(data: Images) -> Tensor:
    """[P, P]"""
    unknown = (data.kept == 0) | data.only_memory
    return torch.diag(unknown) | data.only_memory | (not data.rehearses)


def _demand_all(last: LastLayer, data: Images) -> None:
    if data.population is not None:
        raise AllNeededError(
            f"The last layer is {kind_of(last.head)}, which does not give features @ weight.T + bias: there some images cannot "
            "stand for the others. Measure on all of them: leave out how many to look at."
        )


def _known(terms: Coefficients, data: Images) -> Coefficients:
    """What nobody can know is missing: SIC of a class without a stored image; SIC and CIC where past images are the memory, or
    there is none."""
    unknown, nobody = (data.kept == 0) | data.only_memory, torch.tensor(data.only_memory or not data.rehearses)
    return replace(terms, sic=terms.sic.masked_fill(unknown, torch.nan), cic=terms.cic.masked_fill(nobody, torch.nan))


def _said(last: LastLayer, data: Images, other_loss: bool, looked_at: int) -> tuple[str, ...]:
    how = "in closed form" if last.weight is not None else "by autograd through its own forward"
    loss = "your loss" if other_loss else "cross-entropy"
    head = f"{kind_of(last.head)}, {counted(last.nodes, 'node')}{', without bias' if _unbiased(last) else ''}"
    trained = any(parameter.requires_grad for parameter in last.parameters)
    which = "Frozen, so not measured" if trained else "Measured as if it were trained, but frozen"
    frozen = (f"{which}: {', '.join(last.frozen)}.",) if last.frozen else ()
    some = () if data.population is None else (f"Estimated from {counted(looked_at, 'image')} of these.",)
    return (f"{data.about} Measured: {loss} {how} in {head}.", *some, *frozen, *data.unknown_said)


def _unbiased(last: LastLayer) -> bool:
    return last.weight is not None and last.bias is None


def frame_of(nodes: tuple[int, ...], names: Mapping[int, str], columns: Mapping[str, object]) -> pd.DataFrame:
    """A row per class, named by its head node; first its name, if it has one."""
    import pandas as pd

    named = {"class": [names[node] for node in nodes]} if names else {}
    return pd.DataFrame({**named, **columns}, index=pd.Index(list(nodes), name="node"))


def html_of(said: tuple[str, ...], frame: pd.DataFrame | None) -> str:
    """For notebooks; names of classes come from anywhere, so everything is escaped."""
    table = "" if frame is None else frame.to_html(float_format="{:.4g}".format)
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in said) + table
