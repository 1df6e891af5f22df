"""The names of what a probe finds for each past class, in the order of every table and array that holds them."""

COEFFICIENTS = ("sic", "cic", "nic", "all_nic")  # whose terms add up over probes
QUANTITIES = (*COEFFICIENTS, "gradient_norm", "bias_norm", "loss_full", "loss_rehearsal")
METHODS_OWN = ("method_sic", "method_cic", "method_nic", "method_all_nic")  # the same of what the step's method does
ESTIMATES = ("sic_estimate", "cic_estimate", "nic_estimate")  # of the first three, without past images
FORECAST = ("forecast", "forecast_low", "forecast_high", *ESTIMATES)  # of forgetting so far, and its interval
