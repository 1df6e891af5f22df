"""The plugin in Avalanche itself: Naive with replay, ER-ACE, masked heads that grow, buffers, and no trace."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import forgetscope as fs
from forgetscope.integrations.avalanche import Forgetscope
from forgetscope.integrations.losses import asymmetric_loss
from frameworks import FRAMEWORK, differences, documented, images, needed, seed_all, small_network, traces

needed("avalanche")

from avalanche.benchmarks import class_incremental_benchmark, nc_benchmark  # noqa: E402
from avalanche.benchmarks.scenarios.generic_scenario import CLStream  # noqa: E402
from avalanche.benchmarks.scenarios.supervised import with_classes_timeline  # noqa: E402
from avalanche.benchmarks.utils import as_classification_dataset  # noqa: E402
from avalanche.models import IncrementalClassifier  # noqa: E402
from avalanche.training.plugins import MIRPlugin, ReplayPlugin  # noqa: E402
from avalanche.training.storage_policy import ClassBalancedBuffer  # noqa: E402
from avalanche.training.supervised import ER_ACE, Naive  # noqa: E402

pytestmark = FRAMEWORK
CLASSES, MEMORY, EPOCHS = 6, 12, 2


class Labelled(TensorDataset):
    """With `targets`, as data sets of torchvision have them."""

    def __init__(self, seed: int) -> None:
        super().__init__(*images(range(CLASSES), seed=seed))
        self.targets = self.tensors[1].tolist()

    def __getitem__(self, index: Any) -> Any:
        return self.tensors[0][index], self.targets[index]


def benchmark() -> Any:
    """Two classes in each of three experiences, in an order that is not that of their ids."""
    return nc_benchmark(Labelled(0), Labelled(1), 3, task_labels=False, shuffle=False, fixed_class_order=[3, 0, 5, 1, 4, 2])


class Copies:
    """A plugin that keeps the network as it was at each probe, and what was replayed."""

    def __init__(self) -> None:
        self.networks: list[list[nn.Module]] = []
        self.memories: list[Any] = []
        self.batches: list[torch.Tensor] = []

    def before_training_exp(self, strategy: Any, **_: Any) -> None:
        self.networks.append([copy.deepcopy(strategy.model)])
        policies = [h.storage_policy for h in (strategy, *strategy.plugins) if hasattr(h, "storage_policy")]
        buffer = policies[0].buffer
        items = [(x, int(y)) for x, y, *_ in buffer] if len(buffer) else []
        self.memories.append(items)

    def after_training_epoch(self, strategy: Any, **_: Any) -> None:
        self.networks[-1].append(copy.deepcopy(strategy.model))


def naive(plugins: list[Any], *, masked: bool = True, **options: Any) -> Any:
    seed_all(3)
    head = IncrementalClassifier(12, initial_out_features=2) if masked else nn.Linear(12, CLASSES)
    network = small_network(head)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    options = {"train_mb_size": 16, "train_epochs": EPOCHS, "evaluator": None, **options}
    return Naive(model=network, optimizer=optimizer, plugins=plugins, **options)


def er_ace(plugins: list[Any]) -> Any:
    seed_all(3)
    network = small_network(IncrementalClassifier(12, initial_out_features=2))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    sizes = {"mem_size": MEMORY, "batch_size_mem": 8, "train_mb_size": 16, "train_epochs": EPOCHS}
    return ER_ACE(model=network, optimizer=optimizer, plugins=plugins, evaluator=None, **sizes)


def expected(copies: Copies, step: int, order: list[int], alpha: float, loss: Any = None) -> fs.Probe:
    """The same numbers from held tensors, with the networks as they were."""
    past, new = order[: 2 * step], order[2 * step : 2 * step + 2]
    inputs, labels = images(past)
    stored = {x.numpy().tobytes() for x, y in copies.memories[step] if y in past}
    kept = torch.tensor([x.numpy().tobytes() in stored for x in inputs])
    assert int(kept.sum()) == len(stored) > 0
    probe = fs.Probe(inputs, labels, kept, *images(new), alpha=alpha, loss=loss)
    for network in copies.networks[step]:
        probe.measure(network)
    return probe


def agrees(stored: Any, probe: fs.Probe) -> None:
    classes = stored.table("classes").to_pandas().set_index("class_id").loc[probe.past_nodes.tolist()]
    for name in ("sic", "cic", "nic"):
        np.testing.assert_allclose(classes[name], getattr(probe.coefficients, name), rtol=1e-4, atol=1e-6, err_msg=name)


ORDER = [3, 0, 5, 1, 4, 2]


def test_naive_with_replay_is_measured_as_it_trained(tmp_path: Path) -> None:
    """Past from the benchmark's stream, memory from the plugin that stands behind, alpha from the batches."""
    observing, copies = Forgetscope(tmp_path / "results", "naive", strict=True), Copies()
    strategy = naive([observing, copies, ReplayPlugin(mem_size=MEMORY)])
    for experience in benchmark().train_stream:
        strategy.train(experience)
    first, second, third = observing.monitor.steps
    assert [step.info["past"] for step in (first, second, third)] == ["none", "all", "all"]
    for number, step in ((1, second), (2, third)):
        assert step.info["status"] == "done"
        assert step.info["alpha_from"] == "batches"
        assert step.info["alpha"] == pytest.approx(
            0.5, abs=0.1
        )  # as many replayed as new; a batch that ends an epoch has fewer
        agrees(step, expected(copies, number, ORDER, step.info["alpha"]))
    accuracies = third.table("classes").to_pandas().set_index("class_id")
    assert set(accuracies.index) == set(range(CLASSES))
    assert accuracies.loc[ORDER[:4], "forgetting"].notna().all()


