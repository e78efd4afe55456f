"""GPUs of a host exchange data slower than their links allow: an all-reduce, or copies between two of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provision.doctor.case import Case
from provision.doctor.gpus import smi_gpus
from provision.doctor.hint import hint, quoted
from provision.doctor.measured import SlowRun, find_slow_run
from provision.doctor.sign import Sign
from provision.matrix.query import NVLINK
from provision.probe.links import find_inactive_links, find_narrow_slots, find_slow_pairs, find_translation, topology_of

SYMPTOMS = (
    r"\bbus ?(?:bw|bandwidth)\b.{0,60}(?:instead of|in place of|should be|a tenth of|1/10 of)",
    r"(?:\bNCCL|all.?reduce).{0,60}(?:slower than|[0-9] ?(?:GB/s)? (?:instead of|in place of))",
)

_EXPECTED = "the bus bandwidth of others' machines of this kind, in `all_reduce_perf -b 8G -e 8G`"
_THROUGH_THE_PROCESSOR = ("PHB", "NODE", "SYS")
_NARROWING = ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_P2P_LEVEL", "NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_NCHANNELS")
_UNSEEN = ("which way NCCL takes: run it with `NCCL_DEBUG=INFO` and look for `via`",)


def examine(case: Case) -> Sign | None:
    """Judge the target's own measurement, or a pasted one, by the floor of its GPUs; name the links that may be it."""
    quote = case.find(*SYMPTOMS)
    run = find_slow_run(case)
    suspects = tuple(_suspects(case, run)) if run is not None or quote is not None else ()
    if run is None and quote is None and (pairs := _uneven_pairs(case)):
        return Sign(
            confidence="medium",
            seen=pairs,
            expected="every pair of GPUs that NVLink joins as fast as the others",
            unseen=("what an all-reduce makes of it: `all_reduce_perf -b 8G -e 8G`",),
        )
    if run is None:
        return hint(quote, seen=suspects, expected=_EXPECTED, unseen=_UNSEEN)
    return Sign(
        confidence="high" if run.is_own else "medium",
        seen=(
            f"an all-reduce reaches {run.bus_gb_s:.1f} GB/s bus bandwidth where {run.floor.floor:g} are the least over "
            f"{_spell_out(run.topology)}",
            *(suspects or ("no single link stands out",)),
            *quoted(quote),
        ),
        expected=f"{run.floor.floor:g} {run.floor.unit} or more",
        unseen=_UNSEEN,
    )


def _uneven_pairs(case: Case) -> tuple[str, ...]:
    """Name pairs that copy slower than the others where all are joined alike: over PCIe they need not be."""
    if case.look(lambda host: topology_of(host, case.matrix)) != NVLINK:
        return ()
    return case.look(lambda host: tuple(find_slow_pairs(host, case.matrix))) or ()


def _spell_out(topology: str) -> str:
    return "NVLink" if topology == NVLINK else topology.replace("pcie", "PCIe").replace("-gen", " generation ")


def _suspects(case: Case, run: SlowRun | None) -> Iterator[str]:
    """Yield what may slow it down, the likeliest first."""
    yield from case.look(lambda host: tuple(find_inactive_links(host, case.matrix))) or ()
    yield from _detours(case, is_nvlink=run is not None and run.topology == NVLINK)
    yield from case.look(lambda host: tuple(find_narrow_slots(host))) or ()
    yield from case.look(lambda host: tuple(find_slow_pairs(host, case.matrix))) or ()
    redirecting = [device for device in case.look(lambda host: host.lspci) or () if device.is_acs_redirecting]
    if redirecting:
        yield f"access control redirects at {len(redirecting)} PCI bridges ({redirecting[0].address} first)"
    translating = case.look(lambda host: find_translation(host.command_line)) or ()
    if translating:
        yield f"the kernel runs with {' '.join(translating)}, so the IOMMU translates addresses"
    environment = case.look(lambda host: host.environment) or {}
    yield from (f"{name} is set to {environment[name]}" for name in _NARROWING if environment.get(name))
    gpus = smi_gpus(case)
    if run is not None and run.ranks is not None and gpus and run.ranks > len(gpus):
        ports = case.look(lambda host: host.rdma_ports) or ()
        yield from (
            f"{port.device} port {port.port} is {port.state}"
            for port in ports
            if port.state != "ACTIVE" and port.physical != "Disabled"
        )


def _detours(case: Case, *, is_nvlink: bool) -> Iterator[str]:
    """Say which GPUs reach each other through the processor, or cannot read each other's memory."""
    topology = case.look(lambda host: host.topology)
    words = _between_gpus(topology.links) if topology is not None else {}
    around = {pair: word for pair, word in words.items() if is_nvlink and not word.startswith("NV")}
    around = around or {pair: word for pair, word in words.items() if word in _THROUGH_THE_PROCESSOR}
    if around:
        (one, other), word = next(iter(around.items()))
        more = f", and so do {len(around) - 1} more pairs" if len(around) > 1 else ""
        yield f"{one} and {other} reach each other by {word}{', not NVLink' if is_nvlink else ''}{more}"
    access = case.look(lambda host: host.p2p)
    readable = _between_gpus(access.links) if access is not None else {}
    barred = {pair: word for pair, word in readable.items() if word not in ("OK", "X")}
    if barred:
        (one, other), word = next(iter(barred.items()))
        more = f", and so it is for {len(barred) - 1} more pairs" if len(barred) > 1 else ""
        yield f"{one} may not read the memory of {other} ({word}){more}"


def _between_gpus(links: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    return {
        (one, other): word
        for (one, other), word in links.items()
        if one.startswith("GPU") and other.startswith("GPU") and one < other
    }
