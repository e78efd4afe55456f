"""The driver of this machine, for ``--driver host``."""

from __future__ import annotations

import re
from pathlib import Path

from provision.errors import MissingDependencyError

_KERNEL_FILE = Path("/proc/driver/nvidia/version")
_ANSWER_SECONDS = 20


def read_host_driver() -> str:
    """Return the version of the NVIDIA driver that runs here.

    Raises:
        MissingDependencyError: No driver runs here, or it does not report its version.
    """
    said = _ask_tool()
    version = re.search(r"^[0-9]{3}(?:\.[0-9]+){1,2}$", said, re.MULTILINE)
    if version is None:
        version = re.search(r"(?<![0-9.])[0-9]{3}(?:\.[0-9]+){1,2}(?![0-9.])", _read_kernel_file())
    if version is None:
        raise MissingDependencyError(
            "`--driver host` found no NVIDIA driver on this machine",
            because=(
                f"nvidia-smi says: {said.strip().splitlines()[0][:120]}" if said.strip() else "there is no nvidia-smi",
                f"{_KERNEL_FILE} names no version",
            ),
            hints=("write the version of the machine that will run the image, as in `--driver 535.104.05`",),
        )
    return version[0]


def _ask_tool() -> str:
    """Return what nvidia-smi prints, an error included; empty where it is absent."""
    import subprocess

    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_ANSWER_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return ""
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout.strip() or done.stderr


def _read_kernel_file() -> str:
    try:
        return _KERNEL_FILE.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    except OSError:
        return ""
