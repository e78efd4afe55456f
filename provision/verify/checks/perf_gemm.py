"""Every GPU multiplies at the rate of its model, and none falls behind its neighbours."""

from __future__ import annotations

from statistics import median

from provision.matrix.load import Matrix
from provision.matrix.query import find_floor
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown
from provision.verify.work import counted, has_mig, name_worker

__all__ = ["check"]

_FIGURE = "gemm-bf16_tflops"


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Judge each GPU by the floor of its model and by the median of the host."""
    del expected
    if has_mig(host):
        return skipped("MIG divides the GPUs, and a part has no rate of its own in the facts")
    work = host.torch_work
    rates = {
        name_worker(host, worker): (worker.name, worker.figures[_FIGURE])
        for worker in work.gpus
        if _FIGURE in worker.figures
    }
    if not rates:
        return unknown(work.error or "PyTorch measured no product in bfloat16")
    middle = median(value for _, value in rates.values())
    percent = matrix.limit("perf.gemm-spread")
    least = middle * (1 - percent / 100)
    figures = {"gemm_bf16_tflops": min(value for _, value in rates.values())}
    floors = {name: find_floor(matrix, "gemm-bf16", gpu=model) for name, (model, _) in rates.items()}
    faults: dict[str, str] = {}
    for name, (_, value) in rates.items():
        row = floors[name]
        if row is not None and value < row.floor:
            faults[name] = f"reaches {value:.0f} TFLOPS, below the floor of {row.floor:g}"
        elif value < least:
            faults[name] = f"reaches {value:.0f} TFLOPS, where the median of this host is {middle:.0f}"
    if faults:
        return failed(
            "; ".join(f"{name} {fault}" for name, fault in faults.items()),
            f"the floor of the model, and at most {percent:g} % below the median",
            subjects=faults,
            figures=figures,
        )
    if all(row is None for row in floors.values()) and len(rates) < 2:
        name, (model, value) = next(iter(rates.items()))
        return skipped(f"no floor is known for {model or name}, which reaches {value:.0f} TFLOPS and has no neighbour")
    aside = "" if all(floors.values()) else ", as their neighbours do; no floor is known for their model"
    reached = f"{figures['gemm_bf16_tflops']:.0f} TFLOPS or more"
    return passed(f"{counted(len(rates), 'GPU')} with {reached}{aside}", figures=figures)
