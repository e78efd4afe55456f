"""What sources ask for to be built, read out of archives and repositories."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from provision.build.local import Local
from provision.build.sources import Sources
from provision.build.uv import Found
from provision.records import replace
from provision.resolve.requirements import LOCAL

PYPROJECT = '[build-system]\nrequires = ["wheel", "setuptools>=61"]\n'
ASKED = ("setuptools>=61", "wheel")


def found(path: Path) -> Found:
    return Found(
        name="own",
        version="1",
        file=path.name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        size=None,
        url=f"{LOCAL}{path.name}",
        uploaded=None,
        is_source=True,
        is_addressed=True,
    )


def archive(folder: Path, files: dict[str, str], name: str = "own-1.tar.gz") -> Path:
    path = folder / name
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as zipped:
            for place, text in files.items():
                zipped.writestr(f"own-1/{place}", text)
        return path
    with tarfile.open(path, "w:gz") as tarred:
        for place, text in files.items():
            info = tarfile.TarInfo(f"own-1/{place}")
            info.size = len(text.encode())
            tarred.addfile(info, io.BytesIO(text.encode()))
    return path


def requires(source: Found, path: Path | None = None) -> tuple[str, ...] | None:
    local = Local(files={path.name: path} if path is not None else {})
    return Sources(None, ca_cert=None, accounts=None, local=local).requires(source)


@pytest.mark.parametrize("name", ["own-1.tar.gz", "own-1.zip"])
def test_an_archive_is_read_where_its_root_says_it(tmp_path: Path, name: str) -> None:
    path = archive(
        tmp_path, {"pyproject.toml": PYPROJECT, "part/pyproject.toml": "[build-system]\nrequires = []\n"}, name
    )
    assert requires(found(path), path) == ASKED


def test_one_without_a_pyproject_is_built_with_setuptools(tmp_path: Path) -> None:
    path = archive(tmp_path, {"setup.py": "from setuptools import setup; setup(name='own')"})
    assert requires(found(path), path) == ("setuptools",)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        pytest.param("setup.py", "asked = ['cython', 'numpy>=1']\nsetup(setup_requires=asked)", id="script"),
        pytest.param("setup.cfg", "[options]\nsetup_requires =\n  cython  # and\n  numpy>=1\n", id="settings"),
        pytest.param("setup.cfg", "[options]\nsetup_requires = cython; numpy>=1\n", id="settings in one line"),
    ],
)
def test_what_a_script_asks_for_counts_too(tmp_path: Path, script: str, text: str) -> None:
    path = archive(tmp_path, {"pyproject.toml": PYPROJECT, script: text})
    assert requires(found(path), path) == ("cython", "numpy>=1", *ASKED)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        pytest.param("setup.py", "setup(setup_requires=asked())", id="what it runs"),
        pytest.param("setup.py", "setup_requires = ['cython']\nsetup(**asked())", id="what it hands on"),
        pytest.param("setup.py", "print 'setup_requires'", id="a script for Python 2"),
        pytest.param("setup.cfg", "[options]\nsetup_requires = file: build.txt\n", id="a list"),
        pytest.param("setup.cfg", "setup_requires = cython", id="no settings"),
    ],
)
def test_what_shows_when_a_script_runs_is_not_told(tmp_path: Path, script: str, text: str) -> None:
    path = archive(tmp_path, {"pyproject.toml": PYPROJECT, script: text})
    assert requires(found(path), path) is None


def test_a_script_beside_another_backend_asks_for_nothing(tmp_path: Path) -> None:
    pyproject = '[build-system]\nrequires = ["flit-core"]\nbuild-backend = "flit_core.buildapi"\n'
    path = archive(tmp_path, {"pyproject.toml": pyproject, "setup.py": "setup(setup_requires=['cython'])"})
    assert requires(found(path), path) == ("flit-core",)


def test_another_file_than_the_locked_one_is_not_told(tmp_path: Path) -> None:
    path = archive(tmp_path, {"pyproject.toml": PYPROJECT})
    assert requires(replace(found(path), sha256="0" * 64), path) is None
    assert requires(found(path), None) is None


def test_a_repository_is_read_at_its_commit(tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "part").mkdir(parents=True)

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
        return subprocess.run(
            ["git", *who, *words], cwd=work, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    (work / "part" / "pyproject.toml").write_text(PYPROJECT)
    git("add", ".")
    git("commit", "--quiet", "-m", "1")
    commit = git("rev-parse", "HEAD")
    (work / "part" / "pyproject.toml").write_text('[build-system]\nrequires = ["flit-core"]\n')
    git("commit", "--quiet", "-am", "2")
    url = f"git+{work.as_uri()}@{commit}"
    source = replace(found(archive(tmp_path, {"x": ""})), file=None, sha256=None, url=f"{url}#subdirectory=part")
    assert requires(source) == ASKED
    # The root of it has neither.
    assert requires(replace(source, url=url)) is None
    assert requires(replace(source, url=f"git+{work.as_uri()}@{'0' * 40}")) is None
