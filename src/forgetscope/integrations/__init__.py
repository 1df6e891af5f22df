"""Where people train: the monitor in the hooks of other frameworks, each of which is imported only where it is used.

Read `following` first: a monitor whose steps are begun and ended by hooks, and whose failures never end the training. Then a
module per framework: `avalanche`, `lightning`, `huggingface`, `mammoth` and `pycil` (PILOT too). `losses` has those that are no
plain cross-entropy.
"""
