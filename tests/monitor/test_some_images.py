"""Probes of a monitor that look at some images, and not after every epoch."""

from __future__ import annotations

import copy
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_data_passed_over import Iterated, range_of_batches
from torch import Tensor, nn
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset
from watched import Pair, Pictures, loaders

import forgetscope as fs
from forgetscope.errors import InputError
from forgetscope.housekeeping.sql import query, rows
from forgetscope.measuring.measurement import Measurement, measure
from forgetscope.measuring.quantities import COEFFICIENTS, FORECAST
from forgetscope.monitor.passes import Passes
from forgetscope.monitor.sampling.probing import AUTOMATIC, Probing
from forgetscope.monitor.sampling.sampled import Selection
from forgetscope.monitor.step import MonitoredStep
from forgetscope.monitor.streams import Stream
from forgetscope.store import Store, commit_observed
from measuring.test_heads import ALPHA, Base, Cosine, images_of, made
from observed_steps import observe, observed_record

ERRORS = [f"{name}_se" for name in COEFFICIENTS]
PER_CLASS = 40


def many() -> dict[str, Pair]:
    """Of each class so many that some can stand for the others."""
    draws = torch.Generator().manual_seed(5)

    def of(classes: tuple[int, ...]) -> Pair:
        labels = torch.tensor(classes).repeat_interleave(PER_CLASS)
        images = images_of(classes, 1)[0]
        noise = torch.randn(len(labels), *images.shape[1:], generator=draws, dtype=torch.float64)
        return noise + torch.randn(5, *images.shape[1:], generator=draws, dtype=torch.float64)[labels], labels

    past, new = of((0, 1, 2)), of((3, 4))
    kept = torch.arange(0, len(past[1]), 5)
    return {"past": past, "memory": (past[0][kept], past[1][kept]), "new": new}


def passed(data: dict[str, Pair]) -> Passes:
    past, memory, new = (Stream(which, data[which]) if which in data else None for which in ("past", "memory", "new"))
    assert new is not None
    passes = Passes(past, memory, new)
    passes.make_lists()
    passes.survey()
    return passes


def columns(found: Measurement) -> dict[str, Tensor]:
    norms = {name: getattr(found, name) for name in ("pairs", "gradient_norm", "bias_norm", "loss_full", "loss_rehearsal")}
    return {**{name: getattr(found.terms, name) for name in COEFFICIENTS}, **norms, "new_logits": found.new_logits}


def changed(data: dict[str, Pair], how: str) -> dict[str, Pair]:
    images, labels = data["memory"]
    others = {
        "as it is": data,
        "prepared in another way": {**data, "memory": (images * 1.1, labels)},
        "in part": {**data, "memory": (torch.cat([images[:4] * 1.1, images[4:]]), labels)},
        "twice": {**data, "memory": (torch.cat([images, images[:3]]), torch.cat([labels, labels[:3]]))},
        "of one class none": {**data, "memory": (images[labels > 0], labels[labels > 0])},
        "whole": {**data, "past": data["memory"]},
        "alone": {name: pair for name, pair in data.items() if name != "past"},
        "none": {name: pair for name, pair in data.items() if name != "memory"},
    }
    return others[how]


MEMORIES = ("as it is", "prepared in another way", "in part", "twice", "of one class none", "whole", "alone", "none")


@pytest.mark.parametrize("how", MEMORIES)
def test_all_images_give_what_an_exact_probe_finds(how: str) -> None:
    network, data = made(Base), changed(many(), how)
    exact = measure(network, passed(data))
    everything = measure(network, Selection(passed(data), 1000).drawn("any"))
    for name, expected in columns(exact).items():
        torch.testing.assert_close(columns(everything)[name], expected, rtol=1e-9, atol=1e-12, equal_nan=True, msg=name)


