"""Arms of a comparison: the same run with other options, on the same pairs of class sequence and seed.

Pair i has the run's seed + i, and its sequence_seed + i where that is set: it is what `forgetscope run` does with that seed,
and shares its steps. A sequence that the run spells out stays as it is.

What can change from the second step on starts from the baseline's own first step, so the difference is not noise from step one.
What a first step is made of (its network, its images) cannot; such an arm has first steps of its own, with the same seeds.
"""

import re
import tomllib
from collections.abc import Hashable, Mapping
from contextlib import suppress
from typing import Any

from forgetscope.benchmark.plans import Chain, Plan
from forgetscope.choices import canonical_calibration
from forgetscope.errors import SpecError
from forgetscope.options import nearest, parse_setting, toml_value
from forgetscope.spec import HOW_MUCH_IS_KEPT, AugmentationSpec, RunSpec, step_specs

FIXED = ("dataset", "image_size", "increment", "steps", "sequence_seed", "sequence", "seed")  # what a pair is
FROM_THE_START = (  # what a first step is made of
    *("network", "initialisation", "initial_weights", "normalisation"),
    *("validation", "first_batch", "script_behaviour"),
)
AGAIN = "again"  # the baseline once more, with other draws
LONGEST = 40  # characters of an arm's name
INSTEAD = (HOW_MUCH_IS_KEPT, ("probes", "probe_every"))  # exclude each other: what an arm gives replaces what the run has

Options = Mapping[str, object]
Arms = Mapping[str, Options]


def parse_arm(text: str) -> tuple[str, dict[str, object]]:
    """`NAME: key=value, ...` from the command line; values are TOML, or plain words. Nothing behind the name: the run as it is.

    >>> parse_arm("few: retention=0.04, policy=herding, alpha=[0.5, 0.25]")
    ('few', {'retention': 0.04, 'policy': 'herding', 'alpha': [0.5, 0.25]})
    """
    name, _, rest = (part.strip() for part in text.partition(":"))
    if not name or "=" in name:
        raise SpecError(f"--arm {text!r} is not of the form NAME: key=value, ..., for example --arm 'few: retention=0.04'.")
    return name, _options(rest)


def _options(text: str) -> dict[str, object]:
    with suppress(ValueError, RecursionError):  # values that are plain words, or no settings at all: below
        parsed = tomllib.loads(f"arm = {{{text}}}")
        if len(parsed) == 1:
            return dict(parsed["arm"])
    parts = [parse_setting(part, "--arm", "policy=herding") for part in re.split(r",(?=\s*\w+\s*=)", text)]
    twice = [name for number, (name, _) in enumerate(parts) if name in dict(parts[:number])]
    if twice:
        raise SpecError(f"--arm: {twice[0]} is given twice in {text!r}. Give one value.")
    return dict(parts)


def arm_text(name: str, options: Options) -> str:
    """What `parse_arm` reads."""
    return f"{name}: {', '.join(f'{option}={toml_value(value)}' for option, value in options.items())}".rstrip()


def check_arms(run: RunSpec, arms: Arms, baseline: str, again: bool) -> None:
    """Say what is wrong with them. baseline: one of them."""
    if baseline not in arms:
        raise SpecError(f"--baseline {baseline} is not among the arms.{nearest(baseline, list(arms))}")
    if again and AGAIN in arms:
        raise SpecError(f"--arm {AGAIN}: that is the baseline with other draws. Choose another name, or add --no-again.")
    if len(arms) + again < 2:
        raise SpecError(f"--arm {baseline}: name a second arm to compare it with.")
    for name, options in arms.items():
        if not name.strip() or len(name) > LONGEST or {*":="} & {*name} or name != name.strip() or not name.isprintable():
            raise SpecError(f"An arm cannot be called {name[:80]!r}: use 1 to {LONGEST} characters, no colon and no =.")
        for option in options:
            check_option(f"--arm {name}", option)
        try:
            changed(run, options)
        except SpecError as error:
            raise SpecError(f"--arm {name}: {error}") from None
    if (run.steps if run.sequence is None else len(run.sequence)) < 2:
        raise SpecError("A first step forgets nothing, so that there is nothing to compare. Use at least two steps.")
    made: dict[Hashable, str] = {}
    for name, options in (with_again(run, arms, baseline) if again else arms).items():
        if (same := made.setdefault(resolved(changed(run, options)), name)) != name:
            raise SpecError(f"--arm {name}: that is {same} once more. Give it another option, such as draws=2.")


