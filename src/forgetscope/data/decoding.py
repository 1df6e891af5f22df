"""One encoded image, of whatever kind, as RGB with 8 bits per channel; what had to be done to it is told.

Nothing is guessed: where a kind of number has no range from black to white, the image is refused by name."""

import io
import warnings
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from forgetscope.data.limits import IMAGE_PIXELS
from forgetscope.errors import DataError

Fit = Literal["crop", "stretch"]
# Named, because Pillow hands some of its other formats (EPS) to programs that it starts.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")

# What was done to an image. Each stands before "3 of 48 images".
DEEP = "Scaled from 16 bits per channel to 8"
TURNED = "Turned upright, as their EXIF orientation says"
TRANSPARENT = "Transparent in places, laid on white"
FRAMES = "Several frames or pages, of which the first was taken"
COLOURS = "Converted from CMYK or LAB to RGB, without their colour profile"

_ORIENTATION, _BITS, _PHOTOMETRIC, _SAMPLE_FORMAT = 274, 258, 262, 339  # tags of EXIF and TIFF
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # how one begins
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode(name: str, data: bytes | DataError, size: int | None, fit: Fit) -> tuple[NDArray[np.uint8], list[str]]:
    """[h, w, 3], resized if a size is given, and what had to be done to the image. An error in place of its bytes is raised."""
    if isinstance(data, DataError):
        raise data
    if not data:
        raise DataError(f"{name} is empty (0 bytes)")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about attributes of the image that nothing here uses
            image = Image.open(io.BytesIO(data), formats=FORMATS)  # reads the header; Pillow refuses twice its own limit here
            if image.width * image.height > IMAGE_PIXELS:
                raise Image.DecompressionBombError(f"{image.width} x {image.height} pixels")
            if not image.width * image.height:
                raise ValueError("it has no pixels")
            upright, done = _upright(image)
            return np.asarray(resize(_rgb(name, upright, done), size, fit)), done
    except (DataError, MemoryError):
        raise
    except Image.DecompressionBombError as error:
        raise DataError(f"{name} is too large to be an image of a class ({error})") from None
    except UnidentifiedImageError:
        reason = f"its content can be read as none of {', '.join(FORMATS)}"
        if data[:4] in _TIFF:  # Pillow does not tell one that it cannot read from what is none
            reason = "a TIFF, but damaged or of a kind that is not read, such as colours in floating point: "
            reason += "save it with 8 or 16 bits per channel"
        raise DataError(f"{name} cannot be read as an image ({reason})") from None
    except Exception as error:  # a damaged image raises whatever its bytes happen to lead to
        raise DataError(f"{name} cannot be read as an image ({error or type(error).__name__})") from None


def resize(image: Image.Image, size: int | None, fit: Fit) -> Image.Image:
    """To `size` x `size`: `crop` scales the shorter side and cuts the middle out, `stretch` changes the proportions."""
    if size is None or image.size == (size, size):
        return image
    if fit == "stretch":
        return image.resize((size, size), Image.Resampling.BICUBIC)
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2  # whole pixels: half of one would blur
    return image.resize((size, size), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side))


def _upright(image: Image.Image) -> tuple[Image.Image, list[str]]:
    """Decoded and turned; what shows only before an image is decoded is noted here."""
    done = [FRAMES] if getattr(image, "is_animated", False) else []
    if _has_deep_colours(image):
        if "transparency" in image.info:
            raise ValueError("16 bits per channel and a transparent colour: save it with an alpha channel")
        done.append(DEEP)
    bits = _bits_of_few(image)
    turned = image.format == "TIFF" and _orientation(image) in _UPRIGHT  # TIFF alone is turned by Pillow while it decodes
    image.load()
    if bits and "transparency" in image.info:  # Pillow scales the pixels to 8 bits, but not the grey that is transparent
        top = 2**bits - 1
        image.info["transparency"] = (image.info["transparency"] & top) * 255 // top
    turn = _UPRIGHT.get(_orientation(image))
    if turned or turn is not None:
        done.append(TURNED)
    if turn is None:
        return image, done
    upright = image.transpose(turn)
    upright.format = image.format
    return upright, done


def _orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(_ORIENTATION)
    except Exception:  # malformed attributes raise anything; the pixels are none the worse
        return 1
    return value if isinstance(value, int) else 1


def _has_deep_colours(image: Image.Image) -> bool:
    """Whether Pillow is going to take the high byte of 16 bits, or to scale them in PPM: only its decoder's arguments say."""
    for tile in getattr(image, "tile", ()):
        arguments = tile[3] if isinstance(tile[3], tuple) else (tile[3],)
        if any(";16" in argument for argument in arguments if isinstance(argument, str)):
            return True
        if image.format == "PPM" and isinstance(arguments[-1], int) and arguments[-1] > 255:
            return True
    return False


def _bits_of_few(image: Image.Image) -> int:
    """2 or 4 if that is how a grey PNG is stored, else 0. Of 1 bit, Pillow scales all."""
    for tile in getattr(image, "tile", ()) if image.format == "PNG" else ():
        if tile[3] in ("L;2", "L;4"):
            return int(tile[3][2:])
    return 0


def _rgb(name: str, image: Image.Image, done: list[str]) -> Image.Image:
    tags = getattr(image, "tag_v2", {})
    wide = image.mode == "I" and image.format in ("PNG", "PPM")  # 16 bits, kept in 32
    if (image.mode in ("I", "F") and not wide) or 2 in tags.get(_SAMPLE_FORMAT, ()):
        kind = "floating-point" if image.mode == "F" else "32-bit or signed"
        raise DataError(
            f"{name} holds {kind} numbers ({image.format}, mode {image.mode}), which have no fixed range from black to white: "
            "save it with 8 or 16 bits per channel"
        )
    if wide or image.mode.startswith("I;16"):
        done[:] = {*done, DEEP}
        top = 4095 if tags.get(_BITS) == (12,) else 65535
        grey = ((255 * np.clip(np.asarray(image).astype(np.int64), 0, top) + top // 2) // top).astype(np.uint8)
        return Image.fromarray(255 - grey if tags.get(_PHOTOMETRIC) == 0 else grey).convert("RGB")
    if image.has_transparency_data:
        return _on_white(image, done)
    if image.mode in ("CMYK", "LAB"):
        done.append(COLOURS)
    return image if image.mode == "RGB" else image.convert("RGB")


def _on_white(image: Image.Image, done: list[str]) -> Image.Image:
    layers = {"La": "LA", "RGBa": "RGBA"}
    image = image.convert(layers[image.mode]) if image.mode in layers else image
    over = image.convert("RGBA")
    if over.getchannel("A").getextrema() == (255, 255):
        return over.convert("RGB")
    done.append(TRANSPARENT)
    return Image.alpha_composite(Image.new("RGBA", over.size, "white"), over).convert("RGB")
