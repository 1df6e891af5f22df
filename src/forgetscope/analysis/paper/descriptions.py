"""What the paper's 24 tables and 7 figures show, as data. Labels are those of its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Layout = Literal["overall", "grid", "anova", "weights", "controlled"]


class Column(NamedTuple):
    """A quantity and statistic of a table; `source` names the per-step numbers behind it where they are called otherwise."""

    quantity: str
    statistic: str
    source: tuple[str, str] | None = None

    @property
    def name(self) -> tuple[str, str]:
        return self.source or (self.quantity, self.statistic)


@dataclass(frozen=True)
class TableDescription:
    """A table: overall per subset; a grid of partitions with margins; an ANOVA per subset; weights or re-runs per partition.

    `intervals`: whether means and standard deviations come with 95 % intervals."""

    label: str
    layout: Layout
    columns: tuple[Column, ...]
    title: str
    intervals: bool = True


MODEL = "all_coefficients"
PAPER_ORDER = ("cifar100", "tiny-imagenet")  # the second is the harder
RHO, RHO_P = "rho", "rho_p"
THREE = ("SIC", "CIC", "NIC")
SEVERITY = (Column("FG-R", "value"), Column("FG-HG", "value"))
NIC_SIC = Column("SIC-NIC", RHO)


def _both(quantity: str) -> tuple[Column, Column]:
    return Column(quantity, RHO), Column(quantity, RHO_P)


def _drop(quantity: str) -> tuple[Column, Column]:
    """Responses of an ANOVA: the correlation, and how much of it is lost when the others are controlled for."""
    return Column(quantity, RHO), Column(quantity, "rho-rho_p")


_ALL = (
    TableDescription("FG-R_FG-HSG_overall", "overall", SEVERITY, "Severity of imbalanced forgetting"),
    TableDescription(
        "spearman_individual_coefficients",
        "overall",
        (*(Column(name, RHO) for name in THREE), *(Column(name, RHO_P) for name in THREE)),
        "How well each coefficient ranks past classes by forgetting, alone and given the other two",
    ),
    TableDescription(
        "SW-LOO_protocol",
        "overall",
        (Column(MODEL, RHO), Column("SIC", RHO)),
        "How well the joint model ranks the classes of a step that it has not seen, beside raw SIC",
        intervals=False,
    ),
    TableDescription("spearman_SIC_NIC", "overall", (NIC_SIC,), "Rank correlation of NIC and SIC over past classes"),
    TableDescription(
        "spearman_ALL-NIC_and_NIC",
        "overall",
        (Column("NIC", RHO), Column("ALL-NIC", RHO), Column("NIC", RHO_P), Column("ALL-NIC", RHO_P)),
        "NIC and ALL-NIC, alone and given SIC and CIC",
    ),
    TableDescription(
        "spearman_interference_bias",
        "overall",
        (NIC_SIC, Column("ALL-NIC-SIC", RHO)),
        "Rank correlation of SIC with NIC and with ALL-NIC",
    ),
    TableDescription("FG-R_FG-HG_fine_grained", "grid", SEVERITY, "Severity of imbalanced forgetting per partition"),
    TableDescription("anova_FG-R_FG-HSG", "anova", SEVERITY, "Effects of retention and increment on FG-R and FG-HG"),
    *(TableDescription(f"spearman_{name}", "grid", _both(name), f"{name} and forgetting per partition") for name in THREE),
    *(
        TableDescription(f"anova_{name}", "anova", _drop(name), f"Effects on the correlation of {name} with forgetting")
        for name in THREE
    ),
    TableDescription(
        "spearman_All_coef_SIC_fine_grained",
        "grid",
        (Column(MODEL, RHO), Column("SIC", RHO)),
        "The joint model and raw SIC per partition",
        intervals=False,
    ),
    TableDescription("anova_all_coefficients", "anova", (Column(MODEL, RHO),), "Effects on the joint model's rank correlation"),
    TableDescription(
        "SW-LOO_protocol_MAE",
        "overall",
        (
            Column(MODEL, RHO),
            Column(MODEL, "mae"),
            Column("SIC", RHO, ("SIC_model", RHO)),
            Column("SIC", "mae", ("SIC_model", "mae")),
        ),
        "Rank correlation and mean absolute error of the joint model and of a model with SIC alone",
        intervals=False,
    ),
    TableDescription(
        "coefficients", "weights", tuple(Column(name, "weight") for name in THREE), "Standardised weights of the joint model"
    ),
    TableDescription(
        "SW-LOO_protocol_LOG_similarity",
        "overall",
        (Column(MODEL, RHO), Column("NIC", RHO), Column("LOG-SIM", RHO)),
        "The joint model, NIC and LOG-SIM",
        intervals=False,
    ),
    TableDescription("spearman_NIC-SIC", "grid", (NIC_SIC,), "Rank correlation of NIC and SIC per partition"),
    TableDescription("anova_SIC_NIC", "anova", (NIC_SIC,), "Effects on the rank correlation of NIC and SIC"),
    TableDescription(
        "all_partial_spearmans_NIC",
        "overall",
        (*_both("NIC"), Column("NIC", "rho_p_SIC"), Column("NIC", "rho_p_CIC")),
        "NIC and forgetting: alone, given SIC and CIC, given SIC only, given CIC only",
    ),
    TableDescription(
        "spearman_pairwise_Imbalanced_Forgetting_Coefficients",
        "overall",
        (Column("SIC-CIC", RHO), NIC_SIC, Column("CIC-NIC", RHO)),
        "Rank correlations of the coefficients in pairs",
    ),
    TableDescription(
        "controlled_experiments",
        "controlled",
        (NIC_SIC,),
        "Rank correlation of NIC and SIC of a class over re-runs with other new classes",
        intervals=False,
    ),
)
TABLES = {table.label: table for table in _ALL}

FIGURES = (
    "fig:swarm_plots_forgetting_cifar100_1",
    "fig:swarm_plots_forgetting_cifar100_2",
    "fig:swarm_plots_forgetting_tinyimagenet_1",
    "fig:swarm_plots_forgetting_tinyimagenet_2",
    "fig:SIC_CIC_NIC_across_steps_cifar",
    "fig:SIC_CIC_NIC_across_steps_tinyin",
    "fig:controlled_exps_distributions",
)


def swarm_label(dataset: str, step: int) -> str:
    return f"fig:swarm_plots_forgetting_{dataset.replace('-', '')}_{step - 1}"


def course_label(dataset: str) -> str:
    return f"fig:SIC_CIC_NIC_across_steps_{ {'cifar100': 'cifar', 'tiny-imagenet': 'tinyin'}.get(dataset, dataset) }"
