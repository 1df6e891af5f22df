"""The Class-Wise R-SGD lemma against training, a study of its own: does the bound hold, and what makes it loose?

Read `terms` first, the lemma at one iterate as it is printed; then `smoothness`, its constants L_c. `check` trains a small
smooth network in the package's own second step and holds both against real updates; `summary` judges, `report` shows. The
coefficients of `measuring` are the last layer's; these terms are over all parameters. The command is `forgetscope lemma`.
"""
