"""How fast the GPUs compute and copy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from statistics import median

from provision.matrix.load import Matrix
from provision.matrix.query import NVLINK, find_floor, find_slot_floor
from provision.probe.links import (
    describe_slow_links,
    find_inactive_links,
    find_narrow_slots,
    pair_bandwidths,
    slowest_pairs,
    topology_of,
)
from provision.probe.output import FAILED, HUNG, NOT_RUN, Output, Unreadable, read_or
from provision.probe.parse.measurements import NcclRun, parse_nccl_tests
from provision.probe.parse.nvidia_smi import SmiGpu
from provision.probe.snapshot import Snapshot
from provision.records import NOTHING
from provision.signals.expectation import Expectation
from provision.signals.signal import Fault, Signal, failed, faulty, passed, skipped, unknown
from provision.signals.work import count_gpus, counted, has_mig, name_index, name_worker

_GEMM = "gemm-bf16_tflops"


def perf_gemm(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Judge each GPU by the floor of its model and by the median of the host."""
    if has_mig(host):
        return skipped("MIG divides the GPUs, and a part has no rate of its own in the facts")
    work = host.torch_work
    rates = {
        name_worker(host, worker): (worker.name, worker.figures[_GEMM])
        for worker in work.gpus
        if _GEMM in worker.figures
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


_COPY_TESTS = {"h2d": "host_to_device_memcpy_ce", "d2h": "device_to_host_memcpy_ce"}
_COPY_WORDS = {"h2d": "to the GPU", "d2h": "from the GPU"}


def perf_h2d(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Judge each GPU by the generation and width of its slot; a virtual machine's shortfall is told, not failed."""
    figures = _measure_copies(host)
    gpus = host.smi.gpus
    smallest: dict[str, float] = {}
    faults: dict[str, list[str]] = {}
    shoulds: dict[str, None] = {}
    for (index, measure), (name, value) in figures.items():
        key = f"{measure}_gb_s"
        smallest[key] = min(value, smallest.get(key, value))
        gpu = gpus[index] if index < len(gpus) else None
        generation = gpu.pcie_gen_max if gpu is not None else None
        lanes = _lanes(gpu, expected)
        row = find_slot_floor(matrix, measure, gpu=gpu.name if gpu else None, generation=generation, lanes=lanes)
        if row is None:
            return unknown(
                f"{name} copies {value:.1f} GB/s {_COPY_WORDS[measure]}, "
                f"and no floor is known for PCIe {generation or 'of no known generation'}"
            )
        if value < row.floor:
            faults.setdefault(name, []).append(f"copies {value:.1f} GB/s {_COPY_WORDS[measure]}{_say_narrow(gpu)}")
            shoulds[f"{row.floor:g} GB/s or more on {lanes} lanes of PCIe {generation}"] = None
    said = "; ".join(f"{name} {' and '.join(what)}" for name, what in faults.items())
    if not faults:
        return passed("every GPU copies " + _say_least(smallest), figures=smallest)
    should = ", ".join(shoulds)
    if _is_virtual(host):
        return passed(f"{said}, where bare metal reaches {should}; virtual machines vary", figures=smallest)
    return failed(said, should, subjects=faults, figures=smallest)


def _measure_copies(host: Snapshot) -> dict[tuple[int, str], tuple[str, float]]:
    """Return (GPU, measure) → (its name, GB/s), of nvbandwidth, else of PyTorch."""
    try:
        tests = {test.name: test.cells for test in host.nvbandwidth}
    except Unreadable as error:
        reason = error
    else:
        found = {
            (column, measure): (name_index(host, column), value)
            for measure, test in _COPY_TESTS.items()
            for (_, column), value in tests.get(test, NOTHING).items()
            if value is not None
        }
        if found:
            return found
        reason = Unreadable("nvbandwidth measured no copy between host and GPU", probe="nvbandwidth")
    try:
        workers = host.torch_work.gpus
    except Unreadable:
        raise reason from None
    found = {
        (_place(host, worker.uuid, worker.gpu), measure): (name_worker(host, worker), worker.figures[f"{measure}_gb_s"])
        for worker in workers
        for measure in _COPY_TESTS
        if f"{measure}_gb_s" in worker.figures
    }
    if not found:
        raise reason
    return found


def _place(host: Snapshot, uuid: str | None, index: int) -> int:
    places = [place for place, gpu in enumerate(host.smi.gpus) if uuid and gpu.uuid == uuid]
    return places[0] if places else index


def _lanes(gpu: SmiGpu | None, expected: Expectation) -> int:
    if expected.pcie_width:
        return expected.pcie_width
    return (gpu.pcie_width_max if gpu is not None else None) or 16


def _say_narrow(gpu: SmiGpu | None) -> str:
    if gpu is None or gpu.pcie_width_current is None or gpu.pcie_width_max is None:
        return ""
    narrow = gpu.pcie_width_current < gpu.pcie_width_max
    return f" (on {gpu.pcie_width_current} of {gpu.pcie_width_max} lanes)" if narrow else ""


def _is_virtual(host: Snapshot) -> bool:
    return read_or(lambda: host.virtualization.is_virtual_machine, False)


def _say_least(smallest: dict[str, float]) -> str:
    return (
        " and ".join(f"{value:.1f} GB/s {_COPY_WORDS[key.removesuffix('_gb_s')]}" for key, value in smallest.items())
        + " or more"
    )


_SLOW_SHOWN = 4


def perf_p2p(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Judge the slowest pair by the floor of its GPU, and every pair by the median of all."""
    if has_mig(host):
        return skipped("MIG divides the GPUs, and their parts do not copy to each other")
    try:
        pairs = pair_bandwidths(host)
    except Unreadable:
        if _cannot_copy(host):
            return skipped("these GPUs cannot copy to each other without the host")
        if not expected.needs_p2p and topology_of(host, matrix) != NVLINK:
            return skipped("no plan asks these GPUs to copy to each other, and nothing measured it")
        raise
    gpu = next((gpu.name for gpu in host.smi.gpus if gpu.name), None)
    topology = topology_of(host, matrix)
    (a, b), least = min(pairs.items(), key=lambda item: (item[1], item[0]))
    figures = {"p2p_gb_s": least}
    row = find_floor(matrix, "p2p", gpu=gpu, topology=topology)
    slow = dict(slowest_pairs(pairs, matrix.limit("performance.slow-pair")))
    if row is not None:
        slow |= {pair: value for pair, value in pairs.items() if value < row.floor}
    if slow:
        said, subjects = _describe_slow(host, slow)
        links = ", ".join([*find_inactive_links(host, matrix), *find_narrow_slots(host)])
        should = f"{row.floor:g} GB/s or more" if row is not None else "every pair as fast as the others"
        said = f"{said}{f': {links}' if links else ''}"
        # Over PCIe pairs need not be alike.
        fault = Fault(said=said, kind="slow", certainty="medium" if topology == NVLINK else "low")
        return failed(said, should, subjects=subjects, figures=figures, faults=[fault])
    if row is None:
        return skipped(f"no floor is known for {gpu} over {topology}; the slowest pair copies {least:.1f} GB/s")
    return passed(f"the slowest pair, GPU {a} to GPU {b}, copies {least:.1f} GB/s", figures=figures)


def _describe_slow(host: Snapshot, slow: Mapping[tuple[int, int], float]) -> tuple[str, list[str]]:
    """Return which pairs are slow, or which GPU where it is the same one in all of them, in words and as subjects."""
    worst = sorted(slow.items(), key=lambda item: (item[1], item[0]))
    shared = frozenset.intersection(*(frozenset(pair) for pair in slow))
    others = frozenset().union(*slow) - shared
    if len(shared) == 1 and len(others) > 1:
        name = name_index(host, min(shared))
        least, most = (f"{value:.1f}" for value in (worst[0][1], worst[-1][1]))
        rate = f"{least} GB/s" if least == most else f"{least} to {most} GB/s"
        return f"{name} copies {rate} from or to {len(others)} other GPUs", [name]
    said = "; ".join(f"GPU {x} to GPU {y} copies {value:.1f} GB/s" for (x, y), value in worst[:_SLOW_SHOWN])
    more = f"; {len(worst) - _SLOW_SHOWN} more pairs are slow" if len(worst) > _SLOW_SHOWN else ""
    return said + more, [f"GPU {x} to GPU {y}" for (x, y), _ in worst]


def _cannot_copy(host: Snapshot) -> bool:
    try:
        words = {word for (a, b), word in host.p2p.links.items() if a != b}
    except Unreadable:
        return False
    return bool(words) and not words & {"OK", "U"}


_COMPLAINT = re.compile(r"Test (?:timeout|failure|NCCL failure|CUDA failure)")


def perf_nccl_node(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Judge correctness first, then bus bandwidth at the largest size; the average mixes sizes and says little."""
    if has_mig(host):
        return skipped("MIG divides the GPUs, and their parts do not reduce together")
    try:
        run = host.nccl_tests
    except Unreadable as error:
        return _explain_unfinished(host, matrix, error)
    largest = run.largest
    figures = {"allreduce_bus_gb_s": largest.bus_gb_s}
    wrong = _count_wrong(run)
    if wrong:
        return _fail_wrong(wrong, figures)
    size = _say_size(largest.size_bytes)
    if run.out_of_bounds is None and all(row.wrong is None for row in run.rows):
        return unknown(f"nccl-tests did not check the values of its {largest.bus_gb_s:.1f} GB/s at {size}")
    count = run.ranks or count_gpus(host, expected)
    planned = count_gpus(host, expected)
    if run.ranks is not None and planned is not None and run.ranks < planned:
        return failed(f"{run.ranks} of {planned} GPUs took part", f"{planned} GPUs", figures=figures)
    gpu = next((gpu.name for gpu in host.smi.gpus if gpu.name), None)
    topology = topology_of(host, matrix)
    said = f"{largest.bus_gb_s:.1f} GB/s bus bandwidth at {size}"
    if len(run.hosts) > 1:
        return unknown(f"{said}, over {len(run.hosts)} hosts, and the floors are of one")
    find = partial(find_floor, matrix, "allreduce", gpu=gpu, topology=topology, gpus=count)
    row = find(message_bytes=largest.size_bytes)
    # The floor of a larger message, which a smaller one may reach and need not.
    above = find() if row is None else None
    floor = row or above
    if floor is None:
        return unknown(
            f"{said}, and no floor is known for {count or 'this many'} {gpu} over {topology}",
            remedy="Add a `[[floor]]` to `performance.toml` with what a sound host of this kind reaches.",
        )
    if largest.bus_gb_s < floor.floor:
        links = describe_slow_links(host, matrix)
        if above is not None:
            least = f"the floor of {above.floor:g} {above.unit} holds from {_say_size(above.message_bytes_min or 0)} on"
            return unknown(
                f"{said}{f': {links}' if links else ''}; {least}",
                remedy="Run it again when nothing else holds the memory of the GPUs, which decides on the sizes.",
            )
        said = f"{said}{f': {links}' if links else ', and no single link stands out'}"
        should = f"{floor.floor:g} {floor.unit} or more over {topology}"
        return failed(said, should, figures=figures, faults=[Fault(said=said, kind="slow")])
    return passed(f"{said}, {run.ranks or 'all'} GPUs, no wrong value", figures=figures)


def _count_wrong(run: NcclRun) -> int:
    return sum(row.wrong or 0 for row in (*run.rows, *run.in_place)) or run.out_of_bounds or 0


def _fail_wrong(wrong: int, figures: dict[str, float]) -> Signal:
    fault = Fault(said=f"the all-reduce gave {wrong} wrong values", kind="wrong")
    remedy = "Take the host out of use: a GPU, a link or an address translation corrupts data."
    return faulty([fault], "no wrong value", remedy=remedy, figures=figures)


def _explain_unfinished(host: Snapshot, matrix: Matrix, error: Unreadable) -> Signal:
    """Say what is known of a run that did not come to its end: what it said of itself, and how far it came."""
    output = host.output("nccl-tests")
    said = next((line.strip() for line in output.error.splitlines() if line.strip()), "")
    if error.status == NOT_RUN and said:
        return unknown(said)
    if error.status not in (HUNG, FAILED):
        raise error
    complaint = next((line.strip() for line in output.text.splitlines() if _COMPLAINT.search(line)), "")
    run = _read_begun(output)
    if run is not None and (wrong := _count_wrong(run)):
        return _fail_wrong(wrong, {"allreduce_bus_gb_s": run.largest.bus_gb_s})
    why = complaint or (said if error.status == HUNG and run is None else "") or error.reason
    reached = ""
    if run is not None:
        reached = f"; the last it told was {run.largest.bus_gb_s:.1f} GB/s at {_say_size(run.largest.size_bytes)}"
    links = describe_slow_links(host, matrix)
    return unknown(f"{why}{reached}{f': {links}' if links else ''}")


def _read_begun(output: Output) -> NcclRun | None:
    """Return the results before the place where they break off, or ``None`` where there is none."""
    whole = output.text[: output.text.rfind("\n") + 1]
    rows = "".join(line for line in whole.splitlines(keepends=True) if not _COMPLAINT.search(line))
    try:
        return parse_nccl_tests(rows)
    except Unreadable:
        return None


def _say_size(size_bytes: int) -> str:
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:g} {unit}"
    return f"{size_bytes} B"


_PAIR_FIGURES = ("allreduce_bus_gb_s", "busbw_gb_s")
"""Names of the bus bandwidth in the documents of PyTorch's payload and of wrappers around nccl-tests."""
_PAIR_TEST = "allreduce"


def perf_nccl_pair(
    hosts: Mapping[str, Snapshot], expected: Mapping[str, Expectation], matrix: Matrix
) -> Mapping[str, Signal]:
    """Compare each host's bus bandwidth with the median of all, after the sum itself."""
    outcomes: dict[str, Signal] = {}
    rates: dict[str, float] = {}
    for name, host in hosts.items():
        try:
            outcomes[name] = _judge_pair(host, name, rates)
        except Unreadable as error:
            not_run = host.output("nccl-pair").status == NOT_RUN
            outcomes[name] = skipped("it was paired with no other host") if not_run else unknown(error.reason)
    middle = median(rates.values()) if rates else 0.0
    percent = matrix.limit("perf.nccl.pair-spread")
    for name, rate in rates.items():
        figures = {"pair_bus_gb_s": rate}
        if len(rates) < 2:
            outcomes[name] = unknown(f"{rate:.1f} GB/s, and no other pair to compare with")
        elif rate < middle * (1 - percent / 100):
            outcomes[name] = failed(
                f"{rate:.1f} GB/s with its partner, where the median of {len(rates)} hosts is {middle:.1f}",
                f"at most {percent:g} % below the median",
                subjects=[name],
                figures=figures,
            )
        else:
            outcomes[name] = passed(f"{rate:.1f} GB/s, the median is {middle:.1f}", figures=figures)
    return outcomes


def _judge_pair(host: Snapshot, name: str, rates: dict[str, float]) -> Signal:
    work = host.nccl_pair
    if work.error:
        return failed(f"the all-reduce with another host could not begin: {work.error}", "a correct sum")
    said = work.together.get(_PAIR_TEST)
    if said is not None and said.startswith("failed"):
        return failed(f"the all-reduce with another host {said}", "a correct sum")
    rate = next((work.figures[name] for name in _PAIR_FIGURES if name in work.figures), None)
    if said != "ok" or rate is None:
        return unknown(said or "the payload did not try an all-reduce with another host")
    rates[name] = rate
    return passed("the sum is right")