def test_a_plain_head_and_a_buffer_balanced_by_class(tmp_path: Path) -> None:
    observing, copies = Forgetscope(tmp_path / "results", strict=True), Copies()
    policy = ClassBalancedBuffer(MEMORY)
    strategy = naive([ReplayPlugin(mem_size=MEMORY, storage_policy=policy), copies, observing], masked=False)
    for experience in list(benchmark().train_stream)[:2]:
        strategy.train(experience)
    second = observing.monitor.steps[1]
    assert observing.monitor.name.startswith("avalanche-")
    agrees(second, expected(copies, 1, ORDER, second.info["alpha"]))


def test_er_ace_is_measured_on_its_own_loss_without_what_it_stored_of_new_classes(tmp_path: Path) -> None:
    observing, copies = Forgetscope(tmp_path / "results", "ace", strict=True), Copies()
    strategy = er_ace([observing, copies])
    for experience in list(benchmark().train_stream)[:2]:
        strategy.train(experience)
    second = observing.monitor.steps[1]
    labels = [y for _, y in copies.memories[1]]
    assert {*labels} == {3, 0, 5, 1}
    share = sum(y in ORDER[2:4] for y in labels) / len(labels)
    assert second.info["alpha"] == pytest.approx((1 - share) / 2, abs=0.05)
    agrees(second, expected(copies, 1, ORDER, second.info["alpha"], asymmetric_loss(ORDER[:2], ORDER[2:4], lambda: share)))


def test_the_criterion_of_the_strategy_is_what_is_measured(tmp_path: Path) -> None:
    observing, copies = Forgetscope(tmp_path / "results", "smooth", strict=True), Copies()
    own = nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=CLASSES)  # of which there is no image
    strategy = naive([observing, copies, ReplayPlugin(mem_size=MEMORY)], masked=False, criterion=own)
    for experience in list(benchmark().train_stream)[:2]:
        strategy.train(experience)
    second = observing.monitor.steps[1]
    agrees(second, expected(copies, 1, ORDER, second.info["alpha"], nn.CrossEntropyLoss(label_smoothing=0.1)))


@pytest.mark.parametrize(
    "own", [{"ignore_index": 0}, {"weight": torch.arange(1.0, CLASSES + 1)}, {"reduction": "sum"}], ids=" ".join
)
def test_a_criterion_that_is_no_mean_over_images_is_refused_and_not_taken_for_the_cross_entropy(
    own: dict[str, Any], tmp_path: Path
) -> None:
    observing = Forgetscope(tmp_path / "results", "own")
    criterion = nn.CrossEntropyLoss(**own)
    strategy = naive([observing, ReplayPlugin(mem_size=MEMORY)], masked=False, criterion=criterion)
    first, second, _ = benchmark().train_stream
    strategy.train(first)
    with pytest.warns(RuntimeWarning, match=r"loss CrossEntropyLoss\(\) is .* 4 images, .* the mean of their own losses"):
        strategy.train(second)
    assert [step.info["status"] for step in observing.monitor.steps] == ["done", "incomplete"]


