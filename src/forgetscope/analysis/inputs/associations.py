"""The rank correlations that a step is asked for: each measure with forgetting, alone and given others, and some in pairs."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from forgetscope.analysis.statistics.rank_correlation import partial_correlation, rank_correlations, spearman

Values = NDArray[np.float64]

VARIABLES = ("SIC", "CIC", "NIC", "ALL-NIC", "LOG-SIM", "FG")


class Association(NamedTuple):
    """Of x and y, given others. `quantity` and `statistic` are its name in tables."""

    quantity: str
    statistic: str
    x: str
    y: str = "FG"
    given: tuple[str, ...] = ()


# Controlling for the others means the other two of SIC, CIC and NIC; the paper's overall table adds ALL-NIC for SIC and CIC.
ASSOCIATIONS = (
    *(Association(name, "rho", name) for name in VARIABLES[:5]),
    Association("SIC", "rho_p", "SIC", given=("CIC", "NIC")),
    Association("CIC", "rho_p", "CIC", given=("SIC", "NIC")),
    Association("NIC", "rho_p", "NIC", given=("SIC", "CIC")),
    Association("ALL-NIC", "rho_p", "ALL-NIC", given=("SIC", "CIC")),
    Association("LOG-SIM", "rho_p", "LOG-SIM", given=("SIC", "CIC", "NIC")),
    Association("NIC", "rho_p_SIC", "NIC", given=("SIC",)),
    Association("NIC", "rho_p_CIC", "NIC", given=("CIC",)),
    Association("SIC-CIC", "rho", "SIC", "CIC"),
    Association("SIC-NIC", "rho", "SIC", "NIC"),
    Association("CIC-NIC", "rho", "CIC", "NIC"),
    Association("ALL-NIC-SIC", "rho", "ALL-NIC", "SIC"),
    Association("SIC", "rho_p_all", "SIC", given=("CIC", "NIC", "ALL-NIC")),
    Association("CIC", "rho_p_all", "CIC", given=("SIC", "NIC", "ALL-NIC")),
)


def associations_of(coefficients: Values, log_sim: Values, forgetting: Values) -> Values:
    """[..., problems, associations] of coefficients [..., problems, 4, classes], log_sim and forgetting [..., classes].

    NaN where there are too few classes (three, and one more for each that is controlled for) or no ranking."""
    *problems, _, classes = coefficients.shape
    found = np.full((*problems, len(ASSOCIATIONS)), np.nan)
    if 0 in problems or classes < 3:
        return found
    matrices = rank_correlations(*np.moveaxis(coefficients, -2, 0), log_sim[..., None, :], forgetting[..., None, :])
    for i, asked in enumerate(ASSOCIATIONS):
        if classes >= 3 + len(asked.given):
            x, y, *given = (VARIABLES.index(name) for name in (asked.x, asked.y, *asked.given))
            found[..., i] = partial_correlation(matrices, x, y, given)
    return found


def over_reruns(nic: Values, sic: Values) -> tuple[Values, NDArray[np.int64]]:
    """[classes] each, of [runs, classes]: the rank correlation of a class's NIC and SIC over the runs, and in how many of them
    it has both. NaN below three runs, or where one of the two never changes."""
    known = np.isfinite(nic) & np.isfinite(sic)
    return spearman(nic.T, sic.T), known.sum(axis=0)
