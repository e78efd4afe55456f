"""The contracts of the floors bite: each breach here must be refused by name."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINTER = Path(sys.executable).parent / "lint-imports"


def _lint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINTER, "--no-cache", "--config", folder / "pyproject.toml"],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "provision", tmp_path / "provision", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize(
    ("module", "line", "breach"),
    [
        pytest.param("matrix/query.py", "import provision.resolve.stack", "provision.matrix", id="upward"),
        pytest.param("errors.py", "import provision.versions", "provision.errors", id="ground-floor"),
        pytest.param("resolve/stack.py", "import jinja2", "jinja2", id="text-engine-in-resolve"),
        pytest.param("matrix/load.py", "import subprocess", "subprocess", id="process-in-matrix"),
        pytest.param("generate/__init__.py", "import docker", "docker", id="container-engine-in-generate"),
        pytest.param("audit/wrappers.py", "import provision.audit.shell", "in no circle BROKEN", id="circle-in-audit"),
        pytest.param("stray.py", "import provision.errors", "stray", id="module-on-no-floor"),
    ],
)
def test_breach_is_refused(copy: Path, module: str, line: str, breach: str) -> None:
    with (copy / "provision" / module).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    done = _lint(copy)
    assert done.returncode != 0
    assert breach in done.stdout


def test_tree_as_it_is_keeps_every_contract(copy: Path) -> None:
    done = _lint(copy)
    assert done.returncode == 0, done.stdout
