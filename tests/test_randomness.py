from __future__ import annotations

import numpy as np

from forgetscope.randomness import Streams


def test_the_same_stream_gives_the_same_numbers_twice() -> None:
    streams = Streams(3, 2)
    assert streams("crop", 1).random(5).tolist() == streams("crop", 1).random(5).tolist()


def test_seed_step_purpose_and_index_each_make_another_stream() -> None:
    draws = [
        Streams(0, 1)("crop", 0).random(),
        Streams(1, 1)("crop", 0).random(),
        Streams(0, 2)("crop", 0).random(),
        Streams(0, 1)("flip", 0).random(),
        Streams(0, 1)("crop", 1).random(),
        Streams(11, 0)("crop", 0).random(),
        Streams(1, 10)("crop", 0).random(),
    ]
    assert len(set(draws)) == len(draws)


def test_no_global_generator_moves() -> None:
    np.random.seed(0)
    before = np.random.get_state()[1].tolist()
    Streams(0, 1)("network").random(100)
    assert np.random.get_state()[1].tolist() == before
