"""From a store to answers: frames of one experiment, and every table, figure and claim of a whole store.

`experiments` and `index` show what was run, `observed` what monitors saw; `exhibits` lists every table and figure, where a new
one begins; `results` is the whole analysis of a store and the place to begin, and `rows` takes rows from its frames. It reads
`inputs` (steps and samples), computes with `statistics` (which know no store), and asks what the `paper` asks and further
`questions`.
"""
