"""systemd wrote a container's device rules anew and took its GPUs away."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.doctor.state import explain_faults

SYMPTOMS = (r"Failed to initialize NVML: Unknown Error",)


def examine(case: Case) -> Sign | None:
    """Look at the cgroup driver and at the links in /dev/char, or at a container after daemon-reload."""
    quote = case.find(*SYMPTOMS)
    expected = "the same GPUs in a container before and after `systemctl daemon-reload`"
    if lost := case.faults("ctr.daemon_reload"):
        return explain_faults(case, lost, expected=expected, quote=quote)
    loose = case.faults("ctr.cgroup")
    if quote is None:
        return explain_faults(case, loose, expected=expected)
    docker = case.look(lambda host: host.docker_info) or case.look(lambda host: host.docker)
    nodes = case.look(lambda host: host.device_nodes)
    config = case.look(lambda host: host.toolkit_config)
    if config is not None and config.has_no_cgroups:
        return hint(quote, confidence="low", expected=expected)
    seen = [fault.said for fault in loose]
    unseen = (
        *(() if docker else ("the cgroup driver: `docker info --format '{{.CgroupDriver}}'`",)),
        *(() if nodes else ("links in /dev/char: `ls -l /dev/char | grep nvidia`",)),
        "whether it worked before: a new container tells",
    )
    confidence = "high" if loose else "medium"
    return hint(quote, confidence=confidence, seen=seen, expected=expected, unseen=() if loose else unseen)
