"""Watching somebody's own training: what `run` gives, for any loop.

`monitor` is what is opened, `step` one step of it while it trains: probes, accuracies, the record. Data in any form are taken
by `streams`, from loaders by copies (`loaders`), and measured on in `passes`, never held; `weighting` knows the share of
rehearsal, `risk` which classes are being lost, `prospects` what is forecast and kept without past images, `evaluation` what
test images are taken for; `record` makes the tables that are kept, and `trackers` say where series of numbers go. Around a
step: `place`, where it is kept while it runs, `states` for checkpoints, and `telling`, how its user is spoken to.
"""
