# %% [markdown]
# # Your own loop: the class you are losing, and how to even it out
#
# *For whoever trains in PyTorch with a loop of their own, and replays a few old images.* At the end you know how to see after
# every epoch which old classes are at risk and why, how to look at one of them, and how to share the loss out more evenly
# once training is over, with what that costs. Half a minute on one core.
#
# The loop below is nobody's but yours: a small network, plain SGD, drawn characters that come with forgetscope. First come
# eight characters.

# %%
import textwrap

import numpy as np
import torch
from matplotlib import pyplot as plt
from torch import nn
from torch.nn import functional as F

import forgetscope as fs

torch.manual_seed(0)
torch.set_num_threads(1)  # so small a network is faster with one
PAST, KEPT, EPOCHS = 8, 20, 12
data = fs.load_data("glyphs")
names = dict(enumerate(data.classes))


def images_of(part, classes):
    where = np.isin(part.labels, classes)
    colours = torch.from_numpy(part.images[where]).permute(0, 3, 1, 2).float()
    apart = (colours - colours.mean((2, 3), keepdim=True)).abs().sum(1, keepdim=True)  # from an image's mean colour
    return apart / apart.std((1, 2, 3), keepdim=True), torch.from_numpy(part.labels[where])


old, new = images_of(data.train, range(PAST)), images_of(data.train, range(PAST, 2 * PAST))
test = images_of(data.test, range(2 * PAST))
print("old:", ", ".join(data.classes[:PAST]))
print("new:", ", ".join(data.classes[PAST : 2 * PAST]))


def layer(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]


network = nn.Sequential(*layer(1, 16), *layer(16, 32), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 2 * PAST))


