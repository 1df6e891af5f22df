"""HTML pages: one file each, without any request.

`experiment` is the page of one experiment and `benchmark` that of a store; both hold the `explorer`, which has `details` of
some steps; `picture` is what a store's page begins with, `compared` sets
policies and methods beside a baseline, `provenance` is how the store came about, `packing` how data
and scripts get into a page, `assets` its scripts and styles, `writing` makes the file. `live` is
the page of steps that are under way, which asks the server of `watching` for what is new.
"""
