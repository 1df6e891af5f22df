"""Experiments and stores as tables on a terminal."""

import math
import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from forgetscope.analysis.experiments import (
    AVERAGED,
    BEYOND_NOISE,
    FORESEEN,
    MEASURES,
    Experiment,
    Overview,
    StepSummary,
    policy_names,
)
from forgetscope.analysis.questions.policies import FLOORS, MEANS, PolicyComparison
from forgetscope.analysis.statistics.estimates import Estimate
from forgetscope.characters import counted, shortened
from forgetscope.data.images import DataSet
from forgetscope.report.terminal.columns import make_table, plain, titled
from forgetscope.report.words import calibrated, own_loss
from forgetscope.report.words.arms import barely_learned_beside
from forgetscope.report.words.findings import PREDICTED, Shown, basis_of_noise, budget, caution, finding
from forgetscope.report.words.notation import PLAIN

MEASURED = ("probes", "probe images", "forecast")  # settings that change no training
NAMED = 5  # classes of which something is missing for the same reason
LISTED = 20  # experiments of a large store that are listed one by one
RECORDED_AGAIN = (
    "Of {steps} the training is recorded by another step too, measured or kept otherwise. It counts once in a mean: as it was "
    "measured most exactly, then as it was committed last."
)
IN_A_MEAN = (
    "ρ of 1 or −1 over n classes counts in a mean as 1 − 6 / (n³ − n), 0.90 of four classes ({perfect} of those averaged); "
    "where no value differs from another there is no interval"
)
ESTIMATED = "SIC, CIC, NIC: estimated from some images of each class; standard errors are in its table (docs/probe.md)"
BARELY = "†"
UNLEARNED = f"{BARELY}  of the last step, past classes were barely learned: nothing is to be concluded from its numbers"
OVER_SEEDS = "Means over experiments that differ in seed and classes only, with 95 % intervals"


def experiment_view(experiment: Shown, step: int | None = None, *, cautioned: bool = False) -> RenderableType:
    """The past classes of one step (default: the last), most forgotten first, and a line per step. cautioned: whether
    `caution_view` stands above it already."""
    if not experiment.summaries:
        return plain(finding(experiment, None))
    shown = _shown(experiment, step)
    assert shown is not None
    parts = (
        *([] if cautioned else [part for view in caution_view(experiment, step) for part in (view, Text())]),
        _classes(experiment, shown.step),
        Text(),
        _summary(experiment),
        Text(),
        *_own_loss(experiment, shown),
        *_calibrated(experiment, shown),
    )
    return Group(*parts, plain(finding(experiment, shown, cautioned=True)))


def caution_view(experiment: Shown, step: int | None = None) -> list[RenderableType]:
    """What stands above the tables, if anything does."""
    said = caution(_shown(experiment, step))
    return [plain(said)] if said else []


def _shown(experiment: Shown, step: int | None) -> StepSummary | None:
    """The step that is shown."""
    summaries = experiment.summaries
    return next((summary for summary in summaries if summary.step == step), summaries[-1] if summaries else None)


