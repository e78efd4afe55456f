"""How hosts reach each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from ipaddress import ip_network

from provision.errors import first_of
from provision.matrix.load import Matrix
from provision.matrix.query import find_rdma_rate
from provision.probe.gpus import has_nvswitch, has_visible_nvswitch
from provision.probe.output import NOT_RUN, Unreadable, read_or
from provision.probe.parse.fabric_network import Firewall, RdmaPort
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.signal import Fault, Signal, failed, passed, skipped, unknown
from provision.signals.work import counted


def net_rdma_links(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Judge every port where a rate is planned; else those of InfiniBand, whose cables are seldom left out."""
    ports = tuple(port for port in host.rdma_ports if not port.is_switch_management)
    planned = expected.rdma_gbit
    if not ports:
        return failed("there is no RDMA device", f"ports of {planned} Gb/s" if planned else "active ports")
    least = planned or _usual_rate(host, matrix)
    should = f"ACTIVE{f', {least:g} Gb/s or more' if least else ''}"
    judged = ports if planned else tuple(port for port in ports if port.layer == "InfiniBand")
    if not judged:
        active = [port for port in ports if port.state == "ACTIVE"]
        if not active:
            return failed(f"none of {len(ports)} RDMA ports is active", should, subjects=map(_name_port, ports))
        return passed(f"{len(active)} of {len(ports)} RDMA ports over Ethernet are active")
    faults = {_name_port(port): fault for port in judged if (fault := _fault_of_port(port, least))}
    # Ports that manage NVSwitches look like network ports to whoever may not read the adapters' product data.
    unclear = [_name_port(port) for port in judged if _name_port(port) in faults and port.is_switch_management is None]
    if unclear and len(unclear) == len(faults) and _hides_switches(host, matrix):
        said = ", ".join(f"{name} {faults[name]}" for name in unclear)
        return unknown(f"{said}, and whether these ports manage the NVSwitches is not known; reading it takes root")
    if faults:
        return failed("; ".join(f"{name} {fault}" for name, fault in faults.items()), should, subjects=faults)
    silent = [port for port in judged if port.rate_gbit is None]
    if silent and least:
        return unknown(f"{_name_port(silent[0])} does not report its rate")
    rates = " and ".join(sorted({f"{port.rate_gbit:g}" for port in judged if port.rate_gbit is not None}))
    return passed(f"{len(judged)} of {counted(len(ports), 'port')} active{f' at {rates} Gb/s' if rates else ''}")


def _name_port(port: RdmaPort) -> str:
    return f"{port.device}/{port.port}"


def _fault_of_port(port: RdmaPort, least: float | None) -> str:
    if port.state != "ACTIVE":
        return f"is {port.state}{f' ({port.physical})' if port.physical else ''}"
    if least and port.rate_gbit is not None and port.rate_gbit < least:
        return f"runs at {port.rate_gbit:g} Gb/s"
    return ""


def _hides_switches(host: Snapshot, matrix: Matrix) -> bool:
    """Tell whether the machine has NVSwitches that the bus does not show."""
    return read_or(lambda: has_nvswitch(host, matrix) and not has_visible_nvswitch(host), False)


def _usual_rate(host: Snapshot, matrix: Matrix) -> float | None:
    """Return the rate that machines with such GPUs are sold with, or ``None`` where the facts tell none."""
    return read_or(lambda: find_rdma_rate(matrix, {gpu.name for gpu in host.smi.gpus}), None)


_MODULES = ("nvidia_peermem", "nv_peer_mem")


