"""When in training something is known: the shares of training at which predictions are made, as probes allow them."""

SHARES = (0.1, 0.25, 0.5, 1.0)  # of training, at which coefficients are kept to predict from
EARLY = 0.25  # the share that the paper calls early
BEFORE = 0.0  # stands for the probe before training


def probes_within(share: float, probes: int) -> int:
    """How many probes, the one before training included, belong to the first share of training."""
    return 1 + round(share * (probes - 1)) if probes else 0


def seen_shares(probes: int) -> dict[int, float]:
    """What can be told apart of `SHARES`, by position: a share that holds no probe but the one before training is `BEFORE`."""
    found: dict[int, float] = {}
    for position, share in enumerate(SHARES):
        seen = share if probes_within(share, probes) > 1 else BEFORE
        if seen not in found.values():
            found[position] = seen
    return found
