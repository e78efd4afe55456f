"""Reducing Requires-Dist to what can still matter on Linux CPython."""

from __future__ import annotations

import pytest

from provision.refresh.requires import extras_of, reduce_requires


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("filelock", ["filelock", "", "", ""]),
        ("Typing_Extensions (>=4.8.0)", ["typing-extensions", ">=4.8.0", "", ""]),
        ('x==1; sys_platform == "linux" or platform_machine == "AMD64"', ["x", "==1", "", ""]),
        (
            'x==1; platform_system == "Linux" and platform_machine == "x86_64"',
            ["x", "==1", 'platform_machine == "x86_64"', ""],
        ),
        (
            'x==1; platform_machine != "aarch64" and python_version < "3.12"',
            ["x", "==1", 'python_version < "3.12" and platform_machine == "x86_64"', ""],
        ),
        ('x; python_version < "3.11" or implementation_name == "pypy"', ["x", "", 'python_version < "3.11"', ""]),
        ('x; python_version >= "3.6"', ["x", "", "", ""]),
        (
            "cuda-toolkit[CuFFT,cublas]==13.2.2; sys_platform == 'linux'",
            ["cuda-toolkit[cublas,cufft]", "==13.2.2", "", ""],
        ),
    ],
)
def test_what_linux_decides_is_decided(line: str, row: list[str]) -> None:
    assert reduce_requires([line], (), None) == [row]


@pytest.mark.parametrize(
    "line",
    [
        'x; sys_platform == "win32"',
        'x; platform_system == "Darwin" and python_version < "3.9"',
        'x; implementation_name == "pypy"',
        'x; python_version < "3.4"',
        'x; extra == "test"',
    ],
)
def test_what_never_applies_is_dropped(line: str) -> None:
    assert reduce_requires([line], ("cuda12",), None) == []


def test_the_releases_own_bound_decides_markers() -> None:
    line = 'numpy>=1.22; python_version < "3.11"'
    assert reduce_requires([line], (), ">=3.11") == []
    assert reduce_requires([line], (), "<3.11") == [["numpy", ">=1.22", "", ""]]


def test_an_extra_is_kept_under_its_normalised_name() -> None:
    lines = ['a==1; extra == "cuda12_pip"', 'b==2; extra == "cuda12-pip" and python_version < "3.12"', "c"]
    assert reduce_requires(lines, ("cuda12-pip",), None) == [
        ["a", "==1", "", "cuda12-pip"],
        ["b", "==2", 'python_version < "3.12"', "cuda12-pip"],
        ["c", "", "", ""],
    ]
    assert extras_of(lines) == {"cuda12-pip"}


def test_or_inside_and_keeps_its_brackets() -> None:
    line = 'x; (python_version < "3.8" or python_version > "3.11") and platform_machine == "x86_64"'
    (row,) = reduce_requires([line], (), None)
    assert row[2] == '(python_version < "3.8" or python_version > "3.11") and platform_machine == "x86_64"'
