"""What the scripts that fetch facts make of the formats they read."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("pip._internal.network.lazy_wheel")
TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

import import_locked_wheels  # noqa: E402
import pip_index  # noqa: E402
import refresh_wheels  # noqa: E402

REQUIRES = """
numpy>=1.21

[:python_version < "3.10"]
importlib_metadata>=4.6

[cuda12_pip]
jaxlib==0.4.13

[a:os_name == "nt"]
x
"""


def test_requires_of_a_source_distribution_become_requires_dist() -> None:
    assert pip_index.requires_of_egg(REQUIRES) == (
        "numpy>=1.21",
        'importlib_metadata>=4.6 ; (python_version < "3.10")',
        'jaxlib==0.4.13 ; extra == "cuda12_pip"',
        'x ; (os_name == "nt") and extra == "a"',
    )


def test_metadata_is_found_in_a_source_archive() -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, text in (
            ("x-1/PKG-INFO", "Name: x"),
            ("x-1/src/x.egg-info/requires.txt", "numpy"),
            ("x-1/src/x.egg-info/PKG-INFO", "Name: wrong"),
            ("x-1/requires.txt", "wrong"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    found = pip_index._metadata_of("https://mirror.example/x-1.tar.gz", archive.getvalue())
    assert found == {"PKG-INFO": "Name: x", "requires.txt": "numpy"}


def _file(name: str) -> pip_index.IndexFile:
    return pip_index.IndexFile(file=name, url="", sha256="0" * 64, uploaded=None, requires_python=None, is_yanked=False)


def test_a_source_distribution_counts_only_without_wheels(tmp_path: Path) -> None:
    class Index:
        def read_project(self, name: str) -> tuple[pip_index.IndexFile, ...]:
            assert name == "x"
            names = ("x-2.tar.gz", "x-2-py3-none-any.whl", "x-1.tar.gz", "x-1-py3-none-win_amd64.whl", "x-1.exe")
            return tuple(_file(name) for name in names)

    def pages(folder: Path) -> dict[str, list[str]]:
        read = refresh_wheels.Pages(Index(), folder).read("x")  # type: ignore[arg-type]
        return {version: [row.file for row in rows] for version, rows in read.items()}

    expected = {"2": ["x-2-py3-none-any.whl"], "1": ["x-1.tar.gz"]}
    assert pages(tmp_path) == expected
    assert pages(tmp_path) == expected, "the second reading comes from the cache"


LOCK = """
[[package]]
name = "torch"
version = "2.9.0+cu129"
dependencies = [{{ name = "nvidia-cudnn-cu12" }}, {{ name = "nvidia-nccl-cu12" }}]

[[package.wheels]]
url = "https://mirror.example/torch-2.9.0%2Bcu129-cp310-cp310-manylinux_2_28_x86_64.whl"
hash = "sha256:{digest}"

[[package]]
name = "nvidia-cudnn-cu12"
version = "{cudnn}"

[[package]]
name = "nvidia-nccl-cu12"
version = "2.27.5"

[manifest]
overrides = [{forced}]
"""


def test_a_version_that_a_project_forces_is_no_pin_of_torch() -> None:
    findings = import_locked_wheels.Findings()
    forced = LOCK.format(
        digest="a" * 64, cudnn="9.19.0.56", forced='{ name = "nvidia-cudnn-cu12", specifier = ">=9.15" }'
    )
    import_locked_wheels.collect("a/forces", forced, findings)
    key = ("torch", "2.9.0+cu129")
    assert {name: bound for name, bound, _, _ in findings.pins[key]} == {
        "nvidia-cudnn-cu12": "",
        "nvidia-nccl-cu12": "==2.27.5",
    }
    import_locked_wheels.collect("b/free", LOCK.format(digest="a" * 64, cudnn="9.10.2.21", forced=""), findings)
    assert {name: bound for name, bound, _, _ in findings.pins[key]} == {
        "nvidia-cudnn-cu12": "==9.10.2.21",
        "nvidia-nccl-cu12": "==2.27.5",
    }