def train_one_epoch(optimiser, *parts, batch=32):
    """As many images from each part in every batch, shifted by a pixel at most."""
    network.train()
    for _ in range(len(parts[0][1]) * len(parts) // batch):
        chosen = [torch.randint(len(labels), (batch // len(parts),)) for _, labels in parts]
        images = torch.cat([part[0][which] for part, which in zip(parts, chosen, strict=True)])
        labels = torch.cat([part[1][which] for part, which in zip(parts, chosen, strict=True)])
        images = torch.roll(images, torch.randint(-1, 2, (2,)).tolist(), (2, 3))
        optimiser.zero_grad()
        F.cross_entropy(network(images), labels).backward()
        optimiser.step()


# %% [markdown]
# ## Watch the first step
#
# A **step** is the learning of some new classes. The monitor stands around it and changes nothing: not the weights, not the
# random numbers. In a first step nothing can be forgotten yet. It notes how well each class was learned (`evaluate`), and
# keeps the mean and variance of each class's features: of 128 features a kilobyte a class.

# %%
monitor = fs.Monitor("own-loop", "characters", names=names)
optimiser = torch.optim.SGD(network.parameters(), 0.05, momentum=0.9)
with monitor.step(network, new=old) as step:
    for _ in range(2 * EPOCHS):
        train_one_epoch(optimiser, old)
    step.evaluate((test[0][test[1] < PAST], test[1][test[1] < PAST]))
print(textwrap.fill(str(step), 80))

# %% [markdown]
# ## Watch the second
#
# Eight more characters, while 20 of the 200 images of each old one are replayed: half of every batch (`alpha`). After the
# last epoch the monitor is asked what is at risk. It has seen no test image of this step: these are ranks by what worked
# against a class while it trained.

# %%
picked = torch.cat([torch.nonzero(old[1] == label)[:KEPT, 0] for label in range(PAST)])
memory = (old[0][picked], old[1][picked])
optimiser = torch.optim.SGD(network.parameters(), 0.05, momentum=0.9)
with monitor.step(network, past=old, memory=memory, new=new, alpha=0.5) as step:
    for _ in range(EPOCHS):
        train_one_epoch(optimiser, new, memory)
        step.epoch_ended()
    print(step.at_risk(PAST))
    step.evaluate(test)

# %% [markdown]
# One line for each class: its rank, by the mean of its ranks by SIC and by NIC; whether the rank moved since the last
# epoch; and its cause, which is that of the three coefficients by which the class stands out most. *Own memory* (SIC): its
# stored images pull the last layer elsewhere than all its images would. *Other classes' memory* (CIC): theirs do. *New
# classes* (NIC): they push its output down. Where a class comes from others, these are named.
#
# A rank is no probability, and can be wrong: compare the third with what the test images say.

# %%
table = step.to_frame().set_index("name").sort_values("forgetting", ascending=False)
print(table[["accuracy_when_learned", "accuracy", "forgetting", "sic", "cic", "nic"]].round(2).to_string())
agree = table[["sic", "cic", "nic"]].corrwith(table["forgetting"], method="spearman").round(2)
print(f"\nrank correlation with forgetting: SIC {agree['sic']:+.2f}, CIC {agree['cic']:+.2f}, NIC {agree['nic']:+.2f}")

# %% [markdown]
# `forgetting` is the share of a class's accuracy that is gone: 0.5 is half, 0 nothing. Do not read much into the
# correlations: this is **one training with eight old classes**, where chance alone goes beyond ±0.7 one time in twenty. What
# holds over many trainings: [the tables of ten seeds](../glyphs.md).
#
# ## Look at the class that you are losing
#
# Who works against it? The store that the monitor leaves has the sum over all probes from every class to each old one. The
# largest sources of the most forgotten class:

# %%
lost = table.index[0]
pairs = fs.open_observed("own-loop", "characters").pairs
sources = pairs[pairs["class_id"] == list(data.classes).index(lost)].nlargest(4, "term")
print(f"against {lost}:")
for row in sources.itertuples():
    print(f"  {names[row.source_class_id]:8}  {'new' if row.source_is_new else 'old':3}  {row.term:.3f}")

# %% [markdown]
# A source that is the class itself is its own memory (SIC). One that is new is part of NIC.
#
# ## Even it out
#
# Training is over. A **forecast** says of each class how much was lost, from what was kept of its features and without test
# images; **evening** finds an offset for each old class's output under which the predicted losses are alike. It says
# beforehand what it expects.

# %%
found = step.evening()
print(textwrap.fill(found.said, 80))
print()
print(found.to_frame().round(2).to_string())


# %% [markdown]
# Offsets are written into the bias of the last layer, predictions are made, and they are taken back before the next step
# trains. What came of it, on the test images:


# %%
@torch.no_grad()
def accuracies():
    network.eval()
    right = network(test[0]).argmax(dim=1) == test[1]
    return np.array([float(right[test[1] == label].double().mean()) for label in range(2 * PAST)])


learned = step.to_frame().set_index("name").loc[list(data.classes[:PAST]), "accuracy_when_learned"].to_numpy()
forgotten = {}
for when in ("as trained", "evened"):
    if when == "evened":
        found.write(network)
    now = accuracies()
    forgotten[when] = lost_share = 1 - now[:PAST] / learned
    print(f"{when}: forgetting {lost_share.mean():.3f}, spread {lost_share.std():.3f}, worst {lost_share.max():.3f}")
    print(f"{'':10}  accuracy of all {now.mean():.3f}, of new {now[PAST:].mean():.3f}")
found.take_back(network)

# %%
order = np.argsort(-forgotten["as trained"])
figure, axes = plt.subplots(figsize=(6.5, 2.8), layout="constrained")
for shift, (when, values) in enumerate(forgotten.items()):
    axes.bar(np.arange(PAST) + 0.38 * shift, values[order], 0.36, label=when, color=("#8a8f98", "#2a7ab9")[shift])
axes.set_xticks(np.arange(PAST) + 0.19, [names[label] for label in order])
axes.set_ylabel("share of accuracy lost")
axes.axhline(0, color="black", linewidth=0.8)
axes.legend(frameon=False)
figure.savefig("own_loop.svg")

# %% [markdown]
# ![Share of its accuracy that each old character lost, as trained and evened](../images/tutorials/own_loop.svg)
#
# Which half of this was worth it is yours to say. The spread between classes became smaller, and the price is in the second
# line of each: what some old classes got back was taken from other old ones and from new ones, and the mean over old classes
# hardly moved. (The probability that was expected is of an image being taken for *any* new class, right or wrong; the
# accuracy of new classes is lower and fell likewise.) Offsets move errors from class to class; they teach the network nothing.
# And as before: one training, eight classes. Over twenty pairs of runs on real images evening made forgetting more even, at
# half a point of accuracy: [methods](../methods.md#what-they-do-evidence-so-far).
#
# ## What now
#
# - Put `monitor = fs.Monitor(...)` and `monitor.step(...)` around a loop of your own. What it accepts and refuses, steps that
#   are killed, trackers: [the monitor](../monitor.md). Without the old images: `past=None`, and the forecast is what remains
#   ([forecasts](../forecast.md)).
# - `forgetscope report own-loop` makes a page of what was seen; `forgetscope watch own-loop` shows a training while it runs.
# - In a framework it is a line: [Avalanche or Lightning](one_line.md).
