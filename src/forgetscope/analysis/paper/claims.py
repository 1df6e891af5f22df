"""The claims of the paper's text that have numbers, asked of a store: in steps, between steps and data sets, over re-runs.

Where the text gives a number or a range of means, the limit here is its least demanding end, and the claim says it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forgetscope.analysis.exhibits.exhibit import MODEL, PAPER_ORDER, THREE
from forgetscope.analysis.inputs.associations import ASSOCIATIONS
from forgetscope.analysis.inputs.samples import Collected, Mask, Name, Sample, Subset, level_text
from forgetscope.analysis.inputs.training_shares import EARLY, probes_within
from forgetscope.analysis.paper.comparisons import (
    between_levels,
    between_samples,
    between_steps,
    comparable,
    neighbours,
    on_its_scale,
    per_experiment,
    steadiness,
    within_steps,
)
from forgetscope.analysis.paper.joint_model import JointModels
from forgetscope.analysis.paper.verdicts import Answer, Verdict, above, below, enough, near, together
from forgetscope.analysis.rows import Row, matching, records
from forgetscope.analysis.statistics.anova import explained
from forgetscope.analysis.statistics.estimates import Estimate, fisher_z, in_rho, mean_estimate, share_estimate
from forgetscope.analysis.statistics.pooling import mean_of
from forgetscope.analysis.statistics.t_tests import welch

Values = NDArray[np.float64]

RANGE, HALF_GAP, ERROR = 0.55, 0.25, 0.10  # means of FG-R and FG-HG that the paper's exceed; mean error that its model keeps
SELDOM = 0.25  # of the steps; 12 % in the paper
LITTLE = 0.1  # of improvement; 0.04 in the paper
STABLE = 0.03  # a change of FG-HG that counts as none
NEAR = 0.05  # a difference of correlations that counts as none
ALWAYS = 0.9  # of the steps at least, to be sure; in all of them
SLIGHT = 0.06  # partial eta squared below a medium effect (Cohen 1988); at most 0.03 in the paper
WALD = 1.959964  # standard errors to either side of a 95 % interval

FG_R, FG_HG = ("FG-R", "value"), ("FG-HG", "value")
RANKED = (MODEL, "rho")
FEWEST = 3  # partitions: the interval of two is too wide for anything


def answers(collection: Collected, joint: JointModels, tables: Mapping[str, pd.DataFrame]) -> list[Answer]:
    """Every claim wherever it can be asked: of the paper's policy if the store has it, else of all. tables: the paper's, whose
    ANOVAs some claims are about."""
    found: list[Answer] = []
    if uniform := [sample for sample in collection.samples if sample.policy == "uniform"]:
        reruns = [runs for runs in collection.reruns if runs.sample.policy == "uniform"]
        collection = replace(collection, samples=uniform, reruns=reruns)
    for sample in collection.samples:
        for number in sample.numbers:
            subset = Subset(number)
            found += _severity(sample, subset)
            found += _ranking(sample, subset)
            found += _early(sample, subset)
            found += _trends(sample, subset)
            found += _weights(sample, number, joint)
        for earlier, later in neighbours(sample):
            found += _between_steps(sample, earlier, later)
    for sample, against in comparable(collection):
        found += _between_data_sets(sample, against)
    found += _controlled(collection)
    found += _effects(collection, tables)
    return [answer for answer in found if not math.isnan(answer.estimate.value)]


def improvement(sample: Sample, subset: Subset) -> tuple[Estimate, Estimate]:
    """The share of steps whose least forgotten class improved, and its mean forgetting there."""
    least, mask = _extremes(sample)[0], sample.mask(subset)
    return _share(sample, subset, least < 0, least), mean_estimate(per_experiment(sample, mask & (least < 0), least))


def _share(sample: Sample, subset: Subset, hits: Mask, values: Values) -> Estimate:
    """Of the steps whose value [S] is known; those that share an experiment count as one trial."""
    chosen = sample.mask(subset) & ~np.isnan(values)
    return share_estimate(hits[chosen], len({sample.root[i] for i in np.flatnonzero(chosen)}))


def _extremes(sample: Sample) -> tuple[Values, Values]:
    """[S] each: the forgetting of the least and of the most forgotten class."""
    known = [step.forgetting[np.isfinite(step.forgetting)] for step in sample.steps]
    ends = [(step.min(), step.max()) if len(step) else (np.nan, np.nan) for step in known]
    least, most = np.array(ends).reshape(-1, 2).T
    return least, most


def _severity(sample: Sample, subset: Subset) -> Iterator[Answer]:
    told = partial(_told, sample, str(subset))
    for name, limit in ((FG_R, RANGE), (FG_HG, HALF_GAP)):
        mean = mean_estimate(per_experiment(sample, sample.mask(subset), sample.values[name]))
        yield told(f"Imbalanced forgetting is substantial: mean {name[0]} above {limit}", name[0], mean, above, limit)
    steadier = steadiness(sample, subset, FG_HG, FG_R)
    yield told("FG-HG varies less between steps than FG-R", "difference of deviations", steadier, above)
    improved, by = improvement(sample, subset)
    yield told("The least forgotten class improves in fewer than a quarter of the steps", "share", improved, below, SELDOM)
    claim = f"Where the least forgotten class improves, it does by less than {LITTLE} on average"
    yield told(claim, "mean FG", by, above, -LITTLE)
    _, most = _extremes(sample)
    lost = _share(sample, subset, most > 0, most)
    claim, verdict = "The most forgotten class is always worse than when it was learned", above(lost, ALWAYS)
    yield Answer(claim, sample, str(subset), "share", lost, "contested" if lost.value < 1 else verdict)


def _told(
    sample: Sample, where: str, claim: str, what: str, estimate: Estimate, verdict: Callable[..., Verdict], *limit: float
) -> Answer:
    return Answer(claim, sample, where, what, estimate, verdict(estimate, *limit))


def _if_it_ranks(answer: Answer, *sides: tuple[Sample, Mask, Name]) -> Answer:
    """How well the joint model ranks can only be compared where there is ranking: undecided unless the mean correlation of the
    better side is above 0, over its experiments and, from three on, over its partitions. Held-out steps of a partition are
    predicted from one another: with nothing to predict by, their correlations rise and fall together."""
    if not any(name == RANKED for _, _, name in sides):
        return answer
    in_z = [np.where(mask, on_its_scale(sample, name), np.nan) for sample, mask, name in sides]
    (sample, mask, _), z = max(zip(sides, in_z, strict=True), key=lambda side: mean_estimate(side[1]).value)
    over = [per_experiment(sample, mask, z)]
    cells = dict.fromkeys(sample.cells[i] for i in np.flatnonzero(mask))
    if len(cells) >= FEWEST:
        over.append(np.array([mean_estimate(z[sample.mask(cell)]).value for cell in cells]))
    ranks = together([above(mean_estimate(values)) for values in over]) == "confirmed"
    return answer if ranks else replace(answer, verdict="undecided")


def _ranking(sample: Sample, subset: Subset) -> Iterator[Answer]:
    mask, rho, rho_p = sample.mask(subset), "rho", "rho_p"
    told = partial(_told, sample, str(subset))

    def mean(claim: str, name: Name, verdict: Callable[..., Verdict], *limit: float) -> Answer:
        found = mean_estimate(per_experiment(sample, mask, on_its_scale(sample, name)))
        return told(claim, name[1], in_rho(found) if name[1].startswith(rho) else found, verdict, *limit)

    def more(claim: str, name: Name, than: Name, unit: str = "difference in z") -> Answer:
        answer = told(claim, unit, within_steps(sample, subset, name, than), above)
        return _if_it_ranks(answer, (sample, mask, name), (sample, mask, than))

    def steadier(claim: str, name: Name, than: Name) -> Answer:
        answer = told(claim, "difference of deviations", steadiness(sample, subset, name, than), above)
        return _if_it_ranks(answer, (sample, mask, name), (sample, mask, than))

    def loses_more(claim: str, quantity: str, than: str) -> Answer:
        lost = [on_its_scale(sample, (q, rho)) - on_its_scale(sample, (q, rho_p)) for q in (quantity, than)]
        return told(claim, "difference in z", mean_estimate(per_experiment(sample, mask, lost[0] - lost[1])), above)

    for other in ("NIC", "CIC"):
        yield more(f"SIC ranks past classes better than {other}", ("SIC", rho), (other, rho))
        yield more(f"SIC ranks past classes better than {other}, given the others", ("SIC", rho_p), (other, rho_p))
        yield steadier(f"How well SIC ranks varies less between steps than for {other}", ("SIC", rho), (other, rho))
    yield more("NIC ranks past classes better than CIC", ("NIC", rho), ("CIC", rho))
    yield more("NIC loses strength when the others are controlled for", ("NIC", rho), ("NIC", rho_p))
    for other in ("SIC", "CIC"):
        yield loses_more(f"NIC loses more than {other} when the others are controlled for", "NIC", other)
    yield more("What NIC shares is shared with SIC rather than with CIC", ("NIC", "rho_p_CIC"), ("NIC", "rho_p_SIC"))
    yield mean("CIC adds something that the others do not hold", ("CIC", rho_p), above)
    yield more("NIC is better than ALL-NIC", ("NIC", rho), ("ALL-NIC", rho))
    yield more("NIC is better than ALL-NIC, given SIC and CIC", ("NIC", rho_p), ("ALL-NIC", rho_p))
    yield steadier("How well NIC ranks varies less between steps than for ALL-NIC", ("NIC", rho), ("ALL-NIC", rho))
    yield more("NIC goes with SIC more than ALL-NIC does", ("SIC-NIC", rho), ("ALL-NIC-SIC", rho))
    yield steadier("How NIC goes with SIC varies less than how ALL-NIC does", ("SIC-NIC", rho), ("ALL-NIC-SIC", rho))
    yield more("NIC is better than LOG-SIM", ("NIC", rho), ("LOG-SIM", rho))
    yield mean("NIC goes with SIC", ("SIC-NIC", rho), above)
    yield mean("NIC goes with CIC", ("CIC-NIC", rho), above)
    yield mean("SIC and CIC have no consistent relation", ("SIC-CIC", rho), near, NEAR)
    if subset.step == 2:
        yield mean("LOG-SIM ranks past classes in second steps", ("LOG-SIM", rho), above)
    if RANKED in sample.values:
        yield more("All coefficients together rank better than SIC alone", RANKED, ("SIC", rho))
        yield steadier("How well all together rank varies less between steps than for SIC", RANKED, ("SIC", rho))
        yield more("All coefficients together rank better than LOG-SIM", RANKED, ("LOG-SIM", rho))
        error = "difference of errors"
        yield more("All coefficients together predict closer than SIC alone", ("SIC_model", "mae"), (MODEL, "mae"), error)
        yield mean(f"All coefficients together miss forgetting by at most {ERROR:.2f}", (MODEL, "mae"), below, ERROR)


def _early(sample: Sample, subset: Subset) -> Iterator[Answer]:
    """The first quarter of training against all of it; not asked where the only probe in it is the one before training."""
    mask = sample.mask(subset) & np.array([len(step.course) > 0 for step in sample.steps], bool)
    if probes_within(EARLY, sample.probes(subset.step)) < 2:
        return
    names = [(a.quantity, a.statistic) for a in ASSOCIATIONS]

    def early(name: Name) -> Values:
        courses, found = (step.course for step in sample.steps), names.index(name)
        return np.array([c[probes_within(EARLY, len(c)) - 1, found] if len(c) else np.nan for c in courses], np.float64)

    def mean(values: Values) -> Estimate:
        return mean_estimate(per_experiment(sample, mask, values))

    for quantity in THREE:
        for statistic, given in (("rho", ""), ("rho_p", ", given the others"))[: 1 if quantity == "NIC" else 2]:
            first, last = early((quantity, statistic)), sample.values[quantity, statistic]
            change = mean(first - last)
            verdict = enough(mean(first), mean(last), change, NEAR)
            claim = f"A quarter of training is enough for {quantity}{given}"
            yield Answer(claim, sample, str(subset), f"change of {statistic}", change, verdict)
    shrinks = mean(fisher_z(early(("NIC", "rho_p")), sample.ranked) - on_its_scale(sample, ("NIC", "rho_p")))
    claim = "What NIC alone tells shrinks as training goes on"
    yield _told(sample, str(subset), claim, "early minus late, in z", shrinks, above)


def _trends(sample: Sample, subset: Subset) -> Iterator[Answer]:
    """Of the extreme levels of a factor; where the paper sees a peak, of the middle level and each end."""
    levels_of = {"retention": sample.retentions(subset.step), "increment": sample.increments(subset.step)}

    def asked(claim: str, name: Name, factor: str, more: int, less: int) -> Iterator[Answer]:
        levels = levels_of[factor]
        if name in sample.values and len(levels) > max(1, more, less):
            values, own = on_its_scale(sample, name), np.array([getattr(cell, factor) for cell in sample.cells])
            pair = levels[more], levels[less]
            found = between_levels(sample, subset, factor, pair, values).estimate
            unit = f"{level_text(pair[0])} against {level_text(pair[1])}" + (", in z" if name[1].startswith("rho") else "")
            sides = ((sample, sample.mask(subset) & (own == level), name) for level in pair)
            yield _if_it_ranks(_told(sample, str(subset), claim, unit, found, above), *sides)

    def peak(claim: str, name: Name) -> Iterator[Answer]:
        for end in (0, 2) if len(levels_of["retention"]) == 3 else ():
            yield from asked(claim, name, "retention", 1, end)

    low, high = 0, -1
    for name in (FG_R, FG_HG):
        yield from asked(f"Less rehearsal means more imbalance ({name[0]})", name, "retention", low, high)
        yield from asked(f"More new classes mean more imbalance ({name[0]})", name, "increment", high, low)
    for statistic, given in (("rho", ""), ("rho_p", ", given the others")):
        for quantity in ("SIC", "CIC"):
            if quantity == "CIC" or sample.dataset == PAPER_ORDER[0]:
                claim = f"Less rehearsal makes {quantity} rank better{given}"
                yield from asked(claim, (quantity, statistic), "retention", low, high)
        yield from asked(f"More new classes make SIC rank less well{given}", ("SIC", statistic), "increment", low, high)
        if sample.dataset == PAPER_ORDER[1]:
            yield from peak(f"SIC ranks best with the middle retention{given}", ("SIC", statistic))
    yield from asked("More rehearsal makes NIC rank better, given the others", ("NIC", "rho_p"), "retention", high, low)
    yield from peak("NIC ranks best with the middle retention", ("NIC", "rho"))
    yield from asked("More new classes make NIC rank better, given the others", ("NIC", "rho_p"), "increment", high, low)
    yield from asked("Less rehearsal makes all coefficients together rank better", RANKED, "retention", low, high)
    yield from asked("More new classes make all coefficients together rank less well", RANKED, "increment", low, high)
    yield from asked("More new classes make NIC go less with SIC", ("SIC-NIC", "rho"), "increment", low, high)
    yield from peak("NIC goes most with SIC with the middle retention", ("SIC-NIC", "rho"))


def _between_steps(sample: Sample, earlier: Subset, later: Subset) -> Iterator[Answer]:
    which = f"{later} against {earlier}"

    def asked(claim: str, name: Name, verdict: Callable[..., Verdict], *limit: float) -> Answer:
        found = between_steps(sample, earlier, later, name).estimate
        sides = ((sample, sample.mask(part), name) for part in (earlier, later))
        return _if_it_ranks(_told(sample, which, claim, _unit(name), found, verdict, *limit), *sides)

    yield asked("FG-R grows from step to step", FG_R, above)
    yield asked("FG-HG stays the same from step to step", FG_HG, near, STABLE)
    for name in ("SIC", "NIC"):
        yield asked(f"{name} ranks less well from step to step", (name, "rho"), below)
    yield asked("NIC goes less with SIC from step to step", ("SIC-NIC", "rho"), below)
    yield asked("NIC goes more with CIC from step to step", ("CIC-NIC", "rho"), above)
    yield asked("LOG-SIM ranks less well from step to step", ("LOG-SIM", "rho"), below)
    if RANKED in sample.values:
        yield asked("All coefficients together rank less well from step to step", RANKED, below)


def _between_data_sets(sample: Sample, against: Sample) -> Iterator[Answer]:
    """Only of the paper's two: that one is the harder."""
    if (against.dataset, sample.dataset) != PAPER_ORDER:
        return
    claims: tuple[tuple[str, Name, Callable[..., Verdict]], ...] = (
        ("FG-R is larger", FG_R, above),
        ("FG-HG is larger", FG_HG, above),
        ("SIC ranks less well", ("SIC", "rho"), below),
        ("NIC ranks less well", ("NIC", "rho"), below),
        ("CIC ranks better", ("CIC", "rho"), above),
        ("NIC goes less with SIC", ("SIC-NIC", "rho"), below),
        ("All coefficients together rank less well", RANKED, below),
    )
    for number in (number for number in sample.numbers if number in against.numbers):
        subset = Subset(number)
        for claim, name, verdict in claims:
            if name in sample.values and name in against.values:
                found = between_samples(sample, against, subset, name).estimate
                answer = _told(sample, str(number), f"{claim} on the harder data set", _unit(name), found, verdict)
                yield _if_it_ranks(answer, *((one, one.mask(subset), name) for one in (sample, against)))
        if all(RANKED in one.values for one in (sample, against)):
            gains = [
                per_experiment(one, one.mask(subset), on_its_scale(one, RANKED) - on_its_scale(one, ("SIC", "rho")))
                for one in (sample, against)
            ]
            found = welch(*gains).estimate
            claim = "All coefficients together gain more over SIC on the harder data set"
            answer = _told(sample, str(number), claim, "difference in z", found, above)
            yield _if_it_ranks(answer, *((one, one.mask(subset), RANKED) for one in (sample, against)))


