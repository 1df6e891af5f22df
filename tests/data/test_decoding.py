"""Images of every kind against pixels calculated by hand."""

from __future__ import annotations

import io
import struct
import subprocess
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from forgetscope.data.decoding import COLOURS, DEEP, FORMATS, FRAMES, TRANSPARENT, TURNED, decode
from forgetscope.errors import DataError

VALUES = np.array(
    [[0, 1, 128, 129, 255, 256, 1000, 32768], [32895, 32896, 40000, 65000, 65278, 65407, 65408, 65535]], np.uint16
)
SCALED = np.round(VALUES / 65535 * 255).astype(np.uint8)


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png_chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png16(samples: np.ndarray, colour_type: int, *chunks: bytes) -> bytes:
    """A PNG of 16 bits per channel, which Pillow cannot write in colour."""
    height, width = samples.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)
    parts = [png_chunk(b"IHDR", header), *chunks, png_chunk(b"IDAT", zlib.compress(rows)), png_chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def decoded(data: bytes) -> tuple[np.ndarray, list[str]]:
    return decode("it.png", data, None, "crop")


GREY_16 = {
    "PNG": png16(VALUES, 0),
    "TIFF, little-endian": saved(Image.frombytes("I;16", (8, 2), VALUES.astype("<u2").tobytes()), "TIFF"),
    "TIFF, big-endian": saved(Image.frombytes("I;16B", (8, 2), VALUES.astype(">u2").tobytes()), "TIFF"),
    "TIFF, compressed": saved(Image.frombytes("I;16", (8, 2), VALUES.tobytes()), "TIFF", compression="tiff_lzw"),
    "PGM": b"P5 8 2 65535\n" + VALUES.astype(">u2").tobytes(),
}


@pytest.mark.parametrize("kind", GREY_16)
def test_grey_of_16_bits_is_scaled_by_its_range(kind: str) -> None:
    pixels, done = decoded(GREY_16[kind])
    assert (pixels == SCALED[..., None]).all()
    assert done == [DEEP]


def test_grey_whose_zero_is_white_is_turned_round() -> None:
    image = Image.frombytes("I;16", (8, 2), VALUES.tobytes())
    pixels, _ = decoded(saved(image, "TIFF", tiffinfo={262: 0}))
    assert (pixels == 255 - SCALED[..., None]).all()


def test_grey_of_12_bits_is_scaled_by_its_own_range() -> None:
    values = [0, 8, 2048, 4095]
    packed = b"".join(struct.pack(">I", a << 12 | b)[1:] for a, b in zip(values[::2], values[1::2], strict=True))
    tags = {256: 4, 257: 1, 258: 12, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: len(packed)}
    entries = b"".join(struct.pack("<HHII", tag, 4 if tag in (273, 279) else 3, 1, value) for tag, value in tags.items())
    data = b"II*\0" + struct.pack("<I", 14) + packed + struct.pack("<H", len(tags)) + entries + bytes(4)
    pixels, done = decoded(data)
    assert pixels[0, :, 0].tolist() == [round(value / 4095 * 255) for value in values]
    assert done == [DEEP]


def test_a_pgm_with_another_maximum_is_scaled_by_that() -> None:
    values = np.array([0, 1, 500, 999, 1000])
    pixels, done = decoded(b"P5 5 1 1000\n" + values.astype(">u2").tobytes())
    assert np.abs(pixels[0, :, 0] - values / 1000 * 255).max() <= 0.51
    assert pixels[0, -1].tolist() == [255] * 3
    assert done == [DEEP]


@pytest.mark.parametrize("colour_type", [2, 6])
def test_colour_of_16_bits_keeps_its_high_bytes(colour_type: int) -> None:
    """Pillow's scaling: never further than one from that by the range."""
    samples = np.stack([VALUES, VALUES[::-1], VALUES[:, ::-1], np.full_like(VALUES, 65535)][: 3 if colour_type == 2 else 4], -1)
    pixels, done = decoded(png16(samples, colour_type))
    assert (pixels == samples[..., :3] // 256).all()
    assert np.abs(pixels - samples[..., :3] / 257).max() < 1
    assert done == [DEEP]


def test_a_colour_ppm_of_16_bits_is_scaled() -> None:
    pixels, done = decoded(b"P6 8 2 65535\n" + np.repeat(VALUES[..., None], 3, -1).astype(">u2").tobytes())
    assert np.abs(pixels[..., 0] - VALUES / 257).max() <= 0.51
    assert done == [DEEP]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (saved(Image.fromarray(np.array([[0.0, 0.5, 1.0]], np.float32)), "TIFF"), "floating-point numbers (TIFF, mode F)"),
        (saved(Image.fromarray(np.array([[0, 70000]], np.int32)), "TIFF"), "32-bit or signed numbers (TIFF, mode I)"),
        (saved(Image.new("L", (2, 2)), "TIFF", tiffinfo={339: 2}), "32-bit or signed numbers (TIFF, mode L)"),
        (b"Pf 2 1 -1.0\n" + np.zeros(2, "<f4").tobytes(), "floating-point numbers (PPM, mode F)"),
    ],
)
def test_numbers_without_a_range_are_refused_by_name(data: bytes, kind: str) -> None:
    with pytest.raises(DataError) as refusal:
        decoded(data)
    assert f"it.png holds {kind}, which have no fixed range" in str(refusal.value)
    assert "save it with 8 or 16 bits per channel" in str(refusal.value)


