"""What is asked beyond the paper's tables.

`policies`, `arms` and `variants` compare in pairs, `leaderboard` whatever a store holds; `own_loss` is why a method
forgets less; `controlled` looks at re-runs with other new classes, `approximations` at what the paper left out; `foresight`
asks how early forgetting is known, `forecasts` how good predictions without past images were, `suffering` who suffers,
`learned_classes` what is found among classes that were learned at all, `example` which step stands for it, `noise` how much
of it is noise, `advice` what a store lacks.
"""