def _unit(name: Name) -> str:
    return "difference in z" if name[1].startswith("rho") else "difference"


def _weights(sample: Sample, number: int, joint: JointModels) -> Iterator[Answer]:
    """Contested if the interval of any partition lies below zero, confirmed if all lie above."""
    found = [joint.weights(sample, cell) for cell in sample.partitions(number)]
    for name in THREE:
        weights = [weights[name] for weights in found if name in weights and not math.isnan(weights[name].value)]
        if weights:
            verdict = together([above(weight) for weight in weights])
            positive = sum(weight.value > 0 for weight in weights)
            what = f"{positive} of {len(weights)} weights are positive, the smallest is"
            smallest = min(weights, key=lambda weight: weight.value)
            yield Answer(f"{name} has a positive weight in every partition", sample, str(number), what, smallest, verdict)


def _effects(collection: Collected, tables: Mapping[str, pd.DataFrame]) -> Iterator[Answer]:
    """Which of retention and increment explains more of a quantity, and that they hardly matter to how NIC goes with SIC."""
    asked = {
        **{f"anova_{name}": f"Retention decides how well {name} ranks more than the increment does" for name in THREE},
        "anova_all_coefficients": "Retention decides how well all coefficients together rank more than the increment does",
        "anova_SIC_NIC": "",
    }
    for label, claim in asked.items():
        for sample in collection.samples:
            for number in sample.numbers:
                found = matching(tables[label], **sample.where(Subset(number)), response="rho")
                rows = {row["factor"]: row for row in records(found)}
                if not rows or any(math.isnan(row["eta2p"]) for row in rows.values()):
                    continue
                retention, increment = rows["rehearsal"], rows["classes"]
                levels = len(sample.retentions(number)), len(sample.increments(number))
                if claim:
                    more = _more_explained((retention, increment), levels)
                    what = f"partial eta squared {retention['eta2p']:.2f} and {increment['eta2p']:.2f}, difference"
                    answer = Answer(claim, sample, str(number), what, more, above(more))
                    sides = [(sample, sample.mask(Subset(number)), RANKED)] if label == "anova_all_coefficients" else []
                    yield _if_it_ranks(answer, *sides)
                else:
                    yield from _hardly_any(sample, number, rows, levels)


