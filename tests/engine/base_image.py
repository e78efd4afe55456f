"""Make a stand-in for the official slim Python image where no image can be pulled.

The stand-in is Debian 12 with its own Python 3.11, laid out as the official image is: ``python`` under
``/usr/local/bin``, pip at hand, no marker that forbids pip. It is made once and found again by the digest of its
recipe, which the image carries as a label.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

REFERENCE = "provision-test/python:3.11-slim-bookworm"
PYTHON = "3.11"
_SUITE = "bookworm"
_PACKAGES = ("ca-certificates", "python3", "python3-pip", "python3-venv")
_RECIPE_LABEL = "dev.provision.test.recipe"
# What the official slim images leave out too.
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*")
_LAYOUT = (
    'ln -s ../../bin/python3.11 "$1/usr/local/bin/python3.11"',
    'ln -s python3.11 "$1/usr/local/bin/python3"',
    'ln -s python3.11 "$1/usr/local/bin/python"',
    'rm -f "$1/usr/lib/python3.11/EXTERNALLY-MANAGED"',
    'rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/var/log/*',
    'find "$1/usr" -name __pycache__ -depth -exec rm -rf {} +',
    ': > "$1/etc/resolv.conf"',
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def recipe_digest() -> str:
    """Return the digest of everything that decides what the stand-in holds."""
    recipe = json.dumps([_SUITE, _PACKAGES, _LEFT_OUT, _LAYOUT, _PATH])
    return hashlib.sha256(recipe.encode()).hexdigest()


def is_made() -> bool:
    """Tell whether the engine already holds the stand-in of this recipe."""
    answer = subprocess.run(
        ["docker", "image", "inspect", "--format", f'{{{{index .Config.Labels "{_RECIPE_LABEL}"}}}}', REFERENCE],
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.returncode == 0 and answer.stdout.strip() == recipe_digest()


def missing_tool() -> str | None:
    """Return the reason why the stand-in cannot be made here, or nothing."""
    if shutil.which("mmdebstrap") is None:
        return "mmdebstrap is absent (tools/engine.sh installs it)"
    if os.geteuid() != 0:
        return "mmdebstrap needs root here"
    return None


def make_python_base() -> str:
    """Make the stand-in unless the engine holds it, and return its reference.

    Raises:
        RuntimeError: mmdebstrap or the import failed; the message holds the end of its output.
    """
    if is_made():
        return REFERENCE
    with tempfile.TemporaryDirectory(prefix="provision-base-") as folder:
        tar = Path(folder) / "base.tar"
        command = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", f"--include={','.join(_PACKAGES)}"]
        command += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
        command += [f"--customize-hook={line}" for line in _LAYOUT]
        _run([*command, _SUITE, str(tar)])
        changes = [
            f"ENV PATH={_PATH}",
            'CMD ["python3"]',
            f"LABEL {_RECIPE_LABEL}={recipe_digest()}",
            "LABEL dev.provision.test.stand-in=python:3.11-slim-bookworm",
        ]
        flags = [word for change in changes for word in ("--change", change)]
        _run(["docker", "import", *flags, str(tar), REFERENCE])
    return REFERENCE


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {(done.stderr or done.stdout)[-2000:]}")


if __name__ == "__main__":
    print(make_python_base())
