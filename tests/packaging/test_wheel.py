"""What is shipped is whole, and works anywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import provision

if TYPE_CHECKING:
    from tests.packaging.conftest import Installed

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = {
    "compat": "provision/_assets/compat",
    "images": "provision/_assets/images",
    "playbooks": "provision/_assets/playbooks",
    "provision": "provision",
}


def _tree(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }


@pytest.mark.parametrize("top", SHIPPED)
def test_wheel_carries_every_file_of_a_shipped_tree(wheel: Path, top: str) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")}
    prefix = SHIPPED[top] + "/"
    carried = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
    if top == "provision":
        carried = {name for name in carried if not name.startswith("_assets/")}
    assert carried == _tree(ROOT / top)


def test_wheel_carries_nothing_else(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert tops == {"provision", f"gpu_provision-{provision.__version__}.dist-info"}


def test_sdist_carries_what_the_checks_need(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert {
        *(".ansible-lint", ".config", "LICENSE", "Makefile", "compat", "images", "molecule", "playbooks", "provision"),
        *("pyproject.toml", "tests", "tools"),
    } <= tops


def test_installed_program_tells_its_version(installed: Installed) -> None:
    done = installed.run("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"provision {provision.__version__}")


def test_installed_module_runs_as_the_command_does(installed: Installed) -> None:
    done = installed.run("-m", "provision", "--version", command="python")
    assert (done.returncode, done.stdout) == (0, installed.run("--version").stdout)


def test_installed_program_finds_its_facts_sound(installed: Installed) -> None:
    done = installed.run("data", "check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_installed_program_resolves_from_its_own_facts(installed: Installed) -> None:
    done = installed.run("resolve", "--cuda", "11.8", "--torch", "2.1", "--json")
    assert done.returncode == 0, done.stderr
    stack = json.loads(done.stdout)["result"]["stack"]
    assert (stack["cuda"], stack["variant"], stack["frameworks"]) == ("11.8", "cu118", {"torch": "2.1.2"})


def test_installed_program_writes_the_context_of_an_image(installed: Installed, tmp_path: Path) -> None:
    context = tmp_path / "context"
    done = installed.run("image", "--cuda", "11.8", "--torch", "2.1", "-o", str(context))
    assert done.returncode == 0, done.stderr
    assert {"Dockerfile", "provision.lock", "verify.py", "entrypoint.sh", ".dockerignore"} <= _names(context)


def test_installed_playbooks_are_complete_for_ansible(installed: Installed, tmp_path: Path) -> None:
    code = "from provision.assets import asset_dir; print(asset_dir('playbooks'))"
    playbooks = Path(installed.run("-c", code, command="python").stdout.strip())
    assert playbooks.is_relative_to(installed.bin.parent)
    program = Path(sys.executable).with_name("ansible-playbook")
    if not program.exists():
        pytest.skip("ansible-core is not installed")
    plays = sorted(playbooks.glob("gpu-node*.yml"))
    assert plays
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
    done = subprocess.run(
        [program, "--syntax-check", "-i", playbooks / "inventory" / "single", *plays],
        cwd="/",
        env={**clean, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
