"""Everything that is said: the `opening` of a benchmark, its `headlines` and the `reading` of a whole analysis, `lacks` of a
store, `findings` of one experiment and what a `notebook` shows of it, what stands beside it where it
is `calibrated` or its method's `own_loss` was measured, `arms` of a comparison, `captions` for print, `methods` for a paper;
`definitions` of the words in all of these; `notation` is how numbers are written, `units` are sizes and times.
"""
