"""GPUs of one host cannot read each other's memory, so all goes through the host's."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"P2P is disabled between connected GPUs",
    r"Could not enable P2P between dev",
    r"Channel [0-9]{1,3}(?:/[0-9]{1,3})?.{0,60}via SHM/direct",
    r"peer access is not supported between these two devices|cudaErrorPeerAccessUnsupported",
)


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
        if not joined and quote is not None:
            return hint(quote, confidence="low", seen=("no NVLink joins the GPUs",), expected=expected)
    unseen = () if access else ("what the driver allows: `nvidia-smi topo -p2p r; nvidia-smi topo -m`",)
    return hint(quote, expected=expected, unseen=unseen)
