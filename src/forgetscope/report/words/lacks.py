"""What a store lacks, a sentence each: what cannot be given, and what it would take."""

from forgetscope.analysis.paper.joint_model import FEWEST
from forgetscope.analysis.questions.advice import Lack
from forgetscope.characters import counted

NAMED = 3  # benchmarks; of more, all but the first two are counted


def lack_sentence(lack: Lack) -> str:
    """It begins in the middle, as after `Missing: `."""
    names, more = ", ".join(lack.names), counted(lack.more, "more experiment")
    match lack.what:
        case "damaged steps":
            ids = ", ".join(id[:8] for id in lack.names)
            return f"damaged steps, left out: {lack.places} ({ids}); `forgetscope store verify` names their files."
        case "damaged plan":
            return f"a plan, left out: {names}"
        case "number of classes":
            return (
                f"{names}: how many classes it has is recorded neither in steps nor in plans, so increments are numbers of "
                "classes instead of percentages; steps that are run from now on record it."
            )
        case "past classes":
            return "no finished step has past classes, so nothing can be forgotten; an experiment needs at least two steps."
        case "settings":
            benchmark, *differing = lack.names
            return f"the paper's values beside those of {benchmark}, because settings differ: {', '.join(differing)}."
        case "data set":
            return (
                f"{names}, the paper's other data set: no step of it is in the store, so that its figures are empty and tables "
                f"have no rows of it; `forgetscope bench run {names}` runs them."
            )
        case "controlled":
            return "controlled experiments: none are in the store; `forgetscope controlled` runs them."
    shown = lack.names if len(lack.names) <= NAMED else (*lack.names[: NAMED - 1], f"{len(lack.names) - NAMED + 1} others")
    where = " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
    return f"{where}, step {lack.step}: {_in_step(lack, more)}" if lack.step else f"{where}: {_in_step(lack, more)}"


def _in_step(lack: Lack, more: str) -> str:
    match lack.what:
        case "third steps":
            return (
                f"no third steps, so nothing can be said about how things go on; {lack.more} experiments of three steps would "
                f"do, {FEWEST} per partition."
            )
        case "joint model":
            fewer = f"{counted(lack.places, 'partition', 'has/have', lack.among)} fewer, " if lack.among > 1 else ""
            return f"the joint model needs {FEWEST} steps in a partition; {fewer}{more} would do."
        case "both factors":
            return (
                "the effects of retention and increment together need two levels of each and two steps in every partition, "
                f"{more} would do; one with two levels is tested alone."
            )
        case "ANOVA":
            return f"an ANOVA needs two steps in every partition, {more} would do."
        case "ranking":
            return "no ranking: steps have fewer than three past classes, or nothing was measured."
        case _:
            epochs = "three epochs or more are needed, and " if lack.what == "early epochs" else ""
            return (
                "no probe in the first quarter of training but the one before it, so whether a quarter is enough cannot be "
                f"asked; {epochs}probe_every = 1 measures after every epoch."
            )
