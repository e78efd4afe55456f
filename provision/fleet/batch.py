"""Ask Slurm whether it would take a batch file; nothing is submitted."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from provision.errors import MissingDependencyError
from provision.probe.clean import clean_line

_SECONDS = 60
_LEAD = re.compile(r"^(?:sbatch|allocation failure): (?:error: )?")


def ask_sbatch(path: Path) -> tuple[int, str]:
    """Return exit code and words of ``sbatch --test-only``.

    Raises:
        MissingDependencyError: There is no sbatch here, or no controller answers it in time.
    """
    try:
        done = subprocess.run(
            ["sbatch", "--test-only", path.name],
            cwd=path.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise MissingDependencyError(
            "`sbatch` is not on this machine",
            because=("--test-only asks the Slurm that this machine can submit to",),
            hints=("run it on a login node (Debian, Ubuntu: `apt install slurm-client`)",),
        ) from error
    except subprocess.TimeoutExpired as error:
        raise MissingDependencyError(f"`sbatch --test-only` did not answer within {_SECONDS} s") from error
    lines = [_LEAD.sub("", line.strip()) for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return done.returncode, clean_line("; ".join(lines), 500)
