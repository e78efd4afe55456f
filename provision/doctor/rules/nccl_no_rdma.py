"""NCCL sends over TCP although the hosts have RDMA."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults

_SOCKETS = (
    r"NET/IB : (?:No device found|Unable to (?:open|query) (?:device|port))",
    r"Failed to open libibverbs\.so",
    r"NCCL INFO Using network Socket",
    r"Channel [0-9]{1,3}(?:/[0-9]{1,3})?.{0,60}via NET/Socket",
)
_DIRECT = (
    r"GPU Direct RDMA Disabled",
    r"nvidia[-_]peermem.{0,60}(?:not loaded|invalid context|failed)",
)
SYMPTOMS = (*_SOCKETS, *_DIRECT)

# NCCL says these of every host without an adapter. Where it went on to set up its channels and none of them leaves the
# host, nothing is lost by it.
_GOES_ON = r"NCCL INFO (?:Setting affinity for GPU|Channel [0-9]{1,3}/|comm 0x[0-9a-f]{1,16} .{0,120}Init COMPLETE)"
_LEAVES = (_SOCKETS[3], *_DIRECT)
# Whoever switches InfiniBand off in the command of the log wants TCP.
_UNWANTED = r"\bNCCL_IB_DISABLE=1\b"

_LOAD = ("Load GPUDirect's module: `modprobe nvidia_peermem`.",)


def examine(case: Case) -> Sign | None:
    """Compare what NCCL uses with the ports there are; without one, TCP is right.

    Without a log it can only be said whether adapters can reach the GPUs' memory at all.
    """
    quote = case.find(*SYMPTOMS)
    ports = case.look(lambda host: host.rdma_ports)
    modules = case.look(lambda host: host.modules)
    contexts = case.events("peermem-context")
    active = [port for port in ports or () if port.state == "ACTIVE"]
    environment = case.look(lambda host: host.environment) or {}
    expected = "`via NET/IB` or another RDMA transport in NCCL's log, with GDRDMA"
    if contexts:
        return Sign(
            confidence="medium",
            seen=(f'"{contexts[0].text}"', *quoted(quote)),
            expected=expected,
            seconds=contexts[0].seconds,
            unseen=() if modules else ("whether nvidia_peermem is loaded: `lsmod | grep peermem`",),
        )
    if environment.get("NCCL_IB_DISABLE") == "1" and active:
        seen = ("NCCL_IB_DISABLE is 1", f"{len(active)} RDMA ports are active", *quoted(quote))
        return Sign(confidence="high", seen=seen, expected=expected, fix=("Take it back: `unset NCCL_IB_DISABLE`.",))
    if quote is None:
        return explain_faults(
            case,
            case.faults("net.peermem/absent"),
            expected=expected,
            fix=_LOAD,
            unseen=("whether jobs use these ports: `NCCL_DEBUG=INFO` says `GDRDMA` where they do",),
        )
    if ports is None and case.find(_GOES_ON) is not None and case.find(*_LEAVES) is None:
        return None
    if ports is None and case.find(_UNWANTED) is not None:
        return None
    if ports is not None and not active:
        return None
    seen_too = []
    if active:
        seen_too.append(f"{len(active)} RDMA ports are active ({active[0].device} first)")
    fix: tuple[str, ...] = ()
    if modules is not None and active and not any(module.name == "nvidia_peermem" for module in modules):
        seen_too.append("nvidia_peermem is not loaded")
        # Where RDMA itself is used the module is all that is missing.
        fix = _LOAD if case.find(*_DIRECT) is not None and case.find(*_SOCKETS) is None else ()
    return hint(
        quote,
        confidence="high" if active else "low",
        seen=seen_too,
        expected=expected,
        fix=fix,
        unseen=() if ports is not None else ("whether the hosts have RDMA ports: `ibstat` or `rdma link`",),
    )
