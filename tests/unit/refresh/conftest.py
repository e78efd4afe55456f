"""What every test of the refresh may ask for."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from upstream import Upstream

from provision.assets import asset_dir
from provision.refresh.client import Client
from provision.refresh.land import Claim, land


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    yield server
    server.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    found = Client(cache=tmp_path / "cache", timeout_seconds=5, attempts=3, backoff_seconds=0)
    yield found
    found.close()


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    """A copy of the shipped facts, to be changed."""
    return Path(shutil.copytree(asset_dir("compat"), tmp_path / "facts", ignore=shutil.ignore_patterns("schema")))


@pytest.fixture
def write() -> Callable[[Path, Mapping[str, str]], tuple[str, ...]]:
    """Write new facts as the command does."""

    def write(folder: Path, texts: Mapping[str, str]) -> tuple[str, ...]:
        with Claim(folder) as claim:
            return land(claim, texts)

    return write
