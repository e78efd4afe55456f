"""The sdist, the wheel built from it, and an environment that holds nothing but that wheel and what it declares."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Installed:
    """A fresh virtual environment with the wheel in it."""

    bin: Path

    def run(self, *words: str, command: str = "provision") -> subprocess.CompletedProcess[str]:
        """Run a command of the environment from `/`, as far from the checkout as can be."""
        return subprocess.run(
            [self.bin / command, *words], cwd="/", env=_clean_environment(), capture_output=True, text=True, check=False
        )


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PROVISION_"))}


def _run(*command: str | Path, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, env=_clean_environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of this checkout."""
    folder = tmp_path_factory.mktemp("sdist")
    _run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (archive,) = folder.iterdir()
    return archive


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the unpacked sdist and not from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        # Python 3.11 knows the filter from its fourth patch release on, which Debian 12 has not.
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(folder, **safely)  # noqa: S202 - an archive of ours
    (tree,) = folder.iterdir()
    _run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "dist", cwd=tree)
    (path,) = (folder / "dist").iterdir()
    return path


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel and its declared dependencies, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    uv = (sys.executable, "-m", "uv")
    _run(*uv, "venv", "--quiet", "--python", sys.executable, folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    _run(*uv, "pip", "install", "--quiet", "--python", python, wheel, cwd=folder)
    return Installed(bin=python.parent)
