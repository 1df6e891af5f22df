"""The probe for any training loop: measures, and adds up what it measured."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor, nn

from forgetscope.characters import counted
from forgetscope.errors import InputError
from forgetscope.measuring.all_layers import AllLayers
from forgetscope.measuring.coefficients import Coefficients
from forgetscope.measuring.folding import Features
from forgetscope.measuring.measurement import Measurement, ProbeData, html_of, measure, measure_all_layers
from forgetscope.measuring.subsampled.drawing import subsampled
from forgetscope.measuring.subsampled.quotas import checked_images
from forgetscope.measuring.sums import Sums

if TYPE_CHECKING:
    import pandas as pd


class Probe(ProbeData):
    """Holds what to measure on and the sum of what was measured; call `measure` before training and after each epoch.

    past: all training images of the past classes, [n, ...], their labels (= head nodes), and which of them are rehearsed (a
    mask or positions). new: the same without the rehearsal. alpha: the share of rehearsal images in a batch. `prepare` turns a
    slice of the images into the network's input (a cast, a normalisation, a transfer to the device); `batch` images go through
    the network at a time, by default as many as suit the images' device. loss: the one you train with, if it is not the
    cross-entropy: a function of logits and labels that is a mean over images. names: of classes, {node: name} or a list.

    The last layer of the network is found by looking at it work, on a few images; a network for which the numbers would not be
    those of its training is refused. SIC of a past class without a stored image is NaN: unknown. If every past image is
    rehearsed, so are all SIC and CIC: nothing is known of the others.

    >>> import torch, forgetscope as fs
    >>> draws = torch.Generator().manual_seed(0)
    >>> past, new = torch.randn(20, 8, generator=draws), torch.randn(20, 8, generator=draws)
    >>> labels = torch.arange(20) % 2  # two past classes; the new ones are nodes 2 and 3
    >>> network = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
    >>> probe = fs.Probe(past, labels, torch.arange(4), new, labels + 2, alpha=0.5)
    >>> measured = probe.measure(network)
    >>> measured
    Measurement(2 past classes, 20 images, 4 rehearsed; 2 new classes, 20 images; alpha 0.5. Measured: cross-entropy in closed \
form in Linear, 4 nodes.)
    >>> measured.pairs.shape  # who interferes with whom: past classes by past and new ones
    torch.Size([2, 4])
    >>> len(probe.sums), probe.coefficients.sic.shape
    (1, torch.Size([2]))
    """

    @property
    def only_memory(self) -> bool:
        return self.all_kept

    @cached_property
    def sums(self) -> Sums:
        """What was measured so far, to be saved with `sums.state_dict()` and continued with `sums.load_state_dict(...)`."""
        return Sums(tuple(self.past_nodes.tolist()), names=self.names, alpha=self.alpha)

    def measure(
        self,
        network: nn.Module,
        *,
        images: int | None = None,
        seed: int = 0,
        features: Features | None = None,
        head: nn.Module | None = None,
    ) -> Measurement:
        """Measure now and add to the sums. `features` and `head` are found; they name them where that is refused.

        images: so many of each past class, by seed and drawn anew at each probe: an estimate, with `variances` of its terms
        and standard errors of the coefficients in `sums.errors` and `to_frame()`. Without it: all of them, exactly."""
        data = self
        if images is not None:
            number, draws = checked_images(images, seed), len(self.sums)
            data = subsampled(self, number, lambda node: np.random.default_rng([seed, draws, node]))
        measurement = measure(network, data, features=features, head=head)
        self.sums.add_probe(measurement)
        return measurement

    def to_frame(self) -> pd.DataFrame:
        """A row per past class: what `sums` adds up to, and of how many images it is rehearsed."""
        frame = self.sums.to_frame()
        frame.insert(int("class" in frame), "stored", self.kept.long().numpy())
        return frame

    def __repr__(self) -> str:
        return f"Probe({' '.join(self._said())})"

    def _repr_html_(self) -> str:
        return html_of(self._said(), self.to_frame()) if len(self.sums) else html_of(self._said(), None)

    def _said(self) -> tuple[str, ...]:
        return (f"{self.about} {counted(len(self.sums), 'probe')} so far.", *self.unknown_said)

    def measure_all_layers(self, network: nn.Module, *, head: nn.Module | None = None) -> AllLayers:
        """The terms over all trainable parameters, now; costs a backward pass over every image. Not added to the sums."""
        return measure_all_layers(network, self, head=head)

    @property
    def coefficients(self) -> Coefficients:
        """SIC, CIC, NIC and ALL-NIC over the probes so far, in the order of `past_nodes`."""
        return self.sums.coefficients

    @property
    def log_sim(self) -> Tensor:
        """LOG-SIM: the mean logit of each past class over the new images at the first probe."""
        if self.sums.log_sim is None:
            raise InputError("Nothing has been measured yet. Call probe.measure(network) first.")
        return self.sums.log_sim
