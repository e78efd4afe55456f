"""`provision image --install-project`: what makes the wheel of a project is locked, as what is in the image is."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest

from provision.cli.image.lock import compare, is_same
from provision.records import replace
from provision.resolve.stack import Stack

PYPROJECT = """
[project]
name = "app"
version = "1"
dependencies = ["torch==2.4.1"]
[build-system]
requires = REQUIRES
"""
LATER = "2099-01-01T00:00:00Z"
WORDS = ("--project", "app", "--install-project", "-o", "ctx")


@pytest.fixture
def write(index):
    """Write a project whose build asks for lines; the index has two releases of setuptools and one yet to come."""
    index.add("setuptools", "70.0")
    index.add("setuptools", "75.0", "tool-of-setuptools")
    index.add("tool-of-setuptools", "1.0")
    index.add("setuptools", "76.0", day=LATER)
    index.add("wheel", "0.45")

    def write(*requires: str) -> None:
        Path("app").mkdir(exist_ok=True)
        Path("app", "pyproject.toml").write_text(PYPROJECT.replace("REQUIRES", json.dumps(requires)))

    return write


def backend() -> dict[str, str]:
    lock = json.loads(Path("ctx", "provision.lock").read_text())["image"]["project_build"]
    return {package["name"]: package["version"] for package in lock["packages"]}


def test_what_builds_a_project_is_locked_with_all_that_it_needs_and_the_stage_looks_for_nothing(image, index, write):
    write("setuptools>=61")
    answer = image(*WORDS)
    assert answer.code == 0, answer.err
    # Not the release that is newer than the day of the facts, and what the backend asks for when it is run.
    assert backend() == {"setuptools": "75.0", "tool-of-setuptools": "1.0", "wheel": "0.45"}
    lines = Path("ctx", "requirements.backend.txt").read_text().splitlines()
    digest = hashlib.sha256(index.files["setuptools"]["setuptools-75.0-py3-none-any.whl"][0]).hexdigest()
    assert f"setuptools==75.0 --hash=sha256:{digest}" in lines
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}$", line) for line in lines if not line.startswith("#"))
    text = Path("ctx", "Dockerfile").read_text()
    stage, runtime = text.partition(" AS project\n")[2].split("\nFROM ", 1)
    assert "--require-hashes --only-binary :all:" in stage
    assert stage.index("requirements.backend.txt") < stage.index("COPY") < stage.index("pip wheel")
    assert "--no-index --no-build-isolation" in stage
    assert "build-constraints.txt" not in text
    assert not Path("ctx", "build-constraints.txt").exists()
    assert "/projects/.venv" not in runtime
    assert "requirements.backend.txt" in Path("ctx", ".dockerignore").read_text()
    # No part of the image.
    assert "tool-of-setuptools" not in Path("ctx", "requirements.lock.txt").read_text()
    assert "tool-of-setuptools" not in Path("ctx", "expect.json").read_text()


def test_what_setup_py_asks_for_is_locked_with_it(image, index):
    for name, version in (("setuptools", "75.0"), ("wheel", "0.45"), ("cython", "3.0"), ("torch", "2.4.1")):
        index.add(name, version)
    Path("app").mkdir()
    script = "setup(name='app', install_requires=['torch==2.4.1'], setup_requires=['cython>=3', 'torch'])"
    Path("app", "setup.py").write_text(f"from setuptools import setup\n{script}\n")
    answer = image(*WORDS)
    assert answer.code == 0, answer.err
    assert backend() == {"cython": "3.0", "setuptools": "75.0", "torch": "2.4.1", "wheel": "0.45"}
    assert "setup_requires" not in answer.err
    assert image(*WORDS, "--check").code == 0


def test_what_only_running_setup_py_would_tell_is_named(image, write):
    write("setuptools>=61")
    script = "from setuptools import setup\nsetup(name='app', setup_requires=['wheel', *asked()])\n"
    Path("app", "setup.py").write_text(script)
    answer = image(*WORDS)
    assert answer.code == 0, answer.err
    assert "app/setup.py, line 2: what `setup_requires` holds shows only when the script runs" in answer.err
    assert "wheel" in backend()


def test_what_setup_py_asks_for_and_nothing_can_hold_is_refused_by_its_place(image, write):
    write("setuptools>=61")
    Path("app", "setup.py").write_text("from setuptools import setup\nsetup(setup_requires=['../tool'])\n")
    answer = image(*WORDS)
    assert answer.code == 2
    assert "app/setup.py, line 2 (setup_requires)" in answer.err
    assert not Path("ctx").exists()


def test_a_lock_keeps_it_and_an_upgrade_renews_it_and_says_so(image, index, write):
    write("setuptools>=61")
    assert image(*WORDS).code == 0
    text = Path("ctx", "provision.lock").read_text()
    index.add("setuptools", "75.1")
    assert image("--locked", "-o", "ctx").code == 0
    assert image(*WORDS, "--check").code == 8
    # What is named alone may change, whatever is in the folder of the project by now.
    write("flit-core")
    index.add("wheel", "0.46")
    answer = image("--upgrade", "wheel", "-o", "ctx")
    assert answer.code == 0, answer.err
    assert "wheel, which builds the project 0.45 -> 0.46" in answer.err.replace("→", "->").replace(":", "")
    assert backend() == {"setuptools": "75.0", "tool-of-setuptools": "1.0", "wheel": "0.46"}
    assert image("--locked", "-o", "ctx").code == 0
    # The lock knows what is asked for: the copy of the code may be kept elsewhere.
    shutil.rmtree("ctx/code")
    answer = image("--upgrade", "-o", "ctx")
    assert answer.code == 0, answer.err
    assert backend() == {"setuptools": "75.1", "wheel": "0.46"}
    assert Path("ctx", "provision.lock").read_text() != text
    assert "the lock is as new as the facts" in image("--upgrade", "-o", "ctx").err


def test_a_lock_that_was_solved_again_is_the_same_whatever_builds_the_project(image, write):
    write("setuptools>=61")
    assert image(*WORDS).code == 0
    stack = Stack.from_lock(Path("ctx", "provision.lock").read_text())
    bare = replace(stack, image=replace(stack.image, project_build=None))
    assert is_same(stack, bare)
    assert compare(stack, bare)
    assert not is_same(stack, replace(bare, python="3.12"))


def test_a_lock_of_before_takes_what_the_copy_of_the_project_asks_for(image, write, monkeypatch):
    write("setuptools>=61")
    with monkeypatch.context() as without:
        without.setenv("UV_OFFLINE", "1")
        assert image(*WORDS).code == 0
    assert "project_build" not in Path("ctx", "provision.lock").read_text()
    assert image("--upgrade", "-o", "ctx").code == 0
    assert backend()["setuptools"] == "75.0"


def test_a_project_that_asks_for_something_else_is_drift(image, write):
    write("setuptools>=61")
    assert image(*WORDS).code == 0
    assert image(*WORDS, "--check").code == 0
    write("setuptools<75")
    assert image(*WORDS, "--check").code == 8
    assert image(*WORDS).code == 0
    assert backend() == {"setuptools": "70.0", "wheel": "0.45"}


def test_what_is_built_against_the_image_takes_the_versions_of_the_image(image, index, write):
    index.add("torch", "2.5.0")
    index.add("numpy", "99.0", day=LATER)
    write("setuptools", "torch", "numpy")
    assert image(*WORDS).code == 0
    assert backend()["torch"] == "2.4.1"
    packages = json.loads(Path("ctx", "provision.lock").read_text())["image"]["packages"]
    write("torch>=2.5")
    answer = image(*WORDS)
    assert answer.code == 3
    assert "torch==2.4.1" in answer.err
    assert backend()["numpy"] == next(item["version"] for item in packages if item["name"] == "numpy")


def test_bounds_for_sources_of_old_give_way_to_a_project(image, index, write):
    write("setuptools>=80")
    index.add("setuptools", "80.0")
    assert image(*WORDS).code == 0
    assert backend()["setuptools"] == "80.0"
    write("setuptools>=83")
    assert image(*WORDS).code == 0
    packages = json.loads(Path("ctx", "provision.lock").read_text())["image"]["packages"]
    assert backend()["setuptools"] == next(item["version"] for item in packages if item["name"] == "setuptools")


def test_a_backend_that_is_source_alone_is_told(image, index, write):
    index.add_source("own-backend", "1.0")
    write("own-backend")
    answer = image(*WORDS)
    assert answer.code == 0, answer.err
    assert "own-backend builds the project and has no wheel" in answer.err
    text = Path("ctx", "Dockerfile").read_text()
    assert "--no-binary own-backend" in text
    assert "--build-constraints /build/build-constraints.txt" in text
    assert Path("ctx", "build-constraints.txt").exists()


def test_what_no_index_has_is_refused_and_nothing_is_written(image, write):
    write("setuptools", "nobodys-backend")
    answer = image(*WORDS)
    assert answer.code == 4
    assert "what builds the project cannot be installed on Python" in answer.err
    assert "nobodys-backend" in answer.err
    assert not Path("ctx").exists()


def test_what_is_too_new_is_shown_the_way_that_works(image, write):
    write("setuptools==76.0")
    answer = image(*WORDS)
    assert answer.code == 3
    assert "`--exclude-newer now` works" in answer.err
    assert image(*WORDS, "--exclude-newer", "now").code == 0
    assert backend()["setuptools"] == "76.0"
    write("setuptools==77.0")
    answer = image(*WORDS)
    assert answer.code == 3
    assert "--exclude-newer now" not in answer.err


def test_apptainer_takes_it_too_and_keeps_nothing_of_it(image, write):
    write("setuptools>=61")
    assert image(*WORDS, "--format", "apptainer").code == 0
    text = Path("ctx", "provision.def").read_text()
    assert "-r /build/requirements.backend.txt" in text
    assert "/projects" in text.rpartition("rm -rf")[2].splitlines()[0]


COPIED = ("--project", "app", "--copy", "app", "-o", "ctx")


def test_a_package_that_is_copied_is_installed_too_unless_told_otherwise(image, write):
    write("setuptools>=61")
    answer = image(*COPIED)
    assert answer.code == 0, answer.err
    assert "app is a package and is installed too; `--no-install-project` leaves that out" in answer.err
    assert "setuptools" in backend()
    text = Path("ctx", "Dockerfile").read_text()
    # One copy of the code serves both.
    assert "--wheel-dir /wheels /projects/app" in text
    assert text.rindex("/wheels/*.whl") < text.rindex("code/app/ /workspace/app/")
    assert [path.name for path in Path("ctx", "code").iterdir()] == ["app"]
    assert image(*COPIED, "--check").code == 0
    assert image("--locked", "-o", "ctx").code == 0
    assert image("--upgrade", "-o", "ctx").code == 0
    assert image(*COPIED, "--install-project").code == 0
    assert Path("ctx", "Dockerfile").read_text() == text
    answer = image(*COPIED, "--no-install-project")
    assert "installed too" not in answer.err
    text = Path("ctx", "Dockerfile").read_text()
    assert ("AS project" in text, "code/app/ /workspace/app/" in text) == (False, True)
    assert image(*COPIED, "--no-install-project", "--check").code == 0
    assert image("--upgrade", "-o", "ctx").code == 0
    assert "AS project" not in Path("ctx", "Dockerfile").read_text()


@pytest.mark.parametrize("copied", [(), ("--copy", "other")])
def test_a_package_that_is_not_copied_is_not_installed(image, write, copied):
    write("setuptools>=61")
    Path("other").mkdir()
    Path("other", "run.py").touch()
    answer = image("--project", "app", *copied, "-o", "ctx")
    assert answer.code == 0, answer.err
    assert "AS project" not in Path("ctx", "Dockerfile").read_text()


@pytest.mark.parametrize("table", ["[tool.uv]\npackage = false", "[tool.poetry]\npackage-mode = false"])
def test_what_says_that_it_is_no_package_is_only_copied(image, write, table):
    write("setuptools>=61")
    path = Path("app", "pyproject.toml")
    path.write_text(f"{path.read_text()}\n{table}\n")
    answer = image(*COPIED)
    assert answer.code == 0, answer.err
    assert "installed" not in answer.err
    assert "AS project" not in Path("ctx", "Dockerfile").read_text()


def test_a_table_of_setuptools_makes_a_package_without_a_build_system(image, write):
    write()
    path = Path("app", "pyproject.toml")
    text = path.read_text().partition("[build-system]")[0]
    path.write_text(text)
    assert "installed too" not in image(*COPIED).err
    path.write_text(f'{text}\n[tool.setuptools.packages.find]\nwhere = ["src"]\n')
    assert "installed too" in image(*COPIED).err
    assert "setuptools" in backend()


@pytest.mark.parametrize(
    ("requires", "script", "said"),
    [
        (("setuptools", "setuptools_scm>=8"), "", "its version comes from tags of git (setuptools-scm)"),
        (("setuptools",), "import torch", "its setup.py imports torch"),
        (("setuptools",), "from numpy.distutils import core", "its setup.py imports numpy"),
        (("setuptools",), "import versioneer", "its version comes from tags of git (versioneer)"),
        (("setuptools", "versioneer[toml]"), "", "its version comes from tags of git (versioneer)"),
        (
            ("setuptools", "torch"),
            "from torch.utils.cpp_extension import CUDAExtension\nsetup(ext_modules=[CUDAExtension('x', ['x.cpp'])])",
            "its setup.py compiles code for torch or CUDA (CUDAExtension), and the stage that builds it has no nvcc",
        ),
        (
            ("setuptools", "torch"),
            "from torch.utils import cpp_extension\nsetup(ext_modules=[cpp_extension.CppExtension('x', ['x.cpp'])])",
            "its setup.py compiles code for torch or CUDA (CppExtension)",
        ),
        (
            ("setuptools",),
            "setup(ext_modules=[Extension('x', ['src/x.cu'])])",
            "its setup.py compiles code for torch or CUDA (`src/x.cu`)",
        ),
        (("setuptools",), "setup(setup_requires=[*asked()])", "what app/setup.py, line 1"),
        (("set up",), "", "app/pyproject.toml ([build-system] requires)"),
    ],
)
def test_what_would_fail_or_be_left_open_is_copied_and_not_installed(image, write, requires, script, said):
    write(*requires)
    Path("app", "setup.py").write_text(f"{script}\n")
    answer = image(*COPIED)
    assert answer.code == 0, answer.err
    assert f"warning: app is copied, and not installed as the package that it is: {said}" in answer.err
    assert "AS project" not in Path("ctx", "Dockerfile").read_text()


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (("data/a.py", "models/a.py", "tests/a.py"), "several top-level packages (data, models)"),
        (("own/a.py", "assets/a.txt"), "several top-level packages (assets, own)"),
        (("train.py", "model.py", "conftest.py"), "several top-level modules (model, train)"),
        (("own/a.py", "train.py", "model.py", "tests/a.py", "_old/a.py", "my-data/a.py"), ""),
        (("src/own/a.py", "data/a.py", "models/a.py"), ""),
    ],
)
def test_a_layout_that_setuptools_refuses_is_copied_and_not_installed(image, write, files, said):
    write("setuptools")
    for path in (Path("app", file) for file in files):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    answer = image(*COPIED)
    assert answer.code == 0, answer.err
    assert ("installed too" in answer.err) is not bool(said)
    if said:
        assert f"not installed as the package that it is: setuptools refuses {said}" in answer.err


@pytest.mark.parametrize(
    ("name", "text", "is_told"),
    [
        ("pyproject.toml", "[tool.setuptools]\npackages = ['data']\n", True),
        ("pyproject.toml", "[tool.setuptools.packages.find]\ninclude = ['data*']\n", True),
        ("pyproject.toml", "[tool.setuptools]\npy-modules = []\n", True),
        ("pyproject.toml", "[tool.setuptools.package-data]\ndata = ['*']\n", False),
        ("setup.cfg", "[options]\npackages = find:\n", True),
        ("setup.cfg", "[metadata]\nname = app\n", False),
        ("setup.py", "from setuptools import setup\nsetup(packages=['data'])\n", True),
        ("setup.py", "from setuptools import setup\nsetup(**told)\n", True),
        ("setup.py", "from setuptools import Extension, setup\nsetup(ext_modules=[Extension('e', ['e.c'])])\n", False),
        ("setup.py", "from setuptools import setup\nsetup()\n", False),
    ],
)
def test_a_layout_is_refused_only_where_no_file_names_the_packages(image, write, name, text, is_told):
    write("setuptools")
    for folder in ("data", "models"):
        Path("app", folder).mkdir()
        Path("app", folder, "__init__.py").touch()
    path = Path("app", name)
    path.write_text(f"{path.read_text() if path.exists() else ''}\n{text}")
    answer = image(*COPIED)
    assert answer.code == 0, answer.err
    assert ("installed too" in answer.err) is is_told
    assert ("several top-level packages (data, models)" in answer.err) is not is_told


def test_a_script_that_is_not_utf_8_is_copied_and_not_installed(image, write):
    write("setuptools")
    Path("app", "setup.py").write_bytes(b"# \xe9\n")
    answer = image(*COPIED)
    assert answer.code == 0, answer.err
    assert "app is copied, and not installed as the package that it is: app/setup.py is not UTF-8" in answer.err
    assert "--install-project" not in answer.err
    answer = image(*COPIED, "--install-project")
    assert answer.code == 2
    assert "app/setup.py is not UTF-8" in answer.err


def test_a_script_that_imports_what_its_build_asks_for_or_has_beside_it_is_no_obstacle(image, index, write):
    index.add("cython", "3.0")
    write("setuptools", "Cython")
    script = "import os, sys\nfrom distutils.core import Extension\nfrom Cython.Build import cythonize\nimport beside\n"
    Path("app", "setup.py").write_text(f"{script}try:\n    import torch\nexcept ImportError:\n    pass\n")
    Path("app", "beside.py").touch()
    assert "installed too" in image(*COPIED).err


def test_without_an_index_a_package_is_copied_and_not_installed(provision, write):
    write("setuptools>=61")
    answer = provision("image", *COPIED, "--offline")
    assert answer.code == 0, answer.err
    assert "not installed as the package that it is: what builds it cannot be locked without an index" in answer.err
    assert "AS project" not in Path("ctx", "Dockerfile").read_text()
    assert provision("image", *COPIED, "--offline", "--check").code == 0


def test_the_classic_builder_gets_the_copy_alone(image, write):
    write("setuptools>=61")
    answer = image(*COPIED, "--frontend", "classic")
    assert answer.code == 0, answer.err
    assert "--frontend classic builds no wheels" in answer.err


def test_a_refusal_of_what_builds_it_names_the_flag_that_leaves_it_out(image, write):
    write("setuptools>=99")
    answer = image(*COPIED)
    assert answer.code != 0
    assert "or only copy it with `--no-install-project`" in answer.err
    assert not Path("ctx").exists()
    assert image(*COPIED, "--no-install-project").code == 0


def test_installed_and_not_installed_exclude_each_other(image, write):
    write("setuptools>=61")
    answer = image(*COPIED, "--install-project", "--no-install-project")
    assert answer.code == 2
    assert "--install-project and --no-install-project exclude each other" in answer.err


@pytest.mark.parametrize("asked", ["--install-project", "--no-install-project"])
@pytest.mark.parametrize("flag", ["--locked", "--upgrade"])
def test_a_lock_that_is_kept_says_itself_what_is_installed(image, write, flag, asked):
    write("setuptools>=61")
    assert image(*COPIED).code == 0
    answer = image(flag, asked, "-o", "ctx")
    assert answer.code == 2
    assert f"{flag} and {asked} exclude each other" in answer.err
