"""Steps travel as one file: the same bytes for the same steps, whole or refused, nothing outside its place."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import random
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import TINY, run_experiment
from forgetscope.errors import DamagedExport, DamagedStep, SpecError, StateFreed, StoreError, WriteError
from forgetscope.files import is_locked
from forgetscope.housekeeping import exchange
from forgetscope.housekeeping.exchange import Imported, chains, export_steps, import_steps, plan_files
from forgetscope.housekeeping.freeing import free, freeable
from forgetscope.housekeeping.sql import query
from forgetscope.housekeeping.verification import Damage, file_damage, verify_store
from forgetscope.spec import RunSpec
from forgetscope.store import FREED, STATE, Store, StoredStep

Members = list[tuple[tarfile.TarInfo, bytes]]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def exported(store: Store, tmp_path: Path) -> Path:
    path = tmp_path / "steps.tar"
    export_steps(store.steps(), path)
    return path


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return Store(tmp_path / "other")


def test_a_store_comes_out_as_it_went_in(store: Store, exported: Path, other: Store, chain: list[str]) -> None:
    result = import_steps(exported, other)
    assert result.new == chain  # ancestors first
    assert contents(other.path) == contents(store.path)
    assert verify_store(other).damage == []
    again = import_steps(exported, other)
    assert (again.new, again.present) == ([], chain)


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


def test_the_same_steps_give_the_same_bytes(store: Store, exported: Path, other: Store, tmp_path: Path) -> None:
    import_steps(exported, other)
    size = export_steps(list(reversed(other.steps())), tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == exported.read_bytes()
    assert size == exported.stat().st_size


def test_without_states_markers_stand_for_them(store: Store, other: Store, tmp_path: Path, chain: list[str]) -> None:
    export_steps(store.steps(), tmp_path / "small.tar", states=False)
    import_steps(tmp_path / "small.tar", other)
    for id in chain:
        assert other.step(id).state_freed
        other.step(id).verify()
        assert (other.step(id).folder / "classes.parquet").read_bytes() == (
            store.step(id).folder / "classes.parquet"
        ).read_bytes()
    export_steps(other.steps(), tmp_path / "again.tar")  # what was freed there stays freed
    assert (tmp_path / "again.tar").read_bytes() == (tmp_path / "small.tar").read_bytes()


def test_keepsakes_of_later_steps_can_be_left_out_and_are_made_again(other: Store, tmp_path: Path) -> None:
    run = RunSpec(**TINY, keepsake="variance")
    store, file = Store(tmp_path / "keepsakes"), tmp_path / "without.tar.xz"
    *_, third = (step.id for step in run_experiment(run, store, device="cpu", threads=1).chain)
    second = str(store.step(third).parent)
    export_steps(store.steps(), file, states=False, keepsakes=2)
    assert import_steps(file, other).damaged == {}
    assert verify_store(other).damage == []
    assert other.step(second).keepsakes().keys() == store.step(second).keepsakes().keys()
    with pytest.raises(StateFreed, match=rf"The keepsakes of step {third[:8]} in .* were left out when it was exported"):
        other.step(third).keepsakes()
    found = query(other, "SELECT DISTINCT step FROM keepsakes").to_pydict()
    assert found == {"step": [2]}
    again = tmp_path / "again.tar.xz"
    assert export_steps(other.steps(), again, states=False) == file.stat().st_size
    assert again.read_bytes() == file.read_bytes()  # markers travel on

    # Only a run that builds on it misses them: both are made again, and are what they were.
    longer = run.model_copy(update={"sequence": (*run.sequence, (6, 7))})  # type: ignore[misc]
    run_experiment(longer, other, device="cpu", threads=1)
    for name in ("keepsakes.parquet", "state.safetensors"):
        assert (other.step(third).folder / name).read_bytes() == (store.step(third).folder / name).read_bytes()
    assert verify_store(other).damage == []


def test_keepsakes_that_are_gone_without_their_marker_are_damage(tmp_path: Path) -> None:
    store = Store(tmp_path / "keepsakes")
    *_, third = run_experiment(RunSpec(**TINY, keepsake="variance"), store, device="cpu", threads=1).chain
    (third.folder / "keepsakes.parquet").unlink()
    for marker in (None, "0" * 64):
        if marker is not None:
            (third.folder / "keepsakes.freed").write_text(marker, encoding="ascii")
        (damage,) = verify_store(store).damage
        assert (damage.path.name, damage.reason) == ("keepsakes.parquet", "No such file or directory")


def test_a_subset_is_whole_chains(store: Store, chain: list[str], other: Store, tmp_path: Path) -> None:
    assert [step.id for step in chains(store, [chain[1][:8]])] == chain[:2]
    assert {step.id for step in chains(store, [])} == set(chain)
    with pytest.raises(SpecError, match="No steps"):
        chains(store, ["zz"])
    export_steps(chains(store, [chain[1][:8], chain[0]]), tmp_path / "two.tar")
    assert import_steps(tmp_path / "two.tar", other).new == chain[:2]


def test_plans_travel_along(store: Store, other: Store, tmp_path: Path) -> None:
    for name, content in (("a-1", '{"id": "a-1"}'), ("b.c-2", '{"id": "b.c-2"}')):
        (store.path / "plans" / name).mkdir(parents=True)
        (store.path / "plans" / name / "plan.json").write_text(content)
    export_steps(store.steps(), tmp_path / "file.tar", plans=plan_files(store))
    (other.path / "plans" / "a-1").mkdir(parents=True)
    (other.path / "plans" / "a-1" / "plan.json").write_text("stays")
    assert import_steps(tmp_path / "file.tar", other).damaged == {}
    assert [file.read_text() for file in plan_files(other)] == ["stays", '{"id": "b.c-2"}']
    content = (tmp_path / "file.tar").read_bytes()
    (tmp_path / "file.tar").write_bytes(content.replace(b'{"id": "b.c-2"}', b'{"id": "b.x-2"}'))
    third = Store(tmp_path / "third")
    assert "plans/b.c-2/plan.json" in import_steps(tmp_path / "file.tar", third).damaged
    assert [file.parent.name for file in plan_files(third)] == ["a-1"]


def test_a_damaged_step_is_not_exported(store: Store, chain: list[str], tmp_path: Path) -> None:
    (store.step(chain[1]).folder / "pairs.parquet").write_bytes(b"")
    with pytest.raises(DamagedStep, match=r"pairs.parquet"):
        export_steps(store.steps(), tmp_path / "steps.tar")
    assert not list(tmp_path.glob("*.tar*"))
    assert not list(tmp_path.glob(".*"))


def test_a_state_that_is_freed_during_an_export_is_not_called_damaged(store: Store, chain: list[str], tmp_path: Path) -> None:
    def free_one(what: str, done: int, total: int) -> None:
        for item in freeable(store):
            free(store, item)

    with pytest.raises(StoreError, match=rf"Step {chain[2][:8]} changed while it was exported.*Run the export again") as caught:
        export_steps(store.steps(), tmp_path / "steps.tar", progress=free_one)
    assert not isinstance(caught.value, DamagedStep)


def test_a_file_that_cannot_be_written_is_one_clear_error(store: Store, tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r"Cannot write .*none"):
        export_steps(store.steps(), tmp_path / "none" / "steps.tar")
    with pytest.raises(WriteError, match="Is a directory"):
        export_steps(store.steps(), tmp_path)


@pytest.mark.parametrize("seed", range(25))
def test_whatever_bit_is_flipped_only_whole_steps_get_in(store: Store, exported: Path, other: Store, seed: int) -> None:
    rng = random.Random(seed)
    content = bytearray(exported.read_bytes())
    place = rng.randrange(rng.choice([512, 3000, 16_000, len(content)]))  # headers, index and small files too
    content[place] ^= 1 << rng.randrange(8)
    exported.write_bytes(content)
    try:
        result = import_steps(exported, other)
    except (DamagedExport, StoreError):
        assert not other.path.exists()
        return
    original = contents(store.path)
    for id in result.new:
        assert contents(other.step(id).folder) == contents(store.step(id).folder)
    if not result.damaged:  # a flip in the padding, or in a letter of the index that means nothing
        assert contents(other.path) == original
    assert not list((other.path / "working").iterdir())


@pytest.mark.parametrize("seed", range(10))
def test_a_truncated_file_gives_its_whole_steps_and_names_the_others(
    store: Store, exported: Path, other: Store, chain: list[str], seed: int
) -> None:
    content = exported.read_bytes()
    exported.write_bytes(content[: random.Random(seed).randrange(5000, len(content) - 30_000)])
    result = import_steps(exported, other)
    assert result.new == chain[: len(result.new)]
    assert list(result.damaged) == chain[len(result.new) :]
    assert "is missing" in result.damaged[chain[2]] or "cannot be read" in result.damaged[chain[2]]
    assert verify_store(other).damage == []
    exported.write_bytes(content)
    assert import_steps(exported, other).new == chain[len(result.new) :]  # a whole file continues
    assert contents(other.path) == contents(store.path)


def test_descendants_of_a_damaged_step_stay_out(exported: Path, other: Store, chain: list[str]) -> None:
    repacked(exported, lambda members: [m for m in members if m[0].name != f"steps/{chain[1]}/step.json"])
    result = import_steps(exported, other)
    assert result.new == chain[:1]
    assert result.damaged[chain[1]].startswith("step.json is missing")
    assert result.damaged[chain[2]] == f"its parent {chain[1][:8]} is neither in the store nor whole in this file"


def test_a_damaged_step_in_the_store_is_quarantined_and_replaced(exported: Path, store: Store, chain: list[str]) -> None:
    harmed = store.step(chain[1]).folder / "classes.parquet"
    whole = harmed.read_bytes()
    harmed.write_bytes(b"harmed")
    result = import_steps(exported, store)
    assert (result.new, result.present) == ([chain[1]], [chain[0], chain[2]])
    assert harmed.read_bytes() == whole
    assert (result.quarantined[0] / "classes.parquet").read_bytes() == b"harmed"


def test_a_step_is_held_while_it_is_imported(exported: Path, other: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []

    def spy(step: StoredStep) -> Iterator[Damage]:
        (folder,) = (other.path / "working").glob("commit-*")
        held.append(any(is_locked(lock) for lock in folder.parent.glob(f"{folder.name.split('-')[1]}*.lock")))
        return file_damage(step)

    monkeypatch.setattr(exchange, "file_damage", spy)
    import_steps(exported, other)
    assert held == [True] * 3


def test_a_step_that_another_import_brings_in_meanwhile_is_no_damaged_one(
    exported: Path, other: Store, chain: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = exchange._refuse_unless_whole

    def check(*args: Any) -> None:
        monkeypatch.setattr(exchange, "_refuse_unless_whole", real)
        assert import_steps(exported, other).new == chain
        real(*args)

    monkeypatch.setattr(exchange, "_refuse_unless_whole", check)
    result = import_steps(exported, other)
    assert (result.new, result.present, result.quarantined) == ([], chain, [])
    assert not (other.path / "quarantine").exists()


def test_runs_go_on_from_imported_steps(exported: Path, other: Store, chain: list[str]) -> None:
    from conftest import TINY

    import_steps(exported, other)
    plan = run_experiment(RunSpec(**TINY), other, device="cpu", threads=1)
    assert [step.id for step in plan.steps] == chain


def repacked(
    path: Path, change: Callable[[Members], Members], index: Callable[[dict[str, object]], None] | None = None
) -> None:
    """Write an exported file anew with other members."""
    with tarfile.open(path) as tar:
        members = [(member, tar.extractfile(member).read()) for member in tar.getmembers()]  # type: ignore[union-attr]
    if index is not None:
        document = json.loads(members[0][1])
        index(document)
        data = json.dumps(document).encode()
        members[0][0].size = len(data)
        members[0] = (members[0][0], data)
    with tarfile.open(path, "w") as tar:
        for member, data in change(members):
            tar.addfile(member, io.BytesIO(data))


def extra(name: str, type: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b"x") -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = type, link, len(data) if type == tarfile.REGTYPE else 0
    return member, data


def packed(name: str, data: bytes) -> tuple[tarfile.TarInfo, io.BytesIO]:
    member, _ = extra(name, data=data)
    return member, io.BytesIO(data)


ID = "a" * 32


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


def test_a_record_that_claims_another_step_s_name_stays_out(
    store: Store, chain: list[str], other: Store, tmp_path: Path
) -> None:
    shutil.copytree(store.step(chain[0]).folder, store.path / "steps" / ID)
    with pytest.raises(DamagedStep, match=f"it is the record of step {chain[0]}"):
        export_steps([store.step(ID)], tmp_path / "forged.tar")
    export_steps([store.step(chain[0])], tmp_path / "forged.tar")
    content = (tmp_path / "forged.tar").read_bytes()
    with tarfile.open(tmp_path / "forged.tar", "w") as tar, tarfile.open(fileobj=io.BytesIO(content)) as real:
        for member in real.getmembers():
            data = real.extractfile(member).read()  # type: ignore[union-attr]
            renamed = data.replace(f"steps/{chain[0]}".encode(), f"steps/{ID}".encode())
            tar.addfile(*packed(member.name.replace(chain[0], ID), renamed))
    result = import_steps(tmp_path / "forged.tar", other)
    assert result.damaged == {ID: f"step.json: it is the record of step {chain[0]}"}
    assert not list((other.path / "steps").iterdir())


def test_a_state_that_is_gone_without_its_marker_stays_out(exported: Path, other: Store, chain: list[str]) -> None:
    name = f"steps/{chain[0]}/{STATE}"
    repacked(exported, lambda m: [x for x in m if x[0].name != name], lambda document: document["members"].pop(name))  # type: ignore[attr-defined]
    result = import_steps(exported, other)
    assert result.damaged[chain[0]] == f"{STATE}: No such file or directory"
    assert not (other.path / "steps" / chain[0] / FREED).exists()


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


def test_two_imports_add_up() -> None:
    first, second = Imported(new=["a"], damaged={"c": "x"}), Imported(new=["b"], present=["a", "d"])
    assert first + second == Imported(new=["a", "b"], present=["d"], damaged={"c": "x"})
