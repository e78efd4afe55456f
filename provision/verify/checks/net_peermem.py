"""Network cards can read and write GPU memory."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed

__all__ = ["check"]

_MODULES = ("nvidia_peermem", "nv_peer_mem")


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Look for the module, or for open kernel modules on a kernel that shares buffers (DMA-BUF)."""
    del expected
    broken = _broken_context(host)
    loaded = [module.name for module in host.modules if module.name in _MODULES]
    if broken:
        return failed(f"the kernel log says: {broken}", "`nvidia_peermem` without errors", subjects=loaded)
    if loaded:
        return passed(f"`{loaded[0]}` is loaded")
    if host.driver.is_open and _kernel_number(host.uname.release) >= matrix.limit("net.dmabuf-kernel"):
        return passed("the open kernel modules share buffers with network cards (DMA-BUF)")
    why = "the kernel is too old for DMA-BUF" if host.driver.is_open else "the driver's modules are not the open ones"
    return failed(f"`nvidia_peermem` is not loaded, and {why}", "`nvidia_peermem` loaded, or DMA-BUF")


def _broken_context(host: Snapshot) -> str:
    try:
        return next((event.text for event in host.kernel_log.events if event.kind == "peermem-context"), "")
    except Unreadable:
        return ""


def _kernel_number(release: str) -> int:
    """Return thousand times the major plus the minor of a kernel release, so that a number can be compared."""
    words = release.split("-")[0].split(".")
    if len(words) < 2 or not all(word.isascii() and word.isdigit() and len(word) < 5 for word in words[:2]):
        return 0
    return int(words[0]) * 1000 + int(words[1])