@pytest.mark.parametrize("strategy_of", [naive, er_ace])
def test_it_leaves_no_trace(strategy_of: Any, tmp_path: Path) -> None:
    found = []
    for observing in ([], [Forgetscope(tmp_path / "results", strict=True)]):
        replay = [ReplayPlugin(mem_size=MEMORY)] if strategy_of is naive else []
        strategy = strategy_of([*observing, *replay])
        for experience in benchmark().train_stream:
            strategy.train(experience)
        found.append(traces(strategy.model, strategy.optimizer))
    assert differences(*found) == []


def test_a_benchmark_without_way_back_to_its_test_stream_is_given_one(tmp_path: Path) -> None:
    def train(**options: Any) -> Any:
        streams = class_incremental_benchmark(
            {name: as_classification_dataset(Labelled(seed)) for seed, name in enumerate(("train", "test"))},
            num_experiences=3,
            class_order=ORDER,
        )
        found = with_classes_timeline(streams)
        observing = Forgetscope(
            tmp_path / "results", options.pop("name"), strict=True, test=found.test_stream if options.get("test") else None
        )
        strategy = naive([observing, ReplayPlugin(mem_size=MEMORY)])
        for i, experience in enumerate(found.train_stream):
            strategy.train(
                experience, **({"eval_streams": [found.test_stream[: i + 1]]} if options.get("eval_streams") else {})
            )
        return observing.monitor.steps[-1].table("classes").to_pandas()["accuracy"]

    assert train(name="given", test=True).notna().all()
    assert train(name="evaluated", eval_streams=True).notna().all()
    with pytest.warns(
        RuntimeWarning, match=r"no test images of the classes seen so far, .* test=benchmark.test_stream"
    ) as told:
        assert train(name="neither").isna().all()
    assert len([one for one in told if "forgetscope" in str(one.message)]) == 1  # of three experiences


def test_of_a_stream_that_hands_out_nothing_again_sic_and_cic_are_unknown(tmp_path: Path) -> None:
    found = benchmark()
    observing = Forgetscope(tmp_path / "results", "once", test=found.test_stream, strict=True)
    strategy = naive([observing, ReplayPlugin(mem_size=MEMORY)])
    for experience in CLStream("train", iter(list(found.train_stream))):
        strategy.train(experience)
    _, second, third = observing.monitor.steps
    assert [(step.info["status"], step.info["past"]) for step in (second, third)] == [("done", "memory")] * 2
    classes = third.table("classes").to_pandas().set_index("class_id").loc[ORDER[:4]]
    assert classes[["sic", "cic", "nic"]].isna().all(axis=None)
    assert classes[["nic_estimate", "forgetting"]].notna().all(axis=None)


def test_a_memory_that_is_replayed_unseen_leaves_alpha_unknown(tmp_path: Path) -> None:
    """MIR adds its loss within a hook: no batch shows what it replays."""
    observing = Forgetscope(tmp_path / "results", "mir")
    strategy = naive([observing, MIRPlugin(batch_size_mem=4, mem_size=MEMORY, subsample=8)])
    first, second, _ = benchmark().train_stream
    strategy.train(first)
    why = "No batch held an image of a past class, although there is a memory: alpha is unknown"
    with (
        pytest.warns(RuntimeWarning, match=why),
        pytest.warns(RuntimeWarning, match="Alpha is unknown, because no batch was told"),
    ):
        strategy.train(second)
    assert observing.monitor.steps[1].info["alpha"] is None


def test_a_failure_in_the_plugin_does_not_end_the_training(tmp_path: Path) -> None:
    strategy = naive([Forgetscope(tmp_path / "results", "odd", test=5), ReplayPlugin(mem_size=MEMORY)])
    with pytest.warns(
        RuntimeWarning, match="in avalanche: This step is not observed any further .TypeError: 'int' object is not iterable"
    ):
        strategy.train(next(iter(benchmark().train_stream)))
    (step,) = fs.Monitor(tmp_path / "results", "odd").steps
    assert "not iterable" in step.info["reason"]
    strict = naive([Forgetscope(tmp_path / "results", "strict", test=5, strict=True)])
    with pytest.raises(TypeError, match="not iterable"):
        strict.train(next(iter(benchmark().train_stream)))


def test_the_documented_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    network = small_network(nn.Linear(12, CLASSES))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    names: dict[str, Any] = {"Naive": Naive, "ReplayPlugin": ReplayPlugin, "network": network, "optimizer": optimizer}
    exec(documented("avalanche"), names)
    names["strategy"].train_mb_size = 16
    names["strategy"].train(next(iter(benchmark().train_stream)))
    assert len(list((tmp_path / "results" / "observed").iterdir())) == 1
