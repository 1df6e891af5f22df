"""Pickles as Python 2 and 3 wrote them, and such as nobody should have written."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import numpy as np
import pytest

from forgetscope.data.readers import pickles
from forgetscope.data.readers.pickles import load_plain, read_uint8
from forgetscope.errors import DataError

IMAGES = np.random.default_rng(0).integers(256, size=(2, 3072), dtype=np.uint8)
BATCH = {b"data": IMAGES, b"fine_labels": [7, 9], b"coarse_labels": [1, 2], b"filenames": [b"a.png", b"b.png"]}


def python_2(images: np.ndarray) -> bytes:
    """What Python 2 and its numpy wrote, operation by operation: strings without encoding, numpy.core, protocol 2."""

    def text(value: bytes) -> bytes:
        return (b"U" + bytes([len(value)]) if len(value) < 256 else b"T" + struct.pack("<I", len(value))) + value

    def number(value: int) -> bytes:
        return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)

    kind = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R" + b"q\x08"
    kind += b"(" + number(3) + text(b"|") + b"NNN" + b"J\xff\xff\xff\xff" * 2 + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04" + number(0) + b"\x85" + text(b"b") + b"\x87R"
    array += b"(" + number(1) + number(len(images)) + number(3072) + b"\x86" + kind + b"\x89" + text(images.tobytes()) + b"tb"
    labels = b"]q\x05(" + number(7) + number(9) + b"e"
    items = (
        text(b"data")
        + array
        + text(b"fine_labels")
        + labels
        + text(b"coarse_labels")
        + b"]"
        + number(1)
        + b"a"
        + number(2)
        + b"a"
    )
    return b"\x80\x02}q\x01(" + items + text(b"batch_label") + text(b"training batch 1 of 1") + b"u."


def test_what_python_2_wrote_is_read() -> None:
    batch = load_plain("train", python_2(IMAGES))
    assert batch[b"fine_labels"] == [7, 9]
    assert batch[b"coarse_labels"] == [1, 2]
    assert batch[b"batch_label"] == b"training batch 1 of 1"
    assert (read_uint8(batch[b"data"]) == IMAGES).all()
    real = pickle.loads(python_2(IMAGES), encoding="bytes")  # that this is how a pickle goes
    assert (real[b"data"] == IMAGES).all()


def test_the_strings_of_python_2s_protocol_0_are_read() -> None:
    """They stand there as Python 2's repr, in which every byte beyond ASCII is an escape."""
    every = bytes(range(256))
    for value in (every, every.replace(b'"', b""), every.replace(b"'", b""), b"", b"\\", b"'", b'"'):
        data = b"S" + repr(value)[1:].encode("ascii") + b"\np0\n."
        assert load_plain("train", data) == value == pickle.loads(data, encoding="bytes")
    array = b"cnumpy.core.multiarray\n_reconstruct\np1\n(cnumpy\nndarray\np2\n(I0\ntp3\nS'b'\np4\ntp5\nRp6\n(I1\n(I2\nI3072\nt"
    array += b"cnumpy\ndtype\n(S'u1'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\nS" + repr(IMAGES.tobytes())[1:].encode()
    batch = load_plain("train", b"(dp0\nS'data'\n" + array + b"\ntbsS'fine_labels'\n(lI7\naI9\nas.")
    assert (read_uint8(batch[b"data"]) == IMAGES).all()
    assert batch[b"fine_labels"] == [7, 9]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_what_python_3_writes_is_read(protocol: int) -> None:
    batch = load_plain("train", pickle.dumps(BATCH, protocol))
    assert {key: value for key, value in batch.items() if key != b"data"} == {k: v for k, v in BATCH.items() if k != b"data"}
    assert (read_uint8(batch[b"data"]) == IMAGES).all()


