"""The Ray engine on a real cluster of several nodes: the same store as the local engine's, whatever is lost on the way."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

import forgetscope as fs
from forgetscope.cli.app import app
from forgetscope.errors import InputError
from forgetscope.store import Store
from forgetscope.underway.running import Lookout, UnderWay
from ray_cluster import RayCluster, processes_of

pytest.importorskip("ray", reason="Ray is not installed")
SLOWER = ("--set", "epochs=30", "--set", "experiments=2")


@pytest.fixture(scope="module")
def expected(squares: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What the local engine leaves."""
    store = tmp_path_factory.mktemp("local") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORGETSCOPE_CACHE", str(squares))
        file = _file(store.parent)
        arguments = ["bench", "run", str(file), "--store", str(store), "--jobs", "2", "--no-estimate", *SLOWER]
        assert CliRunner().invoke(app, arguments).exit_code == 0
    return contents(store)


def _file(folder: Path) -> Path:
    from conftest import SMALL
    from forgetscope.benchmark.space import BenchmarkSpec

    file = folder / "small.toml"
    file.write_text(BenchmarkSpec(**SMALL).to_toml())
    return file


def contents(store: Path) -> dict[str, dict[str, str]]:
    return {
        step.id: {name: entry["sha256"] for name, entry in step.manifest.items() if name != "step.json"}
        for step in Store(store).steps()
    }


def start(file: Path, store: Path, cluster: RayCluster, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "forgetscope", "bench", "run", str(file), "--store", str(store), "--no-estimate"]
    command += ["--engine", "ray", "--address", cluster.address, *SLOWER, *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], code: int = 0) -> str:
    _, errors = process.communicate(timeout=300)
    assert process.returncode == code, errors
    return errors


def wait_for_steps(store: Path, count: int, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 180
    while len(Store(store).ids()) < count:
        assert time.monotonic() < until
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_undisturbed(cluster: RayCluster, small_file: Path, tmp_path: Path, expected: dict[str, dict[str, str]]) -> None:
    """And seen while it runs, by whoever looks on."""
    process, lookout, seen = (
        start(small_file, tmp_path / "store", cluster),
        Lookout(Store(tmp_path / "store")),
        list[UnderWay](),
    )
    while process.poll() is None:
        seen += [one for one in lookout.look() if one.is_alive and one.at_risk]
        time.sleep(0.02)
    finish(process)
    assert {one.progress.step for one in seen} <= expected.keys()
    assert any(one.progress.number > 1 and one.at_risk[0].risk.why for one in seen)
    assert contents(tmp_path / "store") == expected
    assert not list((tmp_path / "store" / "working").iterdir())
    status = CliRunner().invoke(
        app, ["bench", "status", str(small_file), "--store", str(tmp_path / "store"), "--json", *SLOWER]
    )
    assert json.loads(status.stdout)["done"] == len(expected)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_worker_is_killed(cluster: RayCluster, small_file: Path, tmp_path: Path, expected: dict[str, dict[str, str]]) -> None:
    process = start(small_file, tmp_path / "store", cluster)
    wait_for_steps(tmp_path / "store", 2, process)
    until = time.monotonic() + 60
    while not (victims := cluster.workers("step")):
        assert time.monotonic() < until
    os.kill(victims[0], signal.SIGKILL)
    assert "Its worker or node was lost" in finish(process)
    assert contents(tmp_path / "store") == expected


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_node_is_lost(cluster: RayCluster, small_file: Path, tmp_path: Path, expected: dict[str, dict[str, str]]) -> None:
    process = start(small_file, tmp_path / "store", cluster)
    wait_for_steps(tmp_path / "store", 2, process)
    cluster.do("remove")
    cluster.do("add")
    finish(process)
    assert contents(tmp_path / "store") == expected


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 3)])
def test_the_driver_is_stopped_and_started_again(
    how: signal.Signals, code: int, cluster: RayCluster, small_file: Path, tmp_path: Path, expected: dict[str, dict[str, str]]
) -> None:
    process = start(small_file, tmp_path / "store", cluster)
    wait_for_steps(tmp_path / "store", 3, process)
    process.send_signal(how)
    finish(process, code)
    done = len(Store(tmp_path / "store").ids())
    assert done < len(expected)
    assert f"{done} of {len(expected)} steps are in the store already" in finish(start(small_file, tmp_path / "store", cluster))
    assert contents(tmp_path / "store") == expected


@pytest.mark.slow
@pytest.mark.usefixtures("small", "cluster")
def test_a_cluster_is_started_here_and_listens_on_loopback_only(
    small_file: Path, tmp_path: Path, expected: dict[str, dict[str, str]]
) -> None:
    """Another cluster on this machine, the fixture's, is none of its business."""
    command = [sys.executable, "-m", "forgetscope", "bench", "run", str(small_file), "--store", str(tmp_path / "store")]
    command += ["--no-estimate", "--engine", "ray", "--jobs", "1", *SLOWER]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    wait_for_steps(tmp_path / "store", 1, process)
    addresses = listening(process.pid)
    finish(process)
    assert addresses
    assert all(address.is_loopback for address in addresses), addresses
    assert contents(tmp_path / "store") == expected


