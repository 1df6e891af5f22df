"""The last layer of any network: found by watching the network work on a few images, and checked before it is measured.

The head is the module whose output is the network's output; what it is fed are the features, so nothing needs a name. Where
logits and their derivatives are those of `features @ weight.T + bias`, gradients have a closed form (`gradients`). Where they
are not (cosine, temperature, weight norm, masked units, several heads), autograd measures the head's own parameters
(`own_gradients`), or the network is refused by name. All of this is to be called in evaluation mode: `watching.undisturbed`.

Read `finding` first. It finds a `last_layer`, of which `demands` says what is refused; `agreement` is what counts as the same,
and `capturing` gives what the head is fed.
"""

from forgetscope.measuring.heads.agreement import same_logits as same_logits
from forgetscope.measuring.heads.capturing import Fed as Fed, feeding as feeding
from forgetscope.measuring.heads.finding import (
    find_last_layer as find_last_layer,
    is_linear_layer as is_linear_layer,
    plain_last_layer as plain_last_layer,
    unwrapped as unwrapped,
)
from forgetscope.measuring.heads.last_layer import (
    LastLayer as LastLayer,
    logits_from_head_on as logits_from_head_on,
    requiring_gradients as requiring_gradients,
)
