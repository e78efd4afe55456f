"""Containers keep their GPUs when systemd reloads."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, unknown

__all__ = ["check"]


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Look for the one unlucky mixture: systemd's control groups, devices given the old way, no links in /dev/char."""
    del expected, matrix
    if (mode := _mode(host)) == "cdi":
        return passed("the toolkit gives devices by CDI")
    drivers = _cgroup_drivers(host)
    if drivers and "systemd" not in drivers:
        return passed(f"the control-group driver is {', '.join(sorted(drivers))}")
    nodes = host.device_nodes
    links = [node for node in nodes if node.path.startswith("/dev/char/") and "nvidia" in (node.target or "")]
    if links:
        return passed(f"/dev/char has {len(links)} links to the GPUs' devices")
    if not drivers:
        return unknown("which control-group driver containers get is not known, and /dev/char has no link to a GPU")
    return failed(
        f"control groups are systemd's, the toolkit's mode is {mode or 'its default'}, and /dev/char links to no GPU",
        "links in /dev/char, or CDI",
    )


def _mode(host: Snapshot) -> str | None:
    try:
        return host.toolkit_config.mode
    except Unreadable:
        return None


def _cgroup_drivers(host: Snapshot) -> set[str]:
    for ask in ("docker_info", "docker"):
        try:
            driver = getattr(host, ask).cgroup_driver
        except Unreadable:
            continue
        if driver:
            return {driver}
    try:
        has_systemd = host.containerd.has_systemd_cgroup
    except Unreadable:
        return set()
    return set() if has_systemd is None else {"systemd" if has_systemd else "cgroupfs"}
