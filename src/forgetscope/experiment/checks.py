"""What would go wrong in some step of a plan, found before the first one starts."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from forgetscope.benchmark.plans import Plan, chain_of
from forgetscope.characters import counted
from forgetscope.data.images import DataSet
from forgetscope.data.preprocessing import Normalisation
from forgetscope.errors import SpecError
from forgetscope.experiment.settings import check_precision
from forgetscope.learning.budgets import demand_room
from forgetscope.learning.methods import make_method
from forgetscope.learning.networks import build_network, check_features, head_of
from forgetscope.learning.plugins import blaming_own_code
from forgetscope.spec import RehearsalSpec, StepSpec


@blaming_own_code()
def check_steps(plan: Plan, data: DataSet, device: torch.device | None) -> None:
    """device: None where others than this machine's compute."""
    specs = [job.spec for job in plan.jobs.values()]
    _check_rehearsal([(job.spec, job.past_classes) for job in plan.jobs.values()])
    _check_methods({spec.rehearsal for spec in specs if spec.rehearsal is not None})
    if device is not None:
        for spec in {spec.training.precision: spec for spec in specs}.values():
            check_precision(device, spec)
    _check_networks([spec for spec in specs if spec.network is not None], data)
    _check_bytes(plan)


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
        needs = make_method(spec.method, spec.method_source).needs
        if "past images" in needs and spec.memory_bytes is not None:
            raise SpecError(
                f"memory_bytes = {spec.memory_bytes}: method = {spec.method!r} needs all past images, however many bytes they "
                "are. Leave memory_bytes out. Nothing was started."
            )
        if "keepsakes" in needs and spec.keepsake is None:
            raise SpecError(
                f"method = {spec.method!r} needs keepsakes, and keepsake = 'none' makes none. Set keepsake = 'variance'. "
                "Nothing was started."
            )


def _check_bytes(plan: Plan) -> None:
    """That a budget in bytes has room for an image of each class, now that the networks can be built."""
    widths = dict[tuple[str | None, str | None], int]()
    for id, job in sorted(plan.jobs.items(), key=lambda entry: -entry[1].past_classes):  # so that the remedy serves all of them
        rehearsal = job.spec.rehearsal
        if rehearsal is None or rehearsal.memory_bytes is None:
            continue
        first = chain_of(plan.jobs, id)[0].spec
        if (network := (first.network, first.network_source)) not in widths:
            widths[network] = head_of(build_network(str(first.network), 1, None, first.network_source))[0].shape[1]
        stores_logits = "stored logits" in make_method(rehearsal.method, rehearsal.method_source).needs
        prices = plan.prices(id, rehearsal, widths[network], stores_logits)
        demand_room(rehearsal.memory_bytes, prices, f" of step {job.spec.step}", " Nothing was started.")


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