def store_view(found: Sequence[Experiment], reruns: int = 0, repeated: int = 0) -> RenderableType:
    """What a store holds: one line per experiment, latest last. reruns: how many of controlled experiments are not among them;
    repeated: of how many steps the training is recorded by another one too."""
    policies, methods = policy_names(found), [experiment.chain[-1].setting.method[0] for experiment in found]
    of_all = ("kept", "epochs", "seed", "learned", "now", "mean FG", "FG-R", "by noise")
    by_method = any(method != "replay" for method in methods)  # a column that says the same in every row is none
    measured = [_measured(experiment) for experiment in found]
    probing = [name for name in MEASURED if len({one[name] for one in measured if one}) > 1]
    settings = ("data", "network", "steps", "classes", "policy", "method", "kept", "epochs", "seed")
    table = make_table(
        ("id", "data", "network"),
        ("steps", "classes", "policy", *["method"] * by_method, *of_all[:3], *probing, *of_all[3:]),
        settings,
    )
    barely = 0
    for experiment, own in list(zip(found, measured, strict=True))[-LISTED:]:
        last = experiment.chain[-1].spec
        summary = experiment.summaries[-1] if experiment.summaries else None
        barely += bool(summary and summary.barely_learned)
        table.add_row(
            f"{experiment.id[:8]}{BARELY * bool(summary and summary.barely_learned)}",
            experiment.data_title,
            experiment.network,
            f"{len(experiment.chain)}{'*' if experiment.diverged else ''}",
            "+".join(str(len(step.spec.classes)) for step in experiment.chain),
            policies.get(experiment.chain[-1].setting.policy, PLAIN.missing),
            *[experiment.chain[-1].setting.method[0] if last.rehearsal else PLAIN.missing] * by_method,
            budget(last.rehearsal) if last.rehearsal else PLAIN.missing,
            str(last.training.epochs),
            str(last.seed),
            *(own.get(name, PLAIN.missing) for name in probing),
            *_results(summary),
        )
    diverged = sum(experiment.diverged is not None for experiment in found)
    remarks = [f"*  the last step diverged and is excluded from all statistics ({diverged})"] if diverged else []
    remarks += [UNLEARNED] if barely else []
    remarks += (
        [f"{counted(reruns, 're-run')} of controlled experiments {'is' if reruns == 1 else 'are'} not among them"]
        if reruns
        else []
    )
    remarks += [RECORDED_AGAIN.format(steps=counted(repeated, "step"))] if repeated else []
    made_up = sum(experiment.simulated is not None for experiment in found)
    made = f", simulated: {'all' if made_up == len(found) else made_up}" if made_up else ""
    title = (
        counted(len(found), "experiment")
        + made
        + (f", the latest {LISTED} (all of them: --json)" if len(found) > LISTED else "")
    )
    return titled(title, table, *remarks)


def _results(summary: StepSummary | None) -> Iterator[str]:
    """Of an experiment's last step: its past classes when learned and now, forgetting, and what noise makes of its range."""
    if summary is None:
        yield from (PLAIN.missing,) * 5
        return
    yield from (PLAIN.percent(share) for share in (summary.accuracy_when_learned, summary.accuracy_of_past))
    yield from map(PLAIN.number, (summary.mean_forgetting, summary.forgetting_range, summary.range_floor))


def _measured(experiment: Experiment) -> dict[str, str]:
    """How its last step was looked at, as named in `MEASURED`; empty of a first step."""
    asked = experiment.chain[-1].spec.rehearsal
    if asked is None:
        return {}
    after = {0: "none", 1: "each epoch"}.get(asked.probe_every, f"every {asked.probe_every}")
    images = "all" if asked.probe_images is None else str(asked.probe_images)
    probes = after if asked.probes is None else str(asked.probes)
    return dict(zip(MEASURED, (probes, images, "yes" if asked.forecast else "no"), strict=True))


def overview_view(rows: Sequence[Overview], title: str = OVER_SEEDS, without: str = "diverged") -> RenderableType:
    """Means over seeds with 95 % intervals, a column per setting and step; what all have in common is said once."""
    common = [part for part in rows[0].setting if all(part in row.setting for row in rows)]
    rows = sorted(rows, key=lambda row: ([_by_size(part) for part in row.setting if part not in common], row.step))
    own = ([part for part in row.setting if part not in common] for row in rows)
    counts = [f"n = {row.experiments}" + f" (and {row.diverged} {without})" * (row.diverged > 0) for row in rows]
    heads = ((f"step {row.step}, {n}", *parts) for row, n, parts in zip(rows, counts, own, strict=True))
    table = make_table(("",), heads)
    for name, words in AVERAGED.items():
        table.add_row(words, *(PLAIN.estimate(getattr(row, name)) for row in rows))
    table.add_row("spread", *(PLAIN.estimate(row.spread) for row in rows))
    table.add_row("reliability", *(_where_spread(row, row.reliability) for row in rows))
    for measure, words in MEASURES.items():
        table.add_row(f"ρ {words}", *(PLAIN.estimate(row.correlations[measure]) for row in rows))
    table.add_row("  at most", *(_where_spread(row, row.ceiling) for row in rows))
    for name, words in FORESEEN.items() if any(row.forecast for row in rows) else ():
        table.add_row(words, *(PLAIN.estimate(row.forecast[name]) if row.forecast else PLAIN.missing for row in rows))
    perfect = sum(row.perfect for row in rows)
    barely = counted(sum(row.barely_learned for row in rows), "past class", "was/were")
    remarks = (
        *[f"{barely} barely learned: nothing is to be concluded from means with them"] * any(r.barely_learned for r in rows),
        " ".join(common),
        *[IN_A_MEAN.format(perfect=perfect)] * bool(perfect),
    )
    return Group(plain(title, "bold"), table, *(plain(text, "dim") for text in remarks))


