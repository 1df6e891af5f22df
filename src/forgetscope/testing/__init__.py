"""The contracts of what can be plugged in, as functions for your own tests; ours use them too. No test framework is needed.

    from forgetscope.testing import check_network, check_policy

    def test_my_policy():
        check_policy(most_confident)

`policies`, `networks` and `methods` have a contract each, with something to try it on; `contract` is how a broken one is told.
"""

from forgetscope.testing.contract import BrokenContract
from forgetscope.testing.methods import check_method, make_batch
from forgetscope.testing.networks import check_network
from forgetscope.testing.policies import check_policy, make_candidates

__all__ = ["BrokenContract", "check_method", "check_network", "check_policy", "make_batch", "make_candidates"]
