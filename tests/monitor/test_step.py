"""A step as it is used: no trace in the training, errors that do not end it, killed and resumed, what is unknown, at risk."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from watched import loaders, pairs, terms

import forgetscope as fs
from forgetscope.errors import InputError
from forgetscope.measuring.sums import Sums
from forgetscope.monitor.risk import at_risk
from measuring.test_heads import ALPHA, NODES, Base, SeveralHeads, images_of, made

TEST = images_of((0, 1, 2, 3, 4), 3)


def train(folder: Path | None, epochs: int = 3, **named: Any) -> dict[str, Any]:
    """Somebody's loop, which draws from every global stream; with a monitor if there is a folder. All that it leaves."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    network = Base().double()
    network.fc.weight.register_hook(lambda gradient: gradient)
    optimiser = torch.optim.Adam(network.parameters(), 0.01)
    batches = DataLoader(
        TensorDataset(*(torch.cat([one, other]) for one, other in zip(*pairs_to_train(), strict=True))), 6, True
    )
    step = None
    if folder is not None:
        step = fs.Monitor(folder, "traced", strict=True).step(network, **{**loaders(), "alpha": ALPHA, **named}).open()
    losses = []
    for _ in range(epochs):
        network.train()
        for images, labels in batches:
            optimiser.zero_grad()
            noise = random.random() + np.random.rand()
            loss = F.cross_entropy(network(images + noise), labels)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
            if step is not None:
                step.batch(labels)
        if step is not None:
            step.epoch_ended()
            step.at_risk(2)
    if step is not None:
        step.evaluate(DataLoader(TensorDataset(*TEST), 4, shuffle=True))
        step.close()
    return {
        "losses": losses,
        "weights": network.state_dict(),
        "optimiser": optimiser.state_dict()["state"],
        "gradients": {name: parameter.grad for name, parameter in network.named_parameters()},
        "modes": [module.training for module in network.modules()],
        "hooks": [[len(module._forward_hooks), len(module._forward_pre_hooks)] for module in network.modules()],
        "streams": [torch.get_rng_state(), torch.tensor(np.random.rand(3)), torch.tensor(random.random())],
    }


def pairs_to_train() -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return pairs()["memory"], pairs()["new"]


@pytest.mark.parametrize("alpha", [ALPHA, None])
def test_the_training_cannot_tell(tmp_path: Path, alpha: float | None) -> None:
    torch.testing.assert_close(train(tmp_path, alpha=alpha), train(None), rtol=0, atol=0, equal_nan=True)


def test_alpha_is_counted_or_missing_and_never_assumed(tmp_path: Path) -> None:
    network, monitors = made(Base), [fs.Monitor(tmp_path, name, strict=True) for name in ("counted", "given", "untold")]
    with monitors[0].step(network, **loaders()) as told:
        assert torch.isnan(told.coefficients.nic).all()
        told.batch(torch.tensor([0, 1, 3, 3, 4]))
        told.batch([2, 3, 4, 4, 4])
    assert told.alpha == 0.3
    with monitors[1].step(network, **loaders(), alpha=0.3) as given:
        pass
    assert torch.allclose(terms(told), terms(given), rtol=1e-12)
    with monitors[2].step(network, **loaders()) as untold:
        pass
    assert torch.isnan(terms(untold)).all()
    assert "Alpha is unknown, because no batch was told" in repr(untold)
    infos = [step.info for monitor in monitors for step in monitor.steps]
    assert [(info["alpha"], info["alpha_from"]) for info in infos] == [(0.3, "batches"), (0.3, "given"), (None, None)]
    missing = monitors[2].steps[0].table("classes").to_pandas()["missing"]
    assert missing[0] == "alpha is unknown: no batch was told"
    with (
        pytest.raises(InputError, match=r"alpha = 1.5 is not between 0 and 1"),
        monitors[0].step(network, **loaders(), alpha=1.5),
    ):
        pass


