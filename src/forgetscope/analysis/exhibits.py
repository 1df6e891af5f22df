"""Every table and figure, those of the paper and those beyond it: what it is called, what it shows, and how to read it.

A new one begins here. What a table of the paper holds is read off its `columns` and `layout` (`paper.tables`); the frame of any
other exhibit is computed for its label (`results`). Pages, print, terminal and files go through the exhibits of an analysis and
look none up. Labels are those of the paper's source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Kind = Literal["table", "beyond", "data", "swarm", "course", "boxes"]
Part = Literal["tables", "figures", "more"]
Layout = Literal["overall", "grid", "anova", "weights", "controlled", "plain", "policies"]


class Column(NamedTuple):
    """A quantity and statistic of a table; `source` names the per-step numbers behind it where they are called otherwise."""

    quantity: str
    statistic: str
    source: tuple[str, str] | None = None

    @property
    def name(self) -> tuple[str, str]:
        return self.source or (self.quantity, self.statistic)


@dataclass(frozen=True)
class Exhibit:
    """kind: a table of the paper, or beyond it; data, which others show; or what a figure draws.

    layout, of a table: overall per subset; a grid of partitions with margins; an ANOVA per subset; weights or re-runs per
    partition; or plainly its frame. Values that the paper prints stand beside its tables, and the frame that `beside` names
    beside a figure. `intervals`: whether means and standard deviations come with 95 % intervals."""

    name: str
    kind: Kind
    title: str
    how: str  # to read it
    layout: Layout = "plain"
    columns: tuple[Column, ...] = ()
    intervals: bool = True
    beside: str = ""

    @property
    def part(self) -> Part:
        """Of an analysis, which holds its frame under `label`."""
        return "tables" if self.kind == "table" else "more" if self.kind in ("beyond", "data") else "figures"

    @property
    def label(self) -> str:
        return f"fig:{self.name}" if self.part == "figures" else self.name


MODEL = "all_coefficients"
PAPER_ORDER = ("cifar100", "tiny-imagenet")  # the second is the harder
RHO, RHO_P = "rho", "rho_p"
THREE = ("SIC", "CIC", "NIC")
SEVERITY = (Column("FG-R", "value"), Column("FG-HG", "value"))
NIC_SIC = Column("SIC-NIC", RHO)

_GRID = "One row per step number, retention and increment; “pooled” rows are over all levels of that factor."
_EFFECTS = "Small p: the factor matters. Partial eta squared is the share of the remaining variance that it explains."


def _both(quantity: str) -> tuple[Column, Column]:
    return Column(quantity, RHO), Column(quantity, RHO_P)


def _drop(quantity: str) -> tuple[Column, Column]:
    """Responses of an ANOVA: the correlation, and how much of it is lost when the others are controlled for."""
    return Column(quantity, RHO), Column(quantity, "rho-rho_p")


def _table(name: str, layout: Layout, columns: tuple[Column, ...], title: str, how: str, *, intervals: bool = True) -> Exhibit:
    return Exhibit(name, "table", title, how, layout, columns, intervals)


_TABLES = (
    _table("FG-R_FG-HSG_overall", "overall", SEVERITY, "Severity of imbalanced forgetting",
           "Larger is more uneven: FG-R is the most minus the least forgotten class, FG-HG the gap of halves."),
    _table("spearman_individual_coefficients", "overall",
           (*(Column(name, RHO) for name in THREE), *(Column(name, RHO_P) for name in THREE)),
           "How well each coefficient ranks past classes by forgetting, alone and given the other two",
           "1 would be a perfect ranking by forgetting; rho_p: given the other two."),
    _table("SW-LOO_protocol", "overall", (Column(MODEL, RHO), Column("SIC", RHO)),
           "How well the joint model ranks the classes of a step that it has not seen, beside raw SIC",
           "A model of the other steps ranks a step that it has not seen; beside it, raw SIC without any model.",
           intervals=False),
    _table("spearman_SIC_NIC", "overall", (NIC_SIC,), "Rank correlation of NIC and SIC over past classes",
           "Positive: classes that new ones push down are also those that their own rehearsal images mislead."),
    _table("spearman_ALL-NIC_and_NIC", "overall",
           (Column("NIC", RHO), Column("ALL-NIC", RHO), Column("NIC", RHO_P), Column("ALL-NIC", RHO_P)),
           "NIC and ALL-NIC, alone and given SIC and CIC",
           "Where NIC is the higher one, a class's own row of the last layer is the right place to look."),
    _table("spearman_interference_bias", "overall", (NIC_SIC, Column("ALL-NIC-SIC", RHO)),
           "Rank correlation of SIC with NIC and with ALL-NIC",
           "How closely NIC goes with SIC: at a class's own output node, and over the whole layer."),
    _table("FG-R_FG-HG_fine_grained", "grid", SEVERITY, "Severity of imbalanced forgetting per partition",
           f"{_GRID} Larger means more uneven."),
    _table("anova_FG-R_FG-HSG", "anova", SEVERITY, "Effects of retention and increment on FG-R and FG-HG",
           f"What retention and increment do to unevenness. {_EFFECTS}"),
    *(_table(f"spearman_{name}", "grid", _both(name), f"{name} and forgetting per partition",
             f"{_GRID} rho: {name} alone; rho_p: given {given}.")
      for name, given in (("SIC", "CIC and NIC"), ("CIC", "SIC and NIC"), ("NIC", "SIC and CIC"))),
    *(_table(f"anova_{name}", "anova", _drop(name), f"Effects on the correlation of {name} with forgetting",
             f"What changes how well {name} ranks, and how much it shares with the others. {_EFFECTS}")
      for name in THREE),
    _table("spearman_All_coef_SIC_fine_grained", "grid", (Column(MODEL, RHO), Column("SIC", RHO)),
           "The joint model and raw SIC per partition",
           f"{_GRID} Higher is better: the joint model on unseen steps, and raw SIC.", intervals=False),
    _table("anova_all_coefficients", "anova", (Column(MODEL, RHO),), "Effects on the joint model's rank correlation",
           f"What changes how well the joint model ranks. {_EFFECTS}"),
    _table("SW-LOO_protocol_MAE", "overall",
           (Column(MODEL, RHO), Column(MODEL, "mae"),
            Column("SIC", RHO, ("SIC_model", RHO)), Column("SIC", "mae", ("SIC_model", "mae"))),
           "Rank correlation and mean absolute error of the joint model and of a model with SIC alone",
           "rho: higher ranks better. mae: lower predicts closer, in units of forgetting.", intervals=False),
    _table("coefficients", "weights", tuple(Column(name, "weight") for name in THREE),
           "Standardised weights of the joint model",
           "Positive: more of it goes with more forgetting, the other two held fixed; weights compare in size."),
    _table("SW-LOO_protocol_LOG_similarity", "overall", (Column(MODEL, RHO), Column("NIC", RHO), Column("LOG-SIM", RHO)),
           "The joint model, NIC and LOG-SIM",
           "Higher ranks better; LOG-SIM is the baseline that needs no training of the step.", intervals=False),
    _table("spearman_NIC-SIC", "grid", (NIC_SIC,), "Rank correlation of NIC and SIC per partition",
           f"{_GRID} Positive: the two go together."),
    _table("anova_SIC_NIC", "anova", (NIC_SIC,), "Effects on the rank correlation of NIC and SIC",
           f"What changes how NIC and SIC go together. {_EFFECTS}"),
    _table("all_partial_spearmans_NIC", "overall", (*_both("NIC"), Column("NIC", "rho_p_SIC"), Column("NIC", "rho_p_CIC")),
           "NIC and forgetting: alone, given SIC and CIC, given SIC only, given CIC only",
           "What falls most when it is controlled for is what NIC overlaps with."),
    _table("spearman_pairwise_Imbalanced_Forgetting_Coefficients", "overall",
           (Column("SIC-CIC", RHO), NIC_SIC, Column("CIC-NIC", RHO)), "Rank correlations of the coefficients in pairs",
           "Near 0: the two coefficients tell different things about a class."),
    _table("controlled_experiments", "controlled", (NIC_SIC,),
           "Rank correlation of NIC and SIC of a class over re-runs with other new classes",
           "Positive: with nothing but the new classes changed, a class's SIC rises with its NIC.", intervals=False),
)  # fmt: skip

_MORE = (
    Exhibit("claims", "beyond", "The paper’s claims, asked of this store",
            "Confirmed where every benchmark and step confirms it, contested where any contests it."),
    Exhibit("claims_in_detail", "data", "The paper’s claims, place by place", "The number that decides, with its interval."),
    Exhibit("comparisons", "beyond", "Steps and data sets compared",
            "Welch’s tests, paired where steps share experiments; correlations are compared in Fisher’s z."),
    Exhibit("early_warning", "data", "Classes flagged rightly", "After a share of training; share 0 is before training."),
    Exhibit("flagged", "data", "Classes that would have been flagged", "After a share of training, and what became of them."),
    Exhibit("class_forgetting", "data", "Forgetting of each class", "Mean over the steps in which it is a past class."),
    Exhibit("calibration", "beyond", "Predicted and observed forgetting of unseen steps",
            "Ten groups of classes by prediction; slope 1 and intercept 0 would be perfect."),
    Exhibit("sample_sizes", "beyond", "How many experiments narrower intervals need",
            "needed_n: steps per partition for a half-width as wanted."),
    Exhibit("left_out", "beyond", "What no estimate rests on", "Counts of steps and classes that were left out, and why."),
    Exhibit("missing", "data", "What cannot be given", "And what it would take."),
    Exhibit("earliness", "data", "When rankings are as good as at the end", "The first share of training within 0.02 of it."),
    Exhibit("controlled_boxes", "data", "Spread of correlations over re-runs", "Quartiles, median and whiskers over classes."),
    Exhibit("joint_over_time", "data", "The joint model, along training", "With the first probes only, on unseen steps."),
)  # fmt: skip
POLICIES = Exhibit(  # of pairs of experiments, which need no analysis
    "policies_compared",
    "beyond",
    "Policies against {baseline}",
    "Differences are within pairs; of accuracies, more is better, of forgetting, less is.",
    "policies",
)

_DATA = {"cifar100": "CIFAR-100", "tiny-imagenet": "Tiny-ImageNet"}
_SHORT = {"cifar100": "cifar", "tiny-imagenet": "tinyin"}  # as the paper's source does in one kind of figure


def swarm_figure(dataset: str, step: int) -> Exhibit:
    return Exhibit(
        f"swarm_plots_forgetting_{dataset.replace('-', '')}_{step - 1}",
        "swarm",
        f"Forgetting of past classes in step {step}, {_DATA.get(dataset, dataset)}",
        "Each point is a past class, each column one experiment, drawn at random; the taller a column, the more uneven.",
    )


def course_figure(dataset: str) -> Exhibit:
    return Exhibit(
        f"SIC_CIC_NIC_across_steps_{_SHORT.get(dataset, dataset)}",
        "course",
        f"What predicts forgetting, along training, {_DATA.get(dataset, dataset)}",
        "Rank correlation with forgetting from the first measurements only: flat early means known early. Bands: 95\u202f%.",
    )


CONTROLLED = Exhibit(
    "controlled_exps_distributions",
    "boxes",
    "Controlled experiments: NIC and SIC of each class over re-runs",
    "Each point is a past class: its correlation of NIC and SIC over re-runs that differ in their new classes alone.",
    beside="controlled_boxes",
)
_FIGURES = (
    *(swarm_figure(data, step) for data in PAPER_ORDER for step in (2, 3)),
    *map(course_figure, PAPER_ORDER),
    CONTROLLED,
)

TABLES, MORE, FIGURES = ({exhibit.label: exhibit for exhibit in part} for part in (_TABLES, _MORE, _FIGURES))
