"""Experiments: the only place that wires data, learning, measuring and the store together.

`chain` runs a step under its lock, `step` is the step itself: `preparation`, `course`, `observation`, `measured`. `settings`
says on what it is computed, `checks` what would go wrong, `stopping` how it is asked to end, `calibration` how fast it is.
"""