@pytest.mark.parametrize("bits", [16, 64])
def test_a_tiff_of_floating_point_that_pillow_does_not_open_is_still_called_one(bits: int) -> None:
    tags = {256: 1, 257: 1, 258: bits, 259: 1, 262: 1, 273: 8, 277: 1, 278: 1, 279: bits // 8, 339: 3}
    entries = b"".join(struct.pack("<HHII", tag, 3, 1, value) for tag, value in tags.items())
    data = b"II*\0" + struct.pack("<I", 16) + bytes(8) + struct.pack("<H", len(tags)) + entries + bytes(4)
    with pytest.raises(DataError, match=r"\(a TIFF, but damaged or of a kind that is not read.*save it with 8 or 16 bits"):
        decoded(data)


def corners() -> Image.Image:
    """Wider than high, and no two corners alike."""
    return Image.fromarray(np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 14)


# From EXIF's definition: where row 0 and column 0 of what is stored are to be seen.
UPRIGHT = {
    1: lambda x: x,
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.swapaxes(0, 1),
    6: lambda x: x.swapaxes(0, 1)[:, ::-1],
    7: lambda x: x.swapaxes(0, 1)[::-1, ::-1],
    8: lambda x: x.swapaxes(0, 1)[::-1],
}


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP", "JPEG"])
@pytest.mark.parametrize("orientation", UPRIGHT)
def test_images_stand_upright(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    options = {"WEBP": {"lossless": True}, "JPEG": {"quality": 100, "subsampling": 0}}.get(kind, {})
    data = saved(corners(), kind, exif=exif, **options)
    pixels, done = decoded(data)
    if kind == "JPEG":  # not lossless, so against what Pillow shows
        assert (pixels == np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))).all()
    else:
        assert (pixels == UPRIGHT[orientation](np.asarray(corners()))).all()
    assert done == ([TURNED] if orientation != 1 else [])


