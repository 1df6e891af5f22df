"""Steps that are under way in words, the same on a terminal and on a page."""

from forgetscope.report.words.notation import PLAIN
from forgetscope.report.words.units import duration
from forgetscope.underway.running import UnderWay

SHOWN = 8  # steps with their classes; of more, a line each


def line_of(one: UnderWay) -> str:
    """`Step 2 (5283ad18): epoch 7 of 15 · loss 0.812 · about 3 minutes left`."""
    return f"{title_of(one)}: {pace_of(one)}"


def pace_of(one: UnderWay) -> str:
    progress = one.progress
    epochs = f"epoch {progress.epoch}" + (f" of {progress.epochs}" if progress.epochs is not None else "")
    loss = "" if progress.loss is None else f"loss {PLAIN.number(progress.loss, 3)}"
    left = "" if progress.seconds_left is None else f"about {duration(progress.seconds_left)} left"
    return " · ".join(filter(None, (epochs, loss, left)))


def title_of(one: UnderWay) -> str:
    step = one.progress.step
    return f"Observed step {step}" if "/" in step else f"Step {one.progress.number} ({step[:8]})"


def silence_of(one: UnderWay) -> str:
    """What to think of a step that says nothing any more."""
    progress, ago = one.progress, duration(one.silent)
    where = f"after epoch {progress.epoch}"
    if progress.state == "stopped":
        return f"{title_of(one)} was stopped {where}, {ago} ago. The command that ran it goes on from there."
    told = f"{title_of(one)} has said nothing for {ago}, {where}:"
    if "/" in progress.step:
        return f"{told} its training ended without a word, or takes longer than it did."
    return f"{told} it was killed, or its machine stands still. The command that ran it goes on from its last snapshot."


def lack_of(one: UnderWay) -> str:
    """Why none of its classes is at risk."""
    return (
        "No probe has ended yet, or none was asked for."
        if one.progress.past
        else "No past classes yet: nothing can be forgotten."
    )
