"""Views for a terminal, all of them made of `columns` of plain text.

`experiments` and stores, `observed` steps, `plans` and simulations, `storage`, `arms` of a comparison, the `leaderboard` of
methods, and the `studies`: an analysis, variants, controlled experiments and approximations.
"""