def test_steps_follow_one_another_and_forgetting_is_known_from_the_second_on(tmp_path: Path) -> None:
    network, monitor = made(Base), fs.Monitor(tmp_path, "birds", names={0: "owl"}, settings={"lr": 0.1}, strict=True)
    with monitor.step(network, new=pairs()["past"]) as first:
        first.epoch_ended()
        first.evaluate(TEST)
    assert len(first.coefficients.sic) == 0
    assert "14 test images of classes not seen so far left out" in repr(first)
    with torch.no_grad():
        network.fc.bias[1] += 5
    monitor = fs.Monitor(tmp_path, "birds", names={0: "owl"}, strict=True)  # opened again = continued
    with monitor.step(network, **pairs(), alpha=ALPHA) as second:
        second.evaluate(TEST)
    learned, now = (step.table("classes").to_pandas().set_index("class_id") for step in monitor.steps)
    assert now["introduced_step"].tolist() == [1, 1, 1, 2, 2]
    assert now["accuracy_when_learned"][:3].tolist() == learned["accuracy"].tolist()
    fg = (learned["accuracy"] - now["accuracy"][:3]) / learned["accuracy"].where(learned["accuracy"] > 0)
    assert np.allclose(now["forgetting"][:3], fg, equal_nan=True)
    assert now["class_name"].tolist() == ["owl", "1", "2", "3", "4"]
    logits = network.eval()(TEST[0])
    right = (logits.argmax(dim=1) == TEST[1]).double()
    assert now["accuracy"].tolist() == [float(right[TEST[1] == c].mean()) for c in range(5)]
    assert monitor.steps[0].settings == {"lr": 0.1}
    for step in monitor.steps:
        step.verify()
    assert not list((tmp_path / "working").glob("observed-*"))


def test_what_cannot_be_known_is_missing_and_said(tmp_path: Path) -> None:
    network, given = made(Base), pairs()
    monitor, other, third = (fs.Monitor(tmp_path, name, strict=True) for name in ("bare", "memory", "without"))
    images, labels = given["memory"]
    with monitor.step(network, **{**given, "memory": (images[labels > 0], labels[labels > 0])}, alpha=ALPHA) as bare:
        pass
    found = bare.coefficients
    assert torch.isnan(found.sic).tolist() == [True, False, False]
    assert found.cic.isfinite().all()
    assert found.nic.isfinite().all()
    assert "SIC is unknown, not 0, without a stored image: 0." in repr(bare)
    with other.step(network, memory=given["memory"], new=given["new"], alpha=ALPHA) as memory_alone:
        pass
    assert torch.isnan(terms(memory_alone)).all()
    assert np.isfinite(memory_alone.forecast["nic_estimate"]).all()
    with third.step(network, past=given["past"], new=given["new"]) as without:
        pass
    assert torch.isnan(without.coefficients.sic).all()
    assert torch.allclose((1 - ALPHA) * without.coefficients.nic, found.nic)
    last = fs.Monitor(tmp_path, "blind", strict=True)
    for part in ("past", "new"):
        with last.step(network, new=given[part]) as blind:
            blind.evaluate(TEST)
    classes = last.steps[-1].table("classes").to_pandas()
    assert [why.split("; no forecast: ")[0] for why in classes["missing"][:3]] == ["no images of past classes were given"] * 3
    assert len(classes) == 5
    kinds = [one.steps[-1].info["past"] for one in (monitor, other, third, last)]
    assert kinds == ["all", "memory", "all", "none"]
    why = monitor.steps[0].table("classes")["missing"].to_pylist()
    assert why[:2] == ["SIC is unknown: no image of it is stored", None]


