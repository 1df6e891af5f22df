"""What would go wrong in some step of a plan, found before the first one starts."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from forgetscope.characters import counted
from forgetscope.data.images import DataSet
from forgetscope.data.preprocessing import Normalisation
from forgetscope.errors import SpecError
from forgetscope.experiment.settings import check_precision
from forgetscope.learning.methods import make_method
from forgetscope.learning.networks import build_network, check_features
from forgetscope.learning.plugins import blaming_own_code
from forgetscope.spec import RehearsalSpec, StepSpec


@blaming_own_code()
def check_steps(steps: Iterable[tuple[StepSpec, int]], data: DataSet, device: torch.device | None) -> None:
    """Each step with the number of its past classes. device: None where others than this machine's compute."""
    listed = list(steps)
    _check_rehearsal(listed)
    _check_methods({spec.rehearsal for spec, _ in listed if spec.rehearsal is not None})
    if device is not None:
        for spec in {spec.training.precision: spec for spec, _ in listed}.values():
            check_precision(device, spec)
    _check_networks([spec for spec, _ in listed if spec.network is not None], data)


def _check_rehearsal(steps: Sequence[tuple[StepSpec, int]]) -> None:
    for spec, past in sorted(steps, key=lambda step: -step[1]):  # so that the remedy serves all of them
        if spec.rehearsal is None:
            continue
        memory = spec.rehearsal.memory
        if memory is not None and memory < past:
            raise SpecError(
                f"memory = {counted(memory, 'image')} cannot hold one of each of the {counted(past, 'past class')} "
                f"of step {spec.step}. Use at least {past}. Nothing was started."
            )
        if spec.rehearsal.policy == "boundary" and past == 1:
            raise SpecError(
                "policy = 'boundary' needs two classes to have a boundary between, and the first step has one. "
                "Give it more classes, or use another policy. Nothing was started."
            )


def _check_methods(rehearsals: Iterable[RehearsalSpec]) -> None:
    """That each can be made, and that the run has what it needs."""
    for spec in rehearsals:
        if "keepsakes" in make_method(spec.method, spec.method_source).needs and spec.keepsake is None:
            raise SpecError(
                f"method = {spec.method!r} needs keepsakes, and keepsake = 'none' makes none. Set keepsake = 'variance'. "
                "Nothing was started."
            )


def _check_networks(first_steps: Sequence[StepSpec], data: DataSet) -> None:
    """Of each network once: it takes images of this size and, where a batch would have a single image, that one too."""
    sizes = np.bincount(data.train.labels, minlength=len(data.classes))
    images = Normalisation.of(data)(torch.from_numpy(np.array(data.train.images[:2])))
    seen = dict[tuple[str | None, str | None, bool], tuple[StepSpec, int]]()
    for spec in first_steps:
        used = sum(int(size) - round((spec.training.validation or 0.0) * int(size)) for size in sizes[list(spec.classes)])
        alone = spec.training.sampling == "reshuffled-short" and used % spec.training.batch == 1
        seen.setdefault((spec.network, spec.network_source, alone), (spec, used))
    for (_, _, alone), (spec, used) in seen.items():
        _check_network(spec, images, used if alone else None)


def _check_network(spec: StepSpec, images: Tensor, alone: int | None) -> None:
    """alone: of how many images one would be left for a batch of its own."""
    network = build_network(str(spec.network), len(spec.classes), None, spec.network_source)
    check_features(str(spec.network), network, images)
    if alone is None:
        return
    try:
        with torch.no_grad():
            network.train()(images[:1])
    except ValueError as error:  # BatchNorm, where one image has one value per channel
        raise SpecError(
            f"network = {spec.network!r} cannot learn from one image alone ({error}), and sampling = 'reshuffled-short' would "
            f"leave it one: {counted(alone, 'image')} in batches of first_batch = {spec.training.batch}. "
            "Use another first_batch or sampling. Nothing was started."
        ) from None
