"""What tables and figures for print say of themselves: what they show, what they rest on, and what was left out."""

from collections.abc import Iterator

import pandas as pd

from forgetscope.analysis.inputs.samples import Collected
from forgetscope.analysis.rows import matching, records
from forgetscope.characters import counted
from forgetscope.report.exhibited import Shown
from forgetscope.report.words.notation import PLAIN

EMPTY = "Nothing in the store belongs here."
CODING = "The paper codes factors by treatment, ours sum to zero: main effects are different questions."
GIVEN = "The others are the other two of SIC, CIC and NIC; the paper’s table controls SIC and CIC for ALL-NIC too."
GIVEN_ALL = "The others are the other two of SIC, CIC and NIC, and for SIC and CIC also ALL-NIC, as in the paper’s table."
LOST = {
    "diverged": "diverged steps",
    "no_value": "values undefined",
    "undefined": "classes never learned",
    "unmeasured": "classes not measured",
}
WEIGHTS = "With 95\u202f% intervals: Wald’s, with Student’s t of steps − 1."
INDEPENDENT = "which take steps as independent, as the paper’s do"
SIMULATED = "Simulated: nothing was trained."


def caption(shown: Shown) -> str:
    """Of a table of the paper."""
    exhibit, frame = shown.exhibit, shown.frame
    parts = [f"{exhibit.title}."]
    if exhibit.layout == "anova":
        kind = "treatment" if len(frame) and frame["coding"].iloc[0] == "treatment" else "sum-to-zero"
        parts.append(f"Type-III two-way ANOVA, HC3, {kind} coding of factors.")
    elif exhibit.layout == "noise":
        parts += [exhibit.how, *(f"From {basis}." for basis in dict.fromkeys(frame["basis"]) if basis)]
    elif exhibit.layout == "weights":
        parts += [WEIGHTS] if len(frame) else []
    else:
        parts.append("Mean ± standard deviation" + (f" with 95\u202f% intervals, {INDEPENDENT}." if exhibit.intervals else "."))
        parts += notes(shown)
    parts += _noise_alone(shown)
    if len(frame) and frame["simulated"].any():
        parts.append(SIMULATED)
    lost = {words: int(frame[name].max()) for name, words in LOST.items() if name in frame} if len(frame) else {}
    if any(lost.values()):
        parts.append(f"Left out at most, per entry: {', '.join(f'{n} {words}' for words, n in lost.items() if n)}.")
    return " ".join(parts)


def caption_beside(shown: Shown, beside: pd.DataFrame) -> str:
    """Of the same table beside what the paper prints; in how many places intervals overlap."""
    parts = [f"Ours beside what the paper prints: {shown.exhibit.title}."]
    if shown.exhibit.layout == "anova":
        parts.append("Partial eta squared is compared.")
    elif shown.exhibit.layout != "weights":
        known = beside["overlap"].ne("")
        parts.append("Mean ± standard deviation" + (" (95\u202f% interval of the mean)." if known.any() else "."))
        if known.any():
            parts.append(f"{beside['overlap'].eq('yes').sum()} of {known.sum()} pairs of intervals overlap.")
    parts += notes(shown)
    if shown.frame["simulated"].any():
        parts.append(SIMULATED)
    return " ".join(parts)


def _noise_alone(shown: Shown) -> Iterator[str]:
    """What the noise of test images alone would show, of a table with FG-R and FG-HG."""
    if shown.noise is None or not len(shown.frame) or not {"FG-R", "FG-HG"} <= set(shown.frame["quantity"]):
        return
    told = [
        f"{PLAIN.number(row['FG-R_floor'])} and {PLAIN.number(row['FG-HG_floor'])} (step {row['subset']}, {row['benchmark']})"
        for row in records(matching(shown.noise, rehearsal_pct="", class_pct=""))
        if row["n"]
    ]
    if told:
        yield f"By noise of the test images alone, FG-R and FG-HG would be {'; '.join(told)}."


def notes(shown: Shown) -> list[str]:
    """Where the paper's numbers answer another question than those that they stand beside, and which one partial ones do."""
    if any(column.paper for column in shown.exhibit.columns):
        return [GIVEN_ALL if shown.frame["given"].str.contains("ALL-NIC").any() else GIVEN]
    other = shown.exhibit.layout == "anova" and shown.beside is not None and shown.frame["coding"].eq("sum").any()
    return [CODING] if other else []


def swarms_caption(frame: pd.DataFrame) -> str:
    n = int(frame["forgetting"].isna().sum())
    lost = f" {counted(n, 'class', 'that was never learned is/that were never learned are')} not drawn." if n else ""
    return (
        f"Forgetting FG of past classes in steps {frame['subset'].iloc[0]} of {benchmark_title(frame)}. A panel per partition: "
        "share of classes that are new (columns) and share of images that is kept (rows). A swarm per step, drawn at random; "
        f"a dot per past class. 1 is complete forgetting, below 0 accuracy rose.{lost}"
    )


def course_caption(frame: pd.DataFrame) -> str:
    final = frame[(frame["quantity"] == "SIC") & (frame["statistic"] == "rho")].groupby("subset", sort=False).tail(1)
    counts = ", ".join(f"{row['n']} in step {row['subset']}" for row in records(final) if "_" not in row["subset"])
    ends = ", before training and at its end" if frame["probes"].max() == 2 else ""
    return (
        f"How well SIC, CIC and NIC rank the past classes of {benchmark_title(frame)} by forgetting if only the first probes "
        "of a step enter them, steps of all retentions taken together: means of Spearman's ρ and of partial ρₚ (dashed), given "
        "the other two. Dark bands: "
        f"95\u202f% intervals, {INDEPENDENT}; light ones: "
        f"standard deviations over steps ({counts}; {int(frame['probes'].max())} probes{ends}). "
        "Dotted, upright: a quarter of training."
    )


def boxes_caption(frame: pd.DataFrame) -> str:
    n = int(frame["rho"].isna().sum())
    lost = f" {counted(n, 'class', 'without a correlation is/without a correlation are')} not drawn." if n else ""
    return (
        f"Controlled experiments: Spearman's ρ of NIC and SIC of a past class over at most {int(frame['runs'].max())} runs of "
        "a step that differ in nothing but their new classes. A dot per past class; boxes show quartiles and median, whiskers "
        f"the last values within 1.5 times the distance of the quartiles.{lost}"
    )


def origin(collection: Collected, frame: pd.DataFrame) -> str:
    """That a figure, or a part of it, was simulated."""
    simulated = {sample.benchmark for sample in collection.samples if sample.simulated}
    found = [name for name in dict.fromkeys(frame["benchmark"]) if name in simulated]
    which = "" if len(found) == frame["benchmark"].nunique() else f" ({', '.join(found)})"
    return f" Simulated{which}: nothing was trained." if found else ""


def benchmark_title(frame: pd.DataFrame) -> str:
    """Of the benchmark and policy that all rows have in common; the usual policy is not worth a word."""
    benchmark, policy = str(frame["benchmark"].iloc[0]), str(frame["policy"].iloc[0])
    return benchmark if policy == "uniform" else f"{benchmark}, {policy}"


def subset_text(subset: str) -> str:
    """A step number, and the increments that it is restricted to."""
    step, *increments = subset.split("_")
    return f"step {step}" + (f", increments {', '.join(increments)}\u202f%" if increments else "")


def share_text(level: str) -> str:
    """A level of increment or retention: a percentage, or what it says."""
    return level if " " in level else f"{level}\u202f%"
