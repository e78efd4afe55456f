"""As many GPUs are on the PCI bus as planned."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.gpus import count_words, list_gpu_devices
from provision.verify.outcome import Outcome, failed, passed, skipped

__all__ = ["check"]

_FALLEN = "ff"
"""What the revision of a device reads as that no longer answers; its class may read likewise."""

_NO_CLASS = "ffff"


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Count NVIDIA display and 3D controllers, those that answer."""
    del matrix
    found = list_gpu_devices(host)
    fallen = [
        device.address
        for device in host.pci
        if device.revision == _FALLEN and (device.is_nvidia_gpu or device.class_code == _NO_CLASS)
    ]
    answering = [device for device in found if device.revision != _FALLEN]
    planned = "at least one" if expected.gpus is None else str(expected.gpus)
    if fallen:
        return failed(
            f"{count_words(len(answering), 'GPU')}, and {', '.join(fallen)} no longer answers",
            planned,
            subjects=[f"GPU {address}" for address in fallen],
        )
    if not found and expected.gpus is None and host.virtualization.kind == "wsl":
        return skipped("WSL does not show the PCI bus")
    seen = count_words(len(found), "GPU")
    if len(found) == expected.gpus or (found and expected.gpus is None):
        return passed(f"{seen} on the PCI bus")
    there = f": {', '.join(device.address for device in found)}" if found else ""
    return failed(f"{seen} on the PCI bus{there}", planned)
