"""The file in which steps travel: any tar reader can read it, and anything but what it should hold is refused."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import tarfile
from pathlib import Path

import pytest

from forgetscope.errors import DamagedExport, StoreError
from forgetscope.housekeeping.exporting import export_steps
from forgetscope.housekeeping.importing import import_steps
from forgetscope.store import Store
from repacking import ID, contents, extra, repacked


def test_any_tar_reader_finds_the_files_and_their_checksums(store: Store, exported: Path) -> None:
    with tarfile.open(exported) as tar:
        members = tar.getmembers()
        read = {member.name: tar.extractfile(member).read() for member in members}  # type: ignore[union-attr]
    assert all(
        (member.mtime, member.uid, member.gid, member.uname, member.isreg()) == (0, 0, 0, "", True) for member in members
    )
    index = json.loads(read.pop("index.json"))["members"]
    assert read == {name: data for name, data in contents(store.path).items() if name.startswith("steps/")}
    assert {name: hashlib.sha256(data).hexdigest() for name, data in read.items()} == {k: v["sha256"] for k, v in index.items()}


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        (extra("../evil"), "no name of a step's or a plan's file"),
        (extra("/etc/evil"), "no name of a step's or a plan's file"),
        (extra(f"steps/{ID}/../../evil"), "no name of a step's or a plan's file"),
        (extra(f"steps/{ID}/evil.pkl"), "no name of a step's or a plan's file"),
        (extra(f"steps/{ID.upper()}/step.json"), "no name of a step's or a plan's file"),
        (extra(f"steps/{ID}/step.json\n"), "no name of a step's or a plan's file"),
        (extra("plans/../plan.json"), "no name of a step's or a plan's file"),
        (extra("plans/.hidden/plan.json"), "no name of a step's or a plan's file"),
        (extra("plans/a/journal.jsonl"), "no name of a step's or a plan's file"),
        (extra("index.json"), "no name of a step's or a plan's file"),
        (extra(f"steps/{ID}/step.json", tarfile.SYMTYPE, "/etc/passwd"), "no plain file"),
        (extra(f"steps/{ID}/step.json", tarfile.LNKTYPE, "index.json"), "no plain file"),
        (extra(f"steps/{ID}/step.json", tarfile.CHRTYPE), "no plain file"),
        (extra(f"steps/{ID}/step.json", tarfile.DIRTYPE), "no plain file"),
        (extra(f"steps/{ID}/step.json"), "not in the index"),
    ],
)
@pytest.mark.parametrize("first", [False, True])
def test_anything_but_the_files_of_steps_is_refused_before_anything_is_imported(
    exported: Path, other: Store, member: tuple[tarfile.TarInfo, bytes], reason: str, first: bool
) -> None:
    repacked(exported, lambda members: [members[0], member, *members[1:]] if first else [*members, member])
    with pytest.raises(DamagedExport, match=f"is refused: .* is {reason}"):
        import_steps(exported, other)
    assert not other.path.exists()


def test_a_file_that_is_there_twice_or_of_another_size_is_refused(exported: Path, other: Store) -> None:
    whole = exported.read_bytes()
    repacked(exported, lambda members: [*members, members[-1]])
    with pytest.raises(DamagedExport, match="there twice"):
        import_steps(exported, other)
    exported.write_bytes(whole)
    repacked(exported, lambda members: [*members[:-1], extra(members[-1][0].name, data=members[-1][1] + b"more")])
    with pytest.raises(DamagedExport, match=r"bytes, \d+ in the index"):
        import_steps(exported, other)


@pytest.mark.parametrize("name", ["../evil", f"steps/{ID}/x/step.json", "steps//step.json", ""])
def test_an_index_with_other_names_is_refused(exported: Path, other: Store, name: str) -> None:
    def add(document: dict[str, object]) -> None:
        document["members"][name] = {"sha256": "0" * 64, "size": 0}  # type: ignore[index]

    repacked(exported, lambda members: members, add)
    with pytest.raises(DamagedExport, match="no name of a step's or a plan's file"):
        import_steps(exported, other)
    assert not other.path.exists()


@pytest.mark.parametrize("content", [b"", b"not a tar", b"[" * 100_000, b'{"format": 1, "members": [1]}'])
def test_another_kind_of_file_is_one_clear_error(tmp_path: Path, other: Store, content: bytes) -> None:
    (tmp_path / "plain").write_bytes(content)
    with pytest.raises(StoreError, match="is no file of `forgetscope store export`"):
        import_steps(tmp_path / "plain", other)
    with tarfile.open(tmp_path / "index", "w") as tar:
        member, data = extra("index.json", data=content)
        tar.addfile(member, io.BytesIO(data))
    with pytest.raises(DamagedExport, match="its index cannot be read"):
        import_steps(tmp_path / "index", other)
    with pytest.raises(StoreError, match=r"Cannot read .*nowhere"):
        import_steps(tmp_path / "nowhere", other)
    assert not other.path.exists()


@pytest.mark.parametrize("at_the_end", [True, False])
def test_names_before_names_before_names_end_in_one_sentence(at_the_end: bool, exported: Path, other: Store) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 5
    names = 3000 * (header.tobuf(tarfile.GNU_FORMAT) + b"name\0".ljust(512, b"\0"))
    with tarfile.open(exported, "a") as tar:
        end = tar.offset if at_the_end else 0
    content = exported.read_bytes()
    exported.write_bytes(content[:end] + names + content[end:])
    if at_the_end:
        assert import_steps(exported, other).damaged == {}
    else:
        with pytest.raises(StoreError, match=r"steps.tar is no file of `forgetscope store export`"):
            import_steps(exported, other)


@pytest.fixture
def compressed(store: Store, tmp_path: Path) -> Path:
    path = tmp_path / "steps.tar.xz"
    export_steps(store.steps(), path)
    return path


def test_a_compressed_file_holds_the_same_and_is_smaller(store: Store, exported: Path, compressed: Path, other: Store) -> None:
    assert compressed.stat().st_size < exported.stat().st_size
    assert lzma.decompress(compressed.read_bytes()) == exported.read_bytes()
    import_steps(compressed, other)
    assert contents(other.path) == contents(store.path)


def test_a_compressed_file_that_is_cut_off_or_damaged_is_refused(compressed: Path, other: Store) -> None:
    whole = compressed.read_bytes()
    half = len(whole) // 2
    flipped = whole[:half] + bytes([whole[half] ^ 1]) + whole[half + 1 :]
    for content, reason in ((whole[:half], "it ends too early"), (flipped, "corrupt input data")):
        compressed.write_bytes(content)
        with pytest.raises(DamagedExport, match=rf"cannot be unpacked: {reason}. Nothing was imported"):
            import_steps(compressed, other)
    assert not other.path.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lzma.compress(b"index.json" + bytes(2**27)), "it holds more than 67,108,864 bytes"),
        (lzma.compress(bytes(2**20)), "does not begin with index.json"),
        (lzma.compress(b"index.json" + bytes(1000)) * 2, "something follows after its end"),
        (lzma.compress(b"index.json" + bytes(1000)) + b"more", "something follows after its end"),
        (
            lzma.compress(b"index.json", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 2**28}], format=lzma.FORMAT_XZ),
            "memory usage limit exceeded",
        ),
    ],
    ids=["bomb", "foreign", "two", "tail", "memory"],
)
def test_a_compressed_file_of_somebody_else_is_refused(content: bytes, message: str, tmp_path: Path, other: Store) -> None:
    path = tmp_path / "odd.tar.xz"
    path.write_bytes(content)
    with pytest.raises((StoreError, DamagedExport), match=message):
        import_steps(path, other)
    assert not other.path.exists()
