"""Collect from many targets at once: one round trip each, so many at a time, and none that can stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from provision.errors import MissingDependencyError, UsageError
from provision.probe.snapshot import Snapshot
from provision.records import record

if TYPE_CHECKING:
    from provision.probe.compose import CollectOptions
    from provision.probe.targets import Target
    from provision.probe.transports import Finished, Limits
    from provision.probe.transports.ssh import Connections

PARALLEL = 64
"""How many targets are asked at once."""

_MARGIN_SECONDS = 20.0
_SCRIPTS_MAX = 32


@record
class Collection:
    """What came from many targets.

    Attributes:
        snapshots: Target → what it brought, in the order in which the targets were given.
        unreachable: Target → why nothing came, likewise.
        missing: Programs of this machine that were needed and are not there, among the reasons of ``unreachable``.
    """

    snapshots: Mapping[str, Snapshot]
    unreachable: Mapping[str, str]
    missing: tuple[MissingDependencyError, ...] = ()


Adapt = Callable[["Target", "CollectOptions"], "CollectOptions"]
"""Returns what to collect from one target, given what is collected from all."""

Done = Callable[[str, "Snapshot | None", str], None]
"""Called as each target ends: its name, what it brought, or why nothing came."""


def collect_targets(
    targets: Iterable[Target],
    options: CollectOptions,
    *,
    parallel: int = PARALLEL,
    seconds: float | None = None,
    connect_seconds: int = 10,
    on_done: Done | None = None,
    keeps_snapshots: bool = True,
    adapt: Adapt | None = None,
) -> Collection:
    """Collect from targets and return when all have answered or used up their time.

    Args:
        targets: Where to collect; each is asked once.
        options: What to collect.
        parallel: How many at once.
        seconds: Limit for one target, connection included; absent for what the probes may take together.
        connect_seconds: Limit for a connection to come about.
        on_done: Called as each ends; exceptions it raises stop everything.
        keeps_snapshots: Whether what came is in the answer too; without, ``on_done`` is the only one to see it.
        adapt: Returns what to collect from one target, where that is not the same for all.

    Raises:
        KeyboardInterrupt: A person stopped it; every child has been ended by then.
    """
    import asyncio
    import gc

    # The program starts without the collector of cycles; a thousand targets leave more of them than one command does.
    gc.enable()

    return asyncio.run(
        collect_targets_async(
            targets,
            options,
            parallel=parallel,
            seconds=seconds,
            connect_seconds=connect_seconds,
            on_done=on_done,
            keeps_snapshots=keeps_snapshots,
            adapt=adapt,
        )
    )


async def collect_targets_async(
    targets: Iterable[Target],
    options: CollectOptions,
    *,
    parallel: int = PARALLEL,
    seconds: float | None = None,
    connect_seconds: int = 10,
    on_done: Done | None = None,
    keeps_snapshots: bool = True,
    adapt: Adapt | None = None,
    connections: Connections | None = None,
) -> Collection:
    """Do what :func:`collect_targets` does inside a running loop.

    Args:
        targets: Where to collect.
        options: What to collect.
        parallel: How many at once.
        seconds: Limit for one target.
        connect_seconds: Limit for a connection to come about.
        on_done: Called as each ends.
        keeps_snapshots: Whether what came is in the answer too.
        adapt: Returns what to collect from one target, where that is not the same for all.
        connections: Connections to share with other calls; the caller closes them.
    """
    from provision.probe.compose import compose
    from provision.probe.fan_out import fan_out
    from provision.probe.transports import Limits, UnreachableError

    wanted = tuple(targets)
    write_script = lru_cache(maxsize=_SCRIPTS_MAX)(compose)
    snapshots: dict[str, Snapshot] = {}
    unreachable: dict[str, str] = {}
    missing: dict[str, MissingDependencyError] = {}

    async def work(target: Target) -> None:
        snapshot, reason = None, ""
        own = options if adapt is None else adapt(target, options)
        limits = Limits(
            seconds=own.deadline_seconds() + connect_seconds + _MARGIN_SECONDS if seconds is None else seconds,
            connect_seconds=connect_seconds,
        )
        try:
            stream = await _collect(target, write_script(own), limits, connections)
            snapshot = read_answer(target.name, stream, own)
        except UnreachableError as error:
            reason = str(error)
        except MissingDependencyError as error:
            reason = error.message
            missing[error.message] = error
        if snapshot is None:
            unreachable[target.name] = reason
        elif keeps_snapshots:
            snapshots[target.name] = snapshot
        if on_done is not None:
            on_done(target.name, snapshot, reason)

    await fan_out(wanted, work, parallel)
    names = [target.name for target in wanted]
    return Collection(
        snapshots={name: snapshots[name] for name in names if name in snapshots},
        unreachable={name: unreachable[name] for name in names if name in unreachable},
        missing=tuple(missing.values()),
    )


async def run_command(
    target: Target, command: str, seconds: float, connections: Connections | None = None
) -> tuple[int, str, str]:
    """Run one command on a target and return its exit code, what it printed, and the end of what it complained.

    Args:
        target: Where; an image that is not running is no place for a command.
        command: One line for ``sh``.
        seconds: After this it is ended; the code is then 124, as that of ``timeout``.
        connections: Connections of ssh to share with other calls.

    Raises:
        MissingDependencyError: The program that leads there is not on this machine.
        UsageError: The target is an image.
        UnreachableError: There is no way to it.
    """
    from provision.probe.clean import clean
    from provision.probe.redact import redact
    from provision.probe.transports import Limits

    finished = await _run(target, command, Limits(seconds=seconds, bytes_max=1024 * 1024), connections)
    out = redact(clean(finished.out.decode("utf-8", "replace")))
    return (124 if finished.is_late else finished.code), out, finished.err


async def _collect(target: Target, script: bytes, limits: Limits, connections: Connections | None) -> bytes:
    if target.kind == "local":
        from provision.probe.transports import local

        return await local.collect(target, script, limits)
    if target.kind == "ssh":
        from provision.probe.transports import ssh

        return await ssh.collect(target, script, limits, connections)
    from provision.probe.transports import containers

    if target.kind == "image":
        return await containers.collect_image(target, script, limits)
    return await containers.collect(target, script, limits)


async def _run(target: Target, command: str, limits: Limits, connections: Connections | None) -> Finished:
    if target.kind == "image":
        raise UsageError(f"`{target.name}` is an image, and a command would change nothing in it")
    if target.kind == "local":
        from provision.probe.transports import local

        return await local.run_command(target, command, limits)
    if target.kind == "ssh":
        from provision.probe.transports import ssh

        return await ssh.run_command(target, command, limits, connections)
    from provision.probe.transports import containers

    return await containers.run_command(target, command, limits)


def read_answer(name: str, stream: bytes, options: CollectOptions) -> Snapshot:
    """Return what a target brought; what its answer lacks at the end is told as such, probe by probe.

    Args:
        name: The target.
        stream: What the collector printed.
        options: What it was asked to do.

    Raises:
        UnreachableError: There is no answer of the collector in it.
    """
    from datetime import UTC, datetime

    from provision.probe.clean import clean_line
    from provision.probe.output import LOST, OK, Output
    from provision.probe.stream import StreamError, decode_stream
    from provision.probe.transports import UnreachableError

    try:
        outputs = {output.probe: output for output in decode_stream(stream, options.nonce)}
    except StreamError as error:
        outputs = {output.probe: output for output in error.outputs}
        if not outputs:
            raise UnreachableError(clean_line(error.reason)) from error
        for probe in options.names():
            outputs.setdefault(probe, Output(probe=probe, status=LOST, error=error.reason))
    own = outputs.get("collector")
    if own is not None and own.status != OK and len(outputs) == 1:
        raise UnreachableError(f"the collector could not work there: {clean_line(own.text or own.error)}")
    return Snapshot(name, outputs, collected=datetime.now(UTC).isoformat(timespec="seconds"))
