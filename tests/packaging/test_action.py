"""`action.yml` and `.pre-commit-hooks.yaml`: their shell is run as GitHub runs it, and pre-commit runs the hook."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from provision.audit.documents import is_known_name

ROOT = Path(__file__).resolve().parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
BAD = "torch==2.1.2\nnumpy==2.1.0\n"
_EXPRESSION = re.compile(r"\$\{\{ *([a-z_.-]+) *\}\}")
Result = tuple[int, str, dict[str, str]]


class Runner:
    """Runs the steps of a composite action as GitHub's runner does, as far as this one uses it."""

    def __init__(self, folder: Path, checkout: Path) -> None:
        self.folder = folder
        self.checkout = checkout
        self.values = {
            "github.action_path": str(ROOT),
            "github.server_url": "https://git.example",
            "github.action_repository": "someone/provision",
            "github.action_ref": "v1",
        }
        self.values |= {f"inputs.{name}": row.get("default", "") for name, row in ACTION["inputs"].items()}

    def step(self, name: str) -> tuple[int, str]:
        (step,) = (step for step in ACTION["runs"]["steps"] if step["name"] == name)
        variables = {key: self.fill(value) for key, value in step.get("env", {}).items()}
        output = self.folder / "output"
        output.write_text("")
        done = subprocess.run(
            # What GitHub gives `shell: bash`.
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.checkout,
            env={**os.environ, **variables, "RUNNER_TEMP": str(self.folder), "GITHUB_OUTPUT": str(output)},
            capture_output=True,
            text=True,
            check=False,
        )
        for line in output.read_text().splitlines():
            key, _, value = line.partition("=")
            self.values[f"steps.{step['id']}.outputs.{key}"] = value
        return done.returncode, done.stdout + done.stderr

    def fill(self, text: str) -> str:
        return _EXPRESSION.sub(lambda match: self.values[match[1]], text)

    def run(self, **inputs: str) -> Result:
        self.values |= {f"inputs.{name.replace('_', '-')}": value for name, value in inputs.items()}
        code, said = self.step("Check")
        assert code == 0, said
        outputs = {name: self.fill(row["value"]) for name, row in ACTION["outputs"].items()}
        return self.step("Result")[0], said, outputs


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "requirements.txt").write_text(BAD)
    folder = tmp_path / "temp"
    (folder / "provision" / "bin").mkdir(parents=True)
    (folder / "provision" / "bin" / "provision").symlink_to(Path(sys.executable).parent / "provision")
    return Runner(folder, checkout)


def test_a_finding_fails_the_job_and_is_an_annotation(runner: Runner) -> None:
    code, said, outputs = runner.run()
    assert (code, outputs) == (6, {"exit-code": "6", "sarif": ""})
    assert "::error file=requirements.txt,line=2," in said


def test_a_milder_threshold_and_more_flags_are_handed_on(runner: Runner) -> None:
    assert runner.run(fail_on="never")[0] == 0
    assert runner.run(fail_on="", args="--ignore=N01\n--gpu=h100\n")[0] == 0


def test_files_are_named_one_a_line_and_are_no_shell(runner: Runner) -> None:
    (runner.checkout / "a b requirements.txt").write_text(BAD)
    _, said, _ = runner.run(files="a b requirements.txt\n")
    assert "file=a b requirements.txt" in said
    _, said, outputs = runner.run(files="$(touch made)\n--version\n")
    assert outputs["exit-code"] == "2"
    assert not (runner.checkout / "made").exists()


def test_the_log_for_code_scanning_leads_to_the_pages_of_the_rules(runner: Runner) -> None:
    _, _, outputs = runner.run(sarif="found.sarif")
    log = json.loads((runner.checkout / outputs["sarif"]).read_text())
    (run,) = log["runs"]
    pages = {rule["id"]: rule["helpUri"] for rule in run["tool"]["driver"]["rules"]}
    assert pages["N01"] == "https://git.example/someone/provision/blob/v1/docs/rules/N01.md"
    assert (ROOT / "docs" / "rules" / "N01.md").is_file()
    assert [item["ruleId"] for item in run["results"]] == ["L01", "N01"]


def test_the_log_is_made_for_the_upload_where_nobody_names_a_file(runner: Runner) -> None:
    (step,) = (step for step in ACTION["runs"]["steps"] if step["name"] == "Upload")
    assert step["with"]["sarif_file"] == ACTION["outputs"]["sarif"]["value"]
    _, _, outputs = runner.run(upload="true")
    assert Path(outputs["sarif"]).is_file()


def test_what_is_no_file_fails_the_job(runner: Runner) -> None:
    assert runner.run(files="missing/Dockerfile", sarif="found.sarif")[0] == 2


def test_the_install_step_makes_the_program_that_the_others_run(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (checkout / "requirements.txt").write_text(BAD)
    runner = Runner(tmp_path, checkout)
    runner.values["inputs.python"] = sys.executable
    code, said = runner.step("Install")
    assert code == 0, said
    assert runner.run()[0] == 6


def test_the_hook_takes_the_files_whose_names_a_folder_is_searched_for() -> None:
    names = [
        *("Dockerfile", "docker/gpu.Dockerfile", "Dockerfile.cuda", "Containerfile", "Dockerfile.dockerignore"),
        *("requirements.txt", "requirements-gpu.in", "constraints.txt", "setup.txt", "main.py", "README.md"),
        *("pyproject.toml", "uv.lock", "poetry.lock", "uv.toml", "environments.py"),
        *("compose.yaml", "docker-compose.gpu.yml", "environment.yml", "env/conda-gpu.yaml"),
        *("Pipfile", "Pipfile.lock", "pixi.toml", "a/setup.py", "setup.cfg", "requirements/base.txt", "a/reqs/b/c.in"),
        *("Dockerfile.j2", "in-dockerfile-deployment.yml", "Dockerfile.md", "dockerfile.sh", "Dockerfile.in"),
        *("requirements/base.md", "docs/base.txt", "requirements/a.dockerignore"),
        *(".devcontainer/devcontainer.json", ".devcontainer.json", "scripts/install_gpu.sh", "env.sh", "run.sh"),
    ]
    taken = {name for name in names if re.search(HOOK["files"], name) and not re.search(HOOK["exclude"], name)}
    assert taken == {name for name in names if is_known_name(name)}


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., None]:
    def run(*words: str) -> None:
        settings = ("-c", "user.name=a", "-c", "user.email=a@mirror.example", "-c", "protocol.file.allow=always")
        subprocess.run(["git", *settings, *words], cwd=tmp_path / "repo", check=True, capture_output=True)

    (tmp_path / "repo").mkdir()
    return run


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_pre_commit_runs_the_hook_over_what_is_staged(tmp_path: Path, git: Callable[..., None]) -> None:
    uv = Path(sys.executable).parent / "uv"
    folder = tmp_path / "repo"
    (folder / "requirements.txt").write_text(BAD)
    (folder / "main.py").write_text("x = 1\n")
    git("init", "-q")
    git("add", ".")
    done = subprocess.run(
        [uv, "tool", "run", "pre-commit", "try-repo", str(ROOT), HOOK["id"], "--all-files"],
        cwd=folder,
        env={**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    if "Failed to fetch" in said or "error sending request" in said:
        pytest.skip("no package index answers")
    assert done.returncode == 1, said
    assert "requirements.txt:2:1: error[N01]" in said
    assert "exit code: 6" in said
