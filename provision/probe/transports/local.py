"""This machine."""

from __future__ import annotations

from provision.probe.targets import Target
from provision.probe.transports import Finished, Limits
from provision.probe.transports.process import run_process, stream_of


async def collect(target: Target, script: bytes, limits: Limits) -> bytes:
    """Run a script with this machine's ``sh`` and return what it printed."""
    del target
    return stream_of(await run_process(("sh", "-s"), script, limits), limits)


async def run_command(target: Target, command: str, limits: Limits) -> Finished:
    """Run one command on this machine."""
    del target
    return await run_process(("sh", "-c", command), None, limits)
