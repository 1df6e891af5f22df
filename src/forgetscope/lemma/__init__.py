"""The Class-Wise R-SGD lemma against training, a study of its own.

`terms` are the lemma's terms at one iterate and `smoothness` its constants; `check` holds them against real updates, `summary`
judges, `report` shows. The command is `forgetscope lemma`.
"""
