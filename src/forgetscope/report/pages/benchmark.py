"""The page of a whole store: one HTML file from the headline to the evidence, without any request.

Python says what was found and embeds frames as compressed JSON; the scripts in `assets/` inflate them when a section is shown
and draw them, so that charts follow the reader's screen and colour scheme. Class names are untrusted: they reach the page
through autoescaping, `textContent` and `plain()` only, and the page's Content-Security-Policy runs no script but those whose
digests it names.
"""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from forgetscope.analysis.exhibits.figures import FIGURES
from forgetscope.analysis.exhibits.tables import TABLES
from forgetscope.analysis.inputs.samples import Sample
from forgetscope.analysis.questions.example import Example
from forgetscope.analysis.questions.learned_classes import learned_classes
from forgetscope.analysis.results import Analysis
from forgetscope.report.exhibited import Shown, exhibited
from forgetscope.report.pages.compared import compared_boards, compared_policies, policy_table, side_by_side, verdicts
from forgetscope.report.pages.explorer import Explorer
from forgetscope.report.pages.packing import asset, packed, packed_frame, page, script_digest
from forgetscope.report.pages.picture import Picture, picture
from forgetscope.report.pages.provenance import Provenance
from forgetscope.report.typeset.latex import latex_beside, latex_table
from forgetscope.report.words import methods, reading
from forgetscope.report.words.arms import barely_learned_beside
from forgetscope.report.words.captions import notes, share_text
from forgetscope.report.words.headlines import Headline, headlines

TITLES = {"cifar100": "CIFAR-100", "tiny-imagenet": "Tiny-ImageNet"}  # of data sets, as figures say them
SCRIPTS = (
    *("core.js", "terms.js", "downloads.js", "tables.js", "charts.js"),
    *("panel.js", "explorer.js", "warning.js", "compared.js", "page.js"),
)
STYLES = ("base.css", "terms.css", "explorer.css", "benchmark.css", "print.css")