def check_option(said: str, option: str) -> None:
    """An error unless arms of one comparison may differ in this option."""
    known = [name for name in RunSpec.model_fields if name not in FIXED]
    if option not in known:
        reason = "is what a pair has in common" if option in FIXED else "is no option of a run"
        raise SpecError(f"{said}: {option} {reason}.{nearest(option, known)}")


def with_again(run: RunSpec, arms: Arms, baseline: str) -> dict[str, Options]:
    """The baseline first, then it once more with the next draws, then the others."""
    draws = changed(run, arms[baseline]).draws + 1
    return {baseline: arms[baseline], AGAIN: {**arms[baseline], "draws": draws}} | {**arms}


def changed(run: RunSpec, options: Options) -> RunSpec:
    """The run with these options in place of its own."""
    replaced = {name for excluding in INSTEAD if {*excluding} & {*options} for name in excluding}
    kept = {name: value for name, value in run.given.items() if name not in replaced}
    return RunSpec(**kept | {**options})


def resolved(run: RunSpec) -> Hashable:
    """What it comes to, however its options are spelled: its steps, whatever their classes are, and their calibration."""
    sequence = run.sequence or [[step] for step in range(run.steps)]
    return *step_specs(run, sequence, AugmentationSpec()), canonical_calibration(run.calibration)


def member_of(run: RunSpec, number: int, **options: Any) -> RunSpec:
    """The run on the pair with this number, with these options."""
    chosen = {**options, "seed": run.seed + number}
    if run.sequence_seed is not None:
        chosen["sequence_seed"] = run.sequence_seed + number
    return RunSpec(**run.model_dump(exclude_unset=True) | chosen)


def add_arms(plan: Plan, run: RunSpec, arms: Arms, baseline: str, pairs: int) -> None:
    """Every arm on every pair; chains in this order, pair by pair."""
    whole = with_keepsakes(run, arms)
    for number in range(pairs):
        pair = member_of(run, number)
        base = changed(pair, whole[baseline])
        for name, options in whole.items():
            member = changed(pair, options)
            specs = plan.specs_of(member)
            if all(getattr(member, option) == getattr(base, option) for option in FROM_THE_START):
                specs[:1] = plan.specs_of(base)[:1]
            plan.add_chain(specs, member, number=number, variant=name, lent=options is not arms[name] or None)


def with_keepsakes(run: RunSpec, arms: Arms) -> dict[str, Options]:
    """What an arm's calibration starts from is also kept in those that differ from it in calibration alone, which are the same
    training; unless it would take the place of images."""
    alike: dict[RunSpec, list[str]] = {}
    for name, options in arms.items():
        if changed(run, options).memory_bytes is None:
            alike.setdefault(changed(run, {**options, "calibration": "none"}), []).append(name)
    found = dict(arms)
    for names in alike.values():
        members = [changed(run, arms[name]) for name in names]
        implied = {(member.forecast, member.keepsake) for member in members}
        if len(implied) > 1:
            forecast, keepsake = max(implied)  # a forecast rather than none
            for name, member in zip(names, members, strict=True):
                if not member.forecast:
                    found[name] = {**arms[name], "forecast": forecast, "keepsake": keepsake}
    return found


def chains_by_arm(plan: Plan) -> dict[str, list[Chain]]:
    """Of each arm of such a plan its experiments, pair by pair."""
    found: dict[str, list[Chain]] = {}
    for chain in plan.chains:
        found.setdefault(str(chain.variant), []).append(chain)
    return found
