"""`fs.keepsakes` and `fs.Forecast` in anybody's loop: the same as the arrays say, whatever the order, and refused by name."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn
from torch.nn import functional as F

import forgetscope as fs
from forgetscope.errors import InputError
from forgetscope.forecasting.accuracy import leave_one_out
from forgetscope.forecasting.choice import Chosen, marks
from forgetscope.forecasting.features import featured
from forgetscope.forecasting.forecaster import UNTRAINED
from forgetscope.measuring.quantities import FORECAST
from measuring.test_heads import Cosine, made

Pair = tuple[Tensor, Tensor]


def network(classes: int = 5) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, classes))


def images(*classes: int, per_class: int = 12) -> Pair:
    labels = torch.tensor(classes).repeat_interleave(per_class)
    return torch.randn(len(labels), 6, generator=torch.Generator().manual_seed(classes[0])) + 2 * F.one_hot(labels, 6), labels


def train(net: nn.Module, *parts: Pair, times: int = 30) -> None:
    inputs, labels = (torch.cat(part) for part in zip(*parts, strict=True))
    optimiser = torch.optim.SGD(net.parameters(), 0.3)
    for _ in range(times):
        optimiser.zero_grad()
        F.cross_entropy(net(inputs), labels).backward()
        optimiser.step()


def few(pair: Pair, each: int = 4) -> Pair:
    at = torch.cat([torch.nonzero(pair[1] == c)[:each, 0] for c in pair[1].unique()])
    return pair[0][at], pair[1][at]


@pytest.fixture
def learned() -> tuple[nn.Module, fs.Keepsakes]:
    net = network()
    train(net, images(0, 1, 2))
    return net, fs.keepsakes(net, *images(0, 1, 2))


def test_keepsakes_are_mean_variance_and_leave_one_out_accuracy(learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    net, kept = learned
    inputs, labels = images(0, 1, 2)
    features = net[:2](inputs).detach().double()  # type: ignore[index]
    right = leave_one_out(features.numpy(), labels.numpy(), *(part.detach().double().numpy() for part in net[2].parameters()))  # type: ignore[index]
    for node, one in kept.items():
        assert_allclose(one.mean, features[labels == node].mean(dim=0), rtol=1e-5)
        assert_allclose(one.spread, features[labels == node].var(dim=0, correction=0), rtol=1e-4, atol=1e-7)
        assert (one.images, one.accuracy) == (12, right[labels == node].mean())


def test_order_of_images_and_where_they_lie_change_nothing(learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    net, kept = learned
    memory, new, moved = few(images(0, 1, 2)), images(3, 4), copy.deepcopy(net)
    train(moved, memory, new)
    frames = []
    for seed in (0, 1):
        orders = [torch.randperm(len(pair[1]), generator=torch.Generator().manual_seed(seed)) for pair in (memory, new)]
        held, added = ((pair[0][order], pair[1][order]) for pair, order in zip((memory, new), orders, strict=True))
        frames.append(fs.Forecast(net, kept, memory=held, new=added, names=["owl", "wren", "kite"]).measure(moved))
    assert_allclose(frames[0][list(FORECAST)], frames[1][list(FORECAST)], rtol=1e-9)
    assert frames[0]["class"].tolist() == ["owl", "wren", "kite"]
    assert np.isfinite(frames[0][list(FORECAST)]).all(axis=None)
    assert_allclose(frames[0]["accuracy"], (1 - frames[0]["forecast"]) * [one.accuracy for one in kept.values()])


def test_nothing_has_moved_and_nothing_is_forgotten() -> None:
    net = network(3)  # a node for nobody else: with those of new classes, these take something
    train(net, images(0, 1, 2), times=200)
    kept = fs.keepsakes(net, *images(0, 1, 2))
    wider = copy.deepcopy(net)
    wider[2] = nn.Linear(8, 5)
    with torch.no_grad():
        wider[2].weight[:3], wider[2].bias[:3] = net[2].weight, net[2].bias
        wider[2].weight[3:], wider[2].bias[3:] = 0, -1e4
    forecast = fs.Forecast(wider, kept, memory=few(images(0, 1, 2)), new=images(3, 4))
    with torch.no_grad():
        wider[2].bias[:3] += 1e-5
    assert (abs(forecast.measure(wider)["forecast"]) < 0.15).all()
    with torch.no_grad():
        wider[2].bias[3:] = 1e4
    assert (fs.Forecast(net_grown(net), kept, new=images(3, 4)).measure(wider)["forecast"] > 0.99).all()


def test_before_training_there_is_no_forecast_and_it_says_so(learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    """New nodes that are not trained yet take probability from past classes on draws, and nothing of it is forgetting."""
    net, kept = learned
    memory, new = few(images(0, 1, 2)), images(3, 4)
    forecast = fs.Forecast(net, kept, memory=memory, new=new)
    found = forecast.measure(net)
    assert found[["forecast", "forecast_low", "forecast_high", "accuracy"]].isna().all(axis=None)
    assert np.isfinite(found[["sic_estimate", "nic_estimate"]]).all(axis=None)
    assert found["missing"].tolist() == [UNTRAINED] * 3
    assert UNTRAINED.startswith("nothing has been trained yet")
    after = forecast.keepsakes(net)  # of a step that trained nothing, and is handed on like any other
    assert all(np.isfinite(one.error) and one.probability for node, one in after.items() if node < 3)
    saved = forecast.state_dict()
    again = fs.Forecast(net, kept, memory=memory, new=new)
    again.load_state_dict(saved)
    assert again.measure(net)["forecast"].isna().all()
    train(net, memory, new, times=1)
    for one in (forecast, again):
        assert np.isfinite(one.measure(net)["forecast"]).all()
        assert one.measure(net)["missing"].tolist() == [None] * 3


def test_keepsakes_know_training_accuracy_and_those_of_earlier_versions_load(learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    net, kept = learned
    inputs, labels = images(0, 1, 2)
    right = net(inputs).argmax(dim=1) == labels
    assert [one.training_accuracy for one in kept.values()] == [float(right[labels == c].double().mean()) for c in range(3)]
    state = kept.state_dict()
    again = fs.Keepsakes.from_state_dict(state)
    assert [one.training_accuracy for one in again.values()] == [one.training_accuracy for one in kept.values()]
    old = fs.Keepsakes.from_state_dict({name: part for name, part in state.items() if name != "training_accuracy"})
    assert [one.training_accuracy for one in old.values()] == [None] * 3
    assert "training_accuracy" not in old.state_dict()
    mixed = fs.Keepsakes({0: kept[0], 1: old[1]})
    assert [one.training_accuracy for one in fs.Keepsakes.from_state_dict(mixed.state_dict()).values()][1] is None
    with pytest.raises(InputError, match=r"No keepsake of class 1: its training accuracy is 1\.5"):
        fs.Keepsakes.from_state_dict({**state, "training_accuracy": torch.tensor([0.5, 1.5, 0.5], dtype=torch.float64)})
    after = fs.Forecast(net, kept, memory=few(images(0, 1, 2)), new=images(3, 4)).keepsakes(net)
    assert [after[c].training_accuracy for c in range(3)] == [one.training_accuracy for one in kept.values()]


@pytest.mark.parametrize("harm", ["swapped", "permuted keepsakes", "begun anew"])
def test_keepsakes_and_head_that_do_not_belong_together_are_noticed(harm: str, learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    net, kept = learned
    state = kept.state_dict()
    with torch.no_grad():
        if harm == "swapped":
            for part in net[2].parameters():  # type: ignore[index]
                part[:3] = part[[1, 2, 0]].clone()
        elif harm == "begun anew":
            torch.manual_seed(0)
            net[2] = nn.Linear(8, 5)  # type: ignore[operator]
        else:
            state["nodes"] = torch.tensor([1, 2, 0])
    forecast = fs.Forecast(net, state, memory=few(images(0, 1, 2)), new=images(3, 4))
    train(net, few(images(0, 1, 2)), images(3, 4))
    found = forecast.measure(net)
    assert found["forecast"].isna().all()
    assert found["missing"].str.contains("Another head, or rows in another order").all()
    assert "No forecast of class 0: the head does not recognise" in repr(forecast)
    assert not {0, 1, 2} & set(forecast.keepsakes(net))


def net_grown(net: nn.Sequential) -> nn.Sequential:
    grown = copy.deepcopy(net)
    grown[2] = nn.Linear(8, 5)
    with torch.no_grad():
        grown[2].weight[:3], grown[2].bias[:3] = net[2].weight, net[2].bias  # type: ignore[operator, index]
    return grown


def test_handed_on_from_step_to_step_and_through_a_file(learned: tuple[nn.Module, fs.Keepsakes], tmp_path: Path) -> None:
    net, kept = learned
    forecast = fs.Forecast(net, kept, memory=few(images(0, 1)), new=images(3))
    train(net, few(images(0, 1)), images(3))
    after = forecast.keepsakes(net)
    assert list(after) == [0, 1, 2, 3]
    assert all(one.probability is not None and one.error >= 0 for node, one in after.items() if node < 3)
    torch.save(after.state_dict(), tmp_path / "kept.pt")
    again = fs.Keepsakes.from_state_dict(torch.load(tmp_path / "kept.pt", weights_only=True))
    for node, one in after.items():
        assert again[node].__dict__.keys() == one.__dict__.keys()
        assert np.array_equal(again[node].mean, one.mean)
        assert (again[node].probability, again[node].error) == (one.probability, one.error)
    last = fs.Forecast(net, after.state_dict(), memory=few(images(0, 1, 2, 3)), new=images(4))
    train(net, images(4))
    assert np.isfinite(last.measure(net)["forecast"]).all()
    assert repr(last) == "Forecast(4 past classes, 4 with a keepsake, 16 images in memory; 1 new class, 12 images.)"


def test_resumed_from_its_state_it_predicts_the_same(learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    net, kept = learned
    data: dict[str, Any] = {"memory": few(images(0, 1, 2)), "new": images(3, 4)}
    forecast = fs.Forecast(net, kept, **data)
    train(net, *data.values())
    other = fs.Forecast(net, kept, **data)  # made too late: nothing seems to have moved
    with pytest.raises(InputError, match=r"The network is not the one that the keepsakes are of.* Where a step goes on"):
        other.measure(net)
    other.load_state_dict(forecast.state_dict())
    assert_allclose(other.measure(net)[list(FORECAST)], forecast.measure(net)[list(FORECAST)], rtol=1e-12)
    with pytest.raises(InputError, match=r"The state is of 36 images, and these 24 are others"):
        fs.Forecast(net, kept, new=images(3, 4)).load_state_dict(forecast.state_dict())
    with pytest.raises(InputError, match=r"\['before'\] is not the state of a forecast"):
        other.load_state_dict({"before": torch.zeros(3)})
    with pytest.raises(InputError, match=r"weight of the state has the shape \(3, 2\), expected \(3, 8\)"):
        other.load_state_dict({**forecast.state_dict(), "weight": torch.zeros(3, 2)})
    state = forecast.state_dict()
    for changed, message in (
        ({"before": state["before"] * torch.nan}, "before of the state is not finite"),
        ({"before": state["before"].long()}, "before of the state is of torch.int64"),
        ({"prints": state["prints"].double()}, "prints of the state is of torch.float64"),
        ({"weight": state["weight"][:2], "bias": state["bias"][:2]}, "of a head with 2 past classes, and there are 3 here"),
    ):
        with pytest.raises(InputError, match=message):
            other.load_state_dict({**state, **changed})


def test_prepare_makes_of_pixels_what_the_network_eats(learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    net, kept = learned
    pair = images(3, 4)
    plain = fs.Forecast(net, kept, new=pair)
    doubled = fs.Forecast(net, kept, new=(2 * pair[0], pair[1]), prepare=lambda inputs: inputs / 2)
    moved = copy.deepcopy(net)
    train(moved, pair)
    assert_allclose(plain.measure(moved)["forecast"], doubled.measure(moved)["forecast"], rtol=1e-6)


def test_a_class_without_keepsake_is_unknown_and_so_is_what_it_does_to_others(learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    net, kept = learned
    some, moved = fs.Keepsakes({node: kept[node] for node in (0, 1)}), copy.deepcopy(net)
    train(moved, few(images(0, 1, 2)), images(3, 4))
    found = fs.Forecast(net, some, memory=few(images(0, 1, 2)), new=images(3, 4)).measure(moved)
    assert np.isfinite(found["forecast"]).tolist() == [True, True, False]
    assert np.isfinite(found["sic_estimate"]).tolist() == [True, True, False]
    assert np.isnan(found["cic_estimate"]).all()
    assert np.isfinite(found["nic_estimate"]).all()


def test_what_is_no_forecast_is_refused_with_its_value(learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    net, kept = learned
    new = images(3, 4)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"new": images(2, 3)}, "Class 2 is both in keepsakes and in new"),
        ({"new": new, "memory": images(3)}, "Class 3 is both in memory and in new"),
        ({"new": new[0]}, "new= is a Tensor. Give a pair"),
        ({"new": (new[0][:0], new[1][:0])}, r"new\[0\] are empty"),
        ({"new": new, "alpha": 2}, "alpha = 2 is not between 0 and 1"),
        ({"new": new, "names": {0: "owl"}}, "names has no name for class 1"),
    ]
    for given, message in cases:
        with pytest.raises(InputError, match=message):
            fs.Forecast(net, kept, **given)
    empty = (new[0][:0], new[1][:0])
    with pytest.raises(InputError, match=r"memory= has no image\. Where nothing is rehearsed, give memory=None"):
        fs.Forecast(net, kept, new=new, memory=empty)
    with pytest.raises(InputError, match=r"keepsakes is a NoneType\. Give what fs\.keepsakes\(\.\.\.\) gave"):
        fs.Forecast(net, None, new=new)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^images are empty"):
        fs.keepsakes(net, *empty)
    with pytest.raises(InputError, match="There is no past class in keepsakes or memory"):
        fs.Forecast(net, fs.Keepsakes({}), new=new)
    with pytest.raises(InputError, match="The keepsake of class 0 is of 8 features, and the network has 6"):
        fs.Forecast(nn.Sequential(nn.Identity(), nn.Linear(6, 5)), kept, new=new)
    with pytest.raises(InputError, match="The last layer of Cosine is CosineLinear, which does not give features @ weight"):
        fs.keepsakes(made(Cosine), torch.randn(4, 3, 2, 2).double(), torch.arange(4))
    with pytest.raises(InputError, match="Label 7 needs a head with 8 nodes; it has 5"):
        fs.keepsakes(net, new[0], new[1] + 3)
    with pytest.raises(InputError, match="kind = 'mean' is none of 'variance', 'covariance'"):
        fs.keepsakes(net, *new, kind="mean")  # type: ignore[arg-type]


def test_another_network_of_the_same_width_is_recognised(learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    net, kept = learned
    torch.manual_seed(9)
    other = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 5))
    train(other, images(0, 1, 2))
    forecast = fs.Forecast(
        other, fs.Keepsakes.from_state_dict(kept.state_dict()), memory=few(images(0, 1, 2)), new=images(3, 4)
    )
    for asked in (forecast.measure, forecast.keepsakes, lambda _: forecast.state_dict()):
        with pytest.raises(InputError, match="The network is not the one that the keepsakes are of: it makes other features"):
            asked(other)
    with pytest.raises(InputError, match="These keepsakes are of different networks"):
        _ = kept | fs.keepsakes(other, *images(3, 4))
    assert (kept | fs.keepsakes(net, *images(3, 4))).mark is not None
    half = copy.deepcopy(net).bfloat16()
    pair = images(3, 4)
    moved, of_half = copy.deepcopy(half), fs.Forecast(half, kept, new=(pair[0].bfloat16(), pair[1]))
    moved.requires_grad_(False)[2].bias[:3] += 0.1
    assert np.isfinite(of_half.measure(moved)["forecast"]).all()
    old = {name: part for name, part in kept.state_dict().items() if not name.startswith("mark")}
    assert fs.Forecast(other, old, new=pair).measure(other)["missing"].notna().all()
    for changed in ({"mark": torch.zeros(3)}, {"mark_shape": torch.tensor([2**40])}):
        with pytest.raises(InputError, match="mark"):
            fs.Keepsakes.from_state_dict({**kept.state_dict(), **changed})


def test_measuring_another_architecture_is_refused(learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    net, kept = learned
    forecast = fs.Forecast(net, kept, memory=few(images(0, 1, 2)), new=images(3, 4))
    narrow = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 5))
    with pytest.raises(InputError, match=r"Sequential is not built as the network .*: it gives 4 features, and that one 8"):
        forecast.measure(narrow)
    deep = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 8), nn.ReLU(), nn.Linear(8, 5))
    with pytest.raises(InputError, match="Sequential is not built as the network that the step began with: other parameters"):
        forecast.measure(deep)


def test_a_memory_of_more_images_than_a_class_was_learned_from_is_noticed(learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    """Keepsakes of some of the images: which share of them all the memory is, nothing tells."""
    net, kept = learned
    some = fs.Keepsakes({node: replace(one, images=11) if node == 0 else one for node, one in kept.items()})
    forecast = fs.Forecast(net, some, memory=images(0, 1, 2), new=images(3, 4))
    train(net, images(3, 4))
    found = forecast.measure(net)
    assert found["forecast"].isna().tolist() == [True, False, False]
    told = "the memory has 12 different images of it, and its keepsake is of 11. Make keepsakes of all images that a class was"
    assert found["missing"][0].startswith(told)
    assert found["missing"][1:].isna().all()


def test_why_there_is_no_forecast_is_told(learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    net, kept = learned
    some = fs.Keepsakes({0: kept[0], 1: replace(kept[1], accuracy=2 / 12)}, kept.mark)
    forecast = fs.Forecast(net, some, memory=few(images(0, 1, 2)), new=images(3, 4))
    train(net, few(images(0, 1, 2)), images(3, 4))
    found = forecast.measure(net)
    assert np.isfinite(found["forecast"]).tolist() == [True, False, False]
    rare = "it was hardly learned: the network recognised 2 of its 12 training images, each judged as if left out of training, "
    rare += "and a forecast needs 5"
    assert found["missing"].tolist() == [None, rare, "there is no keepsake of it"]
    assert repr(forecast).endswith(f"2 new classes, 24 images. No forecast of class 1: {rare}.)")


def test_a_head_that_cannot_be_told_is_to_be_named_where_it_was_not() -> None:
    class Functional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 5)

        def forward(self, inputs: Tensor) -> Tensor:
            return F.linear(F.normalize(self.body(inputs)), F.normalize(self.head.weight))

    with pytest.raises(InputError, match=r"several heads .*: fs\.keepsakes\(network, images, labels, head=\.\.\.\)"):
        fs.keepsakes(Functional(), *images(3, 4))


def test_what_fails_later_is_told_with_its_value(learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    net, kept = learned
    memory, new, short = few(images(0, 1, 2)), images(3, 4), copy.deepcopy(net)
    short[2] = nn.Linear(8, 3)  # type: ignore[operator, index]
    with torch.no_grad():
        short[2].weight[:], short[2].bias[:] = net[2].weight[:3], net[2].bias[:3]  # type: ignore[index, union-attr]
    ungrown = fs.Forecast(short, kept, memory=memory, new=new)
    with pytest.raises(InputError, match=r"Class 4 needs a head with 5 nodes; that of Sequential has 3\. .* grow the head"):
        ungrown.measure(short)
    moved = copy.deepcopy(net)
    train(moved, memory, new)
    assert np.isfinite(ungrown.measure(moved)["forecast"]).all()
    with pytest.raises(InputError, match="Class 6 needs a head with 7 nodes; that of Sequential has 5"):
        fs.Forecast(net, kept, new=(new[0], new[1] + 2)).measure(net)
    with pytest.raises(InputError, match="Class 12 needs a head with 13 nodes; that of Sequential has 5"):
        fs.Forecast(net, fs.Keepsakes({node + 10: one for node, one in kept.items()}), new=new)
    for strange in ((memory[0].byte(), memory[1]), (memory[0].tolist(), memory[1].tolist())):
        with pytest.raises(InputError, match=r"Sequential cannot be applied to a batch of .* type torch\.(uint8|float64), its"):
            fs.Forecast(net, kept, memory=strange, new=new)
    with pytest.raises(InputError, match="names = 5 is no mapping or list"):
        fs.Forecast(net, kept, new=new, names=5)  # type: ignore[arg-type]


def test_states_of_keepsakes_are_checked(learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    state = learned[1].state_dict()
    for changed, message in (
        ({"mean": torch.zeros(3, 7)}, r"variance has the shape \(3, 8\), expected \(3, 7\)"),
        ({"accuracy": torch.tensor([0.5, 2.0, 0.5])}, "No keepsake of class 1: of 12 images, accuracy 2.0"),
        ({"mean": torch.full((3, 8), torch.nan)}, "mean of class 0 is not finite"),
        ({"accuracy": torch.tensor([0.5, torch.nan, 0.5])}, "accuracy of class 1 is not finite"),
        ({"accuracy": torch.tensor([0.5, 1e-12, 0.5])}, "No keepsake of class 1: of 12 images, accuracy 9.9"),
        ({"nodes": torch.tensor([0, 1, 1])}, r"nodes are \[0, 1, 1\]: 1 is no head node, or there twice"),
        ({"nodes": torch.tensor([-1, 1, 2])}, "-1 is no head node"),
        ({"nodes": torch.tensor([0, 1, 2.5])}, "nodes are of torch.float32, expected whole numbers"),
        ({"images": torch.tensor([12.7, 12, 12])}, "images are of torch.float32, expected whole numbers"),
        ({"mean": torch.ones(3, 8, dtype=torch.long)}, "mean are of torch.int64, expected real numbers"),
        ({"error": torch.tensor([0.0, -1.0, 0.0])}, "No keepsake of class 1: its error is -1.0"),
        ({"error": torch.tensor([0.0, 0.0, torch.inf])}, "No keepsake of class 2: its error is inf"),
        ({"probability": torch.tensor([0.5, 0.0, 0.5])}, "No keepsake of class 1: .* probability 0.0"),
        ({"mean": state["mean"].double() + 1e39}, "No keepsake of class 0: features of 1e.39 have no finite variance"),
        ({"other": torch.zeros(1)}, "are not the names of a state_dict of Keepsakes"),
        ({"variance": -state["variance"] - 1}, "No keepsake of class 0: its variance is -"),
    ):
        with pytest.raises(InputError, match=message):
            fs.Keepsakes.from_state_dict({**state, **changed})
    assert len(fs.Keepsakes.from_state_dict({})) == 0
    with pytest.raises(InputError, match=r"Keepsakes of covariance, variance and of \[8\] features do not go together"):
        _ = learned[1] | fs.keepsakes(learned[0], *images(3, 4), kind="covariance")


def test_a_choice_is_the_same_in_any_order_and_fits_in_its_room() -> None:
    rows = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    groups = [(bool(i % 2), i % 3) for i in range(200)]
    found = []
    for order in (range(200), reversed(range(200))):
        chosen, at = Chosen(5), list(order)
        for start in range(0, 200, 7):
            part = at[start : start + 7]
            chosen.add_each([groups[i] for i in part], marks(rows[part]), rows[part])
        found.append(chosen)
    for group, (marked, held) in found[0].held.items():
        assert torch.equal(marked[:, 1], found[1].held[group][0][:, 1])
        assert torch.equal(held, found[1].held[group][1])
        own = torch.tensor([other == group for other in groups])
        expected = marks(rows[own])
        assert torch.equal(marked[:, 1], expected[expected[:, 0].argsort()][:5, 1])
        assert found[0].counts[group] == int(own.sum())
    small = Chosen(50, room=6 * 3 * 16)  # three rows of 16 bytes of each of six groups
    small.add_each(groups, marks(rows), rows)
    assert {len(prints) for prints, _ in small.held.values()} == {3}
    tiny = Chosen(50, room=1)
    tiny.add_each(groups, marks(rows), rows)
    assert {len(prints) for prints, _ in tiny.held.values()} == {1}


def test_images_that_are_there_again_change_nothing(learned: tuple[nn.Module, fs.Keepsakes]) -> None:
    net, kept = learned
    moved, memory, new = copy.deepcopy(net), few(images(0, 1, 2)), images(3, 4)
    train(moved, memory, new)
    once = fs.Forecast(net, kept, memory=memory, new=new)

    def again(pair: Pair) -> Pair:
        return pair[0].repeat(5, 1), pair[1].repeat(5)

    often = fs.Forecast(net, kept, memory=again(memory), new=again(new))
    assert_allclose(often.measure(moved)[list(FORECAST)], once.measure(moved)[list(FORECAST)], rtol=1e-9)
    assert "12 images in memory" in repr(often)
    for one, other in zip(fs.keepsakes(net, *again(images(0, 1, 2))).values(), kept.values(), strict=True):
        assert (one.images, one.accuracy) == (other.images, other.accuracy)
        assert_allclose(one.mean, other.mean, rtol=1e-6)


def test_the_choice_is_the_same_for_images_of_another_float_type() -> None:
    rows = torch.rand(2000, 48, generator=torch.Generator().manual_seed(0), dtype=torch.float64).float()
    found = []
    for given in (rows, rows.double(), rows + 1e-6):
        chosen = Chosen(50)
        chosen.add((True, 0), marks(given), torch.arange(2000)[:, None])
        found.append({*chosen.held[True, 0][1][:, 0].tolist()})
    assert found[0] == found[1]
    assert len(found[0] & found[2]) >= 49
    spread = torch.tensor(sorted(found[0])).double()
    assert abs(spread.mean() - 1000) < 4 * 577 / 50**0.5  # from all over


def test_features_of_a_head_without_bias() -> None:
    net = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 5, bias=False))
    inputs, _ = images(3, 4)
    with featured(net, inputs[:8]) as net_now:
        weight, bias = net_now.head([4, 0])
        assert_allclose(net_now.features(inputs), net[:2](inputs).detach(), rtol=1e-5)
    assert_allclose(weight, net[2].weight.detach()[[4, 0]])
    assert (bias == 0).all()
