"""How a file is made hostile by somebody who knows its format: containers around mutated contents, tables, headers.

Everything is drawn from the generator that is given, so a mutation can be made again from its number alone.
"""

from __future__ import annotations

import gzip
import io
import random
import re
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from torture.garbling import NUMBERS, STRINGS, Mutated, mutate_bytes, mutate_json, mutate_lines, mutate_numbers

BOMB = 500 << 20  # bytes of zeros: half a megabyte when they are compressed


def mutate(name: str, content: bytes, draw: random.Random) -> Mutated:
    """Whatever suits a file of this name and content; half of the time its bytes, as of a file of which nothing is known."""
    inside = _knowing(name, content)
    if inside and draw.random() < 0.75:
        try:
            return draw.choice(inside)(content, draw)
        except (ValueError, KeyError, IndexError, TypeError, OverflowError, OSError, pa.ArrowException, RecursionError):
            pass  # not what its name says, for example because it was mutated before
    return mutate_bytes(content, draw)


def _knowing(name: str, content: bytes) -> list[Callable[[bytes, random.Random], Mutated]]:
    if content[:2] == b"\x1f\x8b":
        return [_in_gzip]
    if content[257:262] == b"ustar":
        return [_in_tar, _in_tar, _tar_members]
    if content[:4] == b"PK\x03\x04":
        return [_in_zip, _in_zip, _zip_members]
    if content[:4] == b"PAR1":
        return [_in_table]
    if content[:6] == b"\x93NUMPY":
        return [_npy_header]
    if content[:8] == b"\x89PNG\r\n\x1a\n":
        return [_in_png]
    if name.endswith((".json", ".jsonl")):
        return [mutate_json]
    if name.endswith(".safetensors") or name.startswith("snapshot") or content[8:10] == b'{"':
        return [_in_safetensors]
    if name.endswith((".txt", ".toml", ".csv")):
        return [mutate_lines, mutate_numbers]
    return []


def _in_gzip(content: bytes, draw: random.Random) -> Mutated:
    body, what = mutate("", gzip.decompress(content), draw)
    return gzip.compress(body, 1, mtime=0), f"gzip: {what}"


def _in_tar(content: bytes, draw: random.Random) -> Mutated:
    members = _tar_read(content)
    place = draw.choice([i for i, (info, _) in enumerate(members) if info.isfile()])
    info, body = members[place]
    body, what = mutate(info.name, body, draw)
    members[place] = (info, body)
    return _tar_write(members), f"{info.name}: {what}"