def test_a_past_class_that_nobody_gave_images_of_stays_in_the_tables(tmp_path: Path) -> None:
    network, monitor, given = made(Base), fs.Monitor(tmp_path, "lost", strict=True), pairs()
    with monitor.step(network, new=given["past"]) as first:
        first.evaluate(TEST)
    images, labels = given["memory"]
    with monitor.step(network, memory=(images[labels != 1], labels[labels != 1]), new=given["new"], alpha=ALPHA) as step:
        step.epoch_ended()
        step.evaluate(TEST)
    classes = monitor.steps[1].table("classes").to_pandas()
    assert classes["class_id"].tolist() == [0, 1, 2, 3, 4]
    assert classes["missing"][1].startswith("no image of it was given; no forecast: it was hardly learned")
    assert np.isnan(classes["nic"]).all()
    assert np.isfinite(classes["nic_estimate"][:3]).all()
    assert len(step.to_frame()) == len(step.at_risk(5)) == 3  # of the one without images, by its keepsake


def test_an_error_never_ends_the_training_and_is_told_once(tmp_path: Path) -> None:
    monitor = fs.Monitor(tmp_path, "failing")
    step = monitor.step(made(SeveralHeads), **loaders(), alpha=ALPHA)
    with pytest.warns(RuntimeWarning, match=r"SeveralHeads has no last layer .* step failing/2 is incomplete") as told:
        step.open()
    for _ in range(2):
        step.batch(torch.tensor([1]))
        step.epoch_ended()
    step.evaluate(TEST)
    assert len(step.at_risk()) == len(step.to_frame()) == len(step.coefficients.sic) == 0
    assert "Incomplete: SeveralHeads has no last layer" in repr(step)
    assert "<p>" in step._repr_html_()
    step.close()
    assert len(told) == 1
    (stored,) = monitor.steps
    stored.verify()
    assert stored.info["status"] == "incomplete"
    assert "SeveralHeads" in stored.info["reason"]
    with (
        pytest.raises(InputError, match="SeveralHeads"),
        fs.Monitor(tmp_path, "strict", strict=True).step(made(SeveralHeads), **loaders(), alpha=ALPHA),
    ):
        pass


def test_whatever_a_step_is_given_the_training_goes_on(tmp_path: Path) -> None:
    cases: list[dict[str, Any]] = [
        {"new": None},
        {"alpha": "much"},
        {"nodes": 3},
        {"nodes": {0: 1, 1: 1}},
        {"past": 3},
        {"loss": lambda logits, labels: 1 / 0},
        {"head": 5},
    ]
    for i, case in enumerate(cases):
        with (
            pytest.warns(RuntimeWarning, match=f"The training goes on, and step odd{i}/2 is incomplete"),
            fs.Monitor(tmp_path, f"odd{i}").step(made(Base), **{**loaders(), "alpha": ALPHA, **case}) as step,
        ):
            step.epoch_ended()
        assert step.incomplete
    nothing: Any = "net"
    with pytest.warns(RuntimeWarning, match="str is not a torch.nn.Module"):
        fs.Monitor(tmp_path, "odd").step(nothing, **loaders()).open().close()


def test_where_warnings_are_errors_it_still_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fs.Monitor(tmp_path, "failing").step(made(SeveralHeads), **loaders(), alpha=ALPHA):  # filterwarnings is "error" here
        pass
    assert "SeveralHeads has no last layer" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, SystemExit])
def test_what_the_loop_raises_passes_through_and_the_step_is_incomplete(tmp_path: Path, error: type[BaseException]) -> None:
    monitor = fs.Monitor(tmp_path, "broken")
    with pytest.raises(error), monitor.step(made(Base), **loaders(), alpha=ALPHA):
        raise error("mine")
    (stored,) = monitor.steps
    assert stored.info["reason"] == f"The training ended early: {error.__name__}: mine"
    assert stored.table("probes").num_rows == 3


def test_an_interrupt_within_a_probe_passes_through(tmp_path: Path) -> None:
    def interrupted() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), fs.Monitor(tmp_path, "test").step(made(Base), past=interrupted, new=pairs()["new"]):
        pass


def test_a_head_that_grew_is_another_step(tmp_path: Path) -> None:
    network = made(Base)
    with fs.Monitor(tmp_path, "grown", strict=True).step(network, **loaders(), alpha=ALPHA) as step:
        network.fc = nn.Linear(6, NODES + 1).double()
        with pytest.raises(InputError, match="The head has 6 nodes and had 5 at the first probe: this is another step"):
            step.epoch_ended()
    assert len(step.sums) == 1


