"""How many images of each class a probe looks at."""

from forgetscope.errors import InputError

FEWEST = 4  # images of a class: two rehearsed ones and two others, because one alone says nothing of how they vary
REHEARSED = 0.4  # of a past class's images in a sample, where it has as many: SIC compares their mean with that of the others
NEW = 4  # past classes whose images are as many as those of all new classes together: NIC needs but the mean over all of these


def checked_images(images: object, seed: object) -> int:
    """Somebody's number of images of each past class, and seed of their draws."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"seed = {seed!r} is no whole number from 0 on: the images that are looked at follow from it.")
    if isinstance(images, bool) or not isinstance(images, int) or images < FEWEST:
        raise InputError(f"images = {images!r} of each past class: a probe needs {FEWEST} or more. Leave it out to take all.")
    return images


def quotas(images: int, rehearsed: int, others: int) -> tuple[int, int]:
    """How many of a past class's rehearsed images, and of its others, are in a sample of so many images.

    >>> quotas(50, rehearsed=40, others=460)
    (20, 30)
    >>> quotas(50, rehearsed=3, others=460), quotas(50, rehearsed=10, others=15)
    ((3, 47), (10, 15))
    """
    few = min(rehearsed, max(round(REHEARSED * images), images - others))
    return few, min(others, images - few)


def new_quota(images: int, classes: int) -> int:
    """How many of each of so many new classes, where there are as many.

    >>> new_quota(50, classes=10), new_quota(50, classes=2), new_quota(50, classes=1000)
    (20, 50, 2)
    """
    return min(images, max(-(-NEW * images // classes), 2))
