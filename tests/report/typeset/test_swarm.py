from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from forgetscope.report.typeset.figures import fitted, offsets

HEIGHTS = st.lists(st.floats(-50, 50), max_size=40).map(np.array)


@given(HEIGHTS, st.floats(0.1, 5))
def test_no_disc_covers_another(heights: np.ndarray, diameter: float) -> None:
    aside = offsets(heights, diameter)
    distances = np.hypot(aside[:, None] - aside, heights[:, None] - heights)[np.triu_indices(len(heights), 1)]
    assert (distances >= diameter * (1 - 1e-6)).all()


@given(st.lists(HEIGHTS, max_size=3), st.floats(1, 20))
def test_swarms_stay_in_their_lanes(swarms: list[np.ndarray], width: float) -> None:
    diameter, found = fitted(swarms, width, 3.0)
    assert 0 < diameter <= 3.0
    assert all(np.abs(aside).max(initial=0) + diameter / 2 <= width / 2 + 1e-9 for aside in found)


def test_discs_that_have_room_stay_in_the_middle_and_equal_ones_lie_side_by_side() -> None:
    assert offsets(np.array([0.0, 3.0, 1.5]), 1.0).tolist() == [0, 0, 0]
    assert sorted(offsets(np.zeros(5), 1.0).tolist()) == [-2, -1, 0, 1, 2]
    assert fitted([np.array([0.0, 3.0])], 5.0, 1.0)[0] == 1.0
