"""When a question makes sense: what must be there before a check is asked.

Each function says why the question does not arise, or ``None`` when it does. A target on which something should be and
is not keeps its question: only a plan without GPUs, or hardware that cannot have the thing, makes a skip.
"""

from __future__ import annotations

from collections.abc import Callable

from provision.matrix.load import Matrix
from provision.probe.gpus import has_nvswitch
from provision.probe.output import ABSENT, NOT_RUN, Unreadable, read_or
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation

_Need = Callable[[Snapshot, Expectation, Matrix], str | None]


def _gpu(host: Snapshot, expected: Expectation, matrix: Matrix) -> str | None:
    if expected.gpus != 0:
        return None
    has_one = read_or(lambda: any(device.is_nvidia_gpu for device in host.pci), False)
    return None if has_one else "no GPU is expected and none is there"


def _gpus(host: Snapshot, expected: Expectation, matrix: Matrix) -> str | None:
    count = expected.gpus
    if count is None:
        try:
            count = len(host.smi.gpus)
        except Unreadable:
            return _gpu(host, expected, matrix)
    return "it takes two GPUs or more" if count < 2 else None


def _nvswitch(host: Snapshot, expected: Expectation, matrix: Matrix) -> str | None:
    absent = _gpu(host, expected, matrix)
    return absent or (None if has_nvswitch(host, matrix) else "the machine has no NVSwitch")


def _rdma(host: Snapshot, expected: Expectation, matrix: Matrix) -> str | None:
    if expected.rdma_gbit:
        return None
    if expected.rdma_gbit == 0:
        return "no RDMA is expected"
    ports = [port for port in host.rdma_ports if not port.is_switch_management]
    return None if ports else "there is no RDMA device and none is expected"


def _bare_metal(host: Snapshot, expected: Expectation, matrix: Matrix) -> str | None:
    machine = host.virtualization
    if machine.is_container:
        return "a container does not show it"
    return "a virtual machine does not show it" if machine.is_virtual_machine else None


def _host(host: Snapshot, expected: Expectation, matrix: Matrix) -> str | None:
    return "it is a question about the host, and this is a container" if host.virtualization.is_container else None


def _native_driver(host: Snapshot, expected: Expectation, matrix: Matrix) -> str | None:
    if host.virtualization.kind != "wsl":
        return None
    return "WSL has no NVIDIA kernel module and no GPU on its PCI bus; the driver is that of Windows"


def _containers(host: Snapshot, expected: Expectation, matrix: Matrix) -> str | None:
    if host.virtualization.is_container:
        return "it is a question about the host, and this is a container"
    if expected.has_containers is None:
        return "no containers are planned" if not (host.has("docker-config") or host.has("toolkit")) else None
    return None if expected.has_containers else "no containers are planned"


def _framework(name: str) -> _Need:
    def is_planned(host: Snapshot, expected: Expectation, matrix: Matrix) -> str | None:
        return None if name in expected.frameworks else f"no {name} is planned"

    return is_planned


def _dcgm(host: Snapshot, expected: Expectation, matrix: Matrix) -> str | None:
    if expected.has_dcgm is None:
        return (
            "no DCGM is planned, and none is there" if host.output("dcgmi-diag").status in (ABSENT, NOT_RUN) else None
        )
    return None if expected.has_dcgm else "no DCGM is planned"


def _planned(field: str, probe: str, what: str) -> _Need:
    """Return a need that a plan fulfils, or, where it says nothing, the thing itself."""

    def is_planned(host: Snapshot, expected: Expectation, matrix: Matrix) -> str | None:
        wanted = getattr(expected, field)
        if wanted is None:
            wanted = host.has(probe)
        return None if wanted else f"no {what} is planned"

    return is_planned


NEEDS: dict[str, _Need] = {
    "bare-metal": _bare_metal,
    "containers": _containers,
    "dcgm": _dcgm,
    "exporter": _planned("has_exporter", "exporter", "exporter"),
    "gpu": _gpu,
    "gpus": _gpus,
    "host": _host,
    "jax": _framework("jax"),
    "native-driver": _native_driver,
    "nvswitch": _nvswitch,
    "rdma": _rdma,
    "tensorflow": _framework("tensorflow"),
    "textfile": _planned("has_textfile", "textfile", "textfile of metrics"),
    "torch": _framework("torch"),
}
"""The words of ``needs`` in ``checks.toml``."""
