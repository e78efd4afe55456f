"""The kernel that runs is the newest installed one of its flavour, or no reboot is asked for."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare ``uname -r`` with the kernels that can be booted, by flavour (``generic``, ``aws``, ``amzn2023``)."""
    del expected, matrix
    if host.virtualization.kind == "wsl":
        return skipped("WSL takes its kernel from Windows")
    running, kernels = host.uname.release, host.kernels
    if not kernels:
        return unknown("no kernel that can be booted is found on the disk")
    if running not in kernels:
        return failed(
            f"{running} runs and is no longer installed, so its modules cannot be loaded; newest is {kernels[-1]}",
            "the newest installed kernel",
        )
    newest = [kernel for kernel in kernels if _flavour(kernel) == _flavour(running)][-1]
    if newest == running:
        return passed(f"{running} runs, the newest installed")
    try:
        asking = host.reboot_required
    except Unreadable as error:
        return unknown(f"{running} runs, {newest} is installed, and {error.reason}")
    if asking is None:
        return passed(f"{running} runs; {newest} is installed and no reboot is asked for")
    return failed(f"{running} runs, {newest} is installed and waits for a reboot", newest)


def _flavour(kernel: str) -> str:
    """Return what a release ends with after its numbers: ``5.15.0-91-generic`` → ``generic``.

    Enterprise Linux writes its minor version behind the name (``el9_6``), which is no flavour.
    """
    last = kernel.replace(".", "-").split("-")
    words = [word for word in last if word and not word[0].isdigit()]
    return "-".join(word.partition("_")[0] if word.startswith("el") else word for word in words)
