#!/usr/bin/env bash
# %% [markdown]
# # Your own policy or method: a paired comparison with a verdict
#
# *For whoever has an idea of what to replay, or how, and wants to know whether it helps.* At the end you have written a
# method of your own, held it to its contract, compared it with plain replay on the same classes and seeds, and can read the
# verdict. About a minute and a half on one core.
#
# ## The idea
#
# If old classes are forgotten, let their images count three times. A **method** is a class with a loss; a batch comes with
# its logits, the classes as nodes of the head, and `new`, how many of its first images are new data:

# %%
cat > mine.py <<'END'
from torch.nn import functional as F

import forgetscope as fs


class OldOnesThrice(fs.Method):
    """Cross-entropy in which rehearsed images count three times."""

    needs = frozenset({"memory"})

    def loss(self, batch):
        losses = F.cross_entropy(batch.logits, batch.nodes, reduction="none")
        return (losses[: batch.new].sum() + 3 * losses[batch.new :].sum()) / len(losses)
END

# %% [markdown]
# A **policy**, which says what is kept, is a function instead; [policies](../policies.md#your-own) has one. All that follows
# is the same for it.
#
# ## Does it keep the contract?
#
# A method must not draw random numbers, keep anything between batches, or change what it is given: a run that is killed could
# not go on otherwise. In a project of yours this line stands in a test:

# %%
python -c '
from forgetscope.testing import check_method
from mine import OldOnesThrice
check_method(OldOnesThrice)
print("OldOnesThrice keeps the contract")'

# %% [markdown]
# ## The run
#
# So that this takes a minute, a network of two convolutions, which is one's own too, and six characters a step; 20 of 200
# images of each are kept.

# %%
cat > small.py <<'END'
from torch import nn


class Small(nn.Module):
    """Two convolutions: quick on a processor, and enough for drawn characters."""

    def __init__(self, classes):
        super().__init__()
        first = [nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
        second = [nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()]
        self.body = nn.Sequential(*first, *second, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.head = nn.Linear(128, classes)

    def features(self, images):
        apart = (images - images.mean((2, 3), keepdim=True)).abs().sum(1, keepdim=True)  # from an image's mean colour
        return self.body(apart / apart.std((1, 2, 3), keepdim=True))

    def forward(self, images):
        return self.head(self.features(images))
END
cat > my.toml <<'END'
network = "small:Small"
steps = 2
increment = 0.06
retention = 0.1
epochs = 15
first_batch = 32
batch = 64
learning_rate = 0.05
probe_every = 15    # interference before training and at the end: this comparison is of accuracies
END

# %% [markdown]
# ## The comparison
#
# An **arm** is the run with other options. Five pairs: the same class sequence and seed in both arms, starting from the same
# trained first step, so that what differs within a pair is the method and its luck. (Leave `--no-again` out, and the baseline
# runs once more with other draws, to show that luck.)

# %%
forgetscope compare my.toml --arm 'plain:' --arm 'thrice: method=mine:OldOnesThrice' --pairs 5 --no-again \
    --jobs 1 --no-estimate --store results

# %% [markdown]
# ## Reading it
#
# The sentence below the table is the **verdict**, and it answers two questions that are easily taken for one. *Less*: is the
# interval of the difference in mean FG, the share of accuracy that old classes lost, below 0? *More evenly*: is the true
# variance of forgetting between classes lower **at matched mean FG**? Whoever shifts weight from new to old classes forgets
# less, and FG-R and the worst class improve along with it. The column on the right takes that away: it moves all old outputs
# by one constant until both arms forget alike on average, and looks at what is left.
#
# Here the idea did what a weight does. Old classes lose less, new ones pay for it (*new classes*), and over all classes
# accuracy fell. FG-HG, the worst class and the variance fell too, as trained; at matched means none of that can be told from
# nothing, and accuracy is lower: of two that forget alike on average plain replay is the more accurate. (*seconds* are of a
# step, on a machine that did other things beside.)
#
# **How sure?** Five pairs of six old classes, on drawn characters. Where nothing differs one interval in twenty excludes 0,
# and there are more than a dozen here; *not more evenly as far as can be told* says what five pairs can tell. And *less* is
# close: run again on the same machine, with threads and instructions left to it ([the output](index.md#the-output)), these five
# pairs ended in *neither less nor more evenly*, with mean FG −0.070 (−0.149, +0.009) and accuracy −0.026 (−0.037, −0.014). A
# verdict that hangs on the order of a sum needs more pairs. (A first try, with a weight of two and four pairs, ended in
# *neither*, too.) How many it would take:

# %%
forgetscope compare my.toml --arm 'plain:' --arm 'thrice: method=mine:OldOnesThrice' --pairs 5 --no-again --power --store results

# %% [markdown]
# ## What now
#
# - Change the loss in `mine.py` and run the same command: what was trained with plain replay is found in the store, and only
#   the new arm is run.
# - Remedies that did forget less *and* more evenly, on real images and in twenty pairs:
#   [methods](../methods.md#what-they-do-evidence-so-far).
# - All that a comparison prints and writes: [comparing arms](../benchmarks.md#comparing-arms). What `fs.Method` may ask for:
#   [your own method](../methods.md#your-own).
