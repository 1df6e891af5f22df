"""Experiments: the only place that wires data, learning, measuring and the store together."""

from forgetscope.experiment.chain import Plan, Progress, run_experiment

__all__ = ["Plan", "Progress", "run_experiment"]
