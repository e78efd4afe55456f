"""What the command of an install says beside its requirements."""

from __future__ import annotations

import pytest

from provision.audit.commands import command_of, is_removed, is_upgrade
from provision.audit.documents import parse_document
from provision.audit.model import Environment, Options, Source


def read(line: str) -> Environment:
    return parse_document(Source("Dockerfile", f"FROM python:3.11\nRUN {line}\n"), {}.get, Options()).environments[0]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("pip install -U torch", True),
        ("pip install -qU torch", True),
        ("pip install --upgrade torch", True),
        ("pip install --force-reinstall torch", True),
        ("pip install --ignore-installed torch", True),
        ("uv pip install --system --reinstall torch", True),
        ("python -I -m pip install torch", False),
        ("pip install torch", False),
        ("pip install -U pip && pip install torch", False),
        ("uv pip install --system -P torch torch", True),
        ("uv pip install --system -PTorch torch", True),
        ("uv pip install --system -qP torch torch", True),
        ("uv pip install --system --upgrade-package torch torch timm", True),
        ("uv pip install --system --upgrade-package='torch<2.9' torch", True),
        ("uv pip install --system --reinstall-package torch torch", True),
        ("uv pip install --system -P timm torch timm", False),
        ("uv pip install --system -PUltralytics torch ultralytics", False),
    ],
)
def test_an_upgrade_is_told_by_its_own_command(line: str, answer: bool) -> None:
    found = read(line)
    assert is_upgrade(found, found.installs[-1], "torch") is answer


def test_an_install_of_a_file_has_no_command() -> None:
    (found,) = parse_document(Source("requirements.txt", "torch\n"), {}.get, Options()).environments
    assert command_of(found, found.installs[0]) is None


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("pip uninstall -y flash_attn", True),
        ('pip uninstall -y "$UNKNOWN"', True),
        ("pip uninstall -y numpy", False),
        ("pip install flash-attn", False),
    ],
)
def test_a_package_is_removed_by_name_or_perhaps_by_a_variable(line: str, answer: bool) -> None:
    assert is_removed(read(line).commands[0], "flash-attn") is answer
