"""Device nodes of the driver have their links below /dev/char."""

from __future__ import annotations

import re

from provision.matrix.load import Matrix
from provision.probe.output import Unreadable
from provision.probe.snapshot import Snapshot
from provision.verify.expectation import Expectation
from provision.verify.outcome import Outcome, failed, passed, skipped, unknown

__all__ = ["check"]

_NEEDED = re.compile(r"/dev/nvidia(?:\d+|ctl|-uvm)")
_SHOWN = 4


def check(host: Snapshot, expected: Expectation, matrix: Matrix) -> Outcome:
    """Compare devices that containers compute through with links; with cgroupfs or CDI these do not matter."""
    del expected, matrix
    if (why := _no_matter(host)) is not None:
        return skipped(why)
    nodes = host.device_nodes
    devices = [node for node in nodes if _NEEDED.fullmatch(node.path) and node.major is not None]
    if not devices:
        return unknown("no device node of the driver is there")
    links = {node.path for node in nodes if node.path.startswith("/dev/char/")}
    missing = [f"/dev/char/{node.major}:{node.minor}" for node in devices if node.minor is not None]
    missing = [path for path in missing if path not in links]
    if missing:
        shown = ", ".join(missing[:_SHOWN]) + (f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else "")
        return failed(f"{shown} of {len(devices)} links missing", "a link for each device node", subjects=missing)
    return passed(f"all {len(devices)} links are there")


def _no_matter(host: Snapshot) -> str | None:
    for probe in ("docker_info", "docker"):
        try:
            driver = getattr(host, probe).cgroup_driver
        except Unreadable:
            continue
        if driver == "cgroupfs":
            return "containers get their device rights from cgroupfs, not from systemd"
    try:
        if host.toolkit_config.mode == "cdi" and host.cdi:
            return "containers get their GPUs through CDI"
    except Unreadable:
        pass
    return None
