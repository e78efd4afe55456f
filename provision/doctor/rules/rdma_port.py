"""An RDMA port is down, has no subnet manager, or runs slower than its neighbours."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"^\s{0,8}State:\s{1,4}(?:Down|Initializing|Armed)\b",
    r"state [0-9]: (?:INIT|DOWN|ARMED)\b",
    r"NET/IB : .{0,60}Got async event.{0,20}: port error",
    r"\bport_state:?\s{1,4}(?:PORT_)?(?:DOWN|INIT)",
)


def examine(case: Case) -> Sign | None:
    """Compare each port with the others of its kind; ports that nobody switched on are left alone."""
    quote = case.find(*SYMPTOMS)
    ports = case.look(lambda host: host.rdma_ports)
    expected = "every cabled port ACTIVE, all of a kind at one rate"
    if ports is None:
        return hint(quote, expected=expected, unseen=("the state of all ports: `ibstat`",))
    waiting = [port for port in ports if port.state in ("INIT", "ARMED")]
    active = [port for port in ports if port.state == "ACTIVE"]
    rates = [port.rate_gbit for port in active if port.rate_gbit]
    slow = [port for port in active if port.rate_gbit and port.rate_gbit * 2 <= max(rates)]
    slow = slow if len(slow) * 2 < len(rates) else []
    kinds = {port.layer for port in active}
    down = [port for port in ports if port.state == "DOWN" and port.physical == "Polling" and port.layer in kinds]
    seen = [f"{port.device} port {port.port} is {port.state}: no subnet manager has set it up" for port in waiting]
    seen += [f"{port.device} port {port.port} runs at {port.rate_gbit:g} of {max(rates):g} Gbit/s" for port in slow]
    missing = [f"{port.device} port {port.port} is DOWN and looks for a link" for port in down]
    if seen or (missing and len(active) > len(down)):
        return Sign(
            confidence="high" if waiting else "medium",
            seen=(*seen, *missing, *quoted(quote)),
            expected=expected,
            subjects=tuple(f"{port.device} port {port.port}" for port in (*waiting, *slow, *down)),
        )
    return hint(quote, confidence="low" if active else "medium", seen=missing, expected=expected)
