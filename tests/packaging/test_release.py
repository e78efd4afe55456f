"""What a release and a contribution rest on: workflows, changelog, and the files that a forge reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from provision import __version__
from tools.release_notes import notes_of

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text()
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def _steps(name: str, job: str) -> list[str]:
    """Return what each step of a job runs or uses."""
    workflow = yaml.safe_load((GITHUB / "workflows" / name).read_text())
    return [str(step.get("run") or step["uses"]) for step in workflow["jobs"][job]["steps"]]


def test_changelog_has_notes_of_the_version_and_room_for_the_next() -> None:
    assert notes_of(__version__, CHANGELOG, (ROOT / "provision/__init__.py").read_text())
    headings = re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading) for heading in headings[1:])
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Facts"}
    assert set(re.findall(r"^### (.*)$", CHANGELOG, re.MULTILINE)) <= kinds


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_that_exist_and_have_limits(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    text = path.read_text()
    assert set(re.findall(r"(?:^\s*(?:- run: )?|&& )make ([a-z-]+)", text, re.MULTILINE)) <= targets
    workflow = yaml.safe_load(text)
    assert workflow["permissions"]
    assert all("timeout-minutes" in job for job in workflow["jobs"].values())


def test_release_is_what_was_built_and_tried_with_its_origin_attested() -> None:
    workflow = yaml.safe_load((GITHUB / "workflows/release.yml").read_text())
    publish = workflow["jobs"]["publish"]
    assert "make dist" in _steps("release.yml", "build")
    assert publish["needs"] == "build"
    assert publish["environment"] == "pypi"
    assert publish["permissions"]["id-token"] == publish["permissions"]["attestations"] == "write"
    used = [step.partition("@")[0] for step in _steps("release.yml", "publish")]
    assert used.index("actions/attest-build-provenance") < used.index("pypa/gh-action-pypi-publish")
    assert "secrets." not in str(publish)


def test_wheel_sdist_and_coverage_of_branches_are_part_of_every_change() -> None:
    assert "make dist" in _steps("test.yml", "dist")
    assert "make coverage" in _steps("test.yml", "coverage")
    assert re.search(r"\[tool\.coverage\.run\]\nbranch = true", (ROOT / "pyproject.toml").read_text())


def test_linters_before_a_commit_are_those_of_the_makefile() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    for hook in local["hooks"]:
        program = hook["entry"].split()[0].removeprefix(".venv/bin/")
        assert f"$(BIN)/{program}" in MAKEFILE


def test_forms_and_owners_name_what_is_there() -> None:
    for line in (GITHUB / "CODEOWNERS").read_text().splitlines():
        if line and not line.startswith("#") and (pattern := line.split()[0]) != "*":
            assert (ROOT / pattern.strip("/")).exists()
    forms = [path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"]
    assert any("provision doctor --bundle" in path.read_text() for path in forms)
    assert all(yaml.safe_load(path.read_text())["body"] for path in forms)
    updates = yaml.safe_load((GITHUB / "dependabot.yml").read_text())["updates"]
    assert {update["package-ecosystem"] for update in updates} == {"github-actions", "pip"}
    assert "provision --version" in (ROOT / "SECURITY.md").read_text()
