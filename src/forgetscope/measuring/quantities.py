"""The names of what a probe finds for each past class, in the order of every table and array that holds them."""

COEFFICIENTS = ("sic", "cic", "nic", "all_nic")  # whose terms add up over probes
QUANTITIES = (*COEFFICIENTS, "gradient_norm", "bias_norm", "loss_full", "loss_rehearsal")
