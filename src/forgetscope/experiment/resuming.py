"""Whether a snapshot is one of a step. A checksum that fits does not prove it."""

from collections.abc import Mapping

import torch
from torch import Tensor

from forgetscope.experiment.course import FORECASTS
from forgetscope.experiment.observation import RELEASED_STEP
from forgetscope.experiment.preparation import Prepared
from forgetscope.learning.sampling import iterations_per_epoch
from forgetscope.learning.snapshots import Snapshot
from forgetscope.measuring.quantities import COEFFICIENTS, FORECAST, QUANTITIES
from forgetscope.store import ALL_LAYERS, EVERY_ITERATION, OF_METHOD, RELEASED

Form = tuple[torch.dtype, tuple[int, ...]]


def fits(snapshot: Snapshot, step: Prepared) -> bool:
    """Whether it holds just the tensors, of just the form, that this step has after these epochs and iterations."""
    epoch, training, rehearsal = snapshot.epoch, step.spec.training, step.spec.rehearsal
    new_per_batch = training.batch - round((rehearsal.alpha if rehearsal else 0.0) * training.batch)
    each = iterations_per_epoch(len(step.new_set.nodes), new_per_batch)
    if not 0 < epoch * each + snapshot.iterations <= training.epochs * each or snapshot.iterations > each:
        return False
    if [entry["epoch"] for entry in snapshot.history] != list(range(1, epoch + 1)):
        return False
    parameters = {f"momentum.{i}": p for i, p in enumerate(step.network.parameters())} if training.momentum else {}
    expected = _forms({f"network.{name}": tensor for name, tensor in step.network.state_dict().items()} | parameters)
    expected["images"] = (torch.int16, (len(step.new_set.nodes),))
    if snapshot.iterations:
        expected |= {"begun.losses": (torch.float32, (each,)), "begun.correct": (torch.int64, ())}
    probed = _iterations_probed(step, epoch, snapshot.iterations, each)
    past, both = len(step.past), len(step.classes)
    for prefix, iterations in probed.items():
        expected[f"measured.{prefix}iterations"] = (torch.int64, (len(iterations),))
        expected[f"measured.{prefix}values"] = (torch.float64, (len(iterations), len(QUANTITIES), past))
    if "" in probed:
        expected |= {"measured.pairs": (torch.float64, (past, both)), "measured.log_sim": (torch.float64, (past,))}
        if rehearsal is not None and rehearsal.probe_images is not None:
            expected["measured.variances"] = (torch.float64, (len(COEFFICIENTS), past))
        if rehearsal is not None and rehearsal.forecast:
            expected[f"measured.{FORECASTS}"] = (torch.float64, (len(probed[""]), len(FORECAST), past))
    return _forms(snapshot.tensors()) == expected and all(
        snapshot.measured[f"{prefix}iterations"].tolist() == iterations for prefix, iterations in probed.items()
    )


def _forms(tensors: Mapping[str, Tensor]) -> dict[str, Form]:
    """Type and shape of each."""
    return {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}


def _iterations_probed(step: Prepared, epoch: int, iterations: int, each: int) -> dict[str, list[int]]:
    """Of each series of probes that has begun by then, by what its tensors' names begin with."""
    spec, ends = step.spec, range(epoch + 1)
    if spec.rehearsal is None or not spec.rehearsal.probe_every:
        return {}
    probes = [each * end for end in ends if spec.is_probed(end)]
    series = {
        "": probes,
        f"extra.{RELEASED}.": probes if spec.rehearsal.released_nic and spec.step == RELEASED_STEP else [],
        f"extra.{OF_METHOD}.": probes if spec.rehearsal.method_interference else [],
        f"extra.{ALL_LAYERS}.": [each * end for end in ends if spec.is_probed_in_all_layers(end)],
        f"extra.{EVERY_ITERATION}.": list(range(epoch * each + iterations)) if spec.rehearsal.every_iteration else [],
    }
    return {prefix: iterations for prefix, iterations in series.items() if iterations}
