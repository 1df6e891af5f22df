"""Interference in a network, on plain tensors: nothing here knows data sets, specifications or stores.

`probe` measures a network in training; `gradients` are last-layer gradients in closed form, `coefficients` what the paper makes
of them, `all_layers` the same over all parameters, `folding` makes features faster; `forgetting` is what all of it predicts.
"""
