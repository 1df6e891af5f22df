"""The page of a whole store: one HTML file from the headline to the evidence, without any request.

Python says what was found and embeds frames as compressed JSON; the scripts in `assets/` inflate them when a section is shown
and draw them, so that charts follow the reader's screen and colour scheme. Class names are untrusted: they reach the page
through autoescaping, `textContent` and `plain()` only, and the page's Content-Security-Policy runs no script but those whose
digests it names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from forgetscope.analysis.headline import headlines
from forgetscope.analysis.paper.descriptions import FIGURES, TABLES
from forgetscope.analysis.paper.printed import beside_paper
from forgetscope.analysis.questions.policies import QUANTITIES, PolicyComparison
from forgetscope.analysis.results import Analysis
from forgetscope.report.pages.explorer import Explorer
from forgetscope.report.pages.packing import asset, packed, packed_frame, script_digest
from forgetscope.report.pages.provenance import Provenance
from forgetscope.report.typeset.latex import latex_beside, latex_table
from forgetscope.report.typeset.latex_frame import latex_frame
from forgetscope.report.typeset.layout import CODING
from forgetscope.report.words import explained, methods

BEYOND = {
    "claims": (
        "The paper’s claims, asked of this store",
        "Confirmed where every benchmark and step confirms it, contested where any contests it.",
    ),
    "comparisons": (
        "Steps and data sets compared",
        "Welch’s tests, paired where steps share experiments; correlations are compared in Fisher’s z.",
    ),
    "calibration": (
        "Predicted and observed forgetting of unseen steps",
        "Ten groups of classes by prediction; slope 1 and intercept 0 would be perfect.",
    ),
    "sample_sizes": (
        "How many experiments narrower intervals need",
        "needed_n: steps per partition for a half-width as wanted.",
    ),
    "left_out": ("What no estimate rests on", "Counts of steps and classes that were left out, and why."),
}
POLICIES = "Differences are within pairs; of accuracies, more is better, of forgetting, less is."
SCRIPTS = ("core.js", "tables.js", "charts.js", "explorer.js", "warning.js", "page.js")


def render_benchmark(analysis: Analysis, explorer: Explorer, provenance: Provenance) -> str:
    from jinja2 import Environment, StrictUndefined
    from plotly.offline import get_plotlyjs

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    script, plotly = "\n".join(asset(name) for name in SCRIPTS), get_plotlyjs()
    samples = analysis.collection.samples
    exhibits = _exhibits(analysis, explorer, provenance.policies)
    return environment.from_string(asset("benchmark.html.j2")).render(
        title=", ".join(dict.fromkeys(sample.benchmark for sample in samples)) or "empty store",
        simulated=analysis.collection.simulated,
        headlines=[headline for headline in headlines(analysis) if headline.cards],
        claims=analysis.more["claims"]["verdict"].value_counts().to_dict(),
        tables=[exhibit for exhibit in exhibits if exhibit["kind"] == "table"],
        beyond=[exhibit for exhibit in exhibits if exhibit["kind"] == "beyond"],
        figures=[exhibit for exhibit in exhibits if exhibit["kind"] in ("swarm", "course", "boxes")],
        missing=_missing(analysis),
        policies=provenance.policies,
        policy_exhibit=next((exhibit for exhibit in exhibits if exhibit["kind"] == "policies"), None),
        policies_note=provenance.note,
        paragraphs=methods.paragraphs(analysis),
        facts=methods.facts(analysis, explorer.environments),
        commands=methods.commands(provenance.plans, provenance.unplanned),
        css=asset("base.css") + asset("explorer.css") + asset("benchmark.css"),
        explorer_markup=asset("explorer.html.j2"),
        script=script,
        digests=[script_digest(script), script_digest(plotly)],
        packs={
            "data-exhibits": packed({exhibit["id"]: exhibit["data"] for exhibit in exhibits}),
            "data-warning": packed(
                {
                    "flagged": packed_frame(_named(analysis.more["flagged"], explorer)),
                    "measured": packed_frame(analysis.more["early_warning"]),
                }
            ),
            **explorer.embedded(),
            "plotly": packed(plotly),
        },
    )


def _exhibits(analysis: Analysis, explorer: Explorer, policies: Sequence[PolicyComparison]) -> list[dict[str, Any]]:
    """Everything that has a link to itself, a line on how to read it, and downloads."""
    beside = beside_paper(analysis.tables, analysis.collection)
    found = []
    for label, frame in analysis.tables.items():
        description = TABLES[label]
        data: dict[str, Any] = {
            "frame": packed_frame(frame.drop(columns="table")),
            "latex": latex_table(label, frame),
            "layout": description.layout,
        }
        if label in beside:
            data["paper"] = packed_frame(beside[label])
            data["latex"] += "\n" + latex_beside(label, frame, beside[label])
        text = explained.TABLES[label]
        if label in beside and description.layout == "anova" and analysis.coding == "sum":
            text += f" {CODING}"
        found.append(_exhibit("table", label, description.title, text, data, len(frame)))
    for label, (title, text) in BEYOND.items():
        found.append(_plain_exhibit("beyond", label, title, text, analysis.more[label], "plain"))
    if policies:
        title = f"Policies against {policies[0].baseline}"
        found.append(_plain_exhibit("policies", "policies_compared", title, POLICIES, _policies(policies), "policies"))
    for label, frame in analysis.figures.items():
        kind = explained.figure_kind(label)
        title, text = explained.figure_title(label), explained.FIGURE_KINDS[kind]
        shown = _named(frame, explorer) if "class_id" in frame else frame
        data = {"frame": packed_frame(shown), "kind": kind}
        if kind == "boxes":
            data["boxes"] = packed_frame(analysis.more["controlled_boxes"])
        found.append(_exhibit(kind, label, title, text, data, len(frame)))
    return found


def _named(frame: pd.DataFrame, explorer: Explorer) -> pd.DataFrame:
    pairs = zip(frame["benchmark"].tolist(), frame["class_id"].tolist(), strict=True)
    return frame.assign(class_name=[explorer.names.get(pair, f"class {pair[1]}") for pair in pairs])


def _plain_exhibit(kind: str, label: str, title: str, text: str, frame: pd.DataFrame, layout: str) -> dict[str, Any]:
    data = {"frame": packed_frame(frame), "latex": latex_frame(label, title, frame), "layout": layout}
    return _exhibit(kind, label, title, text, data, len(frame))


def _exhibit(kind: str, label: str, title: str, text: str, data: dict[str, Any], rows: int) -> dict[str, Any]:
    """The identifier is the paper's label, as an address can hold it."""
    id = label.replace(":", "-")
    return {"kind": kind, "id": id, "label": label, "title": title, "text": text, "data": data, "rows": rows}


def _policies(rows: Sequence[PolicyComparison]) -> pd.DataFrame:
    """A row per step, quantity and policy."""
    found = []
    for step in dict.fromkeys(row.step for row in rows):
        for name, title in QUANTITIES.items():
            for row in (row for row in rows if row.step == step):
                mean, difference = row.means[name], row.differences[name]
                found.append(
                    {
                        **{"subset": str(step), "quantity": title, "policy": row.policy},
                        **{"mean": mean.value, "mean_lo": mean.low, "mean_hi": mean.high},
                        **{"difference": difference.value, "difference_lo": difference.low, "difference_hi": difference.high},
                        **{"n": row.pairs, "diverged": row.diverged},
                    }
                )
    return pd.DataFrame(found)


def _missing(analysis: Analysis) -> list[str]:
    """What this store cannot show, a sentence each."""
    told = [f"{text[0].upper()}{text[1:]}" for text in analysis.more["missing"]["what"].tolist()]
    empty = [label for label in (*TABLES, *FIGURES) if (analysis.tables | analysis.figures)[label].empty]
    if empty:
        told.append(f"Nothing in the store belongs to {', '.join(empty)}.")
    return told
