"""Interference in a network, on plain tensors: nothing here knows data sets, specifications or stores.

`measurement` is one probe, a function of network and images; `sums` adds probes up; `probe` does both, for any training loop,
on images that `probe_data` has taken and checked. Below it: `heads`, which finds the last layer of any network and checks it,
by `watching` the network at work without a trace; `gradients`, last-layer gradients in closed form, `own_gradients`, the same
by autograd for heads without one, and `method_gradients`, those of what a method does; `coefficients`, what the paper makes of
them; `all_layers`, the same over all layers; `folding`, which makes features faster. `quantities` names what is found,
`forgetting` is what it predicts, `keepsakes` what is kept of a class's features.
"""
