"""What a command imports before it does anything; counted in modules, since milliseconds are the machine's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "docker",
    "importlib.metadata",
    "jinja2",
    "packaging.requirements",
    "packaging.specifiers",
    "requests",
    "rich",
    "testinfra",
    "urllib.request",
    "yaml",
}


def _imported(*arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    timed, said = [], []
    for line in done.stderr.splitlines():
        (timed if line.startswith("import time:") else said).append(line)
    assert done.returncode == 0, "\n".join(said)
    return {line.rsplit("|", 1)[-1].strip() for line in timed}


# What the interpreter itself brings, some of it by the files of an environment, is not the program's.
BARE = _imported("-c", "pass")


def test_importtime_names_modules() -> None:
    assert "json.decoder" in _imported("-c", "import json")


def test_start_of_the_program_imports_nothing_heavy() -> None:
    imported = _imported("-c", "import provision.cli.main") - BARE
    assert not imported & (HEAVY | {"provision.resolve", "tomllib"})


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--help"], id="help"),
        pytest.param(["resolve", "--cuda", "11.8", "--torch", "2.1"], id="resolve"),
        pytest.param(["image", "--cuda", "11.8", "--torch", "2.1", "--print"], id="image"),
    ],
)
def test_command_imports_nothing_heavy(words: list[str]) -> None:
    imported = _imported("-m", "provision", *words) - BARE
    assert "provision.cli.main" in imported
    assert not imported & HEAVY


def test_lines_of_a_name_and_numbers_import_nothing_heavy(tmp_path: Path) -> None:
    lines = tmp_path / "requirements.txt"
    lines.write_text("einops\ntqdm>=4.60,<5\nuvicorn[standard]==0.30.*\n", encoding="utf-8")
    words = ["image", "--torch", "2.4", "-r", str(lines), "--offline", "--print"]
    assert not (_imported("-m", "provision", *words) - BARE) & HEAVY


def test_asking_uv_imports_nothing_heavy() -> None:
    assert not (_imported("-c", "import provision.build.closure") - BARE) & HEAVY
