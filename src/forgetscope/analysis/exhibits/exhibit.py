"""What an exhibit is: how a table or figure is called, what it shows, and how to read it."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

MODEL = "all_coefficients"
PAPER_ORDER = ("cifar100", "tiny-imagenet")  # the second is the harder
RHO, RHO_P, RHO_P_ALL = "rho", "rho_p", "rho_p_all"  # alone, given the other two of SIC, CIC and NIC, given ALL-NIC too
THREE = ("SIC", "CIC", "NIC")

Kind = Literal["table", "beyond", "data", "swarm", "course", "boxes"]
Part = Literal["tables", "figures", "more"]
Layout = Literal["overall", "grid", "anova", "weights", "controlled", "plain", "policies", "noise"]


class Column(NamedTuple):
    """A quantity and statistic of a table; `source` names the per-step numbers behind it where they are called otherwise, and
    `paper` those that the paper's own table shows under this name."""

    quantity: str
    statistic: str
    source: tuple[str, str] | None = None
    paper: tuple[str, str] | None = None

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
    def question(self) -> str:
        """What a table is about, by which pages group them."""
        quantities = {column.quantity for column in self.columns}
        if self.kind != "table":
            return "Beyond the paper"
        if self.layout == "anova":
            return "What retention and increment change (ANOVA)"
        if quantities <= {"FG-R", "FG-HG"}:
            return "How uneven forgetting is"
        if MODEL in quantities or self.layout == "weights":
            return "How much they predict jointly"
        return "What predicts it" if quantities <= {*THREE, "ALL-NIC"} else "How the coefficients go together"

    @property
    def label(self) -> str:
        return f"fig:{self.name}" if self.part == "figures" else self.name
