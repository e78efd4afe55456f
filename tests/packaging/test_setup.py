"""`make install` on machines that lack something: what is said, and that nothing is left behind.

The machines are folders of stand-ins that are all there is on PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tools.check_schemas import check

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "tools"


class Machine:
    """A PATH with nothing on it but what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "bin"
        self.path.mkdir()

    def has(self, name: str, body: str) -> None:
        file = self.path / name
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)

    def make_venv(self, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["/bin/sh", SCRIPTS / "venv.sh", "env", "."],
            cwd=self.folder,
            env={"PATH": str(self.path), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def made(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path != self.path)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


OLD = 'case "$1" in --version) echo "Python 3.9.2" ;; *) exit 1 ;; esac'
WITHOUT_VENV = f'case "$*" in *ensurepip*) exit 1 ;; esac\nexec "{sys.executable}" "$@"'
RECORDS = 'echo "$0 $*" >> calls'


def test_no_python_is_said(machine: Machine) -> None:
    done = machine.make_venv()
    assert done.returncode == 7
    assert "Python 3.11 or newer is needed, and this machine has no python3" in done.stderr
    assert machine.made == []


def test_old_python_is_named(machine: Machine) -> None:
    machine.has("python3", OLD)
    done = machine.make_venv()
    assert done.returncode == 7
    assert "this machine has Python 3.9.2" in done.stderr
    assert "hint: " in done.stderr
    assert machine.made == []


@pytest.mark.parametrize(
    ("name", "package"),
    [
        pytest.param("python3", "python3-venv", id="the-system's"),
        pytest.param("python3.12", "python3.{minor}-venv", id="another"),
    ],
)
def test_missing_venv_names_the_package(machine: Machine, name: str, package: str) -> None:
    machine.has("python3", OLD)
    machine.has(name, WITHOUT_VENV)
    done = machine.make_venv()
    assert done.returncode == 7
    assert f"apt-get install {package.format(minor=sys.version_info.minor)}" in done.stderr
    assert machine.made == []


def test_python_that_was_asked_for_is_not_replaced(machine: Machine) -> None:
    machine.has("python3", f'exec "{sys.executable}" "$@"')
    machine.has("python2", OLD)
    done = machine.make_venv(PYTHON="python2")
    assert done.returncode == 7
    assert "PYTHON=python2 is not Python 3.11 or newer" in done.stderr
    assert machine.made == []


def test_folder_of_someone_else_is_left_alone(machine: Machine) -> None:
    machine.has("python3", f'exec "{sys.executable}" "$@"')
    (machine.folder / "env").mkdir()
    (machine.folder / "env" / "thesis.txt").write_text("mine")
    done = machine.make_venv()
    assert done.returncode == 7
    assert "is not a virtual environment" in done.stderr
    assert (machine.folder / "env" / "thesis.txt").read_text() == "mine"


def test_uv_is_used_where_present_and_given_the_python_found(machine: Machine) -> None:
    machine.has("uv", RECORDS)
    machine.has("python3", OLD)
    machine.has("python3.11", f'exec "{sys.executable}" "$@"')
    assert machine.make_venv().returncode == 0
    make, install = (machine.folder / "calls").read_text().splitlines()
    assert " venv " in make
    assert "--python python3.11" in make
    assert " pip install " in install
    assert "--python env/bin/python" in install


def test_uv_chooses_a_python_where_there_is_none(machine: Machine) -> None:
    machine.has("uv", RECORDS)
    assert machine.make_venv().returncode == 0
    assert "--python" not in (machine.folder / "calls").read_text().splitlines()[0]


@pytest.mark.parametrize("kind", ["ansible", "dockerfiles", "shell"])
def test_linter_without_files_fails(tmp_path: Path, kind: str) -> None:
    for folder in (".ci", "compat", "images", "molecule", "playbooks", "tests/golden", "tools"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / ".ci" / "run").mkdir()
    done = subprocess.run(
        ["/bin/sh", SCRIPTS / "lint.sh", kind, "true"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no file to lint" in done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("ends", "require", "is_passed", "is_said"),
    [
        pytest.param(0, "", True, False, id="green"),
        pytest.param(5, "", False, False, id="a-scenario-failed"),
        pytest.param(7, "", True, True, id="nothing-boots-a-node"),
        pytest.param(7, "1", False, False, id="an-engine-is-required"),
    ],
)
def test_scenarios_are_skipped_aloud_and_only_where_allowed(
    tmp_path: Path, ends: int, require: str, is_passed: bool, is_said: bool
) -> None:
    for name, text in {"tools/engine.sh": "exit 0", "tools/venv.sh": "exit 1", "pyproject.toml": ""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "python").write_text(f"#!/bin/sh\necho ran $*\nexit {ends}\n")
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "ready").touch()
    done = subprocess.run(
        ["make", "scenarios", "BIN=.", "DEVELOPMENT=ready"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PROVISION_REQUIRE_ENGINE": require},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ran tools/molecule.py --again default check-mode faults" in done.stdout
    assert (done.returncode == 0, "SKIPPED: nothing here can boot a node" in done.stderr) == (is_passed, is_said)


@pytest.mark.parametrize("version", ["", "9.8.7"])
def test_ray_is_the_release_that_the_tests_know(tmp_path: Path, version: str) -> None:
    uv = tmp_path / "bin/uv"
    uv.parent.mkdir()
    uv.write_text(
        f'#!/bin/sh\necho "$*" >>{tmp_path}/asked\n'
        f"mkdir -p {tmp_path}/ray/bin; ln -sf /bin/true {tmp_path}/ray/bin/ray\n"
    )
    uv.chmod(0o755)
    done = subprocess.run(
        ["sh", ROOT / "tools/ray.sh", tmp_path / "ray"],
        cwd=tmp_path,
        env={"PATH": f"{uv.parent}:/usr/bin:/bin", **({"RAY_VERSION": version} if version else {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "asked").read_text().splitlines()[-1].split()[-1]
    assert re.fullmatch(rf"ray=={re.escape(version) or '[0-9.]+'}", asked)


LINTERS = ("ruff", "mypy", "lint-imports", "yamllint", "typos")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("failing", ["", *LINTERS, "check_schemas", "lint.sh", "molecule.py", "pytest"])
def test_whole_gate_runs_all_fails_with_any_and_ends_with_the_tests(tmp_path: Path, failing: str) -> None:
    stand_in = f"""#!/bin/sh
case "$*" in tools/gate.py*) exec {sys.executable} "$@" ;; esac
case "$0 $*" in *pytest*) echo "tests ran: $*" ;; *) echo "ran ${{0##*/}} $*" ;; esac
case "$0 $*" in *{failing or "nothing"}*) exit 1 ;; esac
"""
    (tmp_path / "tools").mkdir()
    for name in ("Makefile", "tools/gate.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in (
        "tools/engine.sh",
        "tools/browser.sh",
        "tools/prometheus.sh",
        "tools/ray.sh",
        "tools/lint.sh",
        "tools/venv.sh",
    ):
        (tmp_path / name).write_text(stand_in)
    (tmp_path / "pyproject.toml").touch()
    for name in (*LINTERS, "python"):
        (tmp_path / name).write_text(stand_in)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "ready").touch()
    done = subprocess.run(
        ["make", "test", "BIN=.", "DEVELOPMENT=ready", "PYTEST_ARGS=-k 'a or b'"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == (not failing), done.stderr
    ran = done.stdout.splitlines()
    assert [name for name in LINTERS if not any(line.startswith(f"ran {name}") for line in ran)] == []
    assert len([line for line in ran if line.startswith("ran lint.sh")]) == 3
    assert "ran python -m tools.check_schemas" in ran
    assert "ran python tools/molecule.py --again default check-mode faults" in ran
    assert ran[-1].startswith("tests ran: -m pytest -n auto ")
    assert ran[-1].endswith("-k a or b")


def test_limits_of_continuous_integration_leave_the_gate_its_own() -> None:
    """One that ends the job first would hide which test was slow."""
    (own,) = re.findall(r"^exec timeout .* (\d+)m make test$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    workflow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    minutes = {name: job["timeout-minutes"] for name, job in workflow["jobs"].items()}
    assert minutes == dict.fromkeys(minutes, int(own) + 10)


def test_play_that_the_strictest_profile_refuses_fails(tmp_path: Path) -> None:
    linter = Path(sys.executable).with_name("ansible-lint")
    if not linter.exists():
        pytest.skip("ansible-lint is not installed")
    for folder in ("molecule", "playbooks"):
        (tmp_path / folder).mkdir()
    (tmp_path / ".ansible-lint").write_text((ROOT / ".ansible-lint").read_text())
    play = tmp_path / "playbooks" / "site.yml"
    words = ["/bin/sh", SCRIPTS / "lint.sh", "ansible", linter]
    text = "---\n- name: Try the linter\n  hosts: all\n  tasks:\n    - name: Answer\n      {}:\n"
    ends = {}
    for module in ("ansible.builtin.ping", "ping"):
        play.write_text(text.format(module))
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        ends[module] = done.returncode, "fqcn" in done.stdout
    assert ends == {"ansible.builtin.ping": (0, False), "ping": (2, True)}


def test_table_without_a_schema_or_against_it_is_told_with_its_place(tmp_path: Path) -> None:
    schemas = ROOT / "compat" / "schema"
    assert list(check("new", [tmp_path / "new.toml"], schemas)) == ["new: no schema of that name"]
    assert list(check("wheels", [], schemas)) == ["wheels: no file of that name"]
    table = tmp_path / "extras.toml"
    text = (ROOT / "compat" / "extras.toml").read_text()
    table.write_text(text)
    assert list(check("extras", [table], schemas)) == []
    table.write_text(text.replace("needs_nvcc = true", 'needs_nvcc = "yes"', 1))
    (fault,) = check("extras", [table], schemas)
    assert fault.startswith(f"{tmp_path.name}/extras.toml['extra'][")
    assert fault.endswith("""['needs_nvcc']: "yes" is not of type "boolean\"""")
