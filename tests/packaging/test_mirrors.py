"""A package index or distribution mirror is the user's choice: no file of the tree names a public one.

Installers read theirs from their own settings. The names are put together here so that this file passes too.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HOSTS = tuple(
    ".".join(parts).encode()
    for parts in (
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("deb", "debian", "org"),
        ("security", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("ports", "ubuntu", "com"),
        ("registry", "npmjs", "org"),
    )
)
TOPS = (".ci", ".github", "compat", "docs", "images", "molecule", "playbooks", "provision", "tests", "tools")


def _files(top: Path) -> list[Path]:
    return [
        Path(folder, name) for folder, _, names in os.walk(top) if not folder.endswith("__pycache__") for name in names
    ]


@pytest.mark.parametrize("top", [".", *TOPS])
def test_no_file_names_a_public_mirror(top: str) -> None:
    files = [path for path in ROOT.iterdir() if path.is_file()] if top == "." else _files(ROOT / top)
    assert files
    found = {
        (str(path.relative_to(ROOT)), host.decode())
        for path in files
        for text in [path.read_bytes()]
        for host in HOSTS
        if host in text
    }
    assert not found
