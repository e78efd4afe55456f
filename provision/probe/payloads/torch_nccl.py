"""Add up tensors over processes with PyTorch's collectives and print the outcome as one JSON document.

usage: torch_nccl.py local [nccl|gloo]     one process a local GPU; with gloo two processes and no GPU
       torch_nccl.py pair [nccl|gloo]      one process here; RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT say the rest
"""

import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = Path(__file__).resolve()
MARKER = "@provision-payload "
TEXT_MAX = 400
LIMIT_SECONDS = 90
ELEMENTS = {"nccl": 64 << 20, "gloo": 1 << 20}
ROUNDS = 7
SUMS = 10


def say(error):
    """Return an exception as one line."""
    return "{}: {}".format(type(error).__name__, " ".join(str(error).split()))[:TEXT_MAX]


def reduce_together(backend, rank, world, method, gpu):
    """Take part in a sum of all processes' tensors, compare it and time it.

    Returns:
        The outcome in words, and GB/s on the bus in each round of sums, none where it failed.
    """
    import torch
    import torch.distributed as dist

    limit = datetime.timedelta(seconds=LIMIT_SECONDS)
    device = torch.device("cpu")
    if backend == "nccl":
        device = torch.device("cuda", gpu)
        torch.cuda.set_device(device)
    dist.init_process_group(backend, init_method=method, rank=rank, world_size=world, timeout=limit)
    try:
        elements = ELEMENTS[backend]
        # Small whole numbers have exact sums, whatever the order of addition.
        pattern = torch.arange(elements, device=device) % 251
        values = (pattern + rank).to(torch.float32)
        dist.all_reduce(values)
        expected = (pattern * world + world * (world - 1) // 2).to(torch.float32)
        wrong = int((values != expected).sum().item())
        if wrong:
            return f"failed: {wrong} of {elements} sums are wrong", []
        speeds = []
        for _ in range(ROUNDS):
            # Each sum multiplies what it sums; without this the numbers would grow beyond float32.
            values.copy_(pattern)
            wait(torch, device)
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(SUMS):
                dist.all_reduce(values)
            wait(torch, device)
            took = (time.perf_counter() - begin) / SUMS
            speeds.append(elements * 4 / took / 1e9 * 2 * (world - 1) / world)
        return "ok", speeds
    finally:
        dist.destroy_process_group()


def wait(torch, device):
    """Wait for what was queued on a device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def run_rank(backend, rank, world, method):
    """Return the document of one process."""
    document = {"tool": "torch-nccl", "error": None, "together": {}, "figures": {}}
    try:
        said, speeds = reduce_together(backend, rank, world, method, rank if method.startswith("file:") else 0)
        document["together"]["allreduce"] = said
        if speeds:
            middle = statistics.median(speeds)
            document["figures"]["allreduce_bus_gb_s"] = middle
            # The median absolute deviation, as a share of the median.
            document["figures"]["allreduce_spread"] = statistics.median(abs(speed / middle - 1) for speed in speeds)
            document["figures"]["allreduce_rounds"] = len(speeds)
    except (Exception, SystemExit) as error:
        document["together"]["allreduce"] = f"failed: {say(error)}"
    return document


def run_pair(backend):
    """Return the document of this host's process."""
    try:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    except (KeyError, ValueError) as error:
        return {"tool": "torch-nccl", "error": f"RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT: {say(error)}"}
    address = f"[{host}]" if ":" in host else host
    return run_rank(backend, rank, world, f"tcp://{address}:{port}")


def run_local(backend):
    """Return what the processes of this host said together."""
    document = {"tool": "torch-nccl", "error": None, "together": {}, "figures": {}}
    try:
        import torch

        world = torch.cuda.device_count() if backend == "nccl" else 2
        if world == 0:
            # It raises, and says why.
            torch.cuda.init()
    except (Exception, SystemExit) as error:
        document["error"] = say(error)
        return document
    if world == 0:
        document["error"] = "PyTorch sees no GPU"
        return document
    if world == 1:
        document["together"]["allreduce"] = "skipped: there is one GPU"
        return document
    document["figures"]["ranks"] = world
    answers = ask_ranks(backend, world)
    outcomes = [answer.get("together", {}).get("allreduce", "failed: no answer") for answer in answers]
    bad = [f"GPU {rank}: {said[8:]}" for rank, said in enumerate(outcomes) if said != "ok"]
    document["together"]["allreduce"] = "failed: " + "; ".join(bad)[:TEXT_MAX] if bad else "ok"
    figures = [answer.get("figures", {}) for answer in answers]
    if all("allreduce_bus_gb_s" in one for one in figures):
        document["figures"].update(min(figures, key=lambda one: one["allreduce_bus_gb_s"]))
    return document


def ask_ranks(backend, world):
    """Start a process for each rank, which meet at a file, and return their documents."""
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank in range(world):
            words = ["rank", backend, str(rank), str(world), f"file://{folder}/meeting"]
            command = [sys.executable, "-B", str(SCRIPT), *words]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL))
        return gather(processes)


def gather(processes):
    """Return the documents of some processes, in their order; one that says nothing gives an empty one."""
    answers = []
    last = time.monotonic() + LIMIT_SECONDS
    for process in processes:
        try:
            said = process.communicate(timeout=max(1, last - time.monotonic()))[0].decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            said = ""
        lines = [line[len(MARKER) :] for line in said.splitlines() if line.startswith(MARKER)]
        try:
            answers.append(json.loads(lines[-1]) if lines else {})
        except ValueError:
            answers.append({})
    return answers


def main():
    """Print the document."""
    mode, backend = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "nccl"
    if mode == "local":
        document = run_local(backend)
    elif mode == "pair":
        document = run_pair(backend)
    else:
        document = run_rank(backend, int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    print("\n" + MARKER + json.dumps(document))
    sys.stdout.flush()
    # A framework that cannot shut down well must not turn its answer into a failure.
    os._exit(0)


if __name__ == "__main__":
    main()
