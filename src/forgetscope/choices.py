"""Methods and calibrations as a run names them: by name, with options in brackets, `distillation(weight=0.5)`."""

import math
import re
from collections.abc import Mapping

from forgetscope.errors import SpecError
from forgetscope.options import nearest

# With their options and the values that these have if they are not given.
METHODS: dict[str, dict[str, float]] = {
    "replay": {},
    "distillation": {"weight": 1.0, "temperature": 2.0},
    "dark-logits": {"weight": 0.1},
    "ace": {},
    "logit-adjusted": {"strength": 1.0},
    "fine-tune": {},
    "joint": {},
}
CALIBRATIONS: dict[str, dict[str, float | str]] = {
    "none": {},
    "offset": {"logits": 0.5},
    "evening": {"strength": 0.65, "shrinkage": "estimated", "level": "forgetting", "source": "keepsakes"},
    "bias-correction": {},
    "weight-aligning": {},
}
POSITIVE = ("temperature",)  # of methods, whose other numbers may be 0
OPTION_WORDS = {"shrinkage": ("estimated",), "level": ("forgetting", "balance"), "source": ("keepsakes", "held-out")}
OPTION_RANGES = {"strength": (0.0, 1.0), "shrinkage": (0.0, 1.0), "level": (-math.inf, 1.0), "logits": (-100.0, 100.0)}
NAMED_CODE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")  # package.module:function
_FORM = re.compile(r"(?P<name>[^\s()]+)(\((?P<options>[^()]*)\))?")  # name, or name(option=value, ...)


def named_method(text: str) -> tuple[str, dict[str, float]]:
    """Name and options of a method as it is given; those of ours are all there.

    >>> named_method("distillation(weight=0.5)")
    ('distillation', {'weight': 0.5, 'temperature': 2.0})
    """
    name, given = _parts("method", text, METHODS)
    options = dict(METHODS.get(name, {}))
    for option, value in given.items():
        number = _number(value)
        if not math.isfinite(number) or not option.isidentifier():
            said = f"{option}={value}" if value else option
            raise SpecError(f"method = {text!r}: {said!r} is not of the form option=number. Write for example weight=0.5.")
        if name in METHODS and (number < 0 or (option in POSITIVE and number == 0)):
            raise SpecError(f"method = {text!r}: {option}={value} is not valid: it should be positive.")
        options[option] = number
    return name, options


def canonical_method(text: str) -> str | None:
    """The one form of a method by which steps know it: options in the order of their names, without those that are as they
    are if not given; None for replay.

    >>> canonical_method("distillation(weight=1, temperature=4)"), canonical_method("replay")
    ('distillation(temperature=4.0)', None)
    """
    name, options = named_method(text)
    return None if name == "replay" else _canonical(name, options, METHODS.get(name, {}))


def named_calibration(text: str) -> tuple[str, dict[str, float | str]]:
    """Name and options of a calibration as it is given, all of them.

    >>> named_calibration("evening(level=balance)")[1]
    {'strength': 0.65, 'shrinkage': 'estimated', 'level': 'balance', 'source': 'keepsakes'}
    """
    name, given = _parts("calibration", text, CALIBRATIONS)
    options = dict(CALIBRATIONS[name])
    for option, value in given.items():
        number, (low, high) = _number(value), OPTION_RANGES.get(option, (math.inf, -math.inf))
        words = OPTION_WORDS.get(option, ())
        if value in words:
            options[option] = value
        elif math.isfinite(number) and low <= number <= high:
            options[option] = number
        else:
            numbers = [f"a number from {low:g} to {high:g}" if math.isfinite(low) else f"a number up to {high:g}"] * (
                low <= high
            )
            raise SpecError(
                f"calibration = {text!r}: {option}={value} is not valid: it should be {' or '.join([*words, *numbers])}."
            )
    return name, options


def canonical_calibration(text: str) -> str | None:
    """The one form of a calibration by which a store knows it, as of a method; None for none.

    >>> canonical_calibration("evening(strength=0.65, level=balance)")
    'evening(level=balance)'
    """
    name, options = named_calibration(text)
    return None if name == "none" else _canonical(name, options, CALIBRATIONS[name])


def needs_forecast(calibration: str) -> bool:
    """Whether it starts from what is predicted of each past class."""
    name, options = named_calibration(calibration)
    return name == "evening" and options["source"] == "keepsakes"


def needs_held_out(calibration: str) -> bool:
    """Whether it looks at images that training has never seen."""
    name, options = named_calibration(calibration)
    return name == "bias-correction" or (name == "evening" and options["source"] == "held-out")


def _parts(what: str, text: str, known: Mapping[str, Mapping[str, object]]) -> tuple[str, dict[str, str]]:
    """Name and options in words. A name of one's own is for methods alone."""
    form = _FORM.fullmatch(text.strip())
    name, own = form["name"] if form else text, what == "method"
    if form is None or (name not in known and not (own and NAMED_CODE.fullmatch(name))):
        raise SpecError(f"{what} = {text!r} is not known.{nearest(name, list(known))}")
    given: dict[str, str] = {}
    for part in filter(None, map(str.strip, (form["options"] or "").split(","))):
        option, _, value = map(str.strip, part.partition("="))
        if name in known and option not in known[name]:
            meant = nearest(option, list(known[name])) if known[name] else f" {name} has no options."
            raise SpecError(f"{what} = {text!r}: there is no option {option!r} of {name}.{meant}")
        given[option] = value
    return name, given


def _canonical(name: str, options: Mapping[str, float | str], usual: Mapping[str, float | str]) -> str:
    changed = ", ".join(f"{option}={value}" for option, value in sorted(options.items()) if usual.get(option) != value)
    return f"{name}({changed})" if changed else name


def _number(value: str) -> float:
    """NaN where it is none."""
    try:
        return float(value)
    except ValueError:
        return math.nan
