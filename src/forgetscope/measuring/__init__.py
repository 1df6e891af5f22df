"""Interference in a network, on plain tensors: nothing here knows data sets, specifications or stores.

`measurement` is one probe, a function of network and images; `sums` adds probes up; `probe` does both, for any training loop.
Below it: `gradients`, last-layer gradients in closed form; `coefficients`, what the paper makes of them; `all_layers`, the same
over all parameters; `folding`, which makes features faster. `quantities` names what is found, `forgetting` is what it predicts.
"""
