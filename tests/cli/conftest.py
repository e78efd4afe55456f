"""The program, called in this process for speed and as a process of its own where that is the point."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from provision.cli.main import main
from provision.matrix.load import Matrix
from provision.resolve.halves import is_open
from provision.resolve.request import parse_request
from provision.resolve.solve import solve

_SPEC = importlib.util.spec_from_file_location(
    "package_index", Path(__file__).parents[1] / "unit" / "build" / "package_index.py"
)
package_index = importlib.util.module_from_spec(_SPEC)
sys.modules.setdefault("package_index", package_index)
_SPEC.loader.exec_module(package_index)

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Answer:
    """What one call gave back."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on the standard output."""
        return json.loads(self.out)


@pytest.fixture
def provision(
    forgetful: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    for name in ("FORCE_COLOR", "NO_COLOR", "PROVISION_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    # What a line needs is asked of an index; a test that means to says so itself.
    monkeypatch.setenv("UV_OFFLINE", "1")

    def call(*words: object) -> Answer:
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Answer(code, captured.out, captured.err)

    return call


@pytest.fixture
def command() -> list[str]:
    """The words that start the program as a process."""
    return [sys.executable, "-m", "provision"]


@pytest.fixture
def environment() -> dict[str, str]:
    """The variables of such a process, so that it can be started in any folder and meets none of this shell's."""
    others = ("FORCE_COLOR", "NO_COLOR", "PROVISION_DEBUG", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if name not in others}
    return {**kept, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def program(command: list[str], environment: dict[str, str], tmp_path: Path) -> Callable[..., Answer]:
    def call(*words: object, stdin: str = "", **variables: str) -> Answer:
        done = subprocess.run(
            [*command, *map(str, words)],
            cwd=tmp_path,
            input=stdin,
            env={**environment, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def index(provision, tmp_path, monkeypatch):
    """An index that has what a stack of PyTorch needs beside the facts, and a folder to stand in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    for name in ("UV_OFFLINE", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    with package_index.serve() as served:
        for version in ("2.4.1", "2.3.1"):
            for package in solve(parse_request({"torch": version}), Matrix()).image.packages:
                if is_open(package.name):
                    served.add(package.name, package.version)
            served.add("torch", version)
        yield served


@pytest.fixture
def image(provision, index):
    """The command, told of the index."""
    return lambda *words: provision("image", *words, "--index-url", index.url)


@pytest.fixture
def serve_index():
    """A further index on loopback, empty yet."""
    with package_index.serve() as served:
        yield served
