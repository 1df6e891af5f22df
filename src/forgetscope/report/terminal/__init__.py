"""Views for a terminal, all of them made of `columns` of plain text; `fitting` is how these fit its width.

`experiments` and stores, `observed` steps, what is `running`, `plans` and simulations, `storage`, `arms` of a comparison, the
`leaderboard` of methods, the `studies`: an analysis, variants, controlled experiments and approximations; and a `glossary` of
the words.
"""