def _where_spread(row: Overview, estimate: Estimate) -> str:
    """What says nothing where no spread was found beyond noise."""
    return PLAIN.missing if row.spread.value == 0 else PLAIN.estimate(estimate)


def _by_size(part: str) -> tuple[str, float, str]:
    """Of `retention=0.08`: settings of one name in the order of their numbers."""
    name, _, value = part.partition("=")
    return name, float(value) if re.fullmatch(r"\d+(\.\d+)?", value) else math.inf, value


def comparison_view(rows: Sequence[PolicyComparison]) -> RenderableType:
    """Policies against the baseline, a table per step: means, and below each the mean paired difference, with intervals."""
    tables: list[RenderableType] = [plain(sentence) for sentence in barely_learned_beside(rows)]
    quantities = [name for name in MEANS if name not in (*FLOORS.values(), "true_variance")]  # whose root is the spread
    for step in dict.fromkeys(row.step for row in rows):
        table = make_table(("policy",), ("pairs", *(tuple(MEANS[name].split(", ")) for name in quantities)))
        shown = [row for row in rows if row.step == step]
        for row in shown:
            lost = f" (and {row.diverged} diverged)" if row.diverged else ""
            table.add_row(row.policy, f"{row.pairs}{lost}", *(PLAIN.estimate(row.means[name], 3) for name in quantities))
            floors = (PLAIN.estimate(row.means[FLOORS[name]], 3) if name in FLOORS else "" for name in quantities)
            table.add_row("  by noise", "", *floors)
            if row.policy != row.baseline:
                known = (row.differences.get(name) for name in quantities)
                told = ("" if one is None else PLAIN.estimate(one, 3, signed=True) for one in known)
                table.add_row("  difference", "", *told, style="dim")
        title = f"Policies in step {step}, in pairs that share their first step, with 95 % intervals"
        tables.append(titled(title, table, f"Below each policy: the paired difference to {shown[0].baseline}"))
    return Group(*tables)


def data_view(here: Sequence[tuple[DataSet, int]], known: Mapping[str, str], cache: Path) -> RenderableType:
    """Data sets that are here, with their size in bytes, and those that can be fetched."""
    table = make_table(("name",), ("classes", "training images", "test images", "pixels", "on disk"))
    for data, size in here:
        pixels = f"{data.shape[1]} x {data.shape[0]}"
        counts = (f"{len(data.classes)}", f"{len(data.train.labels):,}", f"{len(data.test.labels):,}")
        table.add_row(data.name, *counts, pixels, f"{size / 1e6:,.0f} MB")
    remarks = [] if here else ["None yet. Add your own images with `forgetscope data add NAME PATH`, or use one of these:"]
    remarks += ["glyphs: embedded, drawn when needed"]
    remarks += [f"{name}: {summary}; fetch it with `forgetscope data get {name}`" for name, summary in known.items()]
    title = f"Data sets in {cache}"
    return titled(title, table, *remarks) if here else Group(plain(title, "bold"), *map(plain, remarks))


def _classes(experiment: Shown, step: int) -> RenderableType:
    past = experiment.past_classes(step)
    predicted = ("predicted",) if experiment.forecasts else ()
    one = calibrated.one_column(experiment)
    beside = () if one is None else ("calibrated",)
    table = make_table(("class",), ("learned", "now", "forgetting", *beside, *predicted, *MEASURES.values()))
    for row in past.to_dict("records"):
        accuracies = (PLAIN.percent(row["accuracy_when_learned"]), PLAIN.percent(row["accuracy"]))
        measures = (PLAIN.number(row[measure], 3) for measure in MEASURES)
        losses = [PLAIN.number(row[name]) for name in ("forgetting", "calibrated_forgetting")[: 1 + len(beside)]]
        forecast = [_forecast(row)] if predicted else []
        table.add_row(shortened(row["class_name"]), *accuracies, *losses, *forecast, *measures)
    title = f"Past classes after step {step} of {experiment.label}, most forgotten first (accuracy when learned and now)"
    remarks = [] if one is None else [f"calibrated: forgetting with {one}, which acts on predictions alone"]
    remarks += [PREDICTED] if predicted else []
    remarks += [ESTIMATED] if "nic_se" in past and past["nic_se"].notna().any() else []
    return titled(title, table, *_reasons(past), *remarks)


