"""How each kind of image is augmented where a run says nothing. Of public data sets the code decides, not the cache: an earlier
version may have made what is there."""

from collections.abc import Callable

from forgetscope.spec import AugmentationSpec

BRIGHTNESS = 63 / 255
CROPS = {"cifar100": 8, "tiny-imagenet": 16}  # the side by this: 4 px of 32 and of 64, as in all released scripts


def augmentation_of(name: str) -> Callable[[int], AugmentationSpec]:
    """For images with a side, of a public data set or of one's own.

    One's own are not flipped unless that is asked for: a mirrored letter or sign is another one."""
    public = name in CROPS
    return lambda side: AugmentationSpec(crop=side // CROPS.get(name, 8), flip=public, brightness=BRIGHTNESS)


def earlier_augmentation(name: str, side: int) -> AugmentationSpec | None:
    """What earlier versions had, where it was another: Tiny-ImageNet was shifted by an eighth of the side, 8 px of 64."""
    now = augmentation_of(name)(side)
    return None if now.crop == side // 8 or name not in CROPS else now.model_copy(update={"crop": side // 8})


def glyph_augmentation(side: int) -> AugmentationSpec:
    return AugmentationSpec(crop=max(1, side // 16), brightness=BRIGHTNESS)
