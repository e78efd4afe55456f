"""nvidia-smi lists as many GPUs as the PCI bus and the plan."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import ABSENT
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import count_words, list_gpu_devices
from provision.verify.outcome import Outcome, failed, passed

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare the three; in a container or sandbox, which gets some of the host's GPUs, only with the plan."""
    del matrix
    smi = host.smi
    listed = {gpu.pci for gpu in smi.gpus}
    seen = f"nvidia-smi lists {count_words(len(smi.gpus), 'GPU')}"
    is_shared = host.virtualization.is_container or host.virtualization.kind == "wsl" or _has_no_bus(host, expected)
    devices = [] if is_shared else [device.address for device in list_gpu_devices(host)]
    missing = [address for address in devices if address not in listed]
    if missing:
        return failed(
            f"{seen}, and {', '.join(missing)} is on the PCI bus and not among them",
            f"{count_words(max(len(devices), expected.gpus or 0), 'GPU')}",
            subjects=[f"GPU {address}" for address in missing],
        )
    if smi.attached is not None and smi.attached != len(smi.gpus):
        return failed(f"{seen} and says that {smi.attached} are attached", "one number")
    if expected.gpus is not None and len(smi.gpus) != expected.gpus:
        return failed(seen, count_words(expected.gpus, "GPU"))
    if not is_shared and len(devices) != len(smi.gpus):
        return failed(f"{seen}, the PCI bus {len(devices)}", "one number")
    if not smi.gpus:
        return failed(seen, "at least one")
    return passed(seen)


def _has_no_bus(host: Snapshot, expected: Expectation) -> bool:
    """Tell whether no PCI bus is shown, as in a sandbox, and a plan says how many GPUs there should be."""
    return expected.gpus is not None and host.output("pci").status == ABSENT
