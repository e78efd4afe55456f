"""The container engine does not know how to hand a GPU to a container."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.probe.output import ABSENT

__all__ = ["SYMPTOMS", "examine"]

SYMPTOMS = (
    r"could not select device driver \\?\"[a-z]{0,12}\\?\" with capabilities: \[\[?[a-z ,]{0,60}gpu",
    r"could not select device driver \\?\"(?:nvidia|cdi)\\?\"",
    r"unknown or invalid runtime name: nvidia",
    r"exec: \\?\"nvidia-container-runtime(?:-hook)?\\?\": executable file not found",
)


def examine(case: Case) -> Sign | None:
    """Look for the toolkit, and for its runtime in docker's configuration."""
    quote = case.find(*SYMPTOMS)
    if quote is None:
        return None
    toolkit = case.look(lambda host: host.toolkit)
    docker = case.look(lambda host: host.docker_info) or case.look(lambda host: host.docker)
    is_absent = case.host is not None and case.host.output("toolkit").status == ABSENT
    seen = []
    fix: tuple[str, ...] = ()
    configure = "Register it with docker: `nvidia-ctk runtime configure --runtime=docker`."
    restart = "Restart docker, which stops its containers: `systemctl restart docker`."
    if is_absent:
        seen.append("nvidia-ctk is not installed")
    if docker is not None and docker.is_snap:
        seen.append("docker is the snap, which sees no toolkit of the host")
        fix = ("Replace the snap by docker's own packages: `snap remove docker`.", configure, restart)
    elif docker is not None and "nvidia" not in docker.runtimes:
        seen.append("docker has no runtime called nvidia")
        fix = () if is_absent else (configure, restart)
    unseen = (
        *(() if toolkit or is_absent else ("whether the toolkit is installed: `nvidia-ctk --version`",)),
        *(() if docker else ("which runtimes docker knows: `docker info`",)),
    )
    return hint(
        quote,
        confidence="high" if seen else "medium",
        seen=seen,
        expected="the NVIDIA container toolkit installed, and its runtime known to the engine",
        fix=fix,
        unseen=unseen,
    )