@pytest.mark.parametrize("how", MEMORIES)
def test_estimates_are_unbiased_and_their_errors_right_whatever_the_memory_holds(how: str) -> None:
    network, data = made(Base), changed(many(), how)
    passes = passed(data)
    truth, sample = measure(network, passes).terms, Selection(passes, 15)
    found = [measure(network, sample.drawn(f"{draw}")) for draw in range(150)]
    for name in COEFFICIENTS:
        values, exact = torch.stack([getattr(one.terms, name) for one in found]), getattr(truth, name)
        assert torch.equal(values.isnan().any(dim=0), exact.isnan()), name
        known = ~exact.isnan()
        deviation = (values - exact).square().mean(dim=0).sqrt()[known]
        bias = ((values.mean(dim=0) - exact)[known]).abs()
        assert (bias < 0.3 * deviation + 3.5 * deviation / 150**0.5).all(), name  # of a ratio some is left
        told = torch.stack([getattr(one.variances, name) for one in found]).mean(dim=0).sqrt()[known]
        assert (((told / deviation) - 1).abs() < 0.35).all(), (name, told / deviation)


def test_what_is_looked_at_is_independent_of_the_probe_before() -> None:
    passes = passed(many())
    sample, chosen = Selection(passes, 15), []
    for draw in range(40):
        batches = [nodes for chunk in sample.drawn(str(draw)).chunks() for _, nodes, _ in chunk]
        assert Counter(torch.cat(batches).tolist()) == {0: 15, 1: 15, 2: 15, 3: 15, 4: 15}
        chosen.append(
            {tuple(image.flatten()[:3].tolist()) for chunk in sample.drawn(str(draw)).chunks() for image in chunk[0][0]}
        )
    overlap = [len(one & other) / len(one) for one, other in pairwise(chosen)]
    assert 0.2 < np.mean(overlap) < 0.6


@pytest.mark.parametrize(
    "form",
    [
        lambda pair: TensorDataset(*pair),
        Pictures,
        Iterated,
        range_of_batches,
        lambda pair: lambda: iter(DataLoader(TensorDataset(*pair), 7, shuffle=True)),
        lambda pair: DataLoader(TensorDataset(*pair), 7, shuffle=True),
        lambda pair: DataLoader(TensorDataset(*pair), 7, sampler=SubsetRandomSampler(torch.randperm(len(pair[1])).tolist())),
        lambda pair: DataLoader(TensorDataset(*pair), 7, sampler=torch.randperm(len(pair[1])).tolist()),
        lambda pair: DataLoader(TensorDataset(*pair), 7, num_workers=1),
    ],
    ids=["data set", "pictures", "iterated", "batches", "function", "shuffled", "subset", "own order", "workers"],
)
def test_the_same_images_are_looked_at_whatever_their_form_and_order(form: Any, tmp_path: Path) -> None:
    expected, found = (
        watch(tmp_path / name, made(Base), {which: how(pair) for which, pair in many().items()})
        for name, how in (("pairs", lambda pair: pair), ("form", form))
    )
    assert "Estimated from" in repr(found)
    for name in (*COEFFICIENTS, *ERRORS):
        np.testing.assert_allclose(found.to_frame()[name], expected.to_frame()[name], rtol=1e-9)


def watch(folder: Path, network: nn.Module, data: dict[str, Any], epochs: int = 2, **named: Any) -> MonitoredStep:
    """Probes of a network that does not move."""
    monitor = fs.Monitor(folder, "test", **{"probe_images": 10, "strict": True, **named})
    with monitor.step(network, **data, alpha=ALPHA, epochs=epochs) as step:
        for _ in range(epochs):
            step.epoch_ended()
    return step


