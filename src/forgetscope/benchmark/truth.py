"""The relation between coefficients and forgetting that a simulated store follows. The model is in `docs/simulation.md`."""

import hashlib
import math
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from forgetscope.spec import Asked

Matrix = NDArray[np.float64]
NotNegative = Annotated[float, Field(ge=0)]
Correlation = Annotated[float, Field(gt=-1, lt=1)]

COEFFICIENTS = ("sic", "cic", "nic")  # in the order of vectors and matrices here
RETENTION = 0.2  # where retention changes nothing


class Truth(Asked):
    """Effects, noise and correlations of standardised quantities. The defaults are near the paper's results on CIFAR-100."""

    sic_effect: float = Field(0.75, description="Change of forgetting, in units of its spread, per standard deviation of SIC.")
    cic_effect: float = Field(0.15, description="The same for CIC, the other coefficients unchanged.")
    nic_effect: float = Field(0.2, description="The same for NIC.")
    noise: NotNegative = Field(0.4, description="Standard deviation of what no coefficient explains.")
    intercept_sd: NotNegative = Field(0.3, description="Between steps: standard deviation of mean forgetting.")
    slope_sd: NotNegative = Field(0.1, description="Between steps: standard deviation of each effect.")
    sic_cic: Correlation = Field(0.05, description="Correlation of SIC and CIC over the past classes of a step.")
    sic_nic: Correlation = Field(0.65, description="The same of SIC and NIC.")
    cic_nic: Correlation = Field(0.25, description="The same of CIC and NIC.")
    rerun_sic_nic: Correlation = Field(
        0.55, description="Correlation of SIC and NIC of one past class, over runs of a step with other new classes."
    )
    parent_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.5, description="Share of the coefficients' variance that the parent decides; the new classes decide the rest."
    )
    all_nic: Correlation = Field(0.7, description="Correlation of ALL-NIC with NIC.")
    log_sim: Correlation = Field(0.5, description="Correlation of LOG-SIM with NIC.")
    half_way: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.25, description="Share of the probes after which a coefficient has come half-way to its total."
    )
    wander: NotNegative = Field(
        0.5, description="How far partial sums stray from their share of the total, in units of its standard deviation."
    )
    mean_forgetting: Annotated[float, Field(gt=-1, lt=1)] = Field(0.3, description="At a retention of 0.2.")
    spread: NotNegative = Field(0.15, description="Of forgetting over the past classes of a step, at a retention of 0.2.")
    retention_power: float = Field(
        -0.2, description="Mean and spread of forgetting change with this power of retention; 0: they do not."
    )
    accuracy: Annotated[float, Field(gt=0, le=1)] = Field(0.75, description="Mean test accuracy of classes just learned.")
    accuracy_sd: NotNegative = Field(0.1, description="Its standard deviation over classes.")
    never_learned: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="Share of classes with a test accuracy of 0 when learned, whose forgetting is undefined."
    )
    image_share: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.5,
        description="Share of what decides whether a test image is recognised that stays with the image from step to step. "
        "0: no test images are drawn, and accuracies are the true ones.",
    )

    @model_validator(mode="after")
    def _correlations_are_possible(self) -> Self:
        pairs = f"sic_cic = {self.sic_cic:g}, sic_nic = {self.sic_nic:g}, cic_nic = {self.cic_nic:g}"
        if not _is_positive_definite(self.correlation):
            raise ValueError(
                f"{pairs} cannot all hold: the correlation matrix is not positive definite. Bring them closer to 0"
            )
        if not _is_positive_definite(self.rerun_correlation):
            raise ValueError(f"rerun_sic_nic = {self.rerun_sic_nic:g} is impossible with {pairs}. Bring it closer to sic_nic")
        if not _is_positive_definite(self.parent_correlation):
            raise ValueError(
                f"rerun_sic_nic = {self.rerun_sic_nic:g} and parent_share = {self.parent_share:g} leave no possible "
                f"correlation to the parent with {pairs}. Bring rerun_sic_nic closer to sic_nic, or raise parent_share"
            )
        return self

    @property
    def effects(self) -> Matrix:
        """[3]: of SIC, CIC and NIC."""
        return np.array([self.sic_effect, self.cic_effect, self.nic_effect])

    @property
    def correlation(self) -> Matrix:
        """[3, 3]: of SIC, CIC and NIC over the past classes of a step."""
        return _correlations(self.sic_cic, self.sic_nic, self.cic_nic)

    @property
    def rerun_correlation(self) -> Matrix:
        """[3, 3]: of what the new classes decide."""
        return _correlations(self.sic_cic, self.rerun_sic_nic, self.cic_nic)

    @property
    def parent_correlation(self) -> Matrix:
        """[3, 3]: of what the parent decides, so that both parts together have `correlation`."""
        return (self.correlation - (1 - self.parent_share) * self.rerun_correlation) / self.parent_share

    def severity(self, retention: float | None) -> float:
        """By what mean and spread of forgetting are multiplied. A budget without a retention counts as 0.2."""
        return (retention / RETENTION) ** self.retention_power if retention else 1.0

    def expected_correlations(self) -> dict[str, float]:
        """Of each measure with forgetting, over many past classes of a step (Pearson's), before forgetting is cut off and
        seen through test images."""
        covariance = self.correlation @ self.effects
        variance = self.effects @ covariance + 3 * self.slope_sd**2 + self.noise**2
        found = covariance / math.sqrt(variance) if variance > 0 else np.zeros(3)
        sic, cic, nic = found.tolist()
        return {"sic": sic, "cic": cic, "nic": nic, "all_nic": self.all_nic * nic, "log_sim": self.log_sim * nic}

    def digest(self, seed: int) -> str:
        """Takes the place of a data set's digest: no step of a simulation has the id of a trained one, or of another's."""
        text = f"{seed} {self.model_dump_json(exclude=self._unsaid)}"
        return f"simulated-{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    @property
    def recorded(self) -> dict[str, float]:
        """By name, as steps and plans say it."""
        return self.model_dump(exclude=self._unsaid)

    @property
    def _unsaid(self) -> set[str]:
        """What is not said where there is none of it: so ids and records are those of before there were test images."""
        return set() if self.image_share else {"image_share"}


def _correlations(sic_cic: float, sic_nic: float, cic_nic: float) -> Matrix:
    return np.array([[1.0, sic_cic, sic_nic], [sic_cic, 1.0, cic_nic], [sic_nic, cic_nic, 1.0]])


def _is_positive_definite(matrix: Matrix) -> bool:
    return bool(np.linalg.eigvalsh(matrix)[0] > 1e-9)