@pytest.mark.parametrize(
    "exif", [b"Exif\0\0", b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x12\x01" * 40]
)
def test_malformed_exif_does_no_harm(exif: bytes) -> None:
    pixels, done = decoded(saved(corners(), "PNG", exif=exif))
    assert (pixels == np.asarray(corners())).all()
    assert done == []


RED_TO_CLEAR = np.array([[[200, 10, 0, 255], [200, 10, 0, 128], [200, 10, 0, 0]]], np.uint8)
ON_WHITE = np.round(RED_TO_CLEAR[..., :3] * (RED_TO_CLEAR[..., 3:] / 255) + 255 * (1 - RED_TO_CLEAR[..., 3:] / 255))


def test_what_is_transparent_lies_on_white() -> None:
    for kind, options in (("PNG", {}), ("WEBP", {"lossless": True, "exact": True}), ("TIFF", {})):
        pixels, done = decoded(saved(Image.fromarray(RED_TO_CLEAR), kind, **options))
        assert np.abs(pixels - ON_WHITE).max() <= 1, kind
        assert pixels[0, 2].tolist() == [255, 255, 255]
        assert done == [TRANSPARENT]


def with_palette(mode: str) -> Image.Image:
    image = Image.new(mode, (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putdata([0, 1] if mode == "P" else [(0, 255), (1, 0)])
    return image


TRANSPARENT_KINDS = {
    "P": (saved(with_palette("P"), "PNG", transparency=1), [10, 20, 30]),
    "P with many": (saved(with_palette("P"), "PNG", transparency=bytes([255, 0])), [10, 20, 30]),
    "GIF": (saved(with_palette("P"), "GIF", transparency=1), [10, 20, 30]),
    "PA": (saved(with_palette("PA"), "TIFF"), [10, 20, 30]),
    "LA": (saved(Image.fromarray(np.array([[[77, 255], [9, 0]]], np.uint8), "LA"), "PNG"), [77, 77, 77]),
    "L": (saved(Image.fromarray(np.array([[77, 9]], np.uint8)), "PNG", transparency=9), [77, 77, 77]),
    "1": (saved(Image.fromarray(np.array([[False, True]])), "PNG", transparency=1), [0, 0, 0]),
    "RGB": (saved(Image.fromarray(np.array([[[1, 2, 3], [9, 9, 9]]], np.uint8)), "PNG", transparency=(9, 9, 9)), [1, 2, 3]),
}


@pytest.mark.parametrize("kind", TRANSPARENT_KINDS)
def test_every_way_to_be_transparent(kind: str) -> None:
    data, first = TRANSPARENT_KINDS[kind]
    pixels, done = decoded(data)
    assert pixels.tolist() == [[first, [255, 255, 255]]]
    assert done == [TRANSPARENT]


def test_an_opaque_alpha_channel_is_nothing_to_tell() -> None:
    solid = RED_TO_CLEAR.copy()
    solid[..., 3] = 255
    pixels, done = decoded(saved(Image.fromarray(solid), "PNG"))
    assert (pixels == solid[..., :3]).all()
    assert done == []


def test_premultiplied_alpha_is_divided_out() -> None:
    """TIFF's associated alpha: stored are colour times alpha."""
    data = bytearray(saved(Image.fromarray(np.array([[[100, 50, 0, 128]]], np.uint8)), "TIFF"))
    at = data.index(struct.pack("<HHI", 338, 3, 1)) + 8  # ExtraSamples
    assert data[at] == 2
    data[at] = 1
    pixels, done = decoded(bytes(data))
    assert np.abs(pixels[0, 0] - (np.array([100, 50, 0]) + 255 - 128)).max() <= 1
    assert done == [TRANSPARENT]


@pytest.mark.parametrize("colour_type", [0, 2])
def test_16_bits_with_one_transparent_colour_is_refused(colour_type: int) -> None:
    samples = VALUES if colour_type == 0 else np.repeat(VALUES[..., None], 3, -1)
    with pytest.raises(DataError, match="16 bits per channel and a transparent colour: save it with an alpha channel"):
        decoded(png16(samples, colour_type, png_chunk(b"tRNS", bytes(2 if colour_type == 0 else 6))))


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_transparent_grey_of_few_bits_is_scaled_as_the_pixels_are(depth: int, interlaced: bool) -> None:
    top = 2**depth - 1
    row = b"\0" + bytes([0b00011011 if depth == 2 else 0x0F if depth == 4 else 0b01000000])
    values = {1: [0, 1], 2: [0, 1, 2, 3], 4: [0, 15]}[depth]
    # Seven passes over a single row: of those that have pixels, each holds a filter byte and its own.
    passes = {1: [[0], [1]], 2: [[0], [2], [1, 3]], 4: [[0], [15]]}[depth]
    packed = [b"\0" + bytes([sum(v << 8 - depth * (i + 1) for i, v in enumerate(some))]) for some in passes]
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", len(values), 1, depth, 0, 0, 0, interlaced))
    content = png_chunk(b"IDAT", zlib.compress(b"".join(packed) if interlaced else row)) + png_chunk(b"IEND", b"")
    for clear in values:
        for unused in (0,) if depth == 1 else (0, 0x0100, 0x8010):  # bits above the depth do not count
            data = b"\x89PNG\r\n\x1a\n" + header + png_chunk(b"tRNS", struct.pack(">H", clear | unused)) + content
            pixels, done = decoded(data)
            assert pixels[0, :, 0].tolist() == [255 if value == clear else value * 255 // top for value in values]
            assert done == [TRANSPARENT]  # white too


def test_cmyk_becomes_rgb_by_light_times_light() -> None:
    ink = np.array([[[0, 0, 0, 0], [255, 0, 0, 0], [51, 102, 153, 0], [51, 102, 153, 128]]], np.uint8)
    pixels, done = decoded(saved(Image.fromarray(ink, "CMYK"), "TIFF"))
    light = (255 - ink.astype(float)) / 255
    assert np.abs(pixels - 255 * light[..., :3] * light[..., 3:]).max() <= 1
    assert done == [COLOURS]


def test_lab_ycbcr_palettes_and_bits_become_rgb() -> None:
    grey = np.zeros((1, 2, 3), np.uint8)
    grey[0, 1, 0] = 255  # L* of 100 %; a* = b* = 0
    lab, done = decoded(saved(Image.fromarray(grey, "LAB"), "TIFF"))
    assert np.abs(lab - np.array([[[0] * 3, [255] * 3]])).max() <= 2
    assert done == [COLOURS]
    plain = {
        "YCbCr": saved(Image.fromarray(np.array([[[0, 128, 128], [255, 128, 128]]], np.uint8), "YCbCr"), "TIFF"),
        "1": saved(Image.fromarray(np.array([[False, True]])), "PNG"),
        "L": saved(Image.fromarray(np.array([[0, 255]], np.uint8)), "BMP"),
        "PGM of 100": b"P5 2 1 100\n" + bytes([0, 100]),
    }
    for kind, data in plain.items():
        assert decoded(data)[0].tolist() == [[[0] * 3, [255] * 3]], kind
        assert decoded(data)[1] == []
    assert decoded(saved(with_palette("P"), "PNG"))[0].tolist() == [[[10, 20, 30], [200, 100, 50]]]


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF", "MPO"])
def test_the_first_of_several_frames_is_taken(kind: str) -> None:
    first, second = (Image.new("RGB", (16, 16), colour) for colour in ("blue", "red"))
    options = {"lossless": True} if kind == "WEBP" else {}
    pixels, done = decoded(saved(first, kind, save_all=True, append_images=[second], **options))
    assert np.abs(pixels.astype(int) - [0, 0, 255]).max() <= 2
    assert done == [FRAMES]


def test_no_program_is_started_for_what_poses_as_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    with pytest.raises(DataError, match=f"its content can be read as none of {', '.join(FORMATS)}"):
        decoded(eps)


def test_an_empty_file_is_called_by_its_name() -> None:
    with pytest.raises(DataError, match=r"^it.png is empty \(0 bytes\)$"):
        decoded(b"")


def test_an_image_without_pixels_is_refused() -> None:
    with pytest.raises(DataError, match=r"it.png cannot be read as an image"):
        decoded(png16(np.zeros((0, 0), np.uint16), 0))
    with pytest.raises(DataError, match=r"it.png cannot be read as an image"):
        decoded(b"P5 0 0 255\n")
