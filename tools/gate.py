"""Run commands one after the other and a last one beside them, and print what the last one said behind all else.

::

    tools/gate.py 'make -k lint' 'make scenarios' -- python -m pytest -n auto

What stands before ``--`` are lines of the shell; each runs whatever became of those before it, and is seen while it
runs. What the command behind ``--`` says is kept until they have ended, and is seen while it runs from then on, so that
its summary is the end of the output.

Exit status: 0 when all ended with 0; 1 when one did not, and the last line of the standard error names it; 2 wrong
usage; 130 when it was interrupted or told to end, after what still ran was given time to tidy up.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import IO

_PATIENCE_SECONDS = 60
_LOOK_SECONDS = 0.2


def start(words: Sequence[str], output: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Start a process in a group of its own, so that all of it can be ended, with what make hands down to it."""
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, close_fds=False, process_group=0
    )


def follow(log: IO[bytes], process: subprocess.Popen[bytes]) -> None:
    """Print what a process has said, and what it says until it ends."""
    while True:
        has_ended = process.poll() is not None
        shutil.copyfileobj(log, sys.stdout.buffer)
        sys.stdout.flush()
        if has_ended:
            return
        time.sleep(_LOOK_SECONDS)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Interrupt all that still runs and wait for it, but not for ever."""
    for number in (signal.SIGINT, signal.SIGKILL):
        running = [process for process in processes if process.poll() is None]
        for process in running:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        for process in running:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE_SECONDS)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says; return the exit status."""
    lines, command = list(arguments), []
    if "--" in lines:
        cut = lines.index("--")
        lines, command = lines[:cut], lines[cut + 1 :]
    if not command:
        print(f"usage: {Path(__file__).name} LINE... -- COMMAND [WORD...]", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _interrupt)
    ends: list[tuple[str, int]] = []
    with tempfile.NamedTemporaryFile(prefix="gate-") as written, Path(written.name).open("rb") as log:
        processes = [start(command, written)]
        try:
            for line in lines:
                processes.append(start(["sh", "-c", line]))
                ends.append((line, processes[-1].wait()))
            follow(log, processes[0])
        except KeyboardInterrupt:
            end(processes)
            follow(log, processes[0])
            return 130
    ends.append((shlex.join(command), processes[0].wait()))
    failed = [f"`{line}` ended with {status}" for line, status in ends if status]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
