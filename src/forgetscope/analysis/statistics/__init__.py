"""Statistics on plain arrays: nothing here knows a store, a class or a paper.

Begin with `estimates` (a value with its interval) and `rank_correlation` (Spearman and partial). `pooling` means over steps in
Fisher's z, `t_tests` compares two samples, `bootstrap` is BCa, `anova` the two-way one, `mixed_models` with
`restricted_likelihood` beneath, `detection` how well a score finds what it should, `prediction` how near one comes and how
often an interval holds, `noise` what test images add to forgetting, `learned` which classes were learned at all,
`matching` what it would be at the same mean, and `power` how many pairs a difference takes.
"""
