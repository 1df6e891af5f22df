"""What is said in plain words wherever results are shown."""

import math

from forgetscope.analysis.experiments import MEASURES, Experiment, StepSummary
from forgetscope.analysis.observed import Observed
from forgetscope.characters import counted, shortened
from forgetscope.report.words.notation import PLAIN
from forgetscope.report.words.opening import barely_sentence, change
from forgetscope.report.words.units import size_text
from forgetscope.spec import RehearsalSpec
from forgetscope.store import StoredStep

Shown = Experiment | Observed
REASON = 300  # characters of a reason that are shown
UNEVEN = 0.1  # smallest FG-R that is called uneven
NOISE = (
    "by noise: FG-R and FG-HG if all past classes had been forgotten alike, by the noise of the test images alone",
    "spread: of forgetting over classes without that noise (0: none was found); reliability: the share of its variance in the "
    "observed one (below 0: classes differ less than by noise); at most: ρ of a predictor that knew the truth",
)
COUNTS = "Noise is from counts, before and after taken as independent, because single test images {why}: too high"
UNRECORDED = "were not recorded"
UNKNOWN = "may be others in every step's test data"
UNPAIRED = "of an earlier step are others, or damaged (`forgetscope store verify` names what is)"
PREDICTED = (
    "predicted: forgetting without past or test images. Its interval is meant for 95 % and too narrow: in tests it held 68 to "
    "94 % of classes when training ended, fewer where more was kept, in third steps, and early in training (docs/forecast.md)"
)
CANNOT_KNOW = (
    "Settings are what the user of a monitor says. Whether steps with equal settings agree in data, classes, network and code, "
    "and whether they are independent of each other, is not known; intervals take them as such.",
    "The paper's tables, claims and figures need partitions by increment and retention: they are made of planned steps only.",
)


def basis_of_noise(experiment: Shown) -> list[str]:
    """Why it is from counts, if it is."""
    if all(summary.paired for summary in experiment.summaries):
        return []
    if isinstance(experiment, Observed):
        return [COUNTS.format(why=UNKNOWN)]
    unrecorded = any(step.unpredicted for step in experiment.steps)
    return [COUNTS.format(why=UNRECORDED if unrecorded else UNPAIRED)]


def caution(summary: StepSummary | None) -> str:
    """What is to be said of a step before its numbers are shown; nothing where all its past classes were learned."""
    if summary is None or math.isnan(summary.mean_forgetting):
        return ""
    said = barely_sentence(summary.barely_learned, summary.past_classes, conclusive=True)
    return f"Step {summary.step}: {said}" if said else ""


def finding(experiment: Shown, summary: StepSummary | None, *, cautioned: bool = False) -> str:
    """One step in plain language: how many past classes were barely learned, how much was forgotten of the others, how
    unevenly, and how measures ranked them, of which one step says nothing for any other. cautioned: whether the first stands
    elsewhere already."""
    if isinstance(experiment, Observed):
        return " ".join([_finding(experiment, summary, cautioned), *unfinished(experiment)])
    beginning = f"{simulation(experiment)} " if experiment.simulated else ""
    ending = f" {divergence(experiment.diverged)}" if experiment.diverged is not None else ""
    return beginning + _finding(experiment, summary, cautioned) + ending


def unfinished(observed: Observed) -> list[str]:
    """What a monitor saw no end of."""
    found = [
        f"Step {step.number} is incomplete and excluded from all statistics: {(step.incomplete or '')[:REASON].rstrip('.')}."
        for step in observed.incomplete
    ]
    epochs = {step.number: counted(step.info["epochs"], "epoch") for step in observed.running}
    return found + [f"Step {number} is not finished: {ended} so far." for number, ended in epochs.items()]


def unanalysed(observed: Observed) -> list[str]:
    """What is in no mean of its steps with past classes, and why."""
    known = {summary.step for summary in observed.evaluated}
    missed = [summary.step for summary in observed.summaries if summary.step not in known]
    return [*unfinished(observed), *(f"Step {number} was not evaluated: forgetting is unknown." for number in missed)]


def simulation(experiment: Experiment) -> str:
    """That the numbers tell nothing about a network."""
    seed = (experiment.simulated or {}).get("seed")
    return f"Simulated with seed {seed}: nothing was trained, and these numbers follow a relation that was chosen beforehand."


def divergence(step: StoredStep) -> str:
    """When the training of a step broke down."""
    facts = step.divergence or {}
    return f"Step {step.spec.step} diverged at iteration {facts.get('iteration')} and is excluded from all statistics."