def test_killed_and_resumed_ends_in_equal_numbers(tmp_path: Path) -> None:
    states, networks = [], [made(Base, seed) for seed in range(4)]
    network = copy.deepcopy(networks[0])
    whole = fs.Monitor(tmp_path / "whole", "run", strict=True)
    with whole.step(network, **loaders()) as step:
        for later in networks[1:]:
            step.batch(torch.tensor([0, 3, 4]))
            network.load_state_dict(later.state_dict())
            step.epoch_ended()
            torch.save(whole.state_dict(), tmp_path / "checkpoint.pt")
            states.append(torch.load(tmp_path / "checkpoint.pt", weights_only=True))
        step.evaluate(TEST)
    assert whole.state_dict() == {}
    for way in ("of the monitor", "of the step", "of a step that is open"):
        monitor, again = fs.Monitor(tmp_path / way, "run", strict=True), copy.deepcopy(networks[1])
        if way == "of the monitor":
            monitor.load_state_dict(states[0])
        resumed = monitor.step(again, **loaders())
        if way == "of the step":
            resumed.load_state_dict(states[0])
        with resumed:
            if way == "of a step that is open":
                resumed.load_state_dict(states[0])
            assert (len(resumed.sums), resumed.epoch) == (2, 1)
            for later in networks[2:]:
                resumed.batch(torch.tensor([0, 3, 4]))
                again.load_state_dict(later.state_dict())
                resumed.epoch_ended()
            resumed.evaluate(TEST)
        torch.testing.assert_close(terms(resumed), terms(step), rtol=1e-9, atol=0)
        for name in ("classes", "probes", "pairs", "confusion", "predictions"):
            one, other = (monitored.steps[0].table(name).to_pandas() for monitored in (monitor, whole))
            np.testing.assert_allclose(
                one.select_dtypes("number").to_numpy(float), other.select_dtypes("number").to_numpy(float), rtol=1e-9
            )


def test_a_state_of_other_images_or_of_something_else_is_refused(tmp_path: Path) -> None:
    with fs.Monitor(tmp_path, "one", strict=True).step(made(Base), **loaders(), alpha=ALPHA) as step:
        state = step.state_dict()
    monitor = fs.Monitor(tmp_path, "other", strict=True)
    with monitor.step(made(Base), **{**loaders(), "new": images_of((3, 4), 9)}, alpha=ALPHA) as step:
        step.load_state_dict(state)
        with pytest.raises(InputError, match="new= does not give the same images as at the first probe: others of class 3"):
            step.epoch_ended()
    with (
        monitor.step(made(Base), **loaders(), alpha=ALPHA) as step,
        pytest.raises(InputError, match=r"\['a'\] is not the state"),
    ):
        step.load_state_dict({"a": 1})
    with pytest.raises(InputError, match=r"{'a': 1} is not the state of a monitor"):
        monitor.load_state_dict({"a": 1})


