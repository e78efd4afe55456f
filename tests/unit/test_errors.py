"""What errors tell people to do."""

from __future__ import annotations

import importlib.metadata
import shlex
import sys
from pathlib import Path

import pytest

from provision import errors
from provision.errors import install_command


def words_of(text: str) -> list[str]:
    assert text.startswith("`")
    assert text.endswith("`")
    return shlex.split(text.strip("`"))


def test_an_extra_is_installed_into_the_python_that_runs_this():
    assert words_of(install_command("oci")) == [sys.executable, "-m", "pip", "install", "gpu-provision[oci]"]
    # zsh takes brackets outside of quotes for a pattern.
    assert "'gpu-provision[oci]'" in install_command("oci")


def test_without_pip_it_is_uvs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert words_of(install_command("oci"))[:5] == ["uv", "pip", "install", "--python", sys.executable]


def test_a_checkout_that_nobody_installed_is_named_itself(monkeypatch: pytest.MonkeyPatch):
    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", absent)
    wanted = words_of(install_command("refresh"))[-1]
    assert wanted == f"{Path(errors.__file__).resolve().parents[1]}[refresh]"
    assert words_of(install_command())[-1] == wanted.removesuffix("[refresh]")


def test_every_extra_that_is_named_exists():
    root = Path(errors.__file__).resolve().parents[1]
    text = (root / "pyproject.toml").read_text()
    named = {
        part.partition('"')[0].partition("'")[0]
        for path in sorted((root / "provision").rglob("*.py"))
        for part in path.read_text().replace("install_command('", 'install_command("').split('install_command("')[1:]
    }
    assert named >= {"ansible", "docker", "oci", "refresh", "verify"}
    assert [name for name in named if f"\n{name} = [" not in text] == []