def _finding(experiment: Shown, summary: StepSummary | None, cautioned: bool) -> str:
    if summary is None:
        done = "Only one step has been run" if experiment.steps else "No step came to its end"
        return f"{done}: there are no past classes yet, so nothing can be forgotten."
    if math.isnan(summary.mean_forgetting) and isinstance(experiment, Observed):
        evaluated = experiment.numbered(summary.step).unpredicted is None
        reason = "no past class was evaluated when it was learned" if evaluated else "the step was not evaluated"
        return f"Step {summary.step}: forgetting is unknown, because {reason}."
    if math.isnan(summary.mean_forgetting):
        return f"Step {summary.step}: no past class had been learned, so there is nothing to forget."
    said = (
        "" if cautioned else barely_sentence(summary.barely_learned, summary.past_classes, conclusive=True),
        _forgotten(experiment, summary),
        *((_ranked(summary), _forecast(summary)) if not summary.barely_learned else ()),
    )
    return f"Step {summary.step}: {' '.join(filter(None, said))}"


def _forgotten(experiment: Shown, summary: StepSummary) -> str:
    """Of the past classes that were learned."""
    past = experiment.past_classes(summary.step).dropna(subset="forgetting")
    past, of = past[~past["barely_learned"]], summary.of_learned
    if past.empty:
        return f"Accuracy on past classes was {PLAIN.percent(summary.accuracy_when_learned)} when they were new."
    most, least = past.iloc[0], past.iloc[-1]
    one = len(past) == 1
    others = f"The other past class{'' if one else 'es'}" if summary.barely_learned else "past classes"
    if one and not summary.barely_learned:
        others = "its past class" if summary.past_classes == 1 else "the past class whose forgetting is known"
    then, now = (PLAIN.percent(of[name]) for name in ("accuracy_when_learned", "accuracy_of_past"))
    lost = change(of["mean_forgetting"], f"of {'its' if one else 'their'} accuracy")
    sentence = f"{others} {lost}{'' if one else ' on average'} ({then} when learned, {now} now)"
    if len(past) > 1:
        manner = "but unevenly" if of["forgetting_range"] >= UNEVEN else "and fairly evenly"
        if of["forgetting_range"] <= of["range_floor"]:
            manner = "no more unevenly than the noise of their test images makes it look"
        extremes = ", ".join(f"{shortened(row['class_name'])} {change(float(row['forgetting']))}" for row in (most, least))
        by_noise = "" if math.isnan(of["range_floor"]) else f", {PLAIN.number(of['range_floor'])} by noise alone"
        sentence += f", {manner}: {extremes} (FG-R {PLAIN.number(of['forgetting_range'])}{by_noise})"
    return f"{sentence}."


def _ranked(summary: StepSummary) -> str:
    known = {name: rho for name, rho in summary.correlations.items() if not math.isnan(rho)}
    if not known:
        return ""
    told = ", ".join(f"{MEASURES[name]} {PLAIN.number(rho)}" for name, rho in known.items())
    classes = counted(summary.ranked_classes, "past class")
    return f"Rank correlations with forgetting: {told}; one step of {classes} says nothing about which measure predicts it."


def _forecast(summary: StepSummary) -> str:
    """How good the forecast was, where there is one."""
    if not summary.forecast or math.isnan(summary.forecast["error"]):
        return ""
    rho, known, error, share = (summary.forecast[name] for name in ("rho", "ranked", "error", "covered"))
    whom = "them" if known == summary.ranked_classes else f"{known:.0f} of them"
    ranked = "" if math.isnan(rho) else f"ranked {whom} with ρ = {PLAIN.number(rho)} and "
    held = "" if math.isnan(share) else f"; {PLAIN.percent(share)} of the classes lie in its intervals, test noise added"
    return f"The forecast, without past images, {ranked}missed by {PLAIN.number(error)} on average{held}."


def budget(rehearsal: RehearsalSpec) -> str:
    """How much is kept of past classes, and how it is divided where it is not by class size."""
    if rehearsal.retention is not None:
        size = f"{100 * rehearsal.retention:g}\u202f%"
    elif rehearsal.memory_bytes is not None:
        size = size_text(rehearsal.memory_bytes)
    else:
        size = counted(rehearsal.memory or 0, "image")
    return size if rehearsal.quota is None else f"{size}, {rehearsal.quota}"
