"""What an analysis shows, in a few words and numbers: the headlines, what was left out, the paper's claims, what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from forgetscope.analysis.questions.advice import lacking
from forgetscope.analysis.questions.learned_classes import learned_classes
from forgetscope.analysis.rows import estimate_of, matching, records
from forgetscope.report.words.headlines import Headline, headlines, moment
from forgetscope.report.words.lacks import lack_sentence
from forgetscope.report.words.notation import PLAIN

if TYPE_CHECKING:
    from forgetscope.analysis.inputs.samples import Collected
    from forgetscope.analysis.results import Analysis

LEFT_OUT = {
    "diverged": ("diverged step", "diverged steps"),
    "no_value": ("step without a ranking", "steps without a ranking"),
    "undefined": ("class never learned", "classes never learned"),
    "unmeasured": ("class not measured", "classes not measured"),
    "recorded_again": ("further recording of a training that counts", "further recordings of trainings that count"),
}
MADE_UP = "Numbers of this store are made up (simulated), so nothing here speaks for or against the paper's claims."
UNLEARNED = "The paper's claims are not judged: where so many classes were barely learned, nothing is concluded."


@dataclass(frozen=True)
class Passage:
    """What is said about one subject: paragraphs of sentences. A title alone says it all."""

    title: str
    paragraphs: tuple[tuple[str, ...], ...] = ()


def passages(analysis: Analysis) -> list[Passage]:
    """What was forgotten, what predicts it and how sure that is; then the paper's claims, and what is missing."""
    found = [Passage(f"{one.title}{one.pooled}", _told_first(one)) for one in headlines(analysis)]
    return [*found, *map(Passage, left_out_sentences(analysis)), *_claims(analysis), *_missing(analysis)]


def _told_first(headline: Headline) -> tuple[tuple[str, ...], ...]:
    """How many classes were barely learned comes before all else, then what a newcomer understands, then all findings."""
    opened = tuple(filter(None, (headline.caution, headline.lead, headline.predicted)))
    return tuple(part for part in (opened, tuple(headline.sentences)) if part)


def reading_lines(analysis: Analysis) -> list[str]:
    """The same for a terminal."""
    lines = []
    for passage in passages(analysis):
        lines.append(passage.title)
        for first, *others in passage.paragraphs:
            lines += [f"  {first}", *(f"    {sentence}" for sentence in others)]
    return lines


def add_words(more: dict[str, pd.DataFrame], collection: Collected) -> None:
    """To the frames that promise them: the `sentence` of each claim, the `moment` of a flagged class, what is missing."""
    places = more["claims_in_detail"].groupby("claim", sort=False)
    told = {claim: "; ".join(f"{_place(row)}, n = {row['n']}" for row in records(rows)) for claim, rows in places}
    claims, flagged = more["claims"], more["flagged"]
    verdicts = zip(claims["claim"], claims["verdict"], strict=True)
    claims.insert(2, "sentence", [f"{claim}: {verdict} ({told[claim]})." for claim, verdict in verdicts])
    probes = {(s.benchmark, s.policy, str(number)): s.probes(number) for s in collection.samples for number in s.numbers}
    shares = zip(*(flagged[name] for name in ("benchmark", "policy", "subset", "share")), strict=True)
    moments = [moment(share, probes[benchmark, policy, step]) for benchmark, policy, step, share in shares]
    flagged.insert(list(flagged.columns).index("share") + 1, "moment", moments)
    more["missing"] = pd.DataFrame([{"what": lack_sentence(lack)} for lack in lacking(collection)], columns=["what"])


def left_out_sentences(analysis: Analysis) -> list[str]:
    """What no estimate rests on, where anything was left out."""
    frame = analysis.more.get("left_out")
    said = []
    for row in records(frame) if frame is not None else ():
        told = [f"{int(row[name])} {one if row[name] == 1 else many}" for name, (one, many) in LEFT_OUT.items() if row[name]]
        if told:
            policy = "" if row["policy"] == "uniform" else f", {row['policy']}"
            said.append(f"Left out of {row['benchmark']}{policy}, step {row['subset']}: {', '.join(told)}.")
    return said


def claim_sentences(analysis: Analysis) -> list[str]:
    """Every claim with its verdict; or why none is shown."""
    reason = unjudged(analysis)
    return [reason] if reason else [str(sentence) for sentence in analysis.more["claims"]["sentence"]]


def unjudged(analysis: Analysis) -> str:
    """Why no verdict on the paper's claims is shown, if none is."""
    if analysis.collection.simulated:
        return MADE_UP
    samples = analysis.collection.samples
    known = all(learned_classes(sample, step).conclusive for sample in samples for step in sample.numbers)
    return "" if known else UNLEARNED


def _claims(analysis: Analysis) -> Iterator[Passage]:
    frame = analysis.more.get("claims")
    if frame is None or frame.empty:
        return
    if reason := unjudged(analysis):
        yield Passage(reason)
        return
    counts = frame["verdict"].value_counts()
    told = ", ".join(f"{int(counts.get(word, 0))} {word}" for word in ("confirmed", "contested", "undecided"))
    frame = analysis.more.get("claims_in_detail", pd.DataFrame({"verdict": [], "claim": []}))
    detail = matching(frame, verdict="contested")
    contested = {str(claim): records(rows) for claim, rows in detail.groupby("claim", sort=False)}
    said = ["Each is judged by its own 95 % interval; with so many, some come out wrong by chance."]
    said += [f"Contested: {claim} ({'; '.join(map(_place, rows))})." for claim, rows in contested.items()]
    title = f"The paper's claims, each where it can be asked: {told} (all are listed under claims)."
    yield Passage(title, tuple((sentence,) for sentence in said))


def _place(row: dict[str, Any]) -> str:
    policy = "" if row["policy"] == "uniform" else f", {row['policy']}"
    what, _, statistic = row["what"].rpartition(" ")
    value = f"{PLAIN.symbol(statistic)} {PLAIN.estimate(estimate_of(row, 'value'))}"
    return " ".join(filter(None, (f"{row['benchmark']}{policy} step {row['subset']}:", what, value)))


def _missing(analysis: Analysis) -> Iterator[Passage]:
    frame = analysis.more.get("missing")
    if frame is not None:
        yield from (Passage(f"Missing: {text}") for text in frame["what"].tolist())
