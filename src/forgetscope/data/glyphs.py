"""Glyphs: 100 classes of characters, rendered from the fonts that matplotlib ships. Needs no download.

Clean characters are too easy to show forgetting: a small network learns them to 95 % and keeps them. Random colours,
geometry and noise make them as hard, and as unevenly forgotten, as small natural images (`docs/glyphs.md`).
"""

import importlib.util
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from forgetscope.errors import DataError
from forgetscope.randomness import Purpose, Streams

DIGITS = "0123456789"
LATIN = "ABCDEFGHJKLMNPQRSTUVWXYZabdefghjmnqrty"
GREEK = "ΓΔΘΛΞΠΣΦΨΩαβγδεζηθλμξπσχψω"
CYRILLIC = "БДЖИЙЛЦЧШЩЪЫЬЭЮЯЂЄЉЊЋЏѢбфЎ"
# Characters that look alike in another script or case (A and Α, o and O and 0) appear once.
SCRIPTS = {"digit": DIGITS, "Latin": LATIN, "Greek": GREEK, "Cyrillic": CYRILLIC}
CLASS_NAMES = tuple(f"{script} {character}" for script, characters in SCRIPTS.items() for character in characters)
CLASS_SCRIPTS = tuple(script for script, characters in SCRIPTS.items() for _ in characters)
CHARACTERS = "".join(SCRIPTS.values())

TRAIN_IMAGES_PER_CLASS = 200
TEST_IMAGES_PER_CLASS = 100
DEFAULT_SIZE = 16
VERSION = 1  # raise it when a change alters pixels: the cache keeps versions apart

FONTS = tuple(
    [f"DejaVu{family}{style}.ttf" for family in ("Sans", "SansMono") for style in ("", "-Bold", "-Oblique", "-BoldOblique")]
    + [f"DejaVuSerif{style}.ttf" for style in ("", "-Bold", "-Italic", "-BoldItalic")]
    + [f"STIXGeneral{style}.ttf" for style in ("", "Bol", "Italic", "BolIta")]
)

OVERSAMPLING = 3  # glyphs are drawn and warped at three times the size, then averaged down


# How far an image may stray from the clean glyph. Each draw is uniform in its range.
ROTATION = 25.0  # degrees, both ways
SHEAR = 0.3  # both ways
SCALE = (0.8, 1.25)
SHIFT = 0.10  # of the image's side, both ways
CONTRAST = 0.25  # smallest distance between the two colours' brightness, range 0 to 1
NOISE = (0.13, 0.17)  # standard deviation of the pixel noise, range 0 to 1


def render_both(size: int) -> list[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """The training and the test images of the data set, with their labels."""
    return [render("glyphs-train", TRAIN_IMAGES_PER_CLASS, size), render("glyphs-test", TEST_IMAGES_PER_CLASS, size)]


def render(purpose: Purpose, images_per_class: int, size: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [n, size, size, 3] and labels [n], class by class. The same arguments give the same pixels."""
    masks = _masks(size * OVERSAMPLING)
    images = np.empty((len(CHARACTERS), images_per_class, size, size, 3), np.uint8)
    for label in range(len(CHARACTERS)):
        # One stream per class: another number of classes leaves a class's pixels alone.
        rng = Streams(seed=0, step=0)(purpose, label)
        fonts = rng.integers(len(FONTS), size=images_per_class)
        fine = _warp([masks[font][label] for font in fonts], rng)
        blocks = fine.reshape(images_per_class, size, OVERSAMPLING, size, OVERSAMPLING)
        images[label] = _colour(blocks.mean(axis=(2, 4)), rng)
    labels = np.repeat(np.arange(len(CHARACTERS), dtype=np.int64), images_per_class)
    return images.reshape(-1, size, size, 3), labels


def _masks(side: int) -> list[list[Image.Image]]:
    """Clean glyphs, [font][character], centred by their ink and as large as fits in two thirds of the side."""
    folder = _font_folder()
    masks = []
    for name in FONTS:
        font = ImageFont.truetype(str(folder / name), size=round(side * 0.72), layout_engine=ImageFont.Layout.BASIC)
        glyphs = []
        for character in CHARACTERS:
            left, top, right, bottom = font.getbbox(character)
            mask = Image.new("L", (side, side))
            corner = ((side - right - left) / 2, (side - bottom - top) / 2)
            ImageDraw.Draw(mask).text(corner, character, fill=255, font=font)
            glyphs.append(mask)
        masks.append(glyphs)
    return masks


def _font_folder() -> Path:
    spec = importlib.util.find_spec("matplotlib")  # located, not imported: its import takes a second
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location) / "mpl-data" / "fonts" / "ttf"
        if all((folder / name).is_file() for name in FONTS):
            return folder
    raise DataError(
        f"The glyphs are drawn with {len(FONTS)} fonts that matplotlib ships, but they were not found. "
        "Reinstall it: `pip install --force-reinstall matplotlib`."
    )


def _warp(masks: list[Image.Image], rng: np.random.Generator) -> NDArray[np.float32]:
    """Rotate, shear, scale and shift each mask; coverage [n, side, side] from 0 to 1."""
    n, side = len(masks), masks[0].width
    angle = np.deg2rad(rng.uniform(-ROTATION, ROTATION, n))
    shear = rng.uniform(-SHEAR, SHEAR, n)
    scale = rng.uniform(*SCALE, n)
    shift = rng.uniform(-SHIFT, SHIFT, (n, 2)) * side
    warped = np.empty((n, side, side), np.float32)
    centre = side / 2
    for i, mask in enumerate(masks):
        # Pillow wants the inverse map, from output to input pixels, about the origin.
        rotate = np.array([[np.cos(angle[i]), -np.sin(angle[i])], [np.sin(angle[i]), np.cos(angle[i])]])
        inverse = np.linalg.inv(scale[i] * rotate @ np.array([[1.0, shear[i]], [0.0, 1.0]]))
        offset = centre - inverse @ (centre + shift[i])
        affine = (inverse[0, 0], inverse[0, 1], offset[0], inverse[1, 0], inverse[1, 1], offset[1])
        warped[i] = np.asarray(mask.transform((side, side), Image.Transform.AFFINE, affine, Image.Resampling.BILINEAR))
    return warped / np.float32(255)


def _colour(coverage: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Paint coverage [n, size, size] in two random colours, whose brightness differs by the contrast or more, and add noise."""
    n, size, _ = coverage.shape
    ink, paper = rng.uniform(size=(2, n, 3))
    while (close := np.abs(ink.mean(axis=1) - paper.mean(axis=1)) < CONTRAST).any():  # pairs that are drawn again
        ink[close], paper[close] = rng.uniform(size=(2, int(close.sum()), 3))
    blend = coverage[..., None]
    clean = blend * ink[:, None, None] + (1 - blend) * paper[:, None, None]
    strength = rng.uniform(*NOISE, size=(n,))
    noisy = clean + strength[:, None, None, None] * rng.standard_normal((n, size, size, 3))
    pixels: NDArray[np.uint8] = np.rint(255 * np.clip(noisy, 0, 1)).astype(np.uint8)
    return pixels
