"""A real Ray cluster on this machine: a head and two nodes whose GPUs are no more than a count.

It runs with the Python that has Ray, prints the address of the head, and ends with its standard input. A node knows its
name by ``STANDIN_NODE``.
"""

import sys

from ray.cluster_utils import Cluster

GPUS = {"head": 0, "one": 2, "two": 4}
MEMORY = 80 * 1024 * 1024


def main() -> None:
    """Start a raylet for each node."""
    cluster = Cluster()
    for name, gpus in GPUS.items():
        cluster.add_node(
            num_cpus=1,
            num_gpus=gpus,
            object_store_memory=MEMORY,
            include_dashboard=False,
            env_vars={"STANDIN_NODE": name},
        )
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
