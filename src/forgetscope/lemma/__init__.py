"""The Class-Wise R-SGD lemma against training, a study of its own: does the bound hold, and what makes it loose?

Read `terms` first, the lemma at one iterate as it is printed; then `smoothness`, its constants L_c. `check` trains a small smooth
network by the package's own second step and holds both against real updates; `summary` judges, `report` shows. The last layer's
coefficients are those of `measuring`, and these are their counterparts over all parameters. The command is `forgetscope lemma`.
"""
