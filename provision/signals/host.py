"""The operating system around the driver."""

from __future__ import annotations

from provision.errors import first_of
from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.signals.expectation import Expectation
from provision.signals.signal import Fault, Signal, failed, passed, skipped, unknown

_SYSTEMS = {
    "almalinux": "rhel",
    "azurelinux": "azl",
    "centos": "rhel",
    "ol": "rhel",
    "opensuse-leap": "opensuse",
    "rocky": "rockylinux",
    "sled": "sles",
}
"""``ID`` of os-release → how the facts and NVIDIA's repositories begin its id."""


def host_os(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare ``ID`` and ``VERSION_ID`` with the planned id, which may leave the minor version out."""
    if expected.os is None:
        return skipped("no operating system is planned")
    release = host.os_release
    shown = release.name or " ".join(filter(None, (release.id, release.version)))
    version = release.version or ""
    ids = {
        f"{name}{number}"
        for name in (release.id, _SYSTEMS.get(release.id, release.id))
        for number in (version, version.split(".")[0], "", f"-{version}")
    }
    if expected.os.lower() in ids:
        return passed(f"{shown}, kernel {host.uname.release}")
    return failed(shown, expected.os)


def host_kernel_running(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare ``uname -r`` with the kernels that can be booted, by flavour (``generic``, ``aws``, ``amzn2023``)."""
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
    newest = [kernel for kernel in kernels if _kernel_flavour(kernel) == _kernel_flavour(running)][-1]
    if newest == running:
        return passed(f"{running} runs, the newest installed")
    try:
        asking = host.reboot_required
    except Unreadable as error:
        return unknown(f"{running} runs, {newest} is installed, and {error.reason}")
    if asking is None:
        return passed(f"{running} runs; {newest} is installed and no reboot is required")
    return failed(f"{running} runs, {newest} is installed and waits for a reboot", newest)


def _kernel_flavour(kernel: str) -> str:
    """Return what a release ends with after its numbers: ``5.15.0-91-generic`` → ``generic``.

    Enterprise Linux writes its minor version behind the name (``el9_6``), which is no flavour.
    """
    last = kernel.replace(".", "-").split("-")
    words = [word for word in last if word and not word[0].isdigit()]
    return "-".join(word.partition("_")[0] if word.startswith("el") else word for word in words)


_PACKAGES_SHOWN = 5


def host_reboot_pending(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Read the system's own mark."""
    asking = host.reboot_required
    if asking is None:
        return passed("no reboot is required")
    named = first_of(asking, _PACKAGES_SHOWN)
    return failed(f"a reboot is required{f' by {named}' if named else ''}", "none", subjects=asking)


_TOP_PACKAGES = ("cuda-drivers", "nvidia-driver-", "nvidia-headless-", "nvidia-open")
"""Packages that hold the rest of the driver at their own version."""
_KERNEL_IMAGE = "linux-image-"
_SPECIAL = set("\\^$.*+?{}[]|()")


def host_unattended_upgrades(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Look for a hold or an exclusion over each driver package and each package that pulls new kernels in.

    Exclusions are patterns; their literal beginning is compared and nothing else of them is tried, as the target wrote
    them.
    """
    if not host.os_release.is_debian_family:
        return skipped("the system is not of the Debian family")
    holds = host.holds
    if holds.has_unattended_upgrades is False:
        return passed("automatic upgrades are off")
    installed = sorted({package.name for package in host.packages if package.state == "installed"})
    moving = [*_driver_packages(installed), *(name for name in installed if _pulls_kernels(name))]
    if not host.packages:
        return unknown("the list of packages is empty")
    if not moving:
        return passed("no package of a driver or a moving kernel is installed")
    beginnings = {pattern: _literal_beginning(pattern) for pattern in holds.excluded}
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


def _driver_packages(installed: list[str]) -> list[str]:
    top = [name for name in installed if name.startswith(_TOP_PACKAGES)]
    return top or [
        name
        for name in installed
        if name.startswith(("nvidia-dkms-", "nvidia-kernel-", "libnvidia-compute-", "linux-modules-nvidia-"))
    ]


def _pulls_kernels(name: str) -> bool:
    """Tell whether new kernels come with a package; one that names its release (``linux-image-6.8.0-31``) stays."""
    return name.startswith(_KERNEL_IMAGE) and not any(part[:1].isdigit() and "." in part for part in name.split("-"))


def _literal_beginning(pattern: str) -> str:
    """Return the literal text a regular expression must begin with."""
    text = pattern.strip().removeprefix("^")
    end = next((place for place, sign in enumerate(text) if sign in _SPECIAL), len(text))
    if end < len(text) and text[end] in "*?{":
        end -= 1
    return "" if "|" in text else text[: max(end, 0)]


_KIB_PER_GIB = 1024 * 1024


def host_memlock(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Compare ``ulimit -l`` with the limit of the facts."""
    limits = host.limits
    if "memlock_kib" not in limits:
        return unknown("`ulimit -l` told nothing")
    locked = limits["memlock_kib"]
    minimum = matrix.limit("host.memlock.minimum")
    if locked is None:
        return passed("unlimited")
    if locked >= minimum * _KIB_PER_GIB:
        return passed(f"{locked / _KIB_PER_GIB:.0f} GiB")
    said = f"{locked} KiB may be locked"
    should = f"unlimited, or at least {minimum:.0f} GiB"
    return failed(said, should, faults=[Fault(said=said, certainty="medium")])


def net_clock(host: Snapshot, expected: Expectation, matrix: Matrix) -> Signal:
    """Ask whether it is synchronised, and how far off it is where the tool tells."""
    clock = host.clock
    most = matrix.limit("net.clock-offset")
    if clock.offset_seconds is not None and abs(clock.offset_seconds) >= most:
        return failed(f"the clock is {clock.offset_seconds:.3g} s off", f"less than {most:g} s")
    if clock.is_synchronised is None:
        return unknown("no tool tells whether the clock is synchronised")
    if not clock.is_synchronised:
        return failed("the clock is not synchronised", f"synchronised, less than {most:g} s off")
    off = f", {abs(clock.offset_seconds):.2g} s off" if clock.offset_seconds is not None else ""
    return passed(f"the clock is synchronised{off}")
