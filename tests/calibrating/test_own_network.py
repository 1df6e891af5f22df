"""`fs.evening`: what is written into a head is what was promised, and it is taken back to the last bit."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn
from torch.nn import functional as F

import forgetscope as fs
from forgetscope.calibrating.own import Evened
from forgetscope.errors import InputError
from measuring.test_heads import CosineLinear

Pair = tuple[Tensor, Tensor]


def images(*classes: int, per_class: int = 30) -> Pair:
    labels = torch.tensor(classes).repeat_interleave(per_class)
    draws = torch.Generator().manual_seed(classes[0])
    return torch.randn(len(labels), 6, generator=draws) + 1.5 * F.one_hot(labels, 6), labels


def few(pair: Pair, each: int = 4) -> Pair:
    at = torch.cat([torch.nonzero(pair[1] == c)[:each, 0] for c in pair[1].unique()])
    return pair[0][at], pair[1][at]


def train(net: nn.Module, *parts: Pair, times: int = 60) -> None:
    inputs, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    optimiser = torch.optim.SGD(net.parameters(), 0.3)
    for _ in range(times):
        optimiser.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimiser.step()


def trained(*, bias: bool = True, last: nn.Module | None = None) -> tuple[nn.Sequential, fs.Forecast]:
    """Past classes 0 to 3, of which 0 is at head node 5 no more: nodes need not be in the order of classes."""
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), last or nn.Linear(16, 6, bias=bias))
    past, new = images(0, 1, 2, 3), images(4, 5)
    train(net, past)
    forecast = fs.Forecast(net, fs.keepsakes(net, *past), memory=few(past), new=new, names=list("abcdef"))
    train(net, few(past), new)
    return net, forecast


def bias_of(net: nn.Sequential) -> Tensor:
    return net[2].bias.detach().clone()  # type: ignore[union-attr, operator]


def test_what_is_written_is_what_was_promised() -> None:
    net, forecast = trained()
    found, before = fs.evening(net, forecast, strength=1, shrinkage=1), forecast.measure(net)
    frame = found.to_frame()
    assert_allclose(frame["forecast"], before["forecast"])
    moved = copy.deepcopy(net)
    with torch.no_grad():
        moved[2].bias += torch.tensor([*found.offsets.values(), 0, 0])  # type: ignore[operator, union-attr]
    assert_allclose(forecast.measure(moved)["forecast"], frame["evened"], atol=1e-5)
    assert np.ptp(frame["evened"]) < 0.01 < 0.1 < np.ptp(frame["forecast"])
    assert frame["evened"].mean() == pytest.approx(frame["forecast"].mean(), abs=1e-6)
    found.write(net)
    assert_allclose(bias_of(net), bias_of(moved), atol=1e-6)
    assert frame["class"].tolist() == ["a", "b", "c", "d"]


def test_the_head_is_taken_back_to_the_last_bit() -> None:
    net, forecast = trained()
    with torch.no_grad():
        net[2].bias *= 1e-3  # type: ignore[operator, union-attr]
    found, before = fs.evening(net, forecast, strength=1), copy.deepcopy(net.state_dict())
    found.write(net)
    assert not torch.equal(bias_of(net), before["2.bias"])
    found.take_back(net)
    assert all(torch.equal(part, before[name]) for name, part in net.state_dict().items())
    found.write(net)  # and once more
    found.take_back(net)
    assert torch.equal(bias_of(net), before["2.bias"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_logits_with_offsets_are_those_of_the_written_head(dtype: torch.dtype) -> None:
    net, forecast = trained()
    found, inputs = fs.evening(net, forecast), images(0, 4)[0]
    logits = net(inputs).detach()
    found.write(net)
    evened = found.of(logits.to(dtype))
    assert evened.dtype == dtype
    assert_allclose(evened.float(), net(inputs).detach(), atol=0.1 if dtype == torch.bfloat16 else 1e-5)
    assert_allclose(found.of(logits.numpy()), net(inputs).detach(), atol=1e-5)
    assert found.of(logits.numpy()).dtype == np.float32
    with pytest.raises(InputError, match="3 logits"):
        found.of(logits[:, :3])


def test_a_head_without_bias_keeps_its_shape() -> None:
    net, forecast = trained(bias=False)
    found = fs.evening(net, forecast)
    with pytest.raises(InputError, match=r"Linear, the last layer of Sequential, has no bias .* found\.of\(logits\)"):
        found.write(net)
    assert found.of(torch.zeros(1, 6))[0].tolist() == pytest.approx([*found.offsets.values(), 0, 0])


def test_nothing_is_written_twice() -> None:
    net, forecast = trained()
    found, other = fs.evening(net, forecast), fs.evening(net, forecast, strength=1)
    found.write(net)
    with pytest.raises(InputError, match="written already"):
        found.write(net)
    with pytest.raises(InputError, match="Offsets are written into the head of Sequential"):
        other.write(net)
    found.take_back(net)
    with pytest.raises(InputError, match="nothing to take back"):
        found.take_back(net)
    other.write(net)


@pytest.mark.parametrize(
    "ask",
    [
        lambda net, forecast: fs.evening(net, forecast),
        lambda net, forecast: forecast.measure(net),
        lambda net, forecast: forecast.keepsakes(net),
        lambda net, _: fs.keepsakes(net, *images(0)),
        lambda net, _: fs.keepsakes(nn.DataParallel(net), *images(0)),
    ],
)
def test_nothing_is_kept_or_predicted_of_a_head_with_offsets(ask: Any) -> None:
    net, forecast = trained()
    found = fs.evening(net, forecast)
    found.write(net)
    with pytest.raises(InputError, match=r"Take them back first: found\.take_back\(network\)"):
        ask(net, forecast)
    found.take_back(net)
    ask(net, forecast)


def test_a_head_that_was_trained_or_loaded_since_has_nothing_to_take_back() -> None:
    net, forecast = trained()
    found, before = fs.evening(net, forecast), copy.deepcopy(net.state_dict())
    found.write(net)
    net.load_state_dict(before)
    with pytest.raises(InputError, match="trained on, or loaded"):
        found.take_back(net)
    assert np.isfinite(forecast.measure(net)["forecast"]).all()  # it is as it was trained
    with pytest.raises(InputError, match="not the one"):
        found.take_back(copy.deepcopy(net))


def test_it_says_what_it_gains_and_costs() -> None:
    net, forecast = trained()
    found = fs.evening(net, forecast, level="balance")
    frame = found.to_frame()
    means = [f"{float(frame[name].mean()):.2f}" for name in ("evened", "forecast")]
    assert f"its mean is {means[0]} where it was {means[1]}" in found.said
    assert "new images are taken for new classes with probability" in found.said
    assert found.said in repr(found)
    assert found.said in found._repr_html_()


def test_nodes_are_those_of_the_head() -> None:
    """Past classes at nodes 1, 4 and 5."""
    torch.manual_seed(0)
    net, past, new = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 6)), images(1, 4, 5), images(0, 2)
    train(net, past)
    forecast = fs.Forecast(net, fs.keepsakes(net, *past), memory=few(past), new=new)
    train(net, few(past), new)
    found, before = fs.evening(net, forecast, strength=1, shrinkage=1), bias_of(net)
    assert list(found.offsets) == [1, 4, 5]
    found.write(net)
    moved = (bias_of(net) - before).tolist()
    assert moved == pytest.approx([0, found.offsets[1], 0, 0, found.offsets[4], found.offsets[5]], abs=1e-6)


def test_classes_without_a_keepsake_move_with_the_others() -> None:
    net, _ = trained()
    past, new = images(0, 1, 2), images(4, 5)
    train(net, images(0, 1, 2, 3))
    forecast = fs.Forecast(net, fs.keepsakes(net, *past), memory=few(images(0, 1, 2, 3)), new=new)
    assert fs.evening(net, forecast).said.endswith("or nothing has been trained yet. So nothing changes.")
    train(net, few(images(0, 1, 2, 3)), new, times=5)
    found = fs.evening(net, forecast, strength=1, shrinkage=1)
    assert np.isnan(found.to_frame()["forecast"][3])
    assert found.offsets[3] == pytest.approx(np.mean([found.offsets[node] for node in (0, 1, 2)]))
    assert "Nothing tells of 1 past class, which moves with the others." in found.said


@pytest.mark.parametrize("options", [{"strength": 2.0}, {"shrinkage": -1.0}, {"level": "even"}])
def test_options_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    net, forecast = trained()
    with pytest.raises(InputError, match=str(next(iter(options.values())))):
        fs.evening(net, forecast, **options)


def test_a_table_is_no_forecast() -> None:
    net, forecast = trained()
    with pytest.raises(InputError, match=r"a DataFrame\. Give the fs\.Forecast"):
        fs.evening(net, forecast.measure(net))  # type: ignore[arg-type]


def test_a_network_whose_head_is_not_linear_any_more_is_refused() -> None:
    net, forecast = trained()
    found = fs.evening(net, forecast)
    assert isinstance(found, Evened)
    net[2] = CosineLinear(16, 6)
    with pytest.raises(InputError, match="CosineLinear"):
        found.write(net)
