"""The paper's tables, figures and claims, from samples.

`cells` and `points` fill the tables and figures that `analysis.exhibits` lists; `joint_model` and `comparisons` are analyses
behind them; `claims` asks the text's claims and `verdicts` judges them; `printed` has the paper's own
numbers.
"""
