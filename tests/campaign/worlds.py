"""For every claim a truth under which it holds, one under which its opposite holds, and one with nothing to find.

Of an equality the third is a truth at its margin instead, and of a limit one at the limit, or where nothing is forgotten.
What a world does not name is nothing: effects and correlations are 0, and noise is 1."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from campaign.stores import Options, Place, Shape, World

# Spreads with which 10 and 20 classes have the same expected range (3.077 and 3.734 standard deviations), and gap of halves.
SAME_RANGE, SAME_GAP = (0.3 / 3.077, 0.3 / 3.734), (0.08 / 1.4774, 0.08 / 1.5343)


def everywhere(**options: float) -> World:
    return lambda place: options


def along(name: str, option: str, values: tuple[float, ...], **others: float) -> World:
    """An option that changes with a part of the place."""
    return lambda place: {**others, option: values[getattr(place, name) - 2 * (name == "step")]}


def alternating(option: str, size: float, **others: float) -> World:
    """Of the other sign in every other experiment."""
    return lambda place: {**others, option: size * (-1) ** place.experiment}


def nic_and_sic(retention: float, increment: float, both: float) -> World:
    """Correlations that change with retention, with the increment, and with both together."""

    def world(place: Place) -> Options:
        r, i = place.retention - 1, 2 * place.increment - 1
        value = retention * r + increment * i + both * r * i
        return {"sic_nic": value, "rerun_sic_nic": value}

    return world


SEVERE = Shape(40)
PAIRS = Shape(40, ((0.02,),))  # of past classes
RANKING = Shape(12, ((0.2,),))
MANY = Shape(80, ((0.5,),), epochs=1)
JOINT = Shape(4, ((0.1,),), (0.05, 0.1, 0.2, 0.4, 0.8), joint=True)
LEVELS = Shape(6, ((0.1, 0.2),), (0.08, 0.2, 0.4), epochs=1)
HARD = replace(LEVELS, increments=((0.05, 0.1),), datasets=("tiny-imagenet",))
BOTH = replace(LEVELS, joint=True, tables=("anova_SIC", "anova_CIC", "anova_NIC", "anova_all_coefficients"))
EFFECTS = replace(LEVELS, experiments=40, tables=("anova_SIC_NIC",))
STEPS = Shape(10, steps=3, epochs=1)
MODEL_STEPS = replace(STEPS, joint=True)
DATASETS = Shape(10, ((0.1,), (0.05,)), datasets=("cifar100", "tiny-imagenet"), epochs=1)
MODEL_DATASETS = replace(DATASETS, joint=True)
RERUNS = Shape(2, reruns=12, epochs=1)

ALONE = {"slope_sd": 0.0, "intercept_sd": 0.0}
THREE = {"sic_effect": 1.0, "cic_effect": 1.0, "nic_effect": 1.0}
AGAINST = dict.fromkeys(THREE, -1.0)
CLEAR, NOISY = 0.3, 3.0
TOGETHER = {"sic_nic": 0.7, "rerun_sic_nic": 0.7}
APART = {"sic_nic": -0.7, "rerun_sic_nic": -0.7}
MARGIN = 0.1 * 1.05, 0.08 * 1.05, 0.1 * 1.05  # of `nic_and_sic`: each explains a little more than 0.06

WORLDS: dict[str, tuple[Shape, World]] = {
    "uneven": (SEVERE, everywhere(spread=0.25, mean_forgetting=0.5, accuracy=0.9, accuracy_sd=0.02)),
    "even": (SEVERE, everywhere(spread=0.05, mean_forgetting=0.5)),
    "nothing forgotten": (SEVERE, everywhere(spread=0.0, mean_forgetting=0.0)),
    "all or nothing": (SEVERE, everywhere(spread=30.0, accuracy_sd=0.0, **ALONE)),
    "two past classes": (PAIRS, everywhere()),
    "a quarter improve": (SEVERE, everywhere(spread=0.1, mean_forgetting=1.9 * 0.1 - 0.0067, **ALONE)),
    "0.1 better": (SEVERE, everywhere(spread=0.0655, mean_forgetting=0.0, **ALONE)),
    "a little better": (SEVERE, everywhere(spread=0.03, mean_forgetting=0.0, **ALONE)),
    "better": (SEVERE, everywhere(spread=0.03, mean_forgetting=-0.3, accuracy=0.6, accuracy_sd=0.03, **ALONE)),
    "nothing": (RANKING, everywhere()),
    "SIC": (RANKING, everywhere(sic_effect=1.0, noise=0.5)),
    "CIC": (RANKING, everywhere(cic_effect=1.0, noise=0.5)),
    "NIC": (RANKING, everywhere(nic_effect=1.0, noise=0.5)),
    "against CIC": (RANKING, everywhere(cic_effect=-1.0, noise=0.5)),
    "against NIC": (RANKING, everywhere(nic_effect=-1.0, noise=0.5)),
    "SIC behind NIC": (RANKING, everywhere(sic_effect=1.0, noise=0.5, **TOGETHER)),
    "NIC behind SIC": (RANKING, everywhere(nic_effect=1.0, noise=0.5, **TOGETHER)),
    "CIC behind NIC": (RANKING, everywhere(cic_effect=1.0, noise=0.5, cic_nic=0.7)),
    "NIC behind CIC": (RANKING, everywhere(nic_effect=1.0, noise=0.5, cic_nic=0.7)),
    "NIC against SIC": (RANKING, everywhere(sic_effect=-0.7, nic_effect=1.0, noise=0.3, **TOGETHER)),
    "NIC now and then": (RANKING, everywhere(slope_sd=1.5, noise=0.3, all_nic=0.4)),
    "together": (RANKING, everywhere(cic_nic=0.6, **TOGETHER)),
    "apart": (RANKING, everywhere(cic_nic=-0.6, **APART)),
    "together or apart": (RANKING, lambda place: APART if place.experiment % 2 else TOGETHER),
    "SIC and CIC unrelated": (MANY, everywhere()),
    "SIC and CIC related": (MANY, everywhere(sic_cic=0.4)),
    "SIC and CIC hardly related": (MANY, everywhere(sic_cic=0.0535)),
    "early": (RANKING, everywhere(**THREE, noise=0.5, wander=0.1)),
    "late": (RANKING, everywhere(**THREE, noise=0.5, wander=3.0)),
    "early, of the other sign": (RANKING, everywhere(**AGAINST, noise=0.5, wander=0.1)),
    "SIC behind NIC, late": (RANKING, everywhere(sic_effect=1.0, noise=0.3, wander=1.5, **TOGETHER)),
    "NIC, late": (RANKING, everywhere(nic_effect=1.0, noise=0.3, wander=2.0)),
    "all three": (JOINT, everywhere(sic_effect=0.7, cic_effect=1.0, nic_effect=1.0, noise=0.3)),
    "none of three": (JOINT, everywhere()),
    "all three, of the other sign": (JOINT, everywhere(**AGAINST, noise=0.5)),
    "SIC, with CIC of either sign": (JOINT, alternating("cic_effect", 1.2, sic_effect=1.0, noise=0.3)),
    "NIC, with CIC of either sign": (JOINT, alternating("cic_effect", 1.2, nic_effect=1.0, noise=0.3, log_sim=0.99)),
    "close": (JOINT, everywhere(spread=0.05)),
    "far": (JOINT, everywhere(spread=0.3, mean_forgetting=0.4)),
    "0.1 away": (JOINT, everywhere(spread=0.1253, retention_power=0.0, **ALONE)),
    "no levels": (BOTH, everywhere(retention_power=0.0)),
    "less rehearsal, more forgetting": (LEVELS, everywhere(retention_power=-0.6)),
    "less rehearsal, less forgetting": (LEVELS, everywhere(retention_power=0.6)),
    "more classes, more forgetting": (LEVELS, along("increment", "spread", (0.05, 0.15), retention_power=0.0)),
    "more classes, less forgetting": (LEVELS, along("increment", "spread", (0.25, 0.1), retention_power=0.0)),
    "as many classes, FG-R": (LEVELS, along("increment", "spread", SAME_RANGE, retention_power=0.0)),
    "as many classes, FG-HG": (LEVELS, along("increment", "spread", SAME_GAP, retention_power=0.0)),
    "clear with less rehearsal": (BOTH, along("retention", "noise", (CLEAR, 1.0, NOISY), **THREE)),
    "clear with more rehearsal": (BOTH, along("retention", "noise", (NOISY, 1.0, CLEAR), **THREE)),
    "clear in the middle": (LEVELS, along("retention", "noise", (NOISY, CLEAR, NOISY), **THREE)),
    "clear at the ends": (LEVELS, along("retention", "noise", (CLEAR, NOISY, CLEAR), **THREE)),
    "clear with few classes": (BOTH, along("increment", "noise", (CLEAR, NOISY), **THREE)),
    "clear with many classes": (BOTH, along("increment", "noise", (NOISY, CLEAR), **THREE)),
    "no levels, harder": (HARD, everywhere()),
    "clear in the middle, harder": (HARD, along("retention", "noise", (NOISY, CLEAR, NOISY), **THREE)),
    "clear at the ends, harder": (HARD, along("retention", "noise", (CLEAR, NOISY, CLEAR), **THREE)),
    "together with few classes": (LEVELS, nic_and_sic(0.0, -0.5, 0.0)),
    "together with many classes": (LEVELS, nic_and_sic(0.0, 0.5, 0.0)),
    "together in the middle": (LEVELS, lambda place: TOGETHER if place.retention == 1 else {}),
    "together at the ends": (LEVELS, lambda place: {} if place.retention == 1 else TOGETHER),
    "NIC and SIC alike everywhere": (EFFECTS, everywhere()),
    "NIC and SIC change": (EFFECTS, nic_and_sic(0.3, 0.25, 0.3)),
    "NIC and SIC change a little": (EFFECTS, nic_and_sic(*MARGIN)),
    "no change": (MODEL_STEPS, everywhere()),
    "range grows": (STEPS, along("step", "spread", (0.1, 0.25))),
    "range shrinks": (STEPS, along("step", "spread", (0.25, 0.1))),
    "same range": (STEPS, along("step", "spread", SAME_RANGE)),
    "same gap": (STEPS, along("step", "spread", SAME_GAP)),
    "gap grows by 0.03": (STEPS, along("step", "spread", (SAME_GAP[0], SAME_GAP[1] * 0.11 / 0.08))),
    "clear at first": (MODEL_STEPS, along("step", "noise", (CLEAR, NOISY), **THREE)),
    "clear later": (MODEL_STEPS, along("step", "noise", (NOISY, CLEAR), **THREE)),
    "NIC with SIC, then with CIC": (STEPS, lambda place: TOGETHER if place.step == 2 else {"cic_nic": 0.6}),
    "NIC with CIC, then with SIC": (STEPS, lambda place: TOGETHER if place.step == 3 else {"cic_nic": 0.6}),
    "alike": (MODEL_DATASETS, everywhere()),
    "harder is more uneven": (DATASETS, along("dataset", "spread", (0.08, 0.2))),
    "harder is less uneven": (DATASETS, along("dataset", "spread", (0.2, 0.08))),
    "harder is less clear": (MODEL_DATASETS, along("dataset", "noise", (CLEAR, NOISY), **THREE)),
    "harder is clearer": (MODEL_DATASETS, along("dataset", "noise", (NOISY, CLEAR), **THREE)),
    "apart on the harder": (DATASETS, lambda place: {} if place.dataset else TOGETHER),
    "together on the harder": (DATASETS, lambda place: TOGETHER if place.dataset else {}),
    "others tell on the harder": (MODEL_DATASETS, along("dataset", "nic_effect", (0.0, 1.5), sic_effect=1.0, noise=0.3)),
    "others tell on the easier": (MODEL_DATASETS, along("dataset", "nic_effect", (1.5, 0.0), sic_effect=1.0, noise=0.3)),
    "rise together": (RERUNS, everywhere(**TOGETHER)),
    "no relation": (RERUNS, everywhere()),
    "rise and fall": (RERUNS, everywhere(**APART)),
}  # fmt: skip


OFTEN = {"nothing": 3, "no relation": 3}  # times as many stores: so many claims meet there that some look wrong by chance


class Trial(NamedTuple):
    """A claim, and the names of three worlds."""

    claim: str
    holds: str
    opposite: str
    zero: str


_SEVERITY = (
    Trial("Imbalanced forgetting is substantial: mean FG-R above 0.55", "uneven", "even", "nothing forgotten"),
    Trial("Imbalanced forgetting is substantial: mean FG-HG above 0.25", "uneven", "even", "nothing forgotten"),
    Trial("FG-HG varies less between steps than FG-R", "uneven", "all or nothing", "two past classes"),
    Trial("The least forgotten class improves in fewer than a quarter of the steps", "even", "0.1 better", "a quarter improve"),
    Trial("Where the least forgotten class improves, it does by less than 0.1 on average",
          "a little better", "better", "0.1 better"),
    Trial("The most forgotten class is always worse than when it was learned", "even", "better", "nothing forgotten"),
)  # fmt: skip
_RANKING = (
    *(Trial(f"SIC ranks past classes better than {other}{given}", "SIC", other, "nothing")
      for other in ("NIC", "CIC") for given in ("", ", given the others")),
    *(Trial(f"How well SIC ranks varies less between steps than for {other}", "SIC", other, "nothing")
      for other in ("NIC", "CIC")),
    Trial("NIC ranks past classes better than CIC", "NIC", "CIC", "nothing"),
    Trial("NIC loses strength when the others are controlled for", "SIC behind NIC", "NIC against SIC", "nothing"),
    Trial("NIC loses more than SIC when the others are controlled for", "SIC behind NIC", "NIC behind SIC", "nothing"),
    Trial("NIC loses more than CIC when the others are controlled for", "CIC behind NIC", "NIC behind CIC", "nothing"),
    Trial("What NIC shares is shared with SIC rather than with CIC", "SIC behind NIC", "CIC behind NIC", "nothing"),
    Trial("CIC adds something that the others do not hold", "CIC", "against CIC", "nothing"),
    Trial("NIC is better than ALL-NIC", "NIC", "against NIC", "nothing"),
    Trial("NIC is better than ALL-NIC, given SIC and CIC", "NIC", "against NIC", "nothing"),
    Trial("How well NIC ranks varies less between steps than for ALL-NIC", "NIC", "NIC now and then", "nothing"),
    Trial("NIC goes with SIC more than ALL-NIC does", "together", "apart", "nothing"),
    Trial("How NIC goes with SIC varies less than how ALL-NIC does", "together", "together or apart", "nothing"),
    Trial("NIC is better than LOG-SIM", "NIC", "against NIC", "nothing"),
    Trial("NIC goes with SIC", "together", "apart", "nothing"),
    Trial("NIC goes with CIC", "together", "apart", "nothing"),
    Trial("SIC and CIC have no consistent relation",
          "SIC and CIC unrelated", "SIC and CIC related", "SIC and CIC hardly related"),
    Trial("LOG-SIM ranks past classes in second steps", "NIC", "against NIC", "nothing"),
)  # fmt: skip
_EARLY = (
    *(Trial(f"A quarter of training is enough for {what}", "early", opposite, "nothing")
      for opposite in ("late", "early, of the other sign")
      for what in ("SIC", "SIC, given the others", "CIC", "CIC, given the others", "NIC")),
    Trial("What NIC alone tells shrinks as training goes on", "SIC behind NIC, late", "NIC, late", "nothing"),
)  # fmt: skip
_MODEL = (
    *(Trial(f"{name} has a positive weight in every partition", "all three", "all three, of the other sign", "none of three")
      for name in ("SIC", "CIC", "NIC")),
    Trial("All coefficients together rank better than SIC alone", "all three", "SIC, with CIC of either sign", "none of three"),
    Trial("How well all together rank varies less between steps than for SIC",
          "all three", "SIC, with CIC of either sign", "none of three"),
    Trial("All coefficients together rank better than LOG-SIM", "all three", "NIC, with CIC of either sign", "none of three"),
    Trial("All coefficients together predict closer than SIC alone",
          "all three", "SIC, with CIC of either sign", "none of three"),
    Trial("All coefficients together miss forgetting by at most 0.10", "close", "far", "0.1 away"),
)  # fmt: skip
_LESS, _MORE, _FEW, _MANY = (
    f"clear with {what}" for what in ("less rehearsal", "more rehearsal", "few classes", "many classes")
)
_GIVEN = ("", ", given the others")
_LEVELS = (
    *(Trial(f"Less rehearsal means more imbalance ({name})",
            "less rehearsal, more forgetting", "less rehearsal, less forgetting", "no levels") for name in ("FG-R", "FG-HG")),
    *(Trial(f"More new classes mean more imbalance ({name})",
            "more classes, more forgetting", "more classes, less forgetting", f"as many classes, {name}")
      for name in ("FG-R", "FG-HG")),
    *(Trial(f"Less rehearsal makes {name} rank better{given}", _LESS, _MORE, "no levels")
      for name in ("SIC", "CIC") for given in _GIVEN),
    *(Trial(f"More new classes make SIC rank less well{given}", _FEW, _MANY, "no levels") for given in _GIVEN),
    *(Trial(f"SIC ranks best with the middle retention{given}",
            "clear in the middle, harder", "clear at the ends, harder", "no levels, harder") for given in _GIVEN),
    Trial("More rehearsal makes NIC rank better, given the others", _MORE, _LESS, "no levels"),
    Trial("NIC ranks best with the middle retention", "clear in the middle", "clear at the ends", "no levels"),
    Trial("More new classes make NIC rank better, given the others", _MANY, _FEW, "no levels"),
    Trial("Less rehearsal makes all coefficients together rank better", _LESS, _MORE, "no levels"),
    Trial("More new classes make all coefficients together rank less well", _FEW, _MANY, "no levels"),
    Trial("More new classes make NIC go less with SIC", "together with few classes", "together with many classes", "no levels"),
    Trial("NIC goes most with SIC with the middle retention", "together in the middle", "together at the ends", "no levels"),
    *(Trial(f"Retention decides how well {what} more than the increment does", _LESS, _FEW, "no levels")
      for what in ("SIC ranks", "CIC ranks", "NIC ranks", "all coefficients together rank")),
    *(Trial(f"{what} hardly any effect on how NIC goes with SIC: partial eta squared below 0.06",
            "NIC and SIC alike everywhere", "NIC and SIC change", "NIC and SIC change a little")
      for what in ("Retention has", "The increment has", "Retention and increment together have")),
)  # fmt: skip
_BETWEEN = (
    Trial("FG-R grows from step to step", "range grows", "range shrinks", "same range"),
    Trial("FG-HG stays the same from step to step", "same gap", "range grows", "gap grows by 0.03"),
    *(Trial(f"{name} less well from step to step", "clear at first", "clear later", "no change")
      for name in ("SIC ranks", "NIC ranks", "LOG-SIM ranks", "All coefficients together rank")),
    *(Trial(f"NIC goes {more} from step to step", "NIC with SIC, then with CIC", "NIC with CIC, then with SIC", "no change")
      for more in ("less with SIC", "more with CIC")),
    *(Trial(f"{name} is larger on the harder data set", "harder is more uneven", "harder is less uneven", "alike")
      for name in ("FG-R", "FG-HG")),
    *(Trial(f"{name} less well on the harder data set", "harder is less clear", "harder is clearer", "alike")
      for name in ("SIC ranks", "NIC ranks", "All coefficients together rank")),
    Trial("CIC ranks better on the harder data set", "harder is clearer", "harder is less clear", "alike"),
    Trial("NIC goes less with SIC on the harder data set", "apart on the harder", "together on the harder", "alike"),
    Trial("All coefficients together gain more over SIC on the harder data set",
          "others tell on the harder", "others tell on the easier", "alike"),
    *(Trial(f"With other new classes, SIC {what}", "rise together", "rise and fall", "no relation")
      for what in ("of a class rises with NIC", "rises with NIC for most classes")),
)  # fmt: skip
TRIALS = (*_SEVERITY, *_RANKING, *_EARLY, *_MODEL, *_LEVELS, *_BETWEEN)
