"""Make a stand-in for the official slim Python image, and for the full one, where no image can be pulled.

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
FULL = "provision-test/python:3.11-bookworm"
PYTHON = "3.11"
_SUITE = "bookworm"
_PACKAGES = ("ca-certificates", "python3", "python3-pip", "python3-venv")
_FULL_PACKAGES = ("git", "openssh-client")
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


def recipe_digest(more: tuple[str, ...] = ()) -> str:
    """Return the digest of everything that decides what the stand-in holds, with the packages that a fuller one has."""
    recipe = json.dumps([_SUITE, _PACKAGES + more, _LEFT_OUT, _LAYOUT, _PATH])
    return hashlib.sha256(recipe.encode()).hexdigest()


def is_made(reference: str = REFERENCE, more: tuple[str, ...] = ()) -> bool:
    """Tell whether the engine already holds the stand-in of this recipe."""
    answer = subprocess.run(
        ["docker", "image", "inspect", "--format", f'{{{{index .Config.Labels "{_RECIPE_LABEL}"}}}}', reference],
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.returncode == 0 and answer.stdout.strip() == recipe_digest(more)


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
    return _make(REFERENCE, ())


def make_full_base() -> str:
    """Make the stand-in with git and ssh unless the engine holds it, and return its reference; see the other one."""
    return _make(FULL, _FULL_PACKAGES)


def _make(reference: str, more: tuple[str, ...]) -> str:
    if is_made(reference, more):
        return reference
    with tempfile.TemporaryDirectory(prefix="provision-base-") as folder:
        tar = Path(folder) / "base.tar"
        command = [
            "mmdebstrap",
            "--quiet",
            "--mode=root",
            "--variant=minbase",
            f"--include={','.join(_PACKAGES + more)}",
        ]
        command += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
        command += [f"--customize-hook={line}" for line in _LAYOUT]
        _run([*command, _SUITE, str(tar)])
        changes = [
            f"ENV PATH={_PATH}",
            'CMD ["python3"]',
            f"LABEL {_RECIPE_LABEL}={recipe_digest(more)}",
            f"LABEL dev.provision.test.stand-in={reference.removeprefix('provision-test/')}",
        ]
        flags = [word for change in changes for word in ("--change", change)]
        _run(["docker", "import", *flags, str(tar), reference])
    return reference


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {(done.stderr or done.stdout)[-2000:]}")


if __name__ == "__main__":
    print(make_python_base())
