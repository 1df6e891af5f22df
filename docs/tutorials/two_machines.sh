#!/usr/bin/env bash
# %% [markdown]
# # A benchmark on two machines
#
# *For whoever has more experiments than one machine does in a night.* At the end you know how to split a benchmark without a
# coordinator, bring the parts together, and see that nothing is missing or damaged. Half a minute on one core; both machines
# are folders here.
#
# ## The benchmark
#
# A **benchmark** is a file: which data, which shares of classes and kept images, how many experiments of each. Small here,
# with a network of one's own that is quick on a processor; four experiments of two steps.

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
cat > bench.toml <<'END'
dataset = "glyphs"
network = "small:Small"
epochs = 12
first_batch = 32
batch = 64
learning_rate = 0.05
probe_every = 3
increments = [0.06]         # share of the classes that a step introduces
retentions = [0.08, 0.4]    # share of the images that is kept
experiments = 2             # of each retention
steps = 2
design = "paired"           # the same class sequences and seeds at both retentions
END
forgetscope bench plan bench.toml --store first --no-estimate

# %% [markdown]
# The plan is a graph of **steps**, each with an id that follows from its content: settings, data, code, and the step it
# builds on. Four experiments of two steps are eight, but both retentions share the first step, so six are to run. Without
# `--no-estimate` it measures the machine and tells time, memory and disk.
#
# ## The halves
#
# Both machines get the same two files and the same command but for one number. A part is a function of the plan: nobody hands
# out work, and the parts may run at any time. What builds on the same first step stays together.

# %%
forgetscope bench run bench.toml --store first --shard 1/2 --jobs 1 --no-estimate

# %%
forgetscope bench run bench.toml --store second --shard 2/2 --jobs 1 --no-estimate

# %% [markdown]
# Each store has half of the plan and says so. Killed in between, the same command goes on where it was. (Where both machines
# see one disk, give both the same `--store`: there is nothing to bring together then.)
#
# ## Bring them together
#
# A store travels as one file, steps with whatever they build on. Whoever imports it trusts nothing: each step is verified
# before it appears.

# %%
forgetscope store export second -o second.tar
forgetscope store import second.tar first

# %%
forgetscope bench status bench.toml --store first
forgetscope store verify first

# %% [markdown]
# All six steps are done, and every file has the digest that was written with it. The command that runs the whole benchmark
# finds nothing left to do, because ids do not say where a step was run:

# %%
forgetscope bench run bench.toml --store first --jobs 1 --no-estimate

# %% [markdown]
# And what was found is read as if one machine had run it:

# %%
forgetscope store sql "SELECT retention, count(DISTINCT seed) AS experiments, round(avg(accuracy), 2) AS accuracy,
        round(avg(forgetting), 2) AS forgetting
    FROM classes JOIN steps ON steps.id = step_id WHERE forgetting IS NOT NULL GROUP BY retention ORDER BY retention" first

# %% [markdown]
# Two experiments of six old classes each at either retention: that more kept images mean less forgetting is no surprise, and
# how much less is not to be learned from two.
#
# **Are the bits the same?** On machines of the same kind, with the same versions and as many threads, equal steps are equal
# files. On others they differ in the last digits of a sum and what training makes of it; each step records where it was run.
# A step that two machines have both run is kept once, as it came first.
#
# ## What now
#
# - Ray clusters, job arrays with a time limit, lost workers and nodes: [beyond one machine](../scale.md).
# - Every option of a benchmark, and its designs: [benchmarks](../benchmarks.md).
# - From such a store to tables: [the tables of a paper](paper_tables.md).