def array_of(
    kind: bytes = b"u1", shape: bytes = b"K\x02K\x03\x86", content: bytes = b"U\x06abcdef", fortran: bytes = b"\x89"
) -> bytes:
    dtype = b"cnumpy\ndtype\nU" + bytes([len(kind)]) + kind + b"K\x00K\x01\x87R"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return b"\x80\x02" + array + b"(K\x01" + shape + dtype + fortran + content + b"tb."


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (array_of(kind=b"O"), "data is not uint8"),  # objects: content would be taken for pointers
        (array_of(kind=b"|O8"), "data is not uint8"),
        (array_of(kind=b"f8"), "data is not uint8"),
        (array_of(fortran=b"\x88"), "data is not uint8, row by row"),
        (array_of(shape=b"K\x02K\x04\x86"), r"data has 6 bytes and the shape \(2, 4\)"),
        (array_of(shape=b"J\xff\xff\xff\xffJ\xfa\xff\xff\xff\x86"), "data has no shape"),
        (array_of(shape=b"U\x01x"), "data has no shape"),
        (array_of(content=b"](K\x01e"), "data is no array of plain numbers"),
        (b"\x80\x02K\x05.", "data is no array"),
        (b"\x80\x02cnumpy\nndarray\n.", "data is no array"),
    ],
)
def test_no_array_is_made_of_what_is_none(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_uint8(load_plain("train", data))


def test_an_array_of_bytes_is_made() -> None:
    assert read_uint8(load_plain("train", array_of())).tolist() == [[97, 98, 99], [100, 101, 102]]


DEEP = b"\x80\x02" + b"(" * 100_000 + b"t" * 100_000 + b"."  # tuples in tuples


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x80\x02cposix\nsystem\nU\x02ls\x85R.", "train asks for posix.system, but a data set needs only numpy arrays"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "train asks for os.system"),
        (b"\x80\x02cnumpy\nndarray\n)\x81.", "train asks for the operation NEWOBJ"),
        (b"\x80\x02P1\n.", "train asks for the operation PERSID"),
        (b"\x80\x02]2.", "train asks for the operation DUP"),
        (b"\x80\x02\x82\x01.", "train asks for the operation EXT1"),
        (b"\x80\x02\x8b" + struct.pack("<i", 2**30) + b".", "train is damaged"),  # LONG4 of a gigabyte
        (b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b".", "train is damaged"),  # BINBYTES8
        (b"\x80\x04\x95" + struct.pack("<Q", 2**62) + b"N.", None),  # a frame is only a hint
        (b"\x80\x02Nr\xff\xff\xff\xff.", None),  # place 2**32 - 1 of the memo
        (b"\x80\x02}(" + DEEP[2:-1] + b"K\x01u.", "train is damaged .*a key is a tuple"),
        (b"\x80\x02}]K\x01s.", "train is damaged .*a key is a list"),
        (b"\x80\x02e.", "train is damaged"),
        (b"\x80\x02K\x01K\x02R.", "train is damaged .*found a int instead of a Call"),
        (b"\x80\x02c_codecs\nencode\nX\x01\0\0\0aX\x05\0\0\0rot13\x86R.", "train is damaged .*another encoding"),
        (b"\x80\x02}", "train is damaged .*no end"),
        (b"S'a\n.", "train is damaged .*a string without quotes"),
        (b"S'\n.", "train is damaged .*a string without quotes"),
        (b"Sa\n.", "train is damaged .*a string without quotes"),
        (b"S'a'", "train is damaged .*a string without quotes"),
        (b"S'\\x0'\n.", "train is damaged"),
        (b"\xff.", "train is damaged .*unknown operation"),
        (b"", "train is damaged"),
    ],
)
def test_whatever_else_a_pickle_asks_for_is_refused(data: bytes, message: str | None) -> None:
    if message is None:
        assert load_plain("train", data) is None
        return
    with pytest.raises(DataError, match=message):
        load_plain("train", data)


def test_lists_of_lists_of_lists_stay_small() -> None:
    """Nothing is copied, so the billion that this describes is never there."""
    laughs = b"\x80\x02]q\x00K\x01a"
    for i in range(60):
        laughs += b"](" + b"h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1])
    value: Any = load_plain("train", laughs + b".")
    assert len(value) == 2
    assert value[0] is value[1]


def test_steps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "PICKLE_STEPS", 100)
    with pytest.raises(DataError, match="train: 101 steps of a pickle, at most 100 are read"):
        load_plain("train", b"\x80\x02" + b"N" * 200 + b".")
    assert load_plain("train", b"\x80\x02" + b"N" * 98 + b".") is None
    with pytest.raises(DataError, match="train: 101 steps"):
        load_plain("train", b"\x80\x02" + b"N" * 99 + b".")
