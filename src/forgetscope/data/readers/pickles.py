"""CIFAR's pickles, read without Python's unpickler: bytes, text, numbers, lists, tuples and dicts are made, nothing else.

A numpy array in a pickle is a recipe: calls of numpy's own functions, with a type and bytes that whoever wrote the file has
chosen. Here a recipe stays one, a `Call` with its arguments; `read_uint8` checks it and makes an array of the bytes."""

import codecs
import io
import math
import pickletools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from forgetscope.data.limits import MEMBER_BYTES, PICKLE_STEPS, check_limit
from forgetscope.errors import DataError

_NAMES = {
    "numpy.core.multiarray _reconstruct": "reconstruct",
    "numpy._core.multiarray _reconstruct": "reconstruct",
    "numpy ndarray": "ndarray",
    "numpy dtype": "dtype",
    "_codecs encode": "encode",
}
# fmt: off
_PYTHON_2_STRING = {"BINSTRING", "SHORT_BINSTRING"}
_PLAIN = {  # text, bytes and numbers
    "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "STRING",
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1",
}
_CONSTANT = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_PUT, _GET = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}, {"GET", "BINGET", "LONG_BINGET"}
# fmt: on
_OPERATIONS = {opcode.code.encode("latin1"): opcode for opcode in pickletools.opcodes}


@dataclass
class Call:
    """What a pickle asks for, by name; never called."""

    name: str
    arguments: tuple[Any, ...] = ()
    state: Any = None


def load_plain(name: str, data: bytes) -> Any:
    """What a pickle holds. Python 2 wrote its strings, keys among them, as bytes."""
    check_limit(name, len(data), "bytes", MEMBER_BYTES)
    try:
        return _Machine(name).run(data)
    except DataError:
        raise
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to ask for
        raise DataError(f"{name} is damaged ({type(error).__name__}: {error}). Get it again.") from None


def read_uint8(value: Any) -> NDArray[np.uint8]:
    """The array that a recipe describes, if it is one of bytes; ValueError says what it is instead."""
    if not isinstance(value, Call) or value.name != "reconstruct" or not isinstance(value.state, tuple):
        raise ValueError("data is no array")
    _, shape, kind, fortran, content = value.state
    if not isinstance(kind, Call) or kind.name != "dtype" or not isinstance(content, bytes):
        raise ValueError("data is no array of plain numbers")
    described = kind.arguments[0].decode("ascii") if isinstance(kind.arguments[0], bytes) else kind.arguments[0]
    if described not in ("u1", "|u1") or fortran:
        raise ValueError("data is not uint8, row by row")
    if not isinstance(shape, tuple) or not all(type(side) is int and 0 <= side <= MEMBER_BYTES for side in shape):
        raise ValueError("data has no shape")
    if math.prod(shape) != len(content):
        raise ValueError(f"data has {len(content)} bytes and the shape {shape}")
    return np.frombuffer(content, np.uint8).reshape(shape)


def _operations(data: bytes) -> Iterator[tuple[str, Any]]:
    """Name and argument of each: pickletools.genops, but for STRING, which that takes for ASCII."""
    stream = io.BytesIO(data)
    while code := stream.read(1):
        if code not in _OPERATIONS:
            raise ValueError(f"unknown operation {code!r}")
        opcode = _OPERATIONS[code]
        if opcode.name == "STRING":
            yield opcode.name, _quoted(stream)
        else:
            yield opcode.name, opcode.arg.reader(stream) if opcode.arg else None


def _quoted(stream: BinaryIO) -> bytes:
    """A line with a string as Python 2's repr wrote it: in protocol 0 the pixels of all images are one."""
    line = stream.readline()
    if len(line) < 3 or line[:1] not in (b"'", b'"') or line[-2:] != line[:1] + b"\n":
        raise ValueError("a string without quotes")
    return codecs.escape_decode(memoryview(line)[1:-2])[0]  # a view: the line may have hundreds of megabytes


class _Machine:
    """Pickle's stack machine, as far as such files need it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes) -> Any:
        for step, (kind, argument) in enumerate(_operations(data), 1):
            check_limit(self.name, step, "steps of a pickle", PICKLE_STEPS)
            if kind == "STOP":
                return self.stack.pop()
            if kind == "MARK":
                self.marks.append(len(self.stack))
            elif kind in _PUT:
                self.memo[len(self.memo) if kind == "MEMOIZE" else argument] = self.stack[-1]
            elif kind in ("APPEND", "APPENDS"):
                items = self.popped(1 if kind == "APPEND" else None)
                _expect(self.stack[-1], list).extend(items)
            elif kind in ("SETITEM", "SETITEMS"):
                items = self.popped(2 if kind == "SETITEM" else None)
                _filled(_expect(self.stack[-1], dict), items)
            elif kind == "BUILD":
                (state,) = self.popped(1)
                _expect(self.stack[-1], Call).state = state
            elif kind not in ("PROTO", "FRAME"):
                self.stack.append(self.value(kind, argument))
        raise ValueError("it has no end")

    def refusal(self, what: str) -> DataError:
        return DataError(
            f"{self.name} asks for {what}, but a data set needs only numpy arrays and plain containers. Do not trust this file."
        )

    def value(self, kind: str, argument: Any) -> Any:
        """That stands in the pickle as it is, has been put into the memory, or is made of the end of the stack."""
        if kind in _PLAIN:
            return argument
        if kind in _PYTHON_2_STRING:
            return argument.encode("latin1")
        if kind in _CONSTANT:
            return _CONSTANT[kind]
        if kind in _GET:
            return self.memo[argument]
        if kind in ("EMPTY_LIST", "LIST"):
            return [] if kind == "EMPTY_LIST" else self.popped()
        if kind in ("EMPTY_DICT", "DICT"):
            return _filled({}, [] if kind == "EMPTY_DICT" else self.popped())
        if kind in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            return tuple(self.popped(None if kind == "TUPLE" else int(kind[-1])))
        if kind in ("GLOBAL", "STACK_GLOBAL"):
            return self.named(argument if kind == "GLOBAL" else " ".join(self.popped(2)))
        if kind == "REDUCE":
            function, arguments = self.popped(2)
            return _called(_expect(function, Call), _expect(arguments, tuple))
        raise self.refusal(f"the operation {kind}")

    def named(self, name: str) -> Call:
        if name not in _NAMES:
            raise self.refusal(name.replace(" ", "."))
        return Call(_NAMES[name])

    def popped(self, count: int | None = None) -> list[Any]:
        """The last so many items; without a count, all since the last mark, which is taken off as well."""
        if count is not None and len(self.stack) - (self.marks[-1] if self.marks else 0) < count:
            raise ValueError("its stack is empty")
        start = self.marks.pop() if count is None else len(self.stack) - count
        items = self.stack[start:]
        del self.stack[start:]
        return items


def _called(function: Call, arguments: tuple[Any, ...]) -> Any:
    if function.name != "encode":
        return Call(function.name, arguments)
    text, encoding = arguments  # how Python 3 pickles bytes for old protocols
    if encoding not in ("latin1", "latin-1"):
        raise ValueError("it asks for another encoding than latin1")
    return _expect(text, str).encode("latin1")


def _filled(target: dict[Any, Any], items: list[Any]) -> dict[Any, Any]:
    for key, value in zip(items[::2], items[1::2], strict=True):
        if not isinstance(key, (str, bytes, int)):  # hashing what is nested deeply would overflow the stack
            raise ValueError(f"a key is a {type(key).__name__}")
        target[key] = value
    return target


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"found a {type(value).__name__} instead of a {kind.__name__}")
    return value
