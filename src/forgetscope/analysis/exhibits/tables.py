"""Every table, of the paper and beyond it: a new one begins here. Labels of the paper's are those of its source."""

from forgetscope.analysis.exhibits.exhibit import MODEL, RHO, RHO_P, RHO_P_ALL, THREE, Column, Exhibit, Layout

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
           (*(Column(name, RHO) for name in THREE), *(Column(name, RHO_P, paper=(name, RHO_P_ALL)) for name in THREE[:2]),
            Column("NIC", RHO_P)),
           "How well each coefficient ranks past classes by forgetting, alone and given the others",
           "1 would be a perfect ranking by forgetting; ρₚ: given the others."),
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
             f"{_GRID} ρ: {name} alone; ρₚ: given {given}.")
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
           "ρ: higher ranks better. mae: lower predicts closer, in units of forgetting.", intervals=False),
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
    Exhibit("noise", "beyond", "How much of it is noise of the test images",
            "By noise: FG-R and FG-HG if all past classes were forgotten alike. Spread: root of the variance of forgetting "
            "between classes without that noise, 0 where none was found; reliability: its share of the whole variance. "
            "Ceiling: the rank correlation of a predictor that knew the true forgetting.", "noise"),
    Exhibit("forecasts", "beyond", "How good forecasts without past images were, beside coefficients that see them",
            "Forecast, SIC, CIC, NIC: mean rank correlation with forgetting, over the same steps, and in each over the classes "
            "of which all four are known (classes: how many, on average). Error: mean absolute error of the forecast. Covered: "
            "share of classes within their interval, the noise of test images added; 0.95 is wanted. "
            "Estimates: mean rank correlation with the exact coefficients."),
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

SIDE_BY_SIDE = Exhibit(  # of whatever is in pairs with plain replay
    "methods_side_by_side",
    "beyond",
    "Methods, policies and calibrations side by side",
    "Most even first: matched is the true variance of forgetting between classes at matched mean FG, minus the baseline’s, "
    "with its 95 % interval; below 0 is more even. What could not be matched in two pairs has none, and comes last. Spread is "
    "its root as trained, without the noise of test images. Pairs in which training diverged are in no other number; the "
    "baseline’s means are over the pairs of the row.",
    "plain",
)

TABLES, MORE = ({exhibit.label: exhibit for exhibit in part} for part in (_TABLES, _MORE))
