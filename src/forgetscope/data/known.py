"""What is known of public data sets before they are here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from forgetscope.data.readers.cifar100 import read_cifar100
from forgetscope.data.readers.tiny_imagenet import read_tiny_imagenet
from forgetscope.data.sources import Source


@dataclass(frozen=True)
class Known:
    """A public data set: where it is, what its archives must sum up to, and how to read it."""

    address: str
    archives: Mapping[str, str]  # official file name -> MD5
    read: Callable[[Path], Source]
    classes: int
    images: tuple[int, int]  # of each class: to train and to test
    side: int  # pixels
    limit: int  # bytes of a download: three times the official archive, for mirrors that pack it otherwise

    @property
    def summary(self) -> str:
        train, test = self.images
        return f"{self.classes} classes, {train} + {test} images, {self.side} x {self.side}"


KNOWN = {
    "cifar100": Known(
        "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
        {
            "cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8",
            "cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85",
        },
        read_cifar100,
        100,
        (500, 100),
        32,
        500_000_000,
    ),
    "tiny-imagenet": Known(
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        {"tiny-imagenet-200.zip": "90528d7ca1a48142e341f4ef8d21d0de"},
        read_tiny_imagenet,
        200,
        (500, 50),
        64,
        750_000_000,
    ),
}
