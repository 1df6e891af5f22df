"""A Ray cluster of several nodes on this machine, in a process of its own; and the processes that run steps on it.

As a script it prints the cluster's address and then obeys its standard input: `add` adds a node with one CPU, `remove` takes
the oldest of them away as a power cut would.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

HEAD = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 100 * 2**20}
NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20}


class RayCluster:
    """Two nodes of one CPU each beside a head that runs nothing."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.address = self._answer()
        self.do("add")
        self.do("add")

    def do(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        assert self._answer() == "done", f"the cluster did not {command} a node"

    def workers(self, *kinds: str) -> list[int]:
        """Processes of this cluster, on any node, that run a step now (`step`) or wait for one (`IDLE`)."""
        begins = tuple(f"ray::{kind}".encode() for kind in kinds)
        return [pid for pid in processes_of(self._process.pid) if _command(pid).startswith(begins)]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def processes_of(pid: int) -> set[int]:
    """All processes that a process started, and those that these did; from Linux's own tables."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family - {pid}


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def main() -> None:
    from ray.cluster_utils import Cluster

    cluster, nodes = Cluster(initialize_head=True, head_node_args=HEAD), []
    print(cluster.address, flush=True)
    for line in sys.stdin:
        if line.strip() == "add":
            nodes.append(cluster.add_node(**NODE))
        else:
            cluster.remove_node(nodes.pop(0), allow_graceful=False)
        print("done", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
