"""Run a program so that nothing of it outlives its time, or this process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Finished", "run", "started"]

_GRACE_SECONDS = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a program ended: its exit code, what it printed, and whether its time was over before."""

    code: int
    out: str
    err: str
    is_late: bool = False


@contextmanager
def started(
    words: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program in a process group of its own, and end the whole group afterwards.

    Args:
        words: The program and its arguments.
        environment: Variables that are set beside those of this process.
        folder: Where it runs; here when absent.
    """
    process = subprocess.Popen(
        words,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        with process:
            try:
                yield process
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    finally:
        process.wait()


def run(
    words: Sequence[str],
    seconds: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Finished:
    """Run a program and return how it ended; after its time it is interrupted as by a person, then ended.

    Args:
        words: The program and its arguments.
        seconds: Its time.
        environment: Variables that are set beside those of this process.
        folder: Where it runs; here when absent.
    """
    is_late = False
    with started(words, environment, folder) as process:
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            is_late = True
            process.send_signal(signal.SIGINT)
            try:
                out, err = process.communicate(timeout=_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
    return Finished(
        code=process.returncode, out=out.decode("utf-8", "replace"), err=err.decode("utf-8", "replace"), is_late=is_late
    )
