"""Views for a terminal, all of them made of `tables`.

`experiments` and stores, `observed` steps, `plans` and simulations, `storage`, `arms` of a comparison, and the `studies`: an
analysis, variants, controlled experiments and approximations.
"""
