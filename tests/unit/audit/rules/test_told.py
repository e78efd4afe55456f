"""How grave a finding is about the driver and the GPU that a person named."""

from __future__ import annotations

import pytest

from provision.audit.engine import audit
from provision.audit.model import Options, Source
from provision.matrix.load import Matrix

MATRIX = Matrix()
OLD = Options(driver="535.104.05")
H100 = Options(gpus=("h100",))


def severities(text: str, options: Options, rule: str, name: str = "requirements.txt") -> list[str]:
    report = audit([Source(name, text)], lambda _: None, MATRIX, options)
    return [finding.severity for finding in report.findings if finding.rule == rule]


@pytest.mark.parametrize(
    ("text", "options", "rule", "severity"),
    [
        ("torch==2.11.0\n", OLD, "D01", "error"),
        ("torch>=2.5\n", OLD, "D01", "warn"),
        ("torch==1.13.1\n", H100, "G01", "error"),
        ("torch<2\n", H100, "G01", "error"),
    ],
)
def test_only_what_is_proved_for_all_that_may_be_installed_is_an_error(
    text: str, options: Options, rule: str, severity: str
) -> None:
    assert severities(text, options, rule) == [severity]


PROJECT = """[project]
name = "x"
requires-python = "{python}"
dependencies = ["torch{torch}"]
"""


@pytest.mark.parametrize(
    ("python", "torch", "count"),
    [
        (">=3.13", "==2.1.0", 1),
        (">=3.12,<3.15", "==2.1.0", 1),
        (">=3.11", "==2.1.0", 0),
        (">=3.8", "==2.1.0", 0),
        ("", "==2.1.0", 0),
        ("nonsense", "==2.1.0", 0),
        (">=3.13", ">=2.1", 0),
        (">=3.13", "==99.9.9", 0),
    ],
)
def test_a_project_whose_pythons_have_no_build_is_told(python: str, torch: str, count: int) -> None:
    text = PROJECT.format(python=python, torch=torch)
    assert severities(text, Options(), "C02", "pyproject.toml") == ["error"] * count


def test_the_python_that_is_named_goes_before_the_range_of_the_project() -> None:
    text = PROJECT.format(python=">=3.13", torch="==2.1.0")
    assert severities(text, Options(python="3.11"), "C02", "pyproject.toml") == []


def test_poetry_says_its_pythons_in_its_own_way() -> None:
    text = '[tool.poetry.dependencies]\npython = "^3.13"\ntorch = "2.1.0"\n'
    assert severities(text, Options(), "C02", "pyproject.toml") == ["error"]


@pytest.mark.parametrize("before", ["", "sudo ", "sudo -E "])
def test_a_moved_archive_is_told_of_the_program_that_asks_it(before: str) -> None:
    source = Source("Dockerfile", f"FROM ubuntu:23.10\nRUN {before}apt-get update\n")
    report = audit([source], lambda _: None, MATRIX, Options())
    told = [finding.message for finding in report.findings if finding.rule == "B15"]
    assert told == ["apt-get finds no archive for ubuntu:23.10"]
