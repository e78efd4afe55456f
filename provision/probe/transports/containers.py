"""Containers that run, pods, and images started for a moment, through docker, podman and kubectl themselves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from provision.errors import MissingDependencyError
from provision.probe.targets import Target
from provision.probe.transports import Finished, Limits, UnreachableError
from provision.probe.transports.process import last_line, run_process, stream_of
from provision.records import replace

ENGINES = ("docker", "podman")
"""What starts an image, in order of preference."""

_HINTS = {
    "docker": ("install Docker Engine, or name the container with `podman://`",),
    "podman": ("install podman, or name the container with `docker://`",),
    "kubectl": ("install kubectl and point KUBECONFIG at the cluster",),
}
_NO_SHELL = ("executable file not found", "no such file or directory", "no such file")
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
_PULL_SECONDS = 1800.0
_ASK_SECONDS = 15.0


async def collect(target: Target, script: bytes, limits: Limits) -> bytes:
    """Run a script inside a container or pod and return what it printed.

    Raises:
        MissingDependencyError: The engine's program is not here.
        UnreachableError: The container is not there, does not run, or has no shell.
    """
    argv = (*_enter(target, is_interactive=True), "sh", "-s")
    return _read(target, await run_process(argv, script, limits, hints=_HINTS[target.kind]), limits)


async def run_command(target: Target, command: str, limits: Limits) -> Finished:
    """Run one command inside a container or pod."""
    argv = (*_enter(target, is_interactive=False), "sh", "-c", command)
    return await run_process(argv, None, limits, hints=_HINTS[target.kind])


async def collect_image(target: Target, script: bytes, limits: Limits) -> bytes:
    """Start an image with a shell in place of its entrypoint, run a script in it, and remove the container again.

    The container has no network. It gets the GPUs where the engine offers them or the target says so.

    Raises:
        MissingDependencyError: No engine is here.
        UnreachableError: The image cannot be had, or has no shell.
    """
    import secrets

    engine = target.engine or _find_engine()
    await _pull(engine, target, limits)
    flags = await _gpu_flags(engine, target)
    name = f"provision-probe-{secrets.token_hex(6)}"
    argv = (engine, "run", "--rm", "-i", "--name", name, "--network", "none", "--entrypoint", "sh", *flags)
    finished = None
    try:
        finished = await run_process((*argv, target.image, "-s"), script, limits, hints=_HINTS[engine])
    finally:
        # The program was ended, which leaves the container running; `--rm` does the rest in all other cases.
        if finished is None or finished.is_late or finished.is_cut:
            await asyncio.shield(_remove(engine, name))
    return _read(target, finished, limits)


def _enter(target: Target, *, is_interactive: bool) -> tuple[str, ...]:
    flags = ("-i",) if is_interactive else ()
    if target.kind != "kubectl":
        return (target.kind, "exec", *flags, target.container)
    where: list[str] = []
    if target.context:
        where += ["--context", target.context]
    if target.namespace:
        where += ["--namespace", target.namespace]
    container = ("--container", target.container) if target.container else ()
    return ("kubectl", *where, "exec", *flags, target.pod, *container, "--")


def _read(target: Target, finished: Finished, limits: Limits) -> bytes:
    if not finished.out and not finished.is_late:
        said = finished.err.lower()
        if "sh" in said and any(words in said for words in _NO_SHELL) and "exec" in said:
            raise UnreachableError("it has no shell (`sh`), so nothing can be asked inside", "check its host instead")
        line = _first_reason(finished.err)
        if line:
            raise UnreachableError(line, _way_out(target, said))
    return stream_of(finished, limits)


def _first_reason(text: str) -> str:
    """Return the line that says why: engines put it first or last, around words of their own."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if line.lower().startswith(("error", "docker:", "unable to")):
            return last_line(line.removeprefix("docker: "))
    return last_line(text)


def _way_out(target: Target, said: str) -> str:
    if "permission denied" in said and target.kind in ("docker", "image"):
        return "join the group that may use the engine, or use `sudo`"
    if "cannot connect to the docker daemon" in said:
        return "start the engine: `sudo systemctl start docker`"
    if "could not select device driver" in said or "nvidia-container" in said or "unresolvable cdi" in said:
        return "the engine cannot pass GPUs on; leave them out with `--no-gpus`"
    if "is not running" in said and target.container:
        return f"start it: `{target.kind} start {target.container}`"
    return ""


def _find_engine() -> str:
    from shutil import which

    for engine in ENGINES:
        if which(engine):
            return engine
    raise MissingDependencyError(
        "an image needs a container engine to be started, and there is none on this machine",
        because=("neither `docker` nor `podman` is installed",),
        hints=("install one of the two", "or name a machine that runs the image: `docker://CONTAINER`"),
    )


async def _pull(engine: str, target: Target, limits: Limits) -> None:
    """Have the image on this machine before the time of the probes starts to count."""
    asked = replace(limits, seconds=_ASK_SECONDS)
    found = await run_process(
        (engine, "image", "inspect", "--format", "{{.Id}}", target.image), None, asked, hints=_HINTS[engine]
    )
    if found.code == 0:
        return
    if "no such image" not in found.err.lower() and "not known" not in found.err.lower():
        said = _first_reason(found.err)
        if said:
            raise UnreachableError(said, _way_out(target, found.err.lower()))
    pulled = await run_process((engine, "pull", "--quiet", target.image), None, replace(limits, seconds=_PULL_SECONDS))
    if pulled.code != 0:
        said = _first_reason(pulled.err) or f"`{engine} pull` ended with {pulled.code}"
        raise UnreachableError(f"the image is not here and cannot be pulled: {said}")


async def _gpu_flags(engine: str, target: Target) -> tuple[str, ...]:
    if target.has_gpus is False:
        return ()
    flags = ("--gpus", "all") if engine == "docker" else ("--device", "nvidia.com/gpu=all")
    if target.has_gpus:
        return flags
    if engine == "podman":
        is_offered = any(path.is_file() for folder in _CDI_FOLDERS for path in Path(folder).glob("*nvidia*"))
        return flags if is_offered else ()
    asked = await run_process((engine, "info", "--format", "{{json .Runtimes}}"), None, Limits(seconds=_ASK_SECONDS))
    try:
        is_offered = "nvidia" in json.loads(asked.out or b"{}")
    except (ValueError, TypeError):
        is_offered = False
    return flags if is_offered else ()


async def _remove(engine: str, name: str) -> None:
    await run_process((engine, "rm", "--force", name), None, Limits(seconds=_ASK_SECONDS))