def render_benchmark(analysis: Analysis, explorer: Explorer, provenance: Provenance) -> str:
    from plotly.offline import get_plotlyjs

    script, plotly = "\n".join(asset(name) for name in SCRIPTS), get_plotlyjs()
    samples = analysis.collection.samples
    simulated = analysis.collection.simulated
    unjudged = reading.unjudged(analysis)
    hidden = {"claims"} if unjudged else set[str]()
    found = [shown for shown in exhibited(analysis) if shown.exhibit.kind != "data" and shown.exhibit.label not in hidden]
    compared = policy_table(provenance.policies, provenance.apart) if provenance.policies else None
    ranked = side_by_side(provenance.boards) if provenance.boards else None
    said = verdicts(provenance.boards)
    in_pairs = [shown for shown in (compared, ranked) if shown is not None]
    return page(
        "benchmark.html.j2",
        title=", ".join(dict.fromkeys(TITLES.get(sample.dataset, sample.dataset) for sample in samples)) or "empty store",
        simulated=simulated,
        openings=_openings(analysis),
        unjudged=unjudged,
        claims={} if unjudged else analysis.more["claims"]["verdict"].value_counts().to_dict(),
        groups=_grouped(shown for shown in found if shown.exhibit.part != "figures"),
        figures=[_article(shown) for shown in found if shown.exhibit.part == "figures"],
        missing=_missing(analysis),
        policies=provenance.policies,
        policy_cautions=barely_learned_beside(provenance.policies),
        policy_exhibit=_article(compared) if compared else None,
        policies_note=provenance.note,
        ranked_exhibit=_article(ranked) if ranked else None,
        ranked_sentences=said,
        boards_baseline=" and ".join(dict.fromkeys(board.baseline for board in provenance.boards)),
        paragraphs=methods.paragraphs(analysis),
        facts=methods.facts(analysis, explorer.environments),
        commands=methods.commands(provenance.plans, provenance.unplanned),
        css="".join(map(asset, STYLES)),
        scripts=[script],
        digests=[script_digest(script), script_digest(plotly)],
        packs={
            "data-exhibits": packed({_id(one): _embedded(one, explorer) for one in (*found, *in_pairs)}),
            "data-compared": packed(
                {
                    "policies": compared_policies(provenance.policies, provenance.apart),
                    "ranked": compared_boards(provenance.boards),
                }
            ),
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


def _openings(analysis: Analysis) -> list[tuple[Headline, Picture | None, str, str]]:
    """Of each headline that says something: with its picture, the benchmark that its classes are of, and what it pools."""
    of = [(sample, step) for sample in analysis.collection.samples for step in sample.numbers]
    every = zip(headlines(analysis), of, strict=True)
    return [
        (one, _picture(one.picture, sample, step), sample.benchmark, _pooled(sample, step))
        for one, (sample, step) in every
        if one.cards
    ]


def _picture(shown: Example | None, sample: Sample, step: int) -> Picture | None:
    return None if shown is None else picture(shown, conclusive=learned_classes(sample, step).conclusive)


def _pooled(sample: Sample, step: int) -> str:
    """Which retentions and increments are in the same means; empty where there is one of each."""
    cells = sample.partitions(step)
    levels = [list(dict.fromkeys(values)) for values in zip(*((one.retention, one.increment) for one in cells), strict=True)]
    if len(cells) < 2:
        return ""
    kept, new = (" and ".join(filter(None, (", ".join(map(share_text, own[:-1])), share_text(own[-1])))) for own in levels)
    return f"Pooled over {len(cells)} partitions: {kept} kept; increments {new}."


def _embedded(shown: Shown, explorer: Explorer) -> dict[str, Any]:
    """What the page's scripts draw an exhibit from and offer for download."""
    exhibit, frame = shown.exhibit, shown.frame
    data: dict[str, Any]
    if exhibit.part == "figures":
        data = {"frame": packed_frame(_named(frame, explorer) if "class_id" in frame else frame), "kind": exhibit.kind}
        return data if shown.beside is None else data | {"boxes": packed_frame(shown.beside)}
    frame = frame.drop(columns="table", errors="ignore")
    data = {"frame": packed_frame(frame), "latex": latex_table(shown), "layout": exhibit.layout}
    if shown.beside is not None:
        data |= {"paper": packed_frame(shown.beside), "latex": f"{data['latex']}\n{latex_beside(shown)}"}
    return data


def _named(frame: pd.DataFrame, explorer: Explorer) -> pd.DataFrame:
    pairs = zip(frame["benchmark"].tolist(), frame["class_id"].tolist(), strict=True)
    return frame.assign(class_name=[explorer.names.get(pair, f"class {pair[1]}") for pair in pairs])


def _article(shown: Shown) -> dict[str, Any]:
    """An exhibit's title, how to read it, and its identifier: the paper's label, as an address can hold it."""
    exhibit, text = shown.exhibit, " ".join((shown.exhibit.how, *notes(shown)))
    return {"id": _id(shown), "label": exhibit.label, "title": exhibit.title, "text": text, "rows": len(shown.frame)}


def _grouped(tables: Iterable[Shown]) -> dict[str, list[dict[str, Any]]]:
    """By the question that they answer, those beyond the paper last; tables without rows are the last of their group."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for shown in sorted(tables, key=lambda shown: shown.exhibit.kind != "table"):
        groups.setdefault(shown.exhibit.question, []).append(_article(shown))
    return {question: sorted(articles, key=lambda one: not one["rows"]) for question, articles in groups.items()}


def _id(shown: Shown) -> str:
    return shown.exhibit.label.replace(":", "-")


def _missing(analysis: Analysis) -> list[str]:
    """What this store cannot show, a sentence each."""
    told = [f"{text[0].upper()}{text[1:]}" for text in analysis.more["missing"]["what"].tolist()]
    every = {**TABLES, **FIGURES}
    empty = [exhibit.title for label, exhibit in every.items() if (analysis.tables | analysis.figures)[label].empty]
    if empty:
        told.append(f"Nothing in the store belongs to: {'; '.join(empty)}.")
    return told
