"""What runs on a machine of a Ray cluster, with the Python that has Ray there: list its nodes, or ask them.

It stands alone, is read as text and given to that Python: nothing of this package is imported. The standard input is
one JSON document; what is printed is one a line.
"""

import base64
import json
import os
import subprocess
import sys
import time


def list_nodes(ray):
    """Return name, id, GPUs and whether it lives of every node; hosts of one name get a part of their id."""
    rows = ray.nodes()
    alive = {row["NodeManagerAddress"] for row in rows if row["Alive"]}
    # A node that came back is another one to Ray, which goes on listing the old one.
    rows = [row for row in rows if row["Alive"] or row["NodeManagerAddress"] not in alive]
    hosts = [row["NodeManagerHostname"] for row in rows]
    for row, host in zip(rows, hosts):
        name = host if hosts.count(host) == 1 else host + "-" + row["NodeID"][:8]
        yield {
            "name": name,
            "id": row["NodeID"],
            "gpus": row["Resources"].get("GPU", 0),
            "is_alive": row["Alive"],
        }


def answer(script, seconds):
    """Run the script with the node's own sh and return what it printed."""
    done = subprocess.run(
        ["sh", "-s"], input=script, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds, check=False
    )
    return done.stdout


def ask_nodes(ray, asked):
    """Ask each node in a task that has all its GPUs; yield each answer as it comes, then who gave none."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    script = base64.b64decode(asked["script"])
    run = ray.remote(answer)
    waits = {}
    for node in list_nodes(ray):
        if node["name"] in asked["names"]:
            where = NodeAffinitySchedulingStrategy(node["id"], soft=False)
            task = run.options(num_cpus=0, num_gpus=node["gpus"], scheduling_strategy=where, max_retries=0)
            waits[task.remote(script, asked["seconds"])] = node["name"]
    end = time.monotonic() + asked["seconds"] + asked["start_seconds"]
    while waits and time.monotonic() < end:
        done, _ = ray.wait(list(waits), num_returns=1, timeout=max(0.1, end - time.monotonic()))
        for task in done:
            name = waits.pop(task)
            try:
                yield {"name": name, "answer": base64.b64encode(ray.get(task)).decode()}
            except Exception as error:  # what Ray raises of a node is told of that node
                yield {"name": name, "why": str(error).strip().splitlines()[-1] if str(error).strip() else "it failed"}
    for task, name in waits.items():
        ray.cancel(task, force=True)
        yield {"name": name, "why": "its GPUs did not become free in time, and it is asked only when it is idle"}


def main():
    """Read what is asked, and answer."""
    asked = json.load(sys.stdin)
    import ray

    ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False, logging_level="ERROR")
    for row in ask_nodes(ray, asked) if "script" in asked else list_nodes(ray):
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
