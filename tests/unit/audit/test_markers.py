"""Environment markers for Linux and a Python that is known."""

from __future__ import annotations

import pytest

from provision.audit.markers import holds

AMD64, ARM64 = ("linux/amd64",), ("linux/arm64",)


@pytest.mark.parametrize(
    ("marker", "python", "platforms", "answer"),
    [
        ("python_version < '3.12'", "3.11", (), True),
        ("python_version < '3.12'", "3.12", (), False),
        ("python_version < '3.12'", None, (), None),
        ("python_full_version >= '3.13'", "3.13t", (), True),
        ("sys_platform == 'darwin'", None, (), False),
        ("platform_machine == 'x86_64'", None, (), None),
        ("platform_machine == 'x86_64'", None, AMD64, True),
        ("platform_machine == 'x86_64'", None, ARM64, False),
        ("not a marker", "3.11", (), None),
    ],
)
def test_a_marker_holds_where_that_is_sure(
    marker: str, python: str | None, platforms: tuple[str, ...], answer: object
) -> None:
    assert holds(marker, python, platforms) is answer
