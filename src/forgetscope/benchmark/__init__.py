"""Plans: which experiments are to be run, and what a store remembers of it. Nothing is trained here.

`space` is a factorial benchmark and its sample, `plans` the graph of steps that any plan is; `pairs`, of `arms`, and
`controlled` make plans of other kinds, `recipes` makes them again from a record. `costs` tells time and space, `records` and
`status` what happened, `shards` cuts a plan in parts, `simulation` writes results of a known `truth`.
"""
