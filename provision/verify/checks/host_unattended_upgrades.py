"""Automatic upgrades leave the driver and the kernel alone."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown

__all__ = ["check"]

_TOP_PACKAGES = ("cuda-drivers", "nvidia-driver-", "nvidia-headless-", "nvidia-open")
"""Packages that hold the rest of the driver at their own version."""

_IMAGE = "linux-image-"
_SPECIAL = set("\\^$.*+?{}[]|()")


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Look for a hold or an exclusion over each driver package and each package that pulls new kernels in.

    Exclusions are patterns; their literal beginning is compared and nothing else of them is tried, as the target wrote
    them.
    """
    del expected, matrix
    if not host.os_release.is_debian_family:
        return skipped("the system is not of the Debian family")
    holds = host.holds
    if holds.has_unattended_upgrades is False:
        return passed("automatic upgrades are off")
    installed = sorted({package.name for package in host.packages if package.state == "installed"})
    moving = [*_drivers(installed), *(name for name in installed if _pulls_kernels(name))]
    if not host.packages:
        return unknown("the list of packages is empty")
    if not moving:
        return passed("no package of a driver or a moving kernel is installed")
    beginnings = {pattern: _beginning(pattern) for pattern in holds.excluded}
    free = [
        name
        for name in moving
        if name not in holds.held and not any(name.startswith(begin) for begin in beginnings.values() if begin)
    ]
    if not free:
        return passed(f"{', '.join(moving)} held or excluded")
    unclear = [pattern for pattern, begin in beginnings.items() if not begin]
    if unclear:
        return unknown(f"whether the exclusion {unclear[0]} covers {', '.join(free)} was not tried")
    if holds.has_unattended_upgrades is None:
        return unknown(f"nothing holds {', '.join(free)}, and nothing tells whether automatic upgrades are on")
    return failed(
        f"automatic upgrades are on and nothing holds {', '.join(free)}",
        "driver and kernel held or excluded",
        subjects=free,
        remedy=f"Hold them: `apt-mark hold {' '.join(free)}`.",
    )


def _drivers(installed: list[str]) -> list[str]:
    top = [name for name in installed if name.startswith(_TOP_PACKAGES)]
    return top or [
        name
        for name in installed
        if name.startswith(("nvidia-dkms-", "nvidia-kernel-", "libnvidia-compute-", "linux-modules-nvidia-"))
    ]


def _pulls_kernels(name: str) -> bool:
    """Tell whether new kernels come with a package; one that names its release (``linux-image-6.8.0-31``) stays."""
    return name.startswith(_IMAGE) and not any(part[:1].isdigit() and "." in part for part in name.split("-"))


def _beginning(pattern: str) -> str:
    """Return the literal text a regular expression must begin with."""
    text = pattern.strip().removeprefix("^")
    end = next((place for place, sign in enumerate(text) if sign in _SPECIAL), len(text))
    if end < len(text) and text[end] in "*?{":
        end -= 1
    return "" if "|" in text else text[: max(end, 0)]
