"""systemd wrote a container's device rules anew and took its GPUs away."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint, quoted
from provision.doctor.sign import Sign

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (r"Failed to initialize NVML: Unknown Error",)


def examine(case: Case) -> Sign | None:
    """Look at the cgroup driver and at the links in /dev/char, or at a container after daemon-reload."""
    quote = case.find(*SYMPTOMS)
    before = case.look(lambda host: host.container_gpus)
    after = case.look(lambda host: host.daemon_reload)
    expected = "the same GPUs in a container before and after `systemctl daemon-reload`"
    if before is not None and after is not None and len(after) < len(before):
        return Sign(
            confidence="high",
            seen=(f"a container sees {len(after)} GPUs after a daemon-reload and {len(before)} before", *quoted(quote)),
            expected=expected,
        )
    if quote is None:
        return None
    docker = case.look(lambda host: host.docker_info) or case.look(lambda host: host.docker)
    nodes = case.look(lambda host: host.device_nodes)
    config = case.look(lambda host: host.toolkit_config)
    if config is not None and config.has_no_cgroups:
        return hint(quote, confidence="low", expected=expected)
    seen = []
    if docker is not None and docker.cgroup_driver == "systemd":
        seen.append("docker's cgroup driver is systemd")
    if nodes and not any(node.path.startswith("/dev/char/") for node in nodes):
        seen.append("/dev/char has no links to the driver's nodes")
    unseen = (
        *(() if docker else ("the cgroup driver: `docker info --format '{{.CgroupDriver}}'`",)),
        *(() if nodes else ("links in /dev/char: `ls -l /dev/char | grep nvidia`",)),
        "whether it worked before: a new container tells",
    )
    confidence = "high" if len(seen) > 1 else "medium"
    return hint(quote, confidence=confidence, seen=seen, expected=expected, unseen=() if len(seen) > 1 else unseen)
