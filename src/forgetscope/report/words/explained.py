"""How to read each table and figure, in one line."""

from __future__ import annotations

from forgetscope.analysis.paper.descriptions import FIGURES

_GRID = "One row per step number, retention and increment; “pooled” rows are over all levels of that factor."
_EFFECTS = "Small p: the factor matters. Partial eta squared is the share of the remaining variance that it explains."
TABLES = {
    "FG-R_FG-HSG_overall": "Larger is more uneven: FG-R is the most minus the least forgotten class, FG-HG the gap of halves.",
    "spearman_individual_coefficients": "1 would be a perfect ranking by forgetting; rho_p: given the other two.",
    "SW-LOO_protocol": "A model of the other steps ranks a step that it has not seen; beside it, raw SIC without any model.",
    "spearman_SIC_NIC": "Positive: classes that new ones push down are also those that their own rehearsal images mislead.",
    "spearman_ALL-NIC_and_NIC": "Where NIC is the higher one, a class's own row of the last layer is the right place to look.",
    "spearman_interference_bias": "How closely NIC goes with SIC: at a class's own output node, and over the whole layer.",
    "FG-R_FG-HG_fine_grained": f"{_GRID} Larger means more uneven.",
    "anova_FG-R_FG-HSG": f"What retention and increment do to unevenness. {_EFFECTS}",
    "spearman_SIC": f"{_GRID} rho: SIC alone; rho_p: given CIC and NIC.",
    "spearman_CIC": f"{_GRID} rho: CIC alone; rho_p: given SIC and NIC.",
    "spearman_NIC": f"{_GRID} rho: NIC alone; rho_p: given SIC and CIC.",
    "anova_SIC": f"What changes how well SIC ranks, and how much it shares with the others. {_EFFECTS}",
    "anova_CIC": f"What changes how well CIC ranks, and how much it shares with the others. {_EFFECTS}",
    "anova_NIC": f"What changes how well NIC ranks, and how much it shares with the others. {_EFFECTS}",
    "spearman_All_coef_SIC_fine_grained": f"{_GRID} Higher is better: the joint model on unseen steps, and raw SIC.",
    "anova_all_coefficients": f"What changes how well the joint model ranks. {_EFFECTS}",
    "SW-LOO_protocol_MAE": "rho: higher ranks better. mae: lower predicts closer, in units of forgetting.",
    "coefficients": "Positive: more of it goes with more forgetting, the other two held fixed; weights compare in size.",
    "SW-LOO_protocol_LOG_similarity": "Higher ranks better; LOG-SIM is the baseline that needs no training of the step.",
    "spearman_NIC-SIC": f"{_GRID} Positive: the two go together.",
    "anova_SIC_NIC": f"What changes how NIC and SIC go together. {_EFFECTS}",
    "all_partial_spearmans_NIC": "What falls most when it is controlled for is what NIC overlaps with.",
    "spearman_pairwise_Imbalanced_Forgetting_Coefficients": "Near 0: the two coefficients tell different things about a class.",
    "controlled_experiments": "Positive: with nothing but the new classes changed, a class's SIC rises with its NIC.",
}
_DATA = {"cifar": "CIFAR-100", "cifar100": "CIFAR-100", "tinyin": "Tiny-ImageNet", "tinyimagenet": "Tiny-ImageNet"}
_SWARM = "Each point is a past class, each column one experiment, drawn at random; the taller a column, the more uneven."
_COURSE = "Rank correlation with forgetting from the first measurements only: flat early means known early. Bands: 95\u202f%."


def figure_title(label: str) -> str:
    """In words, from a label of the paper or one that is built like it."""
    if label == FIGURES[-1]:
        return "Controlled experiments: NIC and SIC of each class over re-runs"
    name = label.removeprefix("fig:")
    if name.startswith("swarm_plots_forgetting_"):
        data, _, number = name.removeprefix("swarm_plots_forgetting_").rpartition("_")
        return f"Forgetting of past classes in step {int(number) + 1}, {_DATA.get(data, data)}"
    data = name.removeprefix("SIC_CIC_NIC_across_steps_")
    return f"What predicts forgetting, along training, {_DATA.get(data, data)}"


def figure_kind(label: str) -> str:
    if label == FIGURES[-1]:
        return "boxes"
    return "swarm" if "swarm" in label else "course"


FIGURE_KINDS = {
    "swarm": _SWARM,
    "course": _COURSE,
    "boxes": "Each point is a past class: its correlation of NIC and SIC over re-runs that differ in their new classes alone.",
}
