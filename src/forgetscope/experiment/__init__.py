"""Experiments: the only place that wires data, learning, measuring and the store together.

`chain` runs an experiment step by step, `step` one step: its `preparation`, its `course` of training, what is measured on the
way (`observation`, `measured`). `checks` finds what cannot work before anything starts; `settings` say where and how to
compute, `stopping` how a run ends politely, `calibration` how fast this machine is.
"""

from forgetscope.experiment.chain import Plan, Progress, run_experiment

__all__ = ["Plan", "Progress", "run_experiment"]
