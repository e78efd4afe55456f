"""GPUs of one host cannot read each other's memory, so all goes through the host's."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import smi_gpus
from provision.doctor.hint import hint, quoted
from provision.doctor.measured import find_slow_run
from provision.doctor.sign import Sign

SYMPTOMS = (
    r"P2P is disabled between (?:NVLINK )?connected GPUs|failed to peer with device [0-9]",
    r"Could not enable P2P between dev",
    r"Channel [0-9]{1,3}(?:/[0-9]{1,3})?.{0,60}via SHM/direct",
    r"peer access is not supported between these two devices|cudaErrorPeerAccessUnsupported",
    r"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED|RTX (?:30[0-9]0|40[0-9]0|"
    r"[34]000) .{0,40}support faster communication broadband",
)

_SWITCH = "NCCL_P2P_DISABLE"


def examine(case: Case) -> Sign | None:
    """Look for pairs that NVLink joins and that cannot read each other; without NVLink many GPUs never can."""
    quote = case.find(*SYMPTOMS)
    topology = case.look(lambda host: host.topology)
    access = case.look(lambda host: host.p2p)
    expected = "OK for every pair that NVLink joins in `nvidia-smi topo -p2p r`"
    if topology and access:
        joined = [pair for pair, word in topology.links.items() if word.startswith("NV") and pair[0] < pair[1]]
        barred = [pair for pair in joined if access.links.get(pair, "OK") not in ("OK", "X")]
        if barred:
            one, other = barred[0]
            return Sign(
                confidence="high",
                seen=(f"NVLink joins {one} and {other} and reading is {access.links[barred[0]]}", *quoted(quote)),
                expected=expected,
                subjects=tuple(sorted({gpu for pair in barred for gpu in pair})),
            )
        between = {pair: word for pair, word in access.links.items() if _are_gpus(pair) and word not in ("OK", "X")}
        slow = find_slow_run(case) if between and not joined else None
        if slow is not None:
            (one, other), word = next(iter(between.items()))
            return Sign(
                confidence="medium",
                seen=(
                    f"reading between {one} and {other} is {word}",
                    f"{one} and {other} reach each other by {topology.links.get((one, other), 'an unknown way')}",
                    f"an all-reduce reaches {slow.bus_gb_s:.1f} of {slow.floor.floor:g} GB/s",
                    *quoted(quote),
                ),
                expected="OK in `nvidia-smi topo -p2p r`, where this kind of GPU offers it",
                subjects=tuple(sorted({gpu for pair in between for gpu in pair})),
            )
        if not joined and quote is not None:
            return hint(quote, confidence="low", seen=("no NVLink joins the GPUs",), expected=expected)
    environment = case.look(lambda host: host.environment) or {}
    if environment.get(_SWITCH) == "1" and len(smi_gpus(case)) > 1:
        return Sign(
            confidence="medium",
            seen=(f"{_SWITCH} is 1, and the host has {len(smi_gpus(case))} GPUs", *quoted(quote)),
            expected=expected,
            fix=(f"Take it back: `unset {_SWITCH}`.",),
        )
    unseen = () if access else ("what the driver allows: `nvidia-smi topo -p2p r; nvidia-smi topo -m`",)
    return hint(quote, expected=expected, unseen=unseen)


def _are_gpus(pair: tuple[str, str]) -> bool:
    one, other = pair
    return one.startswith("GPU") and other.startswith("GPU") and one < other
