"""Every figure: a new one begins here. Labels are those of the paper's source."""

from forgetscope.analysis.exhibits.exhibit import PAPER_ORDER, Exhibit

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
        "Rank correlation with forgetting from the first measurements only: flat early means known early. Bands: one standard "
        "deviation over steps, and within it the 95\u202f% interval.",
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
FIGURES = {exhibit.label: exhibit for exhibit in _FIGURES}