def _hardly_any(sample: Sample, number: int, rows: Mapping[str, Row], levels: tuple[int, int]) -> Iterator[Answer]:
    """Effects on how NIC goes with SIC, of which the paper finds none that is significant, and once one that is small."""
    freedom = {"rehearsal": levels[0] - 1, "classes": levels[1] - 1, "interaction": (levels[0] - 1) * (levels[1] - 1)}
    who = {"rehearsal": "Retention has", "classes": "The increment has", "interaction": "Retention and increment together have"}
    for factor, df1 in freedom.items():
        row = rows[factor]
        df2 = row["F"] * df1 * (1 - row["eta2p"]) / row["eta2p"] if row["eta2p"] > 0 else math.nan
        claim = f"{who[factor]} hardly any effect on how NIC goes with SIC: partial eta squared below {SLIGHT:g}"
        yield _told(sample, str(number), claim, "eta2p", explained(row["F"], df1, df2, row["n"]), below, SLIGHT)


def _more_explained(rows: tuple[Mapping[str, float], Mapping[str, float]], levels: tuple[int, int]) -> Estimate:
    """The difference of two partial eta squared. F df1 is nearly a noncentral chi squared, with variance 2 df1 + 4 lambda; the
    delta method takes it to eta squared. Effects of a balanced design are nearly independent."""
    variance = 0.0
    for row, count in zip(rows, levels, strict=True):
        df1, eta = count - 1, row["eta2p"]
        wald = row["F"] * df1
        if wald > 0:
            df2 = wald * (1 - eta) / eta
            variance += (2 * df1 + 4 * max(0.0, wald - df1)) * (df2 / (wald + df2) ** 2) ** 2
    difference, margin = rows[0]["eta2p"] - rows[1]["eta2p"], WALD * math.sqrt(variance)
    return Estimate(difference, difference - margin, difference + margin, int(rows[0]["n"]))


def _controlled(collection: Collected) -> Iterator[Answer]:
    """Classes of a step share their runs, so intervals over classes are too narrow rather than too wide."""
    for runs in collection.reruns:
        (rho, counts), cell = runs.correlations(), runs.cell
        where = f"{cell.step} ({level_text(cell.retention)}, {level_text(cell.increment)})"
        told = partial(_told, runs.sample, where)
        yield told("With other new classes, SIC of a class rises with NIC", "rho", mean_of("rho", rho, counts), above)
        rising = share_estimate(np.where(np.isnan(rho), np.nan, rho > 0))
        yield told("With other new classes, SIC rises with NIC for most classes", "share", rising, above, 0.5)
