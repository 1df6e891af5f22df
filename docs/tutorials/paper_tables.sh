#!/usr/bin/env bash
# %% [markdown]
# # From a store to the tables of a paper
#
# *For whoever writes the results up.* At the end you know how to get every table of the paper, as LaTeX and as numbers, and
# its figures, from whatever a store holds; and what to check before a number goes into print. Half a minute on one core.
#
# ## A store
#
# Any store will do: of `run`, `compare` or `bench run`, your own or somebody else's. To have one, a small benchmark on drawn
# characters: three class sequences, each at two retentions, with a network of one's own that is quick on a processor.

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
probe_every = 4
increments = [0.06]
retentions = [0.08, 0.4]
experiments = 3
steps = 2
design = "paired"      # the same sequences at both retentions
END
forgetscope bench run bench.toml --store results --jobs 1 --no-estimate

# %% [markdown]
# ## One command
#
# No option says what to average: the store knows what it holds. (`--resamples` of the bootstrap behind intervals of standard
# deviations; leave it out for print.)

# %%
forgetscope analyse results --out analysis --resamples 1000

# %% [markdown]
# Read from the top. What was lost, and how unevenly, beside what noise of the test images alone would show; which coefficient
# ranks the classes, with an interval; how many of the paper's claims could be asked here and came out how; and what is
# **missing**, with what it would take. n counts sequences of classes: six steps are only three, each at two retentions. With
# three most is undecided, and the text says so, which a table of numbers cannot. The few that are contested here are few among
# forty-eight: three sequences make nothing of them but a reason to run more.
#
# ## The tables
#
# Each table of the paper is there under its label, as LaTeX to include, as CSV and as Parquet; one that the store cannot fill
# is there and empty.

# %%
ls analysis/tables/*.tex | wc -l
cat analysis/tables/FG-R_FG-HG_fine_grained.tex

# %% [markdown]
# A number that goes into a sentence is better taken than typed. Of a table with estimates, by what its columns say:

# %%
python -c '
import forgetscope as fs
found = fs.analyse("results", resamples=1000)
for retention in ("8", "40"):
    print(retention, "% kept:", found.estimate("spearman_SIC", subset="2", rehearsal_pct=retention, class_pct="6", statistic="rho"))'

# %% [markdown]
# Mean rank correlation, its 95 % interval, and **n**, the steps behind it. From three steps an interval is as wide as that.
#
# ## The figures
#
# `--format latex` writes a folder with a `report.tex` that includes every table and figure; `--format pdf` and `png` are the
# same without LaTeX.

# %%
forgetscope report results --format png -o figures
ls figures

# %% [markdown]
# ![Forgetting of each past class in each step, one dot a class](../images/tutorials/swarm_plots_forgetting_glyphs_1.svg)
#
# Captions are in `captions.txt`, with what an interval is and how many steps it rests on.
#
# ## Before it is printed
#
# - **n, and what was left out.** Every row of the CSV says how many steps diverged or had no value, and how many classes were
#   never learned.
# - **Paired designs.** Here both retentions saw the same sequences. The sentences take the steps of a sequence as one; the
#   paper's tables, where they pool retentions, take all steps as independent, and their captions say so. Hence FG-R is 0.51 in
#   both, with (0.05, 0.96) in the sentence and (0.31, 0.70) in the table: print the former. Rows of one retention are not
#   affected ([what is one sample](../analysis.md#what-is-one-sample)).
# - **Noise.** FG-R is a difference of extremes, and above 0 even if nothing differs. The caption has the value that noise
#   alone would give: print it beside.
# - **Which version.** `forgetscope store export results -o results.tar.xz --without-states` is what a reader needs to make
#   the same tables again.
#
# ## What now
#
# - Every table and column, and how it is estimated: [analysis](../analysis.md). Pages, pdf and LaTeX: [the
#   report](../report.md).
# - More data than that, real and trained: `forgetscope replication` unpacks 149 steps on CIFAR-100, and the commands above
#   work on it ([the replication](../replication.md)).
# - One of the claims, taken seriously: [contest a claim](contest_a_claim.md).
