"""Experiments: the only place that wires data, learning, measuring and the store together.

`chain` runs a step under its lock, `step` is the step itself: its `preparation`, with what its method needs (`objective`), its
`course` of training, what is measured on the way (`observation`) and predicted (`forecast`), what the network says in the end
(`evaluation`), and whether a snapshot is its own (`resuming`). `calibration` acts on what a trained step predicts.
`checks` finds what cannot work before anything starts; `settings` say where and how to compute, `stopping` how a run ends
politely, `speed` how fast this machine is.
"""
