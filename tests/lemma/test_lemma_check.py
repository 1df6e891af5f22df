from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch.nn.utils import parameters_to_vector

from forgetscope.data.preprocessing import Normalisation
from forgetscope.errors import SpecError
from forgetscope.learning.networks import SmoothNetwork, check_network
from forgetscope.learning.rsgd import EpochSoFar, TrainingSet, epoch_batches, make_optimiser, train_step
from forgetscope.lemma.check import LemmaCheck, check_lemma
from forgetscope.lemma.terms import mean_gradient
from forgetscope.randomness import Streams
from forgetscope.spec import AugmentationSpec, step_specs

OPTIONS = {"dataset": "squares", "image_size": 8, "increment": 0.5, "epochs": 2, "first_batch": 16, "batch": 16}


@pytest.fixture(scope="module")
def checked(squares: Path) -> pd.DataFrame:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORGETSCOPE_CACHE", str(squares))
        return check_lemma(LemmaCheck.of(OPTIONS, hidden=6, images=10, draws=40), threads=1)


def test_each_iterate_and_past_class_has_a_row(checked: pd.DataFrame) -> None:
    assert checked.groupby("epoch").size().to_dict() == {0: 4, 1: 4}
    assert checked["iteration"].tolist() == np.repeat([0, 5], 4).tolist()  # 40 new images, 8 in a batch
    assert not checked.isna().any().any()


def test_the_bound_holds_and_is_the_sum_of_its_terms(checked: pd.DataFrame) -> None:
    assert (checked["change"] + 3 * checked["change_error"] <= checked["bound_every"]).all()
    assert checked["draws_above"].sum() == 0
    assert (checked["smoothness_made"] <= checked["smoothness_every"]).all()
    terms = ["descent", "sic", "cic", "nic", "fourth"]
    np.testing.assert_allclose(checked[terms].sum(axis=1), checked["first_order"], atol=1e-15)
    curvature = checked["learning_rate"] ** 2 / 2 * checked["smoothness_every"] * checked["squared_gradient"]
    np.testing.assert_allclose(checked["bound_every"], checked["first_order"] + curvature)


def test_the_two_estimates_of_a_change_agree(checked: pd.DataFrame) -> None:
    """The plain mean over draws, and the one that takes the first order from exact gradients instead of from draws."""
    difference = (checked["change"] - checked["plain_change"]).abs()
    assert (difference < 5 * (checked["plain_change_error"] + checked["change_error"])).all()
    assert checked["first_order_deviation"].abs().max() < 5


def test_the_same_check_gives_the_same_numbers_and_another_seed_gives_others(
    checked: pd.DataFrame, squares: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(squares))
    again = check_lemma(LemmaCheck.of(OPTIONS, hidden=6, images=10, draws=40), threads=1)
    pd.testing.assert_frame_equal(again, checked)
    other = check_lemma(LemmaCheck.of({**OPTIONS, "seed": 1, "epochs": 1}, hidden=6, images=10, draws=2), threads=1)
    assert other["gradient_norm"].tolist() != checked["gradient_norm"].tolist()[:4]


def test_an_update_of_the_check_is_an_update_of_training() -> None:
    """The first iteration of R-SGD moves the weights as the lemma's update does, to float32's precision."""
    rng = np.random.default_rng(0)
    spec = step_specs(LemmaCheck.of(OPTIONS).run, [[0, 1], [2, 3]], AugmentationSpec(crop=4, flip=True))[1]
    assert spec.rehearsal is not None
    new, kept = (
        TrainingSet(torch.from_numpy(rng.integers(0, 256, (8, 4, 4, 3), np.uint8)), torch.tensor(nodes), np.array([4, 4]))
        for nodes in ([2] * 4 + [3] * 4, [0] * 4 + [1] * 4)
    )
    normalise, streams = Normalisation(torch.full((3,), 0.5), torch.full((3,), 0.25), channels_last=False), Streams(0, 2)
    network = SmoothNetwork((4, 4), 5, 4, streams("network"))
    check_network("smooth", network, 4)
    before = parameters_to_vector(network.parameters()).detach().clone()
    of_new, of_kept = epoch_batches(new, kept, spec.training, spec.rehearsal.alpha, streams, 0)[0]
    images = normalise(torch.cat([new.images[of_new], kept.images[of_kept]]).float() / 255)
    g = mean_gradient(network, (images, torch.cat([new.nodes[of_new], kept.nodes[of_kept]])))

    class FirstIterationDone(Exception):
        pass

    def stop(so_far: EpochSoFar) -> None:
        raise FirstIterationDone

    optimiser = make_optimiser(network, spec.training)
    with pytest.raises(FirstIterationDone):
        next(train_step(network, optimiser, new, kept, normalise, spec.training, 0.5, streams, on_iteration=stop))
    after = parameters_to_vector(network.parameters()).detach()
    torch.testing.assert_close(after, before - spec.training.learning_rate * g, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 0.9}, "momentum = 0.9: the lemma needs momentum = 0.0"),
        ({"sampling": "reshuffled"}, "sampling = 'reshuffled': the lemma needs sampling = 'iid'"),
        ({"network": "resnet8"}, "network = 'resnet8': the lemma needs a smooth one"),
        ({"sequence": [[0], [1], [2]]}, "second of two steps; sequence has 3"),
        ({"learning_rat": 1}, "There is no option 'learning_rat'"),
    ],
)
def test_what_the_lemma_is_not_about_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=re.escape(message)):
        LemmaCheck.of(options)
