# %% [markdown]
# # Avalanche or Lightning in one line
#
# *For whoever trains in a framework.* At the end you have put the monitor into an Avalanche strategy and into a Lightning
# trainer, and know what it reads by itself and what you tell it. It takes `pip install 'forgetscope[avalanche,lightning]'`,
# and half a minute on one core.
#
# Data first, the same for both: eight drawn characters in two groups of four, as a data set with `targets`.

# %%
import logging
import warnings

import numpy as np
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.models import IncrementalClassifier
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
from avalanche.training.supervised import Naive
from lightning import LightningModule, Trainer
from torch import nn
from torch.nn import functional as F
from torch.utils.data import ConcatDataset, DataLoader, Subset, TensorDataset

import forgetscope as fs
from forgetscope.integrations.avalanche import Forgetscope
from forgetscope.integrations.lightning import ForgetscopeCallback

warnings.simplefilter("ignore")  # what the frameworks warn of is not our subject
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.manual_seed(0)
torch.set_num_threads(1)  # so small a network is faster with one
CLASSES, EPOCHS, STORED = 8, 12, 20
glyphs = fs.load_data("glyphs")
names = dict(enumerate(glyphs.classes))


class Characters(TensorDataset):
    def __init__(self, part, classes):
        where = np.isin(part.labels, classes)
        colours = torch.from_numpy(part.images[where]).permute(0, 3, 1, 2).float()
        apart = (colours - colours.mean((2, 3), keepdim=True)).abs().sum(1, keepdim=True)  # from an image's mean colour
        super().__init__(apart / apart.std((1, 2, 3), keepdim=True), torch.from_numpy(part.labels[where]))
        self.targets = self.tensors[1].tolist()

    def __getitem__(self, index):
        return self.tensors[0][index], self.targets[index]


def layer(inputs, outputs):
    return [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]


def network(head):
    return nn.Sequential(*layer(1, 16), *layer(16, 32), nn.AdaptiveAvgPool2d(2), nn.Flatten(), head)


# %% [markdown]
# ## Avalanche
#
# A strategy with a replay buffer of 80 images, as Avalanche has it, and one plugin more: `Forgetscope("results", ...)`. It
# finds past images, the buffer, the new images and the test stream by itself, counts the share of replayed images from the
# batches, and leaves the training bit for bit as it is.

# %%
everything = range(CLASSES)
benchmark = nc_benchmark(
    Characters(glyphs.train, everything),
    Characters(glyphs.test, everything),
    n_experiences=2,
    task_labels=False,
    fixed_class_order=list(everything),
)
model = network(IncrementalClassifier(128, initial_out_features=CLASSES // 2))
strategy = Naive(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
    train_mb_size=32,
    train_epochs=EPOCHS,
    plugins=[Forgetscope("results", "avalanche", names=names), ReplayPlugin(mem_size=4 * STORED)],
    evaluator=EvaluationPlugin(loggers=[]),
)
for experience in benchmark.train_stream:
    strategy.train(experience)


# %% [markdown]
# That was all. What was seen is in the store, as it is for forgetscope's own runs:


# %%
def past_classes(name):
    columns = ["class_name", "accuracy_when_learned", "accuracy", "forgetting", "sic", "cic", "nic"]
    found = fs.open_observed("results", name)
    print(found)
    print(found.past_classes()[columns].round(2).to_string(index=False))


past_classes("avalanche")

# %% [markdown]
# One row for each of the four characters that were old in the second experience, most forgotten first: accuracy when it was
# learned and now, the share of it that is gone, and what worked against the class. *SIC*: its own stored images pull the last
# layer elsewhere than all of them would; *CIC*: those of other old classes do; *NIC*: the new classes push its output down.
# Of four classes nothing can be concluded about which of them predicts forgetting.
#
# ## Lightning
#
# Lightning knows of no replay, so `fit` is one step and you say what is past and what is stored. The callback is the line;
# the rest is your module.


# %%
class Classifier(LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        return self.model(images)

    def training_step(self, batch, _):
        return F.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)


def fit(module, training, data):
    loader = DataLoader(training, 32, shuffle=True)
    callback = ForgetscopeCallback("results", "lightning", data, names=names)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    Trainer(max_epochs=EPOCHS, accelerator="cpu", callbacks=[callback], **quiet).fit(module, loader)


old, new = (Characters(glyphs.train, range(first, first + 4)) for first in (0, 4))
stored = Subset(old, [i for label in range(4) for i in [j for j, own in enumerate(old.targets) if own == label][:STORED]])
old_test, test = Characters(glyphs.test, range(4)), Characters(glyphs.test, everything)

module = Classifier(network(nn.Linear(128, CLASSES)))
fit(module, old, {"new": old, "test": old_test})
mixed = ConcatDataset([new, *[stored] * 10])  # as many of either in a batch, on average
fit(module, mixed, {"past": old, "memory": stored, "new": new, "test": test})
past_classes("lightning")

# %% [markdown]
# The same table. The numbers are not comparable with those above: there the head grows, and Avalanche's buffer and batches
# are drawn otherwise. With the callback's state in Lightning's checkpoints a `fit` that is resumed goes on where it was.
#
# Both trainings are in one store now, and the command line reads it: `forgetscope show results --observed avalanche`.
#
# ## What now
#
# - Hugging Face's Trainer, Mammoth, PyCIL and PILOT, and what each reads by itself: [where people
#   train](../monitor.md#where-people-train).
# - What to do about a class that is being lost, and what a forecast says without the old images: [your own
#   loop](own_loop.md).
# - Trackers: `log=` takes a run of Weights & Biases, a TensorBoard writer and others ([trackers](../monitor.md#trackers)).
