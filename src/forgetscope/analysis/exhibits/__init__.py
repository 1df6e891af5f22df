"""Every table and figure, those of the paper and those beyond it; a new one begins here, with its entry.

`tables` and `figures` list them, and `exhibit` is what an entry says. What a table of the paper holds is read off its `columns`
and `layout` (`paper.cells`); the frame of any other exhibit is computed for its label (`results`). Pages, print, terminal and
files go through the exhibits of an analysis and look none up.
"""
