"""The operating system is the planned one."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped

__all__ = ["check"]

_NAMES = {
    "almalinux": "rhel",
    "azurelinux": "azl",
    "centos": "rhel",
    "ol": "rhel",
    "opensuse-leap": "opensuse",
    "rocky": "rockylinux",
    "sled": "sles",
}
"""``ID`` of os-release → how the facts and NVIDIA's repositories begin its id."""


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare ``ID`` and ``VERSION_ID`` with the planned id, which may leave the minor version out."""
    del matrix
    if expected.os is None:
        return skipped("no operating system is planned")
    release = host.os_release
    shown = release.name or " ".join(filter(None, (release.id, release.version)))
    version = release.version or ""
    ids = {
        f"{name}{number}"
        for name in (release.id, _NAMES.get(release.id, release.id))
        for number in (version, version.split(".")[0], "", f"-{version}")
    }
    if expected.os.lower() in ids:
        return passed(f"{shown}, kernel {host.uname.release}")
    return failed(shown, expected.os)