def _reasons(past: pd.DataFrame) -> list[str]:
    """Why values are missing, and of which classes."""
    of: dict[str, list[str]] = {}
    for name, missing in zip(past["class_name"], past["missing"], strict=True):
        coefficients, *forecast = ("" if pd.isna(missing) else str(missing)).partition("no forecast: ")
        for reason in (coefficients.rstrip("; "), "".join(forecast)):
            if reason:
                of.setdefault(reason, []).append(shortened(name))
    every = f"all {len(past)} past classes" if len(past) > NAMED else ""
    found = []
    for reason, names in sorted(of.items()):
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        whose = every if every and len(names) == len(past) else f"{', '.join(names[:NAMED])}{more}"
        found.append(f"–  {whose}: {reason}")
    return found


def _calibrated(experiment: Shown, shown: StepSummary) -> list[RenderableType]:
    """One step as trained, and with each of its calibrations."""
    found = calibrated.beside(experiment, shown)
    if found is None:
        return []
    table = make_table(("predictions",), calibrated.HEADS)
    for name, cells in found.rows.items():
        table.add_row(name, *cells)
    return [titled(f"Step {shown.step} {calibrated.TITLE}", table, *found.said), Text()]


def _own_loss(experiment: Shown, shown: StepSummary) -> list[RenderableType]:
    """SIC, CIC and NIC of one step, and those of what its method's own loss does."""
    found = own_loss.own_loss_table(experiment, shown.step)
    if found is None:
        return []
    table = make_table(("class",), own_loss.HEADS)
    for cells in found.rows:
        table.add_row(*cells)
    return [titled(f"Step {shown.step}: {own_loss.TITLE}", table, own_loss.REMARK), plain(found.said), Text()]


def _forecast(row: Mapping[Hashable, float]) -> str:
    """`0.31 (0.11, 0.52)`."""
    return f"{PLAIN.number(row['forecast'])} {PLAIN.interval(row['forecast_low'], row['forecast_high'])}".rstrip()


def _summary(experiment: Shown) -> RenderableType:
    numbers = ("step", "accuracy", "mean FG", "FG-R", "by noise", "FG-HG", "by noise", "spread", "reliability")
    foreseen = ("ρ forecast",) if any(s.forecast for s in experiment.summaries) else ()
    table = make_table((), (*numbers, *(f"ρ {name}" for name in MEASURES.values()), *foreseen, "at most"))
    for s in experiment.summaries:
        uneven = (s.mean_forgetting, s.forgetting_range, s.range_floor, s.forgetting_half_gap, s.half_gap_floor)
        spread, reliability, ceiling = (s.beyond_noise[name] for name in BEYOND_NOISE)
        if spread == 0:
            reliability = ceiling = math.nan  # no spread beyond noise: there is nothing to be reliable or to rank
        predicted = [s.forecast.get("rho", math.nan)] * len(foreseen)
        values = (*uneven, spread, reliability, *(s.correlations[m] for m in MEASURES), *predicted, ceiling)
        table.add_row(str(s.step), PLAIN.percent(s.accuracy), *map(PLAIN.number, values))
    title = "How unevenly, and what saw it coming (ρ: rank correlation with forgetting)"
    return titled(title, table, *_over_others(experiment.summaries), *basis_of_noise(experiment))


def _over_others(summaries: Sequence[StepSummary]) -> list[str]:
    """Of steps whose forecast does not know all past classes: what else ranked those that it knows."""
    found = []
    for s in summaries:
        if s.forecast and s.forecast["ranked"] != s.ranked_classes:
            beside = ", ".join(f"{MEASURES[name]} {PLAIN.number(s.forecast[name])}" for name in FORESEEN if name in MEASURES)
            of = f"{s.forecast['ranked']:.0f} of {s.ranked_classes} past classes"
            rho = PLAIN.number(s.forecast["rho"])
            found.append(f"Step {s.step}: of {of} forecast, SIC, CIC and NIC are all known; over these ρ is {rho}, {beside}")
    return found
