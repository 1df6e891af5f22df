"""`forgetscope approximations`: what was measured beside the probes, against what the paper measures."""

from __future__ import annotations

import forgetscope as fs
from forgetscope.cli.console import Unreadable, print_json, print_view
from forgetscope.cli.options import DEFAULT_STORE, JsonOption, StoreArgument


def approximations(store: StoreArgument = DEFAULT_STORE, as_json: JsonOption = False) -> None:
    """What the paper's approximations cost: the last layer for all, epochs for iterations, NIC as released.

    For every setting in the store whose steps measured something beside the probes (options all_layers_every, every_iteration,
    released_nic). Means over steps with 95 % intervals, differences paired over steps. docs/beyond.md says how to read it."""
    from forgetscope.analysis.questions.approximations import approximations as compute
    from forgetscope.report.document import study_document
    from forgetscope.report.terminal.studies import approximations_view

    left_out = Unreadable()
    found = compute(fs.Store.existing(store), left_out)
    left_out.tell(True)
    if as_json:
        print_json(study_document(settings=found))
    else:
        print_view(approximations_view(found), whole=True)