def net_peermem(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look for the module, or for open kernel modules on a kernel that shares buffers (DMA-BUF)."""
    broken = _broken_context(host)
    loaded = [module.name for module in host.modules if module.name in _MODULES]
    if broken:
        said = f"the kernel log says: {broken}"
        fault = Fault(said=said, kind="context", certainty="medium")
        return failed(said, "`nvidia_peermem` without errors", subjects=loaded, faults=[fault])
    if loaded:
        return passed(f"`{loaded[0]}` is loaded")
    if host.driver.is_open is None:
        return unknown("`nvidia_peermem` is not loaded, and the record does not say which modules of the driver are")
    if host.driver.is_open and _kernel_number(host.uname.release) >= matrix.limit("net.dmabuf-kernel"):
        return passed("the open kernel modules share buffers with network cards (DMA-BUF)")
    why = "the kernel is too old for DMA-BUF" if host.driver.is_open else "the driver's modules are not the open ones"
    said = f"`nvidia_peermem` is not loaded, and {why}"
    fault = Fault(said=said, kind="absent", certainty="medium")
    return failed(said, "`nvidia_peermem` loaded, or DMA-BUF", faults=[fault])


def _broken_context(host: Snapshot) -> str:
    return read_or(
        lambda: next((event.text for event in host.kernel_log.events if event.kind == "peermem-context"), ""), ""
    )


def _kernel_number(release: str) -> int:
    """Return thousand times the major plus the minor of a kernel release, so that a number can be compared."""
    words = release.split("-")[0].split(".")
    if len(words) < 2 or not all(word.isascii() and word.isdigit() and len(word) < 5 for word in words[:2]):
        return 0
    return int(words[0]) * 1000 + int(words[1])


_ANSWERS = ("open", "refused", "silent")
_PORTS_SHOWN = 6


def net_ports(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Take a refusal for an answer: the packet came through, and no program listened."""
    if host.output("ports").status == NOT_RUN:
        return skipped("no other host was named to connect to")
    answers = [line.split() for line in host.ports]
    odd = [words for words in answers if len(words) != 3 or words[2] not in _ANSWERS]
    if odd:
        return unknown(f"the probe of ports said `{' '.join(odd[0])[:80]}`")
    silent = [f"{name}:{port}" for name, port, answer in answers if answer == "silent"]
    if silent:
        said = f"no answer from {first_of(silent, _PORTS_SHOWN)}"
        faults = [
            Fault(said=f"{name} does not answer on port {port}", subject=name, certainty="medium")
            for name, port, answer in answers
            if answer == "silent"
        ]
        return failed(said, "an answer from every port", subjects=silent, faults=faults)
    if not answers:
        return unknown("the probe of ports tried none")
    hosts = len({words[0] for words in answers})
    return passed(f"{counted(len(answers), 'port')} of {counted(hosts, 'host')} answer")


_ANYWHERE = ("anywhere", "any", "0.0.0.0/0", "::/0")


def net_firewall(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look for the cluster's network among the accepted sources, or for NCCL's ports among the accepted ones."""
    subnet, ports = expected.cluster_subnet, expected.nccl_ports
    if subnet is None and ports is None:
        return skipped("neither a network of the cluster nor ports of NCCL are planned")
    firewall = host.firewall
    if firewall.tool == "none":
        return passed("no firewall is set up")
    if firewall.drops_by_default is False:
        return passed(f"{firewall.tool} accepts what no rule names")
    if subnet is not None and any(_holds(source, subnet) for source in firewall.allowed_sources):
        return passed(f"{firewall.tool} accepts {subnet}")
    if ports is not None and any(_covers(allowed, ports) for allowed in firewall.allowed_ports):
        return passed(f"{firewall.tool} accepts ports {ports}")
    if firewall.drops_by_default is None:
        return unknown(f"the rules of {firewall.tool} do not say what happens to other packets")
    return failed(
        f"{firewall.tool} drops what no rule accepts, and accepts {_describe_firewall(firewall)}",
        f"{subnet or f'ports {ports}'} accepted",
    )


def _holds(source: str, subnet: str) -> bool:
    if source.lower() in _ANYWHERE:
        return True
    try:
        wide, narrow = ip_network(source, strict=False), ip_network(subnet, strict=False)
    except ValueError:
        return False
    return wide.version == narrow.version and wide.supernet_of(narrow)  # type: ignore[arg-type]


def _covers(allowed: str, wanted: str) -> bool:
    outer, inner = _port_range(allowed), _port_range(wanted)
    return outer is not None and inner is not None and outer[0] <= inner[0] and inner[1] <= outer[1]


def _port_range(text: str) -> tuple[int, int] | None:
    first, _, last = text.partition("-")
    if not all(word.isascii() and word.isdigit() and len(word) < 6 for word in (first, last or first)):
        return None
    return int(first), int(last or first)


def _describe_firewall(firewall: Firewall) -> str:
    accepted = [*firewall.allowed_sources[:3], *(f"port {port}" for port in firewall.allowed_ports[:3])]
    return ", ".join(accepted) if accepted else "nothing"


_KINDS = ("physical", "bond", "infiniband")


def net_mtu(hosts: Mapping[str, Snapshot], expected: Mapping[str, Expectation], matrix: Matrix) -> Mapping[str, Signal]:
    """Compare each interface with the plan, and with what most hosts have under the same name."""
    outcomes: dict[str, Signal] = {}
    seen: dict[str, dict[str, int]] = {}
    for name, host in hosts.items():
        try:
            seen[name] = _mtus(host, expected[name])
        except Unreadable as error:
            outcomes[name] = unknown(error.reason)
    counts = Counter(pair for mtus in seen.values() for pair in mtus.items())
    for name, mtus in seen.items():
        outcomes[name] = _judge_mtu(mtus, expected[name], counts)
    return outcomes


def _mtus(host: Snapshot, expected: Expectation) -> dict[str, int]:
    if expected.interfaces:
        return {one.name: one.mtu for one in host.interfaces if one.name in expected.interfaces}
    return {one.name: one.mtu for one in host.interfaces if one.is_up and one.kind in _KINDS}


def _judge_mtu(mtus: Mapping[str, int], expected: Expectation, counts: Counter[tuple[str, int]]) -> Signal:
    absent = [name for name in expected.interfaces if name not in mtus]
    if absent:
        return failed(f"there is no interface {', '.join(absent)}", "the planned interfaces", subjects=absent)
    if not mtus:
        return unknown("no interface of the cluster is up")
    usual = {
        name: expected.mtu
        or max((pair for pair in counts if pair[0] == name), key=lambda pair: (counts[pair], pair[1]))[1]
        for name in mtus
    }
    odd = {name: mtu for name, mtu in mtus.items() if mtu != usual[name]}
    if odd:
        reason = "as planned" if expected.mtu else "as most hosts have"
        return failed(
            "; ".join(f"{name} has {mtu}" for name, mtu in odd.items()),
            "; ".join(f"{name} {usual[name]}, {reason}" for name in odd),
            subjects=odd,
        )
    return passed(", ".join(f"{name} has {mtu}" for name, mtu in sorted(mtus.items())))
