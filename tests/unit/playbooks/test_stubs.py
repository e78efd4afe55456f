"""The stand-ins for packages that no archive reachable in tests has."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import playbook_files
import pytest

BUILD = playbook_files.PLAYBOOKS.parent / "molecule" / "shared" / "stubs" / "build.py"

needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="dpkg-deb is not installed")

LOCK = """
provision_lock:
  profiles:
    debian12:
      driver: {packages: [{name: nvidia-driver, version: "535"}]}
      fabric: null
      cuda:
        packages: {"11.8": [{name: cuda-toolkit-11-8, version: 11.8.0-1}]}
      dcgm: {packages: [{name: datacenter-gpu-manager-4-core, version: "1:4.5.2-1"}], services: [nvidia-dcgm]}
    debian13:
      nccl: {packages: [{name: libnccl2, version: 2.18.3-1+cuda12.1}]}
      frameworks: {packages: [{name: python3-venv, version: null}]}
"""


stubs = playbook_files.load_script(BUILD)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "provision_lock.yml"
    path.write_text(LOCK, encoding="utf-8")
    return path


def test_every_pinned_package_of_a_lock_gets_a_stub_and_the_driver_none(lock: Path) -> None:
    assert stubs.collect_packages(stubs.read_lock(lock), [], stubs.SECTIONS) == [
        ("cuda-toolkit-11-8", "11.8.0-1"),
        ("datacenter-gpu-manager-4-core", "1:4.5.2-1"),
        ("libnccl2", "2.18.3-1+cuda12.1"),
    ]


def test_one_profile_alone_can_be_asked_for(lock: Path) -> None:
    found = stubs.collect_packages(stubs.read_lock(lock), ["debian13"], stubs.SECTIONS)
    assert found == [("libnccl2", "2.18.3-1+cuda12.1")]


def test_a_file_that_is_no_lock_is_named(tmp_path: Path) -> None:
    path = tmp_path / "other.yml"
    path.write_text("a: 1\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="not a node lock"):
        stubs.read_lock(path)


def test_toolkit_depends_on_its_own_version_as_upstream() -> None:
    stub = stubs.make_stub("nvidia-container-toolkit", "1.20.1-1")
    assert stub.depends == ("nvidia-container-toolkit-base (= 1.20.1-1)", "libnvidia-container-tools (= 1.20.1-1)")


@needs_dpkg
def test_packages_say_that_they_are_stubs_and_the_index_lists_them(lock: Path, tmp_path: Path) -> None:
    out = tmp_path / "repository"
    done = subprocess.run(
        [sys.executable, str(BUILD), "--lock", str(lock), "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (0 if shutil.which("gpg") else 3), done.stderr
    assert len(json.loads(done.stdout)["stubs"]) == 3
    index = (out / "Packages").read_text(encoding="utf-8")
    assert index.count("Description: STUB of ") == 3
    assert "Filename: ./datacenter-gpu-manager-4-core_4.5.2-1_amd64.deb\n" in index
    listing = subprocess.run(
        ["dpkg-deb", "--contents", str(out / "libnccl2_2.18.3-1+cuda12.1_amd64.deb")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "/usr/share/doc/libnccl2/STUB" in listing


@needs_dpkg
def test_same_lock_gives_the_same_packages(lock: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        subprocess.run(
            [sys.executable, str(BUILD), "--lock", str(lock), "--out", str(tmp_path / name)],
            capture_output=True,
            check=False,
        )
    assert (tmp_path / "a" / "Release").read_bytes() == (tmp_path / "b" / "Release").read_bytes()


@pytest.mark.parametrize(
    ("words", "counters", "said"),
    [
        ((), "DCGM_FI_DEV_GPU_TEMP, gauge\n", "malformed line: DCGM_FI_DEV_GPU_TEMP, gauge"),
        (("--web-listen=:1",), "# none\nA, gauge, b\n", "unknown word --web-listen"),
    ],
)
def test_the_exporter_refuses_what_the_real_one_does_not_know(
    tmp_path: Path, words: tuple[str, ...], counters: str, said: str
) -> None:
    stub = stubs.make_stub("datacenter-gpu-manager-exporter", "4.5.2-1")
    program, listed = tmp_path / "dcgm-exporter", tmp_path / "counters.csv"
    program.write_text(stub.programs["/usr/bin/dcgm-exporter"], encoding="utf-8")
    listed.write_text(counters, encoding="utf-8")
    done = subprocess.run(
        ["sh", str(program), "--address=127.0.0.1:9400", "-f", str(listed), *words],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert said in done.stderr
