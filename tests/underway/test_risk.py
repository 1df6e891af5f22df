"""Which past classes are at risk, by ranks worked out by hand."""

from __future__ import annotations

import numpy as np

from forgetscope.underway.risk import measured_at_risk


def test_classes_with_equal_means_of_ranks_keep_their_order_whatever_a_sum_of_shares_rounds_to() -> None:
    """By SIC and by NIC the first has 1 and 2 of ten above it, the second 3 and 0: 0.1 + 0.2 is not 0.3 in floating point."""
    sic = [9, 7, 10, 8, 6, 5, 4, 3, 2, 1]
    nic = [8, 10, 1, 2, 9, 7, 6, 5, 4, 3]
    totals = np.array([sic, np.zeros(10), nic])
    rows = measured_at_risk(totals[None], totals, None, range(10), range(10), {}, 10)
    assert [row.label for row in rows][:2] == [0, 1]
    assert [row.rank for row in rows] == list(range(1, 11))