def _tar_read(content: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return [(info, file.read() if (file := tar.extractfile(info)) else b"") for info in tar.getmembers()]


def _tar_write(members: Sequence[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, body in members:
            info.size = len(body) if info.isfile() else 0
            tar.addfile(info, io.BytesIO(body))
    return buffer.getvalue()


def _tar_members(content: bytes, draw: random.Random) -> Mutated:
    members = _tar_read(content)
    place = draw.randrange(len(members))
    info, body = members[place]
    kind = draw.choice(("twice", "gone", "swapped", "renamed", "link", "device", "extended", "many", "bomb"))
    if kind == "twice":
        members.append((info, body))
    elif kind == "gone":
        del members[place]
    elif kind == "swapped":
        other = draw.randrange(len(members))
        members[place], members[other] = (info, members[other][1]), (members[other][0], body)
    elif kind == "renamed":
        info.name = draw.choice(
            ("../../escaped", "/tmp/escaped", "", "x" * 5000, info.name + "/", "a\udcffb", "./" + info.name)
        )
    elif kind == "link":
        info.type, info.linkname = draw.choice((tarfile.SYMTYPE, tarfile.LNKTYPE)), draw.choice(("/etc/passwd", info.name))
    elif kind == "device":
        info.type = draw.choice((tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.GNUTYPE_SPARSE, b"Z"))
    elif kind == "extended":
        size = draw.choice((str(8 << 30), "-1", "99999999999999999999", "x"))
        info.pax_headers = draw.choice(
            ({"size": size}, {"path": "x" * 10_000}, {"GNU.sparse.realsize": size, "GNU.sparse.map": "0,1"})
        )
    elif kind == "bomb":
        members[place] = (info, body + bytes(BOMB))
    else:
        members += [(tarfile.TarInfo(f"{info.name}-{i}"), b"") for i in range(3000)]
    return _tar_write(members), f"member {info.name[:60]!r}: {kind}"


def _in_zip(content: bytes, draw: random.Random) -> Mutated:
    members = _zip_read(content)
    place = draw.randrange(len(members))
    name, body = members[place]
    body, what = mutate(name, body, draw)
    members[place] = (name, body)
    return _zip_write(members), f"{name}: {what}"


def _zip_read(content: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(name, archive.read(name)) for name in archive.namelist()]


def _zip_write(members: Sequence[tuple[str, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        warnings.simplefilter("ignore", UserWarning)  # two members of one name are what is wanted
        for name, body in members:
            archive.writestr(zipfile.ZipInfo(name), body, zipfile.ZIP_DEFLATED)  # a fixed date
    return buffer.getvalue()


def _zip_members(content: bytes, draw: random.Random) -> Mutated:
    members = _zip_read(content)
    place = draw.randrange(len(members))
    name, body = members[place]
    kind = draw.choice(("twice", "gone", "swapped", "renamed", "many", "bomb"))
    if kind == "twice":
        members.append((name, body))
    elif kind == "gone":
        del members[place]
    elif kind == "swapped":
        other = draw.randrange(len(members))
        members[place], members[other] = (name, members[other][1]), (members[other][0], body)
    elif kind == "renamed":
        new = draw.choice(("../../escaped", "/tmp/escaped", "x" * 5000, name + "/", "a\\b", "\x1b[31m", f"./{name}"))
        members[place] = (new, body)
    elif kind == "bomb":
        members[place] = (name, body + bytes(BOMB))
    else:
        members += [(f"{name}-{i}", b"") for i in range(3000)]
    return _zip_write(members), f"member {name!r}: {kind}"


def _in_png(content: bytes, draw: random.Random) -> Mutated:
    """A chunk's content, with its checksum made good; a small header may promise a large image."""
    chunks, place = [], 8
    while place < len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        chunks.append((content[place + 4 : place + 8], content[place + 8 : place + 8 + length]))
        place += 12 + length
    chosen = draw.choice((0, draw.randrange(len(chunks))))
    kind, body = chunks[chosen]
    body, what = mutate_bytes(body, draw)
    chunks[chosen] = (kind, body)
    packed = b"".join(struct.pack(">I", len(b)) + k + b + struct.pack(">I", zlib.crc32(k + b)) for k, b in chunks)
    return content[:8] + packed, f"chunk {kind.decode()}: {what}"


def _npy_header(content: bytes, draw: random.Random) -> Mutated:
    """Shape and type of an array, rewritten at the old length."""
    (length,) = struct.unpack("<H", content[8:10])
    header, body = content[10 : 10 + length].decode("latin1"), content[10 + length :]
    shape = draw.choice(
        ("(0,)", "()", "(3000000000,)", "(1000000, 1000000)", "(-1,)", "(2, 0, 0, 3)", "(1, 1000000000000)", None)
    )
    kind = draw.choice(("|O", "<f8", "<M8[s]", "<U1000000", "|V10", "<i1000", "<c16", "|S5", ">i2", "|b1", "<f2"))
    new = re.sub(r"'shape': \([^)]*\)", f"'shape': {shape}", header) if shape else re.sub(r"'\S\w\d+'", f"'{kind}'", header)
    new = new.rstrip()
    new += " " * (63 - (10 + len(new)) % 64) + "\n"
    return content[:8] + struct.pack("<H", len(new)) + new.encode("latin1") + body, f"array header {new.strip()[:90]}"


def _in_safetensors(content: bytes, draw: random.Random) -> Mutated:
    start = 0 if content[8:10] == b'{"' else 32  # a checksum may lead it
    (length,) = struct.unpack("<Q", content[start : start + 8])
    header, what = mutate_json(content[start + 8 : start + 8 + length], draw)
    return content[:start] + struct.pack("<Q", len(header)) + header + content[start + 8 + length :], f"header: {what}"


def _in_table(content: bytes, draw: random.Random) -> Mutated:
    """Columns gone, renamed, of another type, with strange values, without rows, or with very many."""
    table = pq.ParquetFile(pa.BufferReader(content)).read()
    place = draw.randrange(table.num_columns)
    name, column = table.column_names[place], table.column(place)
    kind = draw.choice(
        ("gone", "renamed", "twice", "text", "null", "number", "number", "number", "empty", "list", "many", "nan")
    )
    rows = table.num_rows
    if kind == "gone":
        table = table.remove_column(place)
    elif kind == "renamed":
        table = table.rename_columns([draw.choice(STRINGS[:-1]) if i == place else n for i, n in enumerate(table.column_names)])
    elif kind == "twice":
        table = table.append_column(name, column)
    elif kind == "empty":
        table = table.slice(0, 0)
    elif kind == "many":
        room = 1 << (24 if any(pa.types.is_struct(field.type) for field in table.schema) else 29)  # images need real ones
        times = min(draw.choice((400_000, 3_000_000)) // max(1, rows), room // max(1, table.nbytes))
        table = pa.concat_tables([table] * max(1, times))
    else:
        value: Any = {
            "text": lambda: [draw.choice(STRINGS[:-1])] * rows,
            "null": lambda: [None] * rows,
            "list": lambda: [[1]] * rows,
            "nan": lambda: [float("nan")] * rows,
            "number": lambda: [draw.choice(NUMBERS)] * rows if draw.random() < 0.5 else _one_odd(column.to_pylist(), draw),
        }[kind]()
        table = table.set_column(place, name, pa.array(value))
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue(), f"column {name!r}: {kind}"


def _one_odd(values: list[Any], draw: random.Random) -> list[Any]:
    values[draw.randrange(len(values))] = draw.choice(NUMBERS[:-4])
    return values
