"""The probe for any training loop: measures, and adds up what it measured."""

from __future__ import annotations

from functools import cached_property

from torch import Tensor, nn

from forgetscope.errors import InputError
from forgetscope.measuring.all_layers import AllLayers
from forgetscope.measuring.coefficients import Coefficients
from forgetscope.measuring.folding import Features
from forgetscope.measuring.measurement import Measurement, ProbeData, measure, measure_all_layers
from forgetscope.measuring.sums import Sums


class Probe(ProbeData):
    """Holds what to measure on and the sum of what was measured; call `measure` before training and after each epoch.

    past: all training images of the past classes, [n, ...], their labels (= head nodes), and which of them are rehearsed (a
    mask or positions). new: the same without the rehearsal. alpha: the share of rehearsal images in a batch. `prepare` turns a
    slice of the images into the network's input (a cast, a normalisation, a transfer to the device); `batch` images go through
    the network at a time, by default as many as suit the images' device.

    >>> import torch, forgetscope as fs
    >>> draws = torch.Generator().manual_seed(0)
    >>> past, new = torch.randn(20, 8, generator=draws), torch.randn(20, 8, generator=draws)
    >>> labels = torch.arange(20) % 2  # two past classes; the new ones are nodes 2 and 3
    >>> network = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 4))
    >>> probe = fs.Probe(past, labels, torch.arange(4), new, labels + 2, alpha=0.5)
    >>> measured = probe.measure(network, features=network[:2], head=network[2])
    >>> measured.pairs.shape  # who interferes with whom: past classes by past and new ones
    torch.Size([2, 4])
    >>> len(probe.sums), probe.coefficients.sic.shape
    (1, torch.Size([2]))
    """

    @cached_property
    def sums(self) -> Sums:
        """What was measured so far, to be saved with `sums.state_dict()` and continued with `sums.load_state_dict(...)`."""
        return Sums(tuple(self.past_nodes.tolist()))

    def measure(self, network: nn.Module, *, features: Features | None = None, head: nn.Linear | None = None) -> Measurement:
        """Measure now and add to the sums. `features` and `head` name them where the module calls them otherwise."""
        measurement = measure(network, self, features=features, head=head)
        self.sums.add(measurement)
        return measurement

    def measure_all_layers(self, network: nn.Module, *, head: nn.Linear | None = None) -> AllLayers:
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