class Fetched(Pictures):
    """Counts what is fetched."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair)
        self.times: Counter[int] = Counter()

    def __getitem__(self, at: int) -> Any:
        self.times[at] += 1
        return super().__getitem__(at)


@pytest.mark.parametrize("as_loader", [False, True])
def test_only_what_is_looked_at_is_fetched(as_loader: bool, tmp_path: Path) -> None:
    data = {name: Fetched(pair) for name, pair in many().items()}
    given = {name: DataLoader(one, 8, shuffle=True) for name, one in data.items()} if as_loader else data
    with fs.Monitor(tmp_path, "test", probe_images=10, keepsake="none").step(made(Base), **given, alpha=0.5) as step:
        before = {name: sum(one.times.values()) for name, one in data.items()}
        step.epoch_ended()
        after = {name: sum(one.times.values()) for name, one in data.items()}
    # Of each class ten: of past ones four from the memory, and six others. And one to see how large an image is.
    wanted = {"past": 18, "memory": 12, "new": 20}
    assert {name: after[name] - before[name] - (not as_loader) for name in data} == wanted


def test_images_that_change_are_found_where_they_are_fetched_again(tmp_path: Path) -> None:
    given = {name: (images.clone(), labels) for name, (images, labels) in many().items()}
    for which, form in (("past", lambda pair: pair), ("memory", Iterated), ("new", Pictures)):
        data = {name: ((pair[0].clone(), pair[1])) for name, pair in given.items()}
        monitor = fs.Monitor(tmp_path, which, probe_images=10, keepsake="none", strict=True)
        step = monitor.step(made(Base), **{**data, which: form(data[which])}, alpha=ALPHA).open()
        data[which][0].add_(0.1)
        with pytest.raises(InputError, match=rf"{which}= does not give the same images as at the first probe: others of class"):
            step.epoch_ended()


def test_by_default_a_hundred_images_and_all_where_there_are_no_more(tmp_path: Path) -> None:
    assert AUTOMATIC == 100
    few = watch(tmp_path / "few", made(Base), loaders(), probe_images="auto")
    watch(tmp_path / "exact", made(Base), loaders(), probe_images=None)
    assert "Estimated" not in repr(few)
    assert not {*ERRORS} & {*few.to_frame().columns}
    one, other = (fs.open_observed(tmp_path / name, "test").steps[0] for name in ("few", "exact"))
    assert one.probing == other.probing == {}
    assert one.table("probes").equals(other.table("probes"))
    large = {name: (pair[0].repeat(4, 1, 1, 1), pair[1].repeat(4)) for name, pair in many().items() if name != "memory"}
    large = {name: (pair[0] + torch.linspace(0, 0.1, len(pair[0])).view(-1, 1, 1, 1), pair[1]) for name, pair in large.items()}
    large["memory"] = large["past"][0][::4], large["past"][1][::4]
    default = watch(tmp_path / "large", made(Base), large, probe_images="auto")
    assert "Estimated from 500 images of these." in repr(default)
    stored = fs.open_observed(tmp_path / "large", "test").steps[0]
    assert stored.probing == {"probe_images": 100}
    assert (stored.table("classes").to_pandas()[ERRORS][:3] > 0).all(axis=None)
    stored.verify()


def test_where_some_cannot_stand_for_the_others_all_are_looked_at_unless_some_were_asked_for(tmp_path: Path) -> None:
    data = many() | {
        "past": (torch.cat([many()["past"][0], many()["past"][0] + 1, many()["past"][0] + 2]), many()["past"][1].repeat(3))
    }
    automatic = watch(tmp_path / "automatic", made(Cosine), data, probe_images="auto")
    exact = watch(tmp_path / "exact", made(Cosine), data, probe_images=None)
    torch.testing.assert_close(automatic.coefficients.nic, exact.coefficients.nic, rtol=1e-9, atol=0)
    assert fs.open_observed(tmp_path / "automatic", "test").steps[0].probing == {}
    with (
        pytest.warns(RuntimeWarning, match=r"there some images cannot stand for the others\. .*probe_images=None"),
        fs.Monitor(tmp_path, "asked", probe_images=10).step(made(Cosine), **data, alpha=ALPHA),
    ):
        pass


@pytest.mark.parametrize("images", [None, 10])
def test_a_few_probes_have_the_scale_of_one_after_each_epoch(images: int | None, tmp_path: Path) -> None:
    network, data = made(Base), many()  # which does not move
    every = watch(tmp_path / "every", network, data, 6, probe_images=images)
    few = watch(tmp_path / "few", network, data, 6, probe_images=images, probes=3)
    stored = fs.open_observed(tmp_path / "few", "test").steps[0]
    stored.verify()
    table = stored.table("probes").to_pandas()
    assert table["iteration"].unique().tolist() == [0, 3, 6]
    classes = stored.table("classes").to_pandas().set_index("class_id")[:3]
    by_class = table.groupby("class_id")[list(COEFFICIENTS)].mean() * 7
    np.testing.assert_allclose(classes[list(COEFFICIENTS)], by_class, rtol=1e-12)
    assert stored.probing == ({"probes": 3} if images is None else {"probe_images": 10, "probes": 3})
    frames = few.to_frame(), every.to_frame()
    if images is None:
        np.testing.assert_allclose(*(frame[list(COEFFICIENTS)] for frame in frames), rtol=1e-9)
        sums = stored.table("pairs").to_pandas().groupby(["class_id", "source_is_new"])["term"].sum().unstack()
        np.testing.assert_allclose(sums[True], classes["nic"], rtol=1e-9)
    else:
        ratio = frames[0][ERRORS].to_numpy() / frames[1][ERRORS].to_numpy()  # a mean of 3 for a mean of 7
        assert (np.abs(ratio / (7 / 3) ** 0.5 - 1) < 0.4).all()


def test_a_training_that_ends_early_or_goes_on_is_probed_at_its_end(tmp_path: Path) -> None:
    for epochs, when in ((4, [0, 3, 4]), (6, [0, 3, 6]), (8, [0, 3, 6, 8])):
        monitor = fs.Monitor(tmp_path, f"of-{epochs}", probes=3, strict=True)
        with monitor.step(made(Base), **many(), alpha=ALPHA, epochs=6) as step:
            for _ in range(epochs):
                step.epoch_ended()
        table = monitor.steps[0].table("probes").to_pandas()
        assert table["iteration"].unique().tolist() == when
        nic = table.groupby("class_id")["nic"].mean() * (epochs + 1)
        np.testing.assert_allclose(monitor.steps[0].table("classes").to_pandas()["nic"][:3], nic, rtol=1e-12)
        monitor.steps[0].verify()


def test_without_a_number_of_epochs_there_is_a_probe_after_each_and_that_is_told(tmp_path: Path) -> None:
    monitor = fs.Monitor(tmp_path, "untold", probes=2)
    step = monitor.step(made(Base), **loaders(), alpha=ALPHA)
    with pytest.warns(RuntimeWarning, match=r"probes = 2 are spread over .*, and step untold/2 was not told how many"):
        step.open()
    for _ in range(3):
        step.epoch_ended()
    step.close()
    assert len(step.sums) == 4
    assert monitor.steps[0].probing == {}


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"probe_images": 3}, "probe_images = 3 is no number of images of each past class, of which a probe needs 4 or more"),
        ({"probe_images": "some"}, "probe_images = 'some'"),
        ({"probe_images": True}, "probe_images = True"),
        ({"probes": 1}, "probes = 1: 2 or more"),
        ({"probes": "auto"}, 'probes = "auto" is for runs, which know their epochs'),
    ],
)
def test_what_is_no_number_is_refused_before_training(named: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        fs.Monitor(tmp_path, "test", **named)


def test_a_number_of_epochs_that_is_none_does_not_end_the_training(tmp_path: Path) -> None:
    with (
        pytest.warns(RuntimeWarning, match="epochs = 0 is no number of epochs"),
        fs.Monitor(tmp_path, "test").step(made(Base), **loaders(), epochs=0),
    ):
        pass


def test_killed_and_resumed_it_ends_in_the_same_bytes(tmp_path: Path) -> None:
    """At every epoch; a monitor that was told otherwise goes on as the step was begun."""
    networks, data = [made(Base, seed) for seed in range(6)], many()

    def run(folder: Path, state: dict[str, Any] | None = None, **named: Any) -> list[dict[str, Any]]:
        monitor = fs.Monitor(folder, "run", **{"probe_images": 10, "probes": 4, "strict": True, **named})
        if state is None:
            with monitor.step(networks[0], new=data["past"]):
                pass
        else:
            monitor.load_state_dict(state)
        states = []
        done = 0 if state is None else state["epoch"]
        own = copy.deepcopy(networks[done])
        with monitor.step(own, **data, alpha=ALPHA, epochs=5) as step:
            for network in networks[done + 1 :]:
                own.load_state_dict(network.state_dict())
                step.epoch_ended()
                torch.save(monitor.state_dict(), folder / "checkpoint.pt")
                states.append(torch.load(folder / "checkpoint.pt", weights_only=True))
        return states

    states = run(tmp_path / "whole")
    whole = fs.open_observed(tmp_path / "whole", "run").steps[-1]
    assert np.isfinite(whole.table("probes").to_pandas()[list(FORECAST)]).any(axis=None)
    for at, state in enumerate(states[:-1]):
        folder, otherwise = tmp_path / f"resumed-{at}", {"probe_images": None, "probes": None} if at == 1 else {}
        first = fs.Monitor(folder, "run", strict=True)
        with first.step(networks[0], new=data["past"]):
            pass
        run(folder, state, **otherwise)
        resumed = fs.open_observed(folder, "run").steps[-1]
        for name in ("classes", "probes", "pairs"):
            one, other = (step.table(name).to_pandas().select_dtypes("number") for step in (whole, resumed))
            np.testing.assert_array_equal(one.to_numpy(float), other.to_numpy(float), err_msg=f"{name} {at}")


def test_a_step_that_an_earlier_version_began_goes_on_looking_at_all_images(tmp_path: Path) -> None:
    network, data = made(Base), many()
    before = fs.Monitor(tmp_path / "before", "run", probe_images=None, strict=True)
    with before.step(network, **data, alpha=ALPHA) as step:
        step.epoch_ended()
        state = before.state_dict()
        step.epoch_ended()
    old = {name: value for name, value in state.items() if name not in ("probing", "probed")}
    monitor = fs.Monitor(tmp_path / "after", "run", probe_images=10, strict=True)
    monitor.load_state_dict(old)
    with monitor.step(network, **data, alpha=ALPHA) as again:
        again.epoch_ended()
    assert not {*ERRORS} & {*again.to_frame().columns}
    torch.testing.assert_close(again.coefficients.sic, step.coefficients.sic, rtol=0, atol=0)
    with pytest.raises(InputError, match="does not say how a step is probed"):
        Probing.from_state({"images": "many"})


def test_the_analysis_keeps_them_apart_and_sql_has_them(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    observe(store, 2, "a")
    observe(store, 2, "b")
    for name in ("c", "d"):
        for number in (1, 2):
            commit_observed(store, observed_record(number, name, probe_images=100, probes=3))
    found = fs.analyse_observed(store)
    assert [(group.setting, group.experiments) for group in found.groups] == [
        (("lr=0.1", "memory=10"), 2),
        (("lr=0.1", "memory=10", "probe_images=100", "probes=3"), 2),
    ]
    assert found.tables["observed_steps"].dropna(subset="probe_images")["monitor"].tolist() == ["c", "d"]
    answer = rows(query(store, "SELECT DISTINCT monitor, probe_images, probes FROM observed ORDER BY monitor"))
    assert [tuple(row.values()) for row in answer][1:3] == [("b", None, None), ("c", 100, 3)]
    assert b"probe_images" not in (store.observed_step("a", 2).folder / "observed.json").read_bytes()
