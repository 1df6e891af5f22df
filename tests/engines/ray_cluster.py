"""A Ray cluster of several nodes on this machine: `python ray_cluster.py`, then a command per line of standard input.

Prints the address first. `add` adds a node with one CPU, `remove` takes the oldest of them away as a power cut would.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

HEAD = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 100 * 2**20}
NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20}


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args=HEAD)
    nodes = []
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