def test_while_it_runs_its_files_are_in_working(tmp_path: Path) -> None:
    with fs.Monitor(tmp_path, "seen", strict=True).step(made(Base), **loaders(), alpha=ALPHA) as step:
        step.epoch_ended()
        (running,) = fs.Store(tmp_path).observing()
        assert running.table("probes").num_rows == 6
        content = json.loads((running.folder / "observed.json").read_text())
        assert (content["status"], content["epochs"], content["alpha"]) == ("running", 1, ALPHA)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"name": "a/b"}, "name = 'a/b' is no name of a monitor"),
        ({"name": 3}, "name = 3 is no name"),
        ({"settings": 3}, "settings = 3 is no mapping"),
        ({"settings": {"lr": [1]}}, r"settings\['lr'\] = \[1\]"),
        ({"settings": {"lr": float("nan")}}, r"settings\['lr'\] = nan"),
        ({"names": {"owl": 1}}, "names has 'owl', which is no label"),
        ({"log": 3}, "log= is int, which has none of log, log_metrics"),
        ({"tell": 3}, "tell = 3 is no function of a text"),
    ],
)
def test_a_monitor_that_cannot_be_meant_is_refused_before_training(tmp_path: Path, named: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fs.Monitor(tmp_path, **{"name": "fine", **named})


def test_few_series_are_logged_and_the_classes_at_risk_told(tmp_path: Path) -> None:
    logged: list[tuple[dict[str, float], int]] = []
    said: list[str] = []
    monitor = fs.Monitor(
        tmp_path, "logged", strict=True, names={0: "owl", 1: "barn/owl"}, log=lambda *got: logged.append(got), tell=said.append
    )
    with monitor.step(made(Base), new=pairs()["past"]) as step:
        step.evaluate(TEST)
    with monitor.step(made(Base), **loaders(), alpha=ALPHA) as step:
        step.epoch_ended()
        step.evaluate(TEST)
    series = {name.removeprefix("forgetscope/") for values, _ in logged for name in values}
    terms_of = {f"{name}{of}" for of in ("/owl", "/barn_owl", "/2") for name in ("sic", "cic", "nic")}
    terms_of |= {"mean_sic", "mean_cic", "mean_nic"}
    assert series >= terms_of
    predicted = {f"mean_{name}" for name in ("sic_estimate", "cic_estimate", "nic_estimate")}  # too little learned to forecast
    assert series - terms_of == {"accuracy", "mean_forgetting", "fg_r", *predicted}
    assert [at for _, at in logged] == [0, 1, 2, 2]
    assert logged[1][0]["forgetscope/mean_sic"] == pytest.approx(terms(step)[0].mean() / 2)
    assert logged[2][0]["forgetscope/sic/barn_owl"] == pytest.approx(terms(step)[0][1])
    assert len(said) == 1
    assert said[0].startswith("Epoch 1. Most at risk of 3 past classes:\n  1. ")


def test_rank_trend_and_cause_are_those_of_the_sums_so_far() -> None:
    """By hand: three past classes 0 to 2, two new ones 3 and 4, two probes."""
    nothing = torch.zeros(8, 3, dtype=torch.float64)
    first, second = nothing.clone(), nothing.clone()
    first[0], first[2] = torch.tensor([3.0, 1.0, 0.0]), torch.tensor([0.2, 0.1, 0.0])  # SIC and NIC: 0 leads
    second[0], second[1], second[2] = (
        torch.tensor([0.0, 0.0, 9.0]),
        torch.tensor([0.0, 5.0, 0.0]),
        torch.tensor([0.0, 0.0, 20.0]),
    )
    pairs_of = torch.tensor(
        [[3.0, 0.0, 0.0, 0.1, 0.1], [4.0, 1.0, 1.0, 0.1, 0.0], [0.0, 0.0, 9.0, 2.0, 18.0]], dtype=torch.float64
    )
    sums = Sums((0, 1, 2), [0, 1], [first, second], pairs_of, torch.zeros(3))
    found = at_risk(sums, sums, (10, 11, 12), (10, 11, 12, 13, 14), {10: "owl", 14: "<b>"}, 5)
    assert [(row.label, row.name, row.rank, row.moved) for row in found] == [
        (12, "12", 1, 2),
        (10, "owl", 2, -1),
        (11, "11", 3, -1),
    ]
    causes = [row.cause for row in found]
    assert causes == ["new classes (NIC 20): <b>, 13", "own memory (SIC 3)", "other classes' memory (CIC 5): owl, 12"]
    assert "&lt;b&gt;" in found._repr_html_()
    assert list(found.to_frame()["rank"]) == [1, 2, 3]


def test_the_cause_is_the_measure_in_which_a_class_stands_out() -> None:
    """By hand: NIC is the largest of every class, and no reason why 0 is above the others."""
    values = torch.zeros(8, 3, dtype=torch.float64)
    values[0], values[1] = torch.tensor([3.0, 1.0, 0.5]), torch.tensor([0.0, 2.0, -1.0])
    values[2] = torch.tensor([8.0, 7.0, 9.0])
    pairs_of = torch.tensor([[3.0, 0.0, 0.0, 8.0], [2.0, 1.0, 0.0, 7.0], [0.0, -1.0, 0.5, 9.0]], dtype=torch.float64)
    sums = Sums((0, 1, 2), [0], [values], pairs_of, torch.zeros(3))
    causes = {row.label: row.cause for row in at_risk(sums, sums, (0, 1, 2), (0, 1, 2, 3), {}, 3)}
    assert causes == {0: "own memory (SIC 3)", 1: "other classes' memory (CIC 2): 0", 2: "new classes (NIC 9): 3"}


def test_a_tracker_that_fails_is_left_alone_and_the_step_is_whole(tmp_path: Path) -> None:
    def log(values: dict[str, float], at: int) -> None:
        raise OSError("no network")

    monitor = fs.Monitor(tmp_path, "logged", log=log)
    step = monitor.step(made(Base), **loaders(), alpha=ALPHA)
    with pytest.warns(RuntimeWarning, match=r"log= failed \(OSError: no network\) and is not called again") as told:
        step.open()
    step.epoch_ended()
    step.close()
    assert len(told) == 1
    assert monitor.steps[0].info["status"] == "done"


def test_a_memory_of_new_classes_alone_is_a_first_step(tmp_path: Path) -> None:
    given, monitor = pairs(), fs.Monitor(tmp_path, "filled", strict=True)
    with monitor.step(made(Base), memory=given["new"], new=given["new"], alpha=ALPHA) as step:
        step.epoch_ended()
        step.evaluate(TEST)
    assert len(step.at_risk()) == 0
    assert "14 images in memory of new classes left out. Nothing is measured without images of past classes." in repr(step)
    monitor.steps[0].verify()


def test_a_step_that_nobody_closed_is_kept_as_incomplete_when_the_next_begins(tmp_path: Path) -> None:
    monitor = fs.Monitor(tmp_path, "open", strict=True)
    for _ in range(2):
        step = monitor.step(made(Base), **loaders(), alpha=ALPHA).open()
    step.close()
    assert [stored.info["status"] for stored in monitor.steps] == ["done"]
    (record,) = (tmp_path / "quarantine").glob("*/observed.json")
    assert "Another step began before this one was closed" in json.loads(record.read_text())["reason"]
    assert repr(monitor).endswith("'open': 1 step)")


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_logits_that_are_not_finite_are_no_accuracy(tmp_path: Path, value: float) -> None:
    network, monitor = made(Base), fs.Monitor(tmp_path, "diverged")
    told = r"logits that are not finite for 35 of 35 test images, 7 of them of class 0: no prediction follows from them"
    with monitor.step(network, **loaders(), alpha=ALPHA) as step:
        network.fc.bias.data[1] = value
        with pytest.warns(RuntimeWarning, match=told):
            step.evaluate(TEST)
    (stored,) = monitor.steps
    assert stored.info["status"] == "done"
    assert np.isnan(stored.table("classes").to_pandas()["accuracy"]).all()


def test_a_node_that_a_network_masks_is_never_predicted(tmp_path: Path) -> None:
    network, monitor = made(Base), fs.Monitor(tmp_path, "masked", strict=True)
    with monitor.step(network, **loaders(), alpha=ALPHA) as step:
        network.fc.bias.data[1] = -torch.inf
        step.evaluate(TEST)
    assert step.to_frame()["accuracy"][1] == 0


def test_a_store_that_cannot_be_written_does_not_end_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    step = fs.Monitor(tmp_path, "full").step(made(Base), **loaders(), alpha=ALPHA).open()
    monkeypatch.setattr("forgetscope.monitor.step.commit_observed", full)
    with pytest.warns(RuntimeWarning, match="No space left on device"):
        step.close()
    step.close()
