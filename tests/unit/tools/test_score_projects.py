"""The scorer of public projects: what it makes of an answer, what uv is given, and the list that it reads."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from tools import score_projects

LIST = Path(__file__).parents[2] / "projects" / "world.toml"


@pytest.mark.parametrize(
    ("code", "said", "word"),
    [
        (0, "", "locked"),
        (3, "error: x", "refused"),
        (7, "error: x", "failed"),
        (124, "", "late"),
        (1, "Traceback (most recent call last):\n", "traceback"),
    ],
)
def test_an_answer_is_one_word(code: int, said: str, word: str) -> None:
    assert score_projects.outcome(code, said) == word


def test_a_command_that_does_not_end_is_late() -> None:
    assert score_projects.run([sys.executable, "-c", "import time; time.sleep(60)"], 1)[0] == 124


def test_uv_is_given_a_list_without_the_index_and_builds_of_pytorch(tmp_path: Path) -> None:
    lists = tmp_path / "lists"
    (lists / "more").mkdir(parents=True)
    (lists / "a.txt").write_text(
        "--extra-index-url https://download.pytorch.org/whl/cu118\ntorch==2.1.2+cu118\n-r more/b.txt\n"
    )
    (lists / "more" / "b.txt").write_text("--extra-index-url https://own.example/simple\nnumba\n")
    given = score_projects.uv_input(lists / "a.txt", tmp_path / "scratch")
    assert given is not None
    assert given.read_text().split() == ["torch==2.1.2", "-r", "more/b.txt"]
    assert "own.example" in (given.parent / "more" / "b.txt").read_text()
    assert score_projects.uv_input(lists, tmp_path / "scratch") is None
    (lists / "setup.py").write_text("")
    (lists / "pyproject.toml").write_text("[tool.ruff]\n")
    assert score_projects.uv_input(lists, tmp_path / "scratch") == lists / "setup.py"


def test_each_line_of_a_user_is_held_against_the_lock() -> None:
    packages = [("torch", "2.4.1", None), ("numpy", "2.1.0", None), ("b", "0.1", "git+https://git.example/a/b@0123")]
    packages += [("own", "1.2", "https://files.example/own-1.2-py3-none-any.whl")]
    locked = [{"name": name, "version": version, "url": url} for name, version, url in packages]
    lock = {"python": "3.11", "cuda": "12.1", "image": {"packages": locked}}
    lines = [
        "torch==2.4.1+cu121",
        "b @ git+https://git.example/A/b.git@main",
        "own==1.*",
        "git+https://git.example/a/b@v1",
        'x; sys_platform == "win32"',
    ]
    lines += ["numpy<2", "torch==2.4.1+cu118", "left_out"]
    found = score_projects.hold_lines(lines, lock, "warning: left-out is left out, numpydoc is not")
    assert found["held"] == lines[:4]
    assert found["elsewhere"] == lines[4:5]
    assert found["told"] == ["left_out: is not locked"]
    assert found["silent"] == ["numpy<2: 2.1.0 is locked", "torch==2.4.1+cu118: 2.4.1 is locked"]


def test_lines_are_read_from_the_files_too_with_those_that_a_list_names(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("einops>=0.6  # a comment\n-e .\n")
    (tmp_path / "requirements.txt").write_text("torch>=2 \\\n  --hash=sha256:00\n-r more.txt\n")
    (tmp_path / "setup.py").write_text("")
    lines, overrides = score_projects.lines_of(["-r", str(tmp_path / "requirements.txt")])
    assert {line.partition(">")[0] for line in lines} == {"torch", "einops"}
    assert overrides == []
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "a"\nversion = "1"\ndependencies = ["torch", "protobuf<3.20"]\n'
        '[project.optional-dependencies]\nmore = ["a[most]", "einops"]\nmost = ["tqdm"]\n'
        '[tool.uv]\noverride-dependencies = ["protobuf<6"]\n'
    )
    lines, overrides = score_projects.lines_of(["--project", str(tmp_path), "--extra", "more"])
    assert set(lines) == {"torch", "protobuf<6", "einops", "tqdm"}
    assert overrides == ["protobuf<6"]


def test_every_project_of_the_list_has_a_commit_a_truth_and_one_part() -> None:
    projects = tomllib.loads(LIST.read_text())["project"]
    names = [project["repository"] for project in projects]
    assert names == sorted(set(names), key=str.lower)
    for project in projects:
        assert len(project["commit"]) == 40
        assert project["truth"] in ("lock", "flag", "no", "unreachable")
        assert project["part"] in ("mending", "held-out")
        assert ("flags" in project) == (project["truth"] == "flag")
