"""Nothing between the GPUs sends their traffic through the processor."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.links import find_translation
from provision.probe.output import Unreadable
from provision.probe.parse.pci import list_gpu_bridges
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["check"]

_SHOWN = 4


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Look for bridges that redirect requests, and for an IOMMU that translates them.

    Source: NCCL's troubleshooting page, PCI access control services.
    """
    del expected, matrix
    translating = find_translation(host.command_line)
    above = _find_bridges(host)
    try:
        bridges = [
            device
            for device in host.lspci
            if device.class_code == "0604" and (above is None or device.address in above)
        ]
    except Unreadable as error:
        bridges, why = [], error.reason
    else:
        why = "lspci shows no bridge whose access control can be read; that takes root"
    redirecting = [device.address for device in bridges if device.is_acs_redirecting]
    faults = []
    if redirecting:
        more = f" and {len(redirecting) - _SHOWN} more" if len(redirecting) > _SHOWN else ""
        faults.append(f"ACS redirects at {', '.join(redirecting[:_SHOWN])}{more}")
    if translating:
        faults.append(f"the kernel runs with {' '.join(translating)}")
    if faults:
        return failed("; ".join(faults), "ACS off on bridges, the IOMMU off or with iommu=pt", subjects=redirecting)
    if all(device.is_acs_redirecting is None for device in bridges):
        return unknown(why)
    return passed(f"ACS redirects at none of {len(bridges)} bridges{'' if above is None else ' above GPUs'}")


def _find_bridges(host: Snapshot) -> frozenset[str] | None:
    """Return the bridges that GPUs hang on, or ``None`` where that is not told and each may be one."""
    try:
        return list_gpu_bridges(host.pci)
    except Unreadable:
        return None
