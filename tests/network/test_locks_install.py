"""The locks against the real index: every wheel of a lock is there, for that Python and platform, under that hash.

Nothing is downloaded but metadata. Skipped, with the reason, where the index pip is configured for does not answer.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from provision.matrix.load import Matrix
from provision.resolve.request import parse_request
from provision.resolve.solve import solve

pytestmark = pytest.mark.network

CASES = [
    pytest.param({"torch": "2.1", "cuda": "12.1", "python": "3.11"}, id="torch-2.1-cu121"),
    pytest.param({"torch": "2.15", "python": "3.11"}, id="torch-2.15-cu132"),
    pytest.param({"torch": "2.15", "platform": "linux/arm64"}, id="torch-2.15-arm64"),
    pytest.param({"tensorflow": "2.21"}, id="tensorflow-and-cuda"),
    pytest.param({"tensorflow": "2.15.1"}, id="tensorflow-2.15-and-cuda"),
    pytest.param({"jax": "0.4.38", "cuda": "12"}, id="jax-cuda12"),
    pytest.param({"jax": "0.10", "cuda": "13"}, id="jax-cuda13"),
]


@pytest.fixture(scope="module")
def uv():
    program = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if program is None:
        pytest.skip("uv is not installed")
    return program


def hashes_of(uv, arguments, requirements):
    """Let uv look up the pins of a file and print every hash the index has of them."""
    words = [uv, "pip", "compile", "--quiet", "--no-deps", "--no-header", "--only-binary", ":all:", "--generate-hashes"]
    return subprocess.run(
        [*words, "--python", sys.executable, *arguments, requirements],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=requirements.parent,
    )


@pytest.fixture(scope="module", autouse=True)
def index(uv, tmp_path_factory):
    file = tmp_path_factory.mktemp("probe") / "requirements.txt"
    file.write_text("packaging\n")
    probe = hashes_of(uv, [], file)
    if probe.returncode:
        pytest.skip(f"the package index does not answer: {probe.stderr.strip().splitlines()[-1:]}")


@pytest.mark.parametrize("values", CASES)
def test_index_has_every_wheel_of_the_lock(uv, tmp_path, values):
    stack = solve(parse_request(values), Matrix())
    assert all(package.sha256 for package in stack.image.packages)
    file = tmp_path / "requirements.txt"
    file.write_text("".join(f"{package.name}=={package.version}\n" for package in stack.image.packages))
    machine = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}[stack.platform]
    place = ["--python-version", stack.python, "--python-platform", f"{machine}-manylinux_2_35"]
    done = hashes_of(uv, place, file)
    assert done.returncode == 0, done.stderr
    missing = [package.file for package in stack.image.packages if f"sha256:{package.sha256}" not in done.stdout]
    assert not missing