def listening(pid: int) -> set[IPv4Address | IPv6Address]:
    """Where a process and all that descend from it accept connections, from Linux's own tables."""
    sockets = set()
    for member in {pid, *processes_of(pid)}:
        for entry in Path(f"/proc/{member}/fd").glob("*"):
            with suppress(OSError):
                sockets.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
    found: set[IPv4Address | IPv6Address] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and inode in sockets:
                words = bytes.fromhex(local.partition(":")[0])
                network_order = b"".join(words[i : i + 4][::-1] for i in range(0, len(words), 4))
                address = ip_address(network_order)
                found.add((address.version == 6 and address.ipv4_mapped) or address)
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_node_without_the_data_is_named(
    cluster: RayCluster, small_file: Path, tmp_path: Path, squares: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache goes away between the driver's look and the nodes'."""
    elsewhere = shutil.copytree(squares, tmp_path / "cache")
    monkeypatch.setenv("FORGETSCOPE_CACHE", str(elsewhere))
    code = (
        "import shutil, sys; from forgetscope.engines import ray; from forgetscope.cli import main; check = ray.check_nodes\n"
        f"ray.check_nodes = lambda *a: (shutil.rmtree({str(elsewhere)!r}), check(*a))\n"
        "sys.argv[0] = 'forgetscope'; main()"
    )
    command = [sys.executable, "-c", code, "bench", "run", str(small_file), "--store", str(tmp_path / "store")]
    command += ["--engine", "ray", "--address", cluster.address, "--no-estimate"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2, result.stderr
    assert "is not ready: There is no data set 'squares'." in result.stderr
    assert result.stderr.count("Node ") == 3
    assert "Nothing was started." in result.stderr
    assert not Store(tmp_path / "store").ids()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("installed", "message"),
    [(None, "Ray is not installed. Install it: `pip install 'forgetscope[ray]'`"), ("2.9.1", "Ray 2.9.1 is too old")],
)
def test_ray_that_is_missing_or_too_old(
    installed: str | None, message: str, small_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(package: str) -> str:
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(package)
        return installed

    monkeypatch.setattr("forgetscope.engines.ray.version", version)
    arguments = ["bench", "run", str(small_file), "--store", str(tmp_path / "store"), "--engine", "ray"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_cluster_that_is_not_there(small_file: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "forgetscope", "bench", "run", str(small_file), "--store", str(tmp_path / "store")]
    command += ["--engine", "ray", "--address", "127.0.0.1:1", "--no-estimate"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 2, result.stderr
    assert "Error: Cannot reach or start Ray at 127.0.0.1:1" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--engine", "rai"], "--engine 'rai' is not known. Did you mean 'ray'?"),
        (["--address", "auto"], "--address and --gpus-per-job are for --engine ray."),
        (["--shard", "0/4"], "--shard '0/4' is not of the form i/n with i from 1 to n"),
        (["--shard", "5/4"], "--shard '5/4' is not of the form i/n"),
    ],
)
def test_bad_options(arguments: list[str], message: str, small_file: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "run", str(small_file), "--store", str(tmp_path / "store"), *arguments])
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.parametrize("command", [["compare"], ["variants"], ["controlled", "glyphs"]])
def test_every_command_that_runs_a_plan_knows_the_engines(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(
        "forgetscope.cli.comparisons.work_off", lambda wanted, store, place, **more: asked.append(place) or 1 / 0
    )
    arguments = [*command, "--store", str(tmp_path / "store"), "--engine", "ray", "--address", "auto", "--gpus-per-job", "0.5"]
    assert isinstance(CliRunner().invoke(app, arguments).exception, ZeroDivisionError)
    assert asked == [fs.Ray(address="auto", gpus_per_job=0.5)]
    unknown = CliRunner().invoke(app, [*command, "--engine", "rai"])
    assert "--engine 'rai' is not known. Did you mean 'ray'?" in unknown.stderr


@pytest.mark.parametrize(("noticed", "message"), [(True, None), (False, "cannot run forgetscope: the node died")])
def test_a_node_that_is_lost_while_it_is_asked_is_not_asked_for(
    noticed: bool, message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the cluster counts it among its nodes, it is one that does not work."""
    from forgetscope.engines import ray as module

    class RayError(Exception):
        """Of a node that died, as Ray raises it."""

    class Cluster:
        exceptions = SimpleNamespace(RayError=RayError, RayTaskError=KeyError, GetTimeoutError=TimeoutError)
        asked = False

        def nodes(self) -> list[dict[str, object]]:
            ids = ["whole", "lost"] if not (self.asked and noticed) else ["whole"]
            return [{"Alive": True, "NodeID": id, "NodeManagerHostname": id} for id in ids]

        def remote(self, **options: object) -> Callable[[object], object]:
            task = SimpleNamespace(
                options=lambda scheduling_strategy: SimpleNamespace(remote=lambda *facts: scheduling_strategy)
            )
            return lambda function: task

        def get(self, check: str, timeout: float) -> None:
            self.asked = True
            if check == "lost":
                raise RayError("the node died")

    store = Store(tmp_path)
    store.prepare()
    work = SimpleNamespace(store=store, plan=SimpleNamespace(data=SimpleNamespace(digest="0")), setup=dict)
    monkeypatch.setattr(module, "_on_node", lambda ray, id: id)
    monkeypatch.setattr(module, "GONE_SECONDS", 0.0)
    with pytest.raises(InputError, match=message) if message else nullcontext():
        module.check_nodes(Cluster(), cast(Any, work), 0.0)
