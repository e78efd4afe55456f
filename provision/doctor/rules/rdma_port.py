"""An RDMA port is down, has no subnet manager, or runs slower than its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from provision.doctor.case import Case
from provision.doctor.gpus import smi_gpus
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign
from provision.errors import first_of
from provision.matrix.query import find_rdma_rate
from provision.probe.parse.fabric_network import RdmaPort

SYMPTOMS = (
    r"^\s{0,8}State:\s{1,4}(?:Down|Initializing|Armed)\b",
    r"state [0-9]: (?:INIT|DOWN|ARMED)\b",
    r"NET/IB : .{0,60}Got async event.{0,20}: port error",
    r"\bport_state:?\s{1,4}(?:PORT_)?(?:DOWN|INIT)",
)

_NAMED = 3


def examine(case: Case) -> Sign | None:
    """Compare each port with the others of its kind, and all with what machines of such GPUs have.

    Ports that nobody switched on are left alone, and those that only manage a board's NVSwitches.
    """
    quote = case.find(*SYMPTOMS)
    ports = case.look(lambda host: host.rdma_ports)
    expected = "every cabled port ACTIVE, all of a kind at one rate"
    if ports is None:
        return hint(quote, expected=expected, unseen=("the state of all ports: `ibstat`",))
    # Ports that manage the NVSwitches of a board lead to no network.
    ports = tuple(port for port in ports if not port.is_switch_management)
    waiting = [port for port in ports if port.state in ("INIT", "ARMED")]
    active = [port for port in ports if port.state == "ACTIVE"]
    rates = [port.rate_gbit for port in active if port.rate_gbit]
    slow = [port for port in active if port.rate_gbit and port.rate_gbit * 2 <= max(rates)]
    slow = slow if len(slow) * 2 < len(rates) else []
    usual = find_rdma_rate(case.matrix, (gpu.name for gpu in smi_gpus(case)))
    below = _all_below(active, usual) if not slow else []
    kinds = {port.layer for port in active}
    down = [port for port in ports if port.state == "DOWN" and port.physical == "Polling" and port.layer in kinds]
    seen = [f"{port.device} port {port.port} is {port.state}: no subnet manager has set it up" for port in waiting]
    seen += [f"{port.device} port {port.port} runs at {port.rate_gbit:g} of {max(rates):g} Gbit/s" for port in slow]
    if below:
        names = first_of([f"{port.device} port {port.port}" for port in below], _NAMED)
        rate = max(port.rate_gbit or 0 for port in below)
        seen.append(f"{names} run at {rate:g} Gbit/s or less, and machines with these GPUs have {usual:g}")
    missing = [f"{port.device} port {port.port} is DOWN and looks for a link" for port in down]
    if seen or (missing and len(active) > len(down)):
        return Sign(
            confidence="high" if waiting else "medium",
            seen=(*seen, *missing, *(() if seen else quoted(quote))),
            expected=expected,
            subjects=tuple(f"{port.device} port {port.port}" for port in (*waiting, *slow, *below, *down)),
            unseen=("which rate was planned: cards and switches of this one may be all there are",) if below else (),
        )
    return hint(quote, confidence="low" if active else "medium", seen=missing, expected=expected)


def _all_below(active: Sequence[RdmaPort], usual: float | None) -> list[RdmaPort]:
    """Return the InfiniBand ports if every one of them is slower than usual: one slow kind may serve storage."""
    rated = [port for port in active if port.layer == "InfiniBand" and port.rate_gbit]
    is_below = usual is not None and all(port.rate_gbit is not None and port.rate_gbit < usual for port in rated)
    return rated if is_below else []
