"""Everything that is said: `headlines` and the `reading` of a whole analysis, `findings` of one experiment, `arms` of a
comparison, `captions` for print, `methods` for a paper; `notation` is how numbers are written, `units` are sizes and times.
"""
