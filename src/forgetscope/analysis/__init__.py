"""From a store to answers: frames of one experiment, and every table, figure and claim of a whole store.

`experiments` and `index` show what was run; `exhibits` lists every table and figure, and `results` is the whole analysis of a
store and the place to begin. It reads `inputs` (steps and samples), computes with `statistics` (which know no store), and asks
what the `paper` asks and further `questions`.
"""
