"""The paper's tables, figures and claims, from samples.

`tables` and `figures` fill what `analysis.exhibits` lists; `joint_model` and `comparisons` are
analyses behind them; `claims` asks the text's claims and `verdicts` says how they are told; `printed` has the paper's own
numbers.
"""
