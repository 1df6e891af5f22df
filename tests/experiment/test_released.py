"""What the paper's released scripts do otherwise than its text: options that do what they say, and nothing unless set."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance
from torch import nn

import forgetscope as fs
from conftest import TINY, run_experiment
from forgetscope.benchmark.pairs import BASELINE, Variants, variants_plan
from forgetscope.benchmark.recipes import script_notes
from forgetscope.data.library import load_data
from forgetscope.data.preprocessing import Normalisation, augment, draw
from forgetscope.engines.dispatch import Watcher
from forgetscope.errors import SpecError
from forgetscope.learning.budgets import quotas
from forgetscope.learning.networks import build_network
from forgetscope.randomness import Streams
from forgetscope.spec import AugmentationSpec, RehearsalSpec, RunSpec, StepSpec, step_specs
from forgetscope.store import Store

NEW = {
    "initialisation": "fan-out",
    "initial_weights": "unseeded",
    "normalisation": "cifar10",
    "retained_of": "all",
    "brightness_rounded": True,
}
OWN = AugmentationSpec(crop=4, flip=True, brightness=63 / 255)


def specs(**options: Any) -> list[StepSpec]:
    return step_specs(RunSpec(**options), ((0, 1), (2, 3)), OWN)


def run(store: Path, **changes: Any) -> fs.Experiment:
    options = {**TINY, "sequence": TINY["sequence"][:2], "epochs": 1, **changes}
    return run_experiment(RunSpec(**options), Store(store), device="cpu", threads=1)


def start(experiment: fs.Experiment) -> str:
    """The digest of the weights that its first step began with."""
    return str(experiment.chain[0].info["start"]["weights"])


def recorded(spec: StepSpec) -> str:
    return json.dumps(spec.model_dump(mode="json", exclude_none=True))


def test_what_is_not_set_is_in_no_specification() -> None:
    for spec in specs():
        assert not [name for name in NEW if name in recorded(spec)]
    assert specs(**dict.fromkeys(("script_behaviour",), "text")) == specs()


def test_what_is_set_is_in_the_specification_where_it_can_make_a_difference() -> None:
    first, second = specs(**NEW, validation=0.1)
    for name in ("initialisation", "initial_weights", "normalisation", "brightness_rounded"):
        assert name in recorded(first)
        assert name in recorded(second)
    assert "retained_of" not in recorded(first)
    assert "retained_of" in recorded(second)
    assert specs(retained_of="all") == specs()  # nothing is set aside
    assert specs(retained_of="all", validation=0.1, memory=20) == specs(validation=0.1, memory=20)
    assert specs(brightness_rounded=True, brightness=0.0) == specs(brightness=0.0)


@pytest.mark.parametrize("name", ["resnet8", "resnet18"])
def test_fan_out_scales_the_same_draws_by_the_outputs(name: str) -> None:
    ours, theirs = (build_network(name, 3, np.random.default_rng(0), fan_out=fan_out) for fan_out in (False, True))
    checked = 0
    for own, other in zip(ours.modules(), theirs.modules(), strict=True):
        if isinstance(own, nn.Conv2d) and isinstance(other, nn.Conv2d):
            fan_in, fan_out = nn.init._calculate_fan_in_and_fan_out(own.weight)
            torch.testing.assert_close(other.weight, own.weight * math.sqrt(fan_in / fan_out))
            assert other.weight.std().item() == pytest.approx(math.sqrt(2 / fan_out), rel=6 / math.sqrt(own.weight.numel()))
            checked += 1
        elif isinstance(own, nn.Linear) and isinstance(other, nn.Linear):
            assert torch.equal(own.weight, other.weight)
    assert checked > 6


def test_a_network_of_ones_own_draws_its_own_weights() -> None:
    with pytest.raises(SpecError, match=r"initialisation = 'fan-out': mine:net draws its own"):
        RunSpec(network="mine:net", initialisation="fan-out")
    assert RunSpec(network="mine:net", script_behaviour="released").initialisation == "fan-in"


def test_images_are_normalised_by_those_of_cifar10() -> None:
    images = torch.from_numpy(np.random.default_rng(0).integers(256, size=(2, 8, 8, 3), dtype=np.uint8))
    found = Normalisation.of(load_data("glyphs", 8), by="cifar10")(images)
    for channel, (mean, std) in enumerate(((0.4914, 0.2023), (0.4822, 0.1994), (0.4465, 0.2010))):
        torch.testing.assert_close(found[:, channel], (images[..., channel] / 255 - mean) / std)


def test_rounded_brightness_is_pillow_s() -> None:
    images = np.random.default_rng(0).integers(256, size=(20, 6, 5, 3), dtype=np.uint8)
    spec = AugmentationSpec(brightness=63 / 255, brightness_rounded=True)
    draws = draw(spec, 1, 20, Streams(0, 1), 0, torch.device("cpu")).batch(0)
    found = augment(torch.from_numpy(images), spec, draws).numpy()
    for image, factor, rounded in zip(images, draws.factor.tolist(), found, strict=True):
        expected = np.asarray(ImageEnhance.Brightness(Image.fromarray(image)).enhance(factor))
        np.testing.assert_array_equal(np.rint(rounded * 255).astype(np.uint8), expected)
        np.testing.assert_allclose(rounded, expected / 255, atol=1e-7)


def test_forty_images_are_kept_at_8_per_cent_with_a_hold_out() -> None:
    def kept(retention: float, of: str | None) -> int:
        spec = RehearsalSpec(alpha=0.5, policy="uniform", retention=retention, retained_of=of, probe_every=1)  # type: ignore[arg-type]
        return quotas(spec, {0: 450}, {0: 500})[0]

    assert [kept(share, "all") for share in (0.08, 0.2, 0.4, 1.0)] == [40, 100, 200, 450]  # no more than there are
    assert [kept(share, None) for share in (0.08, 0.2, 0.4, 1.0)] == [36, 90, 180, 450]


def test_a_run_keeps_the_quota_of_the_whole_class_in_every_step(tmp_path: Path) -> None:
    found = run(tmp_path, sequence=TINY["sequence"], validation=0.1, retained_of="all")
    counts = [step.table("rehearsal").to_pandas().groupby("class_id").size().tolist() for step in found.chain[1:]]
    assert counts == [[16] * 2, [16] * 4]  # 8 % of 200; of the 180 that are left it would be 14


def test_unseeded_weights_do_not_follow_the_seed_but_can_be_made_again(tmp_path: Path) -> None:
    classes = {name: {"sequence": ((a, a + 1), (4, 5))} for name, a in (("some", 0), ("others", 2))}
    seeded = {name: start(run(tmp_path / "a", **own)) for name, own in classes.items()}
    unseeded = {name: start(run(tmp_path / "a", **own, initial_weights="unseeded")) for name, own in classes.items()}
    assert seeded["some"] == seeded["others"]  # the seed decides
    assert len({*seeded.values(), *unseeded.values()}) == 3
    assert start(run(tmp_path / "b", **classes["some"], initial_weights="unseeded")) == unseeded["some"]
    assert start(run(tmp_path / "b", **classes["some"], initial_weights="unseeded", seed=1)) not in unseeded.values()


@pytest.mark.parametrize(("name", "value"), [*NEW.items()])
def test_every_option_changes_the_training(tmp_path: Path, name: str, value: Any) -> None:
    with_it, without = (run(tmp_path, validation=0.1, **own) for own in ({name: value}, {}))
    ends = [experiment.chain[-1].manifest["state.safetensors"]["sha256"] for experiment in (with_it, without)]
    assert ends[0] != ends[1]


def test_released_sets_all_of_them_and_the_older_ones() -> None:
    given = RunSpec(script_behaviour="released", dataset="tiny-imagenet")
    assert {name: getattr(given, name) for name in NEW} == NEW
    assert (given.sampling, given.validation, given.released_nic) == ("reshuffled-short", 0.1, True)
    assert given.network == "resnet18-projected"
    other = RunSpec(script_behaviour="released", dataset="cifar100", network="resnet32")
    assert (other.normalisation, other.network) == ("own", "resnet32")  # as in the scripts
    assert RunSpec(script_behaviour="released", probe_every=0).released_nic is False


def test_what_is_given_beside_it_wins_and_is_named() -> None:
    given = RunSpec(script_behaviour="released", validation=0.0, network="resnet18", initialisation="fan-in")
    assert (given.validation, given.network, given.initialisation) == (0.0, "resnet18", "fan-in")
    assert given.sampling == "reshuffled-short"
    (text,) = script_notes(given)
    beside = text.partition("Given beside it, which wins: ")[2]
    assert 'validation = 0.0 (released: 0.1), initialisation = "fan-in" (released: "fan-out")' in beside
    assert 'network = "resnet18" (released: "resnet18-projected")' in beside
    assert "sampling" not in beside
    assert script_notes(RunSpec(validation=0.1)) == []


def test_files_say_it_and_are_read_to_the_same(tmp_path: Path) -> None:
    given = RunSpec(script_behaviour="released", sampling="iid")
    assert RunSpec(**tomllib.loads(given.to_toml(comments=True))) == given
    (tmp_path / "run.toml").write_text('script_behaviour = "released"\nsampling = "iid"\n')
    assert RunSpec.from_toml(tmp_path / "run.toml") == given
    benchmark = fs.BenchmarkSpec.load("tiny-imagenet", {"script_behaviour": "released", "validation": 0.2})
    again = fs.BenchmarkSpec(**tomllib.loads(benchmark.to_toml()))
    assert again == benchmark
    assert (again.template.network, again.template.validation) == ("resnet18-projected", 0.2)
    assert again.controlled_runs == "fresh"
    assert "controlled_runs" not in fs.BenchmarkSpec.load("tiny-imagenet").to_toml()
    (text,) = script_notes(fs.Controlled(fs.BenchmarkSpec.load("glyphs", {"script_behaviour": "released"})))
    assert 'controlled_runs = "fresh"' in text
    kept = fs.BenchmarkSpec.load("glyphs", {"script_behaviour": "released", "controlled_runs": "original"})
    assert fs.BenchmarkSpec(**tomllib.loads(kept.to_toml())).controlled_runs == "original"
    assert 'wins: controlled_runs = "original" (released: "fresh")' in script_notes(kept)[0]


def test_it_is_a_variant_with_first_steps_of_its_own() -> None:
    load_data("glyphs", 8)
    plan = variants_plan(Variants(RunSpec(image_size=8, steps=2), ["script_behaviour=released", *VARIED], pairs=1))
    chains = {chain.variant: chain.steps for chain in plan.chains}
    assert len({*chains.values()}) == 2 + len(VARIED)
    for name, common in {"script_behaviour=released": False, **VARIED}.items():
        assert (chains[name][0] == chains[BASELINE.name][0]) is common
    assert plan.jobs[chains["script_behaviour=released"][1]].spec.training.sampling == "reshuffled-short"


VARIED = {
    "initialisation=fan-out": False,
    "initial_weights=unseeded": False,
    "normalisation=cifar10": False,
    "brightness_rounded=true": True,
}


def test_a_run_tells_it_and_all_of_it_trains(tmp_path: Path) -> None:
    class Told(Watcher):
        def __init__(self) -> None:
            self.texts: list[str] = []

        def note(self, text: str) -> None:
            self.texts.append(text)

    watcher = Told()
    options = {**TINY, "epochs": 1, "script_behaviour": "released", "validation": 0.2}
    found = run_experiment(RunSpec(**options), Store(tmp_path), progress=watcher, device="cpu", threads=1)
    assert "validation = 0.2 (released: 0.1)" in watcher.texts[0]
    assert found.chain[1].has("extra")  # NIC as released
    assert found.chain[2].table("rehearsal").to_pandas().groupby("class_id").size().tolist() == [16] * 4
