"""The numbers that the paper prints, beside those of a store that ran the same benchmark."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

import pandas as pd

from forgetscope.analysis.inputs.measured_steps import StepFacts
from forgetscope.analysis.inputs.samples import PAPER_NAMES, Collected, Sample
from forgetscope.analysis.paper.cells import KEYS
from forgetscope.analysis.rows import Row, records
from forgetscope.benchmark.space import BenchmarkSpec
from forgetscope.data.augmentation import augmentation_of
from forgetscope.data.known import KNOWN
from forgetscope.spec import BESIDE_THE_PROBES, step_specs
from forgetscope.store import Setting

BASELINE = "uniform"
# By the names of options: what tables tell apart, and what is measured beside and changes nothing else.
TOLD_APART = ("policy", "policy_source", "retention", "classes", "protocol", *BESIDE_THE_PROBES)
COLUMNS = ("paper", "paper_lo", "paper_hi", "paper_sd", "paper_p", "difference", "overlap")


def beside_paper(tables: Mapping[str, pd.DataFrame], collection: Collected) -> dict[str, pd.DataFrame]:
    """Per table that the paper prints values for: for each of its rows what it prints, ours minus that, and whether the 95 %
    intervals overlap.

    Of an ANOVA it is partial eta squared that is compared. Rows of benchmarks that are not the paper's are empty, and so is
    `overlap` where one of the two has no interval."""
    same = {(s.benchmark, s.policy): PAPER_NAMES[s.dataset] for s in collection.samples if deviations(s) == ()}
    found = {label: _beside(label, frame, same) for label, frame in tables.items()}
    return {label: frame for label, frame in found.items() if frame["paper"].notna().any()}


def deviations(sample: Sample) -> tuple[str, ...] | None:
    """How a sample differs from the paper's benchmark on its data set, as `epochs = 5 (paper: 170)`; None for other data.

    Everything counts that can change a number, in these steps and in those that they build on. The paper's benchmark is what
    its text says, or what its released scripts do: what is nearer is named, and a mixture of both is neither."""
    if sample.dataset not in PAPER_NAMES or not sample.steps:
        return None
    steps = [*{(own.facts.step, own.facts.setting): own.facts for own in sample.steps}.values(), *sample.built_on]
    of_each = (_differing(sample, steps, behaviour) for behaviour in ("text", "released"))
    return min(of_each, key=len)


def _differing(sample: Sample, steps: Sequence[StepFacts | None], behaviour: str) -> tuple[str, ...]:
    paper, known = _paper(sample.dataset, behaviour), KNOWN[sample.dataset]
    found = {} if sample.policy == BASELINE else {"policy": f"policy = {sample.policy} (paper: {BASELINE})"}
    for facts in steps:
        if facts is None:
            found["not here"] = "first steps that are not in the store"
            continue
        first, setting = facts.step == 1, facts.setting
        own = {**_counting(setting), "image_size": setting.shape[0], "classes": facts.data_classes or known.classes}
        printed = {**_counting(paper[not first]), "image_size": known.side, "classes": known.classes}
        for name, other in {**dict.fromkeys(own), **printed}.items():
            value = own.get(name)
            called = "first_batch" if first and name == "batch" else name
            if value != other:
                where = " in first steps" if first and called == name and name not in found else ""
                found.setdefault(called, f"{called} = {_set(value)}{where} (paper: {_set(other)})")
    return tuple(found.values())


@cache
def _paper(dataset: str, behaviour: str) -> tuple[Setting, Setting]:
    """Of a first step and of later ones."""
    run, known = BenchmarkSpec.load(dataset, {"script_behaviour": behaviour}).template, KNOWN[dataset]
    data = {"name": dataset, "digest": "", "shape": (known.side, known.side)}
    specs = step_specs(run, ((0,), (1,)), augmentation_of(dataset)(known.side))
    infos = ({"data": data, "spec": spec.model_dump(mode="json"), "network": run.network} for spec in specs)
    first, later = map(Setting.of, infos)
    return first, later


def _counting(setting: Setting) -> dict[str, object]:
    """What can change a number, besides what a table tells apart: network and options, those of augmentation one by one."""
    options = dict(setting.but_for(*TOLD_APART).options)
    augmentation = options.pop("augmentation")
    return {"network": setting.network, "network_source": setting.network_source, **options, **augmentation}


def overlap(first: tuple[float, float], second: tuple[float, float]) -> bool | None:
    """Whether two closed intervals have a point in common; None where an end is unknown."""
    if any(map(math.isnan, (*first, *second))):
        return None
    return first[0] <= second[1] and second[0] <= first[1]


def _set(value: object) -> str:
    return "not set" if value is None else str(value)


def _beside(label: str, frame: pd.DataFrame, same: Mapping[tuple[str, str], str]) -> pd.DataFrame:
    rows = []
    for row in records(frame):
        key = (label, same.get((row["benchmark"], row["policy"]), ""), *(str(row[name]) for name in KEYS[1:]))
        rows.append(_compared(row, _printed().get(key)))
    return pd.DataFrame(rows, columns=list(COLUMNS), index=frame.index)


def _compared(ours: Row, printed: Row | None) -> Row:
    if printed is None:
        return dict.fromkeys(COLUMNS, math.nan) | {"overlap": ""}
    name = "eta2p" if ours["statistic"] == "anova" else "mean"
    both = overlap((ours["mean_lo"], ours["mean_hi"]), (printed["mean_lo"], printed["mean_hi"]))
    return {
        **{"paper": printed[name], "paper_lo": printed["mean_lo"], "paper_hi": printed["mean_hi"]},
        **{"paper_sd": printed["sd"], "paper_p": printed["p"], "difference": ours[name] - printed[name]},
        "overlap": {True: "yes", False: "no", None: ""}[both],
    }


@cache
def _printed() -> dict[tuple[str, ...], Row]:
    """By table and keys, from the file beside this module."""
    with resources.files(__package__).joinpath("printed.csv").open(encoding="utf-8") as file:
        frame = pd.read_csv(file, dtype=dict.fromkeys(("table", *KEYS), str), keep_default_na=False, na_values=[""])
    frame[["table", *KEYS]] = frame[["table", *KEYS]].fillna("")
    return {tuple(str(row[name]) for name in ("table", *KEYS)): row for row in records(frame)}
