"""The container engine does not know how to hand a GPU to a container."""

from __future__ import annotations

from provision.doctor.case import Case
from provision.doctor.gpus import nvidia_devices
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.probe.output import ABSENT

SYMPTOMS = (
    r"could not select device driver \\?\"[a-z]{0,12}\\?\" with capabilities: \[\[?[a-z ,]{0,60}gpu",
    r"could not select device driver \\?\"(?:nvidia|cdi)\\?\"",
    r"unknown or invalid runtime name: nvidia",
    r"exec: \\?\"nvidia-container-runtime(?:-hook)?\\?\": executable file not found",
    r"\bunkno\w{0,2} runtime(?: specified)?:? nvidia",
    r"nvidia-container-runtime(?:-hook)?\W{0,4}: no such file or directory",
    r"nvidia-container-(?:runtime|runtime-hook|toolkit|cli)\W{1,3}(?:executable file )?not found|"
    r"Command not found: nvidia-container-cli|Could not find nvidia-container-cli",
    r"failed to discover GPU vendor from CDI|no known GPU vendor found",
)

_EXPECTED = "the NVIDIA container toolkit installed, and its runtime known to the engine"
_KIND = "nvidia.com/gpu"


def examine(case: Case) -> Sign | None:
    """Look for the toolkit, and for its runtime in docker's configuration.

    Without a complaint it is a note where docker runs beside GPUs: whether containers are to have them is not known.
    """
    quote = case.find(*SYMPTOMS)
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
    if quote is None:
        if not seen or docker is None or not nvidia_devices(case) or _has_specification(case):
            return None
        return Sign(confidence="low", seen=tuple(seen), expected=_EXPECTED, fix=fix)
    unseen = (
        *(() if toolkit or is_absent else ("whether the toolkit is installed: `nvidia-ctk --version`",)),
        *(() if docker else ("which runtimes docker knows: `docker info`",)),
    )
    return hint(
        quote,
        confidence="high" if seen else "medium",
        seen=seen,
        expected=_EXPECTED,
        fix=fix,
        unseen=unseen,
    )


def _has_specification(case: Case) -> bool:
    """Tell whether containers can be given GPUs another way: by CDI, or by containerd's own runtime."""
    specifications = case.look(lambda host: host.cdi) or ()
    containerd = case.look(lambda host: host.containerd)
    return any(one.kind == _KIND for one in specifications) or (
        containerd is not None and any(name.startswith("nvidia") for name in containerd.runtimes)
    )
