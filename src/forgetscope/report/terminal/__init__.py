"""Views for a terminal, all of them made of `tables`.

`experiments` and stores, `exhibits` of an analysis, `plans` and simulations, `storage`, and the `studies`: variants, controlled
experiments and approximations.
"""
