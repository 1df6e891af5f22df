#!/usr/bin/env bash
# %% [markdown]
# # From the demo to one forgotten class
#
# *For whoever has heard that networks forget and wants to see one do it.* At the end you can read what a run prints, and say
# of one class how much of it was lost, since when, what worked against it, and what it is now taken for. The demo takes one
# to three minutes.
#
# ## Watch a network forget
#
# `make demo` in a clone of the repository sets everything up and runs this command; with forgetscope installed it needs
# nothing else.

# %%
forgetscope demo --threads 1

# %% [markdown]
# A small network learned thirty drawn characters in three **steps** of ten. Of every old character it kept 16 of 200 images,
# and replayed them while it learned the next ten: **rehearsal**. The first table has the twenty that were old at the end,
# most forgotten first.
#
# - *learned* and *now*: the share of test images recognised when the class was new, and after the last step. *forgetting* is
#   the share of the first that is gone.
# - *SIC*, *CIC*, *NIC*: what worked against the class while the third step was trained; the larger, the more. Below we ask
#   what they say of one class.
# - *predicted*: what is forecast without test images and without the old ones ([forecasts](../forecast.md)). The other
#   columns can wait.
#
# The sentence at the end has the two numbers to begin with: the mean, and **FG-R**, which is the most minus the least
# forgotten class. Each class has a hundred test images, so two extremes of twenty differ by chance too: *by noise* says by
# how much. FG-R well above it is a finding: these classes, each with equally many images replayed, were not forgotten alike.

# %%
forgetscope report forgetscope-demo --format png

# %% [markdown]
# ![Each dot is an old class of the third step, by how much of it was forgotten](../images/tutorials/swarm_plots_forgetting_glyphs_2.svg)
#
# (The demo has also written a page, `forgetscope-demo/report.html`: open it in a browser. All that follows can be asked there
# with a click.)
#
# ## One class: since when?
#
# Results are tables, and SQL reads them ([what a store holds](../store.md)). The most forgotten class of the last step, at
# every step:

# %%
lost=$(forgetscope store sql "SELECT class_id FROM classes WHERE step = 3 ORDER BY forgetting DESC LIMIT 1" \
    forgetscope-demo --json | tr -dc 0-9)
forgetscope store sql "SELECT step, class_name, accuracy, round(forgetting, 2) AS forgetting,
        round(sic, 2) AS sic, round(cic, 2) AS cic, round(nic, 2) AS nic
    FROM classes WHERE class_id = $lost ORDER BY step" forgetscope-demo

# %% [markdown]
# The first row is the step in which it was learned: nothing is forgotten yet, and there are no coefficients. Each later row
# has what the class had kept after that step, and sums of what worked against it during that step.
#
# ## Why?
#
# Who interfered with it in the third step, class by class? A row whose source is the class itself is SIC, the sum of other
# old classes is CIC, and what comes from new ones adds up to NIC. Positive works against the class.

# %%
forgetscope store sql "SELECT named.class_name AS source, source_is_new AS new, round(term, 2) AS term FROM pairs
    JOIN (SELECT class_id, class_name FROM classes WHERE step = 3) AS named ON named.class_id = source_class_id
    WHERE pairs.step = 3 AND pairs.class_id = $lost ORDER BY term DESC LIMIT 5" forgetscope-demo

# %% [markdown]
# That the class itself leads says little: in the table above SIC exceeds NIC, hence each new class's part of it, for all twenty.
# Beside the others digit 8 is only eighth by SIC, and first by NIC: what sets it apart are the new classes, Latin B first.
#
# Where SIC leads, the sixteen stored images misrepresent the class: they are learned by heart, and what they then ask of
# the last layer is no longer what all 200 images would ask. `forgetscope explain` has this for each of the words above, and
# what one can do about it:

# %%
forgetscope explain SIC

# %% [markdown]
# ## What is it taken for now?
#
# Its hundred test images, by what the network calls them after the third step:

# %%
forgetscope store sql "SELECT named.class_name AS taken_for, introduced_step AS learned_in_step, count AS images FROM confusion
    JOIN (SELECT class_id, class_name, introduced_step FROM classes WHERE step = 3) AS named ON named.class_id = predicted
    WHERE confusion.step = 3 AND confusion.\"true\" = $lost ORDER BY count DESC LIMIT 5" forgetscope-demo

# %% [markdown]
# Where the largest rows are of classes learned in step 3, the new ones have taken it over; where they are old, its place
# among the old ones has moved. Here more go to Latin B than are still recognised, and it was the largest new source above.
#
# **What this does not show.** It is one network and one seed. That NIC is largest for the most forgotten class here is an
# observation, not a law: the table above has the rank correlation over twenty classes, and the demo's own last words on it
# are that one step says nothing about which measure predicts forgetting. Over ten seeds: [the tables](../glyphs.md).
#
# ## What now
#
# - The same in a training of your own: [your own loop](own_loop.md).
# - A remedy, held against what you have: [your own method](own_method.md).
# - The coefficients, derived in steps: [the mathematics](../mathematics.md).
