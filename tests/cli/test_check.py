from __future__ import annotations

import io
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from provision.cli.main import main

DOCKERFILE = """FROM nvidia/cuda:11.6.2-base-ubuntu20.04
RUN apt-get update && apt-get install -y python3-pip
COPY requirements.txt .
RUN pip3 install -r requirements.txt
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    (tmp_path / "requirements.txt").write_text("torch==1.13.1+cu116\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["check", *words])
    out, err = capsys.readouterr()
    return code, out, err


def document(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = run(capsys, "--json", *words)
    return code, json.loads(out)


def test_a_finding_shows_its_place_the_line_a_caret_the_reason_and_the_way_out(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, "Dockerfile", "--select", "C04")
    assert code == 6
    lines = out.splitlines()
    assert lines[0].startswith("requirements.txt:1:1: error[C04] torch==1.13.1+cu116")
    assert lines[1:3] == ["  1 | torch==1.13.1+cu116", "    | ^^^^^^^^^^^^^^^^^^^"]
    assert any("= because " in line for line in lines)
    assert any("= hint: " in line for line in lines)
    assert lines[-1] == "1 error in 2 files; --fix mends 1"
    assert err.startswith("facts of ")


def test_json_is_one_envelope_that_tells_whether_it_failed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = document(capsys, "Dockerfile", "--select", "C04,B03")
    assert code == 6
    assert (found["schema_version"], found["command"], found["ok"]) == (1, "check", False)
    result = found["result"]
    assert [(item["rule"], item["file"], item["line"]) for item in result["findings"]] == [
        ("B03", "Dockerfile", 1),
        ("C04", "requirements.txt", 1),
    ]
    assert result["summary"]["error"] == 1
    assert result["files"] == [{"file": "Dockerfile", "kind": "dockerfile"}]
    code, found = document(capsys, "Dockerfile", "--select", "B03")
    assert (code, found["ok"]) == (0, True)


def test_format_json_is_the_same_document(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "Dockerfile", "--json")[1] == run(capsys, "Dockerfile", "--format", "json")[1]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--select", "B03"), 0),
        (("--select", "B03", "--fail-on", "warn"), 0),
        ((), 6),
        (("--select", "B03", "--fail-on", "info"), 6),
        (("--select", "C04"), 6),
        (("--select", "C04", "--fail-on", "never"), 0),
        (("--select", "C", "--ignore", "C04"), 0),
    ],
)
def test_the_exit_code_follows_the_threshold(
    project: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int
) -> None:
    assert run(capsys, "Dockerfile", *words)[0] == code


def test_fix_shows_a_diff_writes_the_file_and_does_nothing_the_second_time(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "Dockerfile").chmod(0o640)
    code, out, err = run(capsys, "Dockerfile", "--select", "C04", "--fix")
    assert code == 0
    assert out.startswith("--- a/Dockerfile\n+++ b/Dockerfile\n")
    assert "changed Dockerfile" in err
    changed = (project / "Dockerfile").read_text()
    assert changed != DOCKERFILE
    assert stat.S_IMODE((project / "Dockerfile").stat().st_mode) == 0o640
    code, out, err = run(capsys, "Dockerfile", "--select", "C04", "--fix")
    assert (code, out) == (0, "nothing found in 2 files\n")
    assert (project / "Dockerfile").read_text() == changed
    assert sorted(path.name for path in project.iterdir()) == ["Dockerfile", "requirements.txt"]


def test_a_dry_fix_shows_the_same_diff_and_writes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, dry, _ = run(capsys, "Dockerfile", "--select", "C04", "--fix", "--dry-run")
    assert (project / "Dockerfile").read_text() == DOCKERFILE
    _, wet, _ = run(capsys, "Dockerfile", "--select", "C04", "--fix")
    assert dry == wet


def test_a_fix_inside_a_quoted_dockerfile_leaves_it_quoted(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (
        r"FROM python:3.11-slim-bookworm\nRUN pip install torch==2.1.2+cu118 \\\n  torchvision==0.16.1 \"numpy<2\"\n"
    )
    written = f'services:\n  a:\n    build:\n      dockerfile_inline: "{lines}"\n'
    (project / "compose.yaml").write_text(written)
    assert "+++ b/compose.yaml" in run(capsys, "--fix", "compose.yaml")[1]
    changed = (project / "compose.yaml").read_text()
    url = "--extra-index-url https://download.pytorch.org/whl/cu118 "
    assert changed == written.replace("0.16.1", "0.16.2").replace("install torch", f"install {url}torch")
    run(capsys, "--fix", "compose.yaml")
    assert (project / "compose.yaml").read_text() == changed


def test_a_fix_that_would_break_another_stage_is_left_out_and_the_others_are_made(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # With the torchvision of the first torch, the stage that has the second torch would not fit any more.
    text = (
        "FROM python:3.11 AS b\nRUN pip install torch==2.0.1\nRUN pip install torchvision==0.16.0\n"
        "FROM b\nRUN pip install torch==2.1.0\n"
    )
    (project / "Dockerfile").write_text(text)
    (project / "requirements.txt").write_text("torch==2.4.1\ntorchvision==0.18.1\n")
    code, found = document(capsys, "Dockerfile", "requirements.txt", "--select", "C03", "--fix")
    assert (code, found["result"]["summary"]["fixed"]) == (6, 1)
    assert [item["line"] for item in found["result"]["findings"]] == [3]
    assert (project / "Dockerfile").read_text() == text
    assert (project / "requirements.txt").read_text() == "torch==2.4.1\ntorchvision==0.19.1\n"


def test_line_ends_survive_a_fix(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "Dockerfile").write_bytes(DOCKERFILE.replace("\n", "\r\n").encode())
    run(capsys, "Dockerfile", "--select", "C04", "--fix")
    content = (project / "Dockerfile").read_bytes()
    assert content.count(b"\r\n") == content.count(b"\n") == 4
    assert b"--extra-index-url" in content or b"--index-url" in content


def test_a_fix_of_a_link_changes_the_file_behind_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "Dockerfile").rename(project / "real")
    (project / "Dockerfile").symlink_to("real")
    run(capsys, "Dockerfile", "--select", "C04", "--fix")
    assert (project / "Dockerfile").is_symlink()
    assert (project / "real").read_text() != DOCKERFILE


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project.chmod(0o555)
    try:
        code, _, err = run(capsys, "Dockerfile", "--select", "C04", "--fix")
    finally:
        project.chmod(0o755)
    assert code == 5
    assert "cannot change Dockerfile" in err


def test_the_standard_input_is_called_what_the_person_says(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def feed() -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(DOCKERFILE.encode())))

    feed()
    code, out, _ = run(capsys, "-", "--stdin-filename", "Dockerfile", "--select", "C04")
    assert code == 6
    assert out.startswith("requirements.txt:1:1:")
    feed()
    code, _, err = run(capsys, "-", "--stdin-filename", "Dockerfile", "--select", "C04", "--fix")
    assert code == 2
    assert "--fix cannot change the standard input" in err


def test_a_folder_is_searched_for_known_names(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "sub").mkdir()
    (project / "sub" / "gpu.Dockerfile").write_text("FROM ubuntu:22.04\n")
    (project / "node_modules").mkdir()
    (project / "node_modules" / "Dockerfile").write_text("nonsense\n")
    (project / "notes.md").write_text("FROM\n")
    _, found = document(capsys, ".")
    assert [item["file"] for item in found["result"]["files"]] == [
        "Dockerfile",
        "requirements.txt",
        "sub/gpu.Dockerfile",
    ]


def test_sarif_and_annotations_come_out_as_such(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "Dockerfile", "--format", "sarif", "--select", "C04")
    assert code == 6
    assert json.loads(out)["runs"][0]["results"][0]["ruleId"] == "C04"
    code, out, _ = run(capsys, "Dockerfile", "--format", "github", "--select", "C04")
    assert code == 6
    assert out.startswith("::error file=requirements.txt,line=1,")
    assert out.count("\n") == 1


def test_the_report_goes_to_a_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "Dockerfile", "--format", "sarif", "-o", "report.sarif")
    assert code == 6
    assert out == ""
    assert json.loads((project / "report.sarif").read_text())["runs"]


def test_colour_is_only_added_where_it_is_wanted(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "\033[1;31merror[C04]" in run(capsys, "Dockerfile", "--select", "C04", "--color", "always")[1]
    assert "\033" not in run(capsys, "Dockerfile", "--select", "C04", "--color", "never")[1]


def test_a_file_cannot_steer_the_terminal(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "requirements.txt").write_text("torch==1.13.1+cu116  # \x1b[31m\x07\n")
    _, out, _ = run(capsys, "requirements.txt", "--select", "C04")
    assert "\x1b" not in out
    assert "\x07" not in out


def test_the_caret_stands_below_the_word_after_tabs_and_wide_characters(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "Dockerfile").write_text("FROM ubuntu:22.04\nRUN\techo 界 && pip install torch==1.13.1+cu116\n")
    _, out, _ = run(capsys, "Dockerfile", "--select", "C04")
    shown, caret = out.splitlines()[1:3]
    assert caret.index("^") == shown.index("torch==") + 1


def test_build_arguments_choose_the_stack(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "Dockerfile").write_text("FROM ubuntu:22.04\nARG T\nRUN pip install torch==$T\n")
    assert run(capsys, "Dockerfile", "--select", "C04")[0] == 0
    assert run(capsys, "Dockerfile", "--select", "C04", "--build-arg", "T=1.13.1+cu116")[0] == 6


def test_the_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = document(capsys, "--list-rules")
    assert code == 0
    assert {"B03", "C04", "I01"} <= {item["id"] for item in found["result"]["rules"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("missing",), "missing cannot be read"),
        (("notes.md",), "not a file that can be checked"),
        (("empty",), "holds no file that can be checked"),
        (("Dockerfile", "--select", "Q99"), "--select `Q99` is not a rule"),
        (("Dockerfile", "--fail-on", "loud"), "--fail-on `loud` is not known"),
        (("Dockerfile", "--build-arg", "x"), "--build-arg `x` is not NAME=VALUE"),
        (("Dockerfile", "--target", "x"), "has no stage `x`"),
        (("Dockerfile", "--stdin-filename", "x"), "--stdin-filename"),
        (("Dockerfile", "--python", ">=3"), "--python"),
        (("broken.Dockerfile",), "broken.Dockerfile:2:1: `FOO` is not an instruction"),
        (("bad.txt",), "bad.txt:1: "),
        (("zero.txt",), "zero byte"),
        (("latin.txt",), "not UTF-8"),
    ],
)
def test_bad_input_is_an_error_that_names_it(
    project: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    (project / "notes.md").write_text("hello\n")
    (project / "empty").mkdir()
    (project / "broken.Dockerfile").write_text("FROM a\nFOO b\n")
    (project / "bad.txt").write_text("torch = 2\n")
    (project / "zero.txt").write_bytes(b"torch\0\n")
    (project / "latin.txt").write_bytes(b"# \xe9\n")
    code, out, err = run(capsys, *words)
    assert code == 2
    assert out == ""
    assert message in err
    assert "Traceback" not in err


def test_two_forms_at_once_are_refused_as_a_document(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = document(capsys, "Dockerfile", "--format", "sarif")
    assert code == 2
    assert "two forms" in found["error"]["message"]


def test_an_unknown_gpu_is_unknown(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "Dockerfile", "--gpu", "h1000x")[0] == 4


def test_nothing_named_is_the_folder_here(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys) == run(capsys, ".")
    assert run(capsys, "--select", "C04")[0] == 6


@pytest.mark.parametrize("head", ["", "# syntax=docker/dockerfile:1\n", "ARG TORCH=1\n"])
def test_the_standard_input_that_begins_like_a_dockerfile_is_one(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((head + DOCKERFILE).encode())))
    code, found = document(capsys, "-", "--select", "C04")
    assert (code, found["result"]["files"]) == (6, [{"file": "Dockerfile", "kind": "dockerfile"}])


@pytest.mark.parametrize("text", ["torch==2.1.2\n", "# only a comment\n", ""])
def test_the_standard_input_that_could_be_anything_is_asked_about(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    code, _, err = run(capsys, "-")
    assert code == 2
    assert "--stdin-filename" in err


def test_a_setup_script_for_python_2_is_named_and_counts_for_nothing(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "old").mkdir()
    (project / "old" / "setup.py").write_text('print "old"\n', encoding="utf-8")
    code, _, err = run(capsys, ".", "--fail-on", "never")
    assert code == 0
    assert err.count("old/setup.py, line 1: not judged, it is not Python 3") == 1
    code, found = document(capsys, ".", "--fail-on", "never")
    assert (code, found["ok"], len(found["result"]["unread"])) == (0, True, 1)
    code, _, err = run(capsys, "old/setup.py")
    assert code == 2
    assert "it is not Python 3" in err


def test_a_context_that_this_program_wrote_is_left_alone_below_a_folder(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = project / "context"
    context.mkdir()
    (context / "provision.lock").write_text("{}\n", encoding="utf-8")
    (context / "requirements.lock.txt").write_text("torch==2.4.1\n", encoding="utf-8")
    ours = "# torch: facts of 2026-11-21. Written by `provision image`; edits here count as drift.\nFROM python:3.11\n"
    for text, is_checked in ((ours, False), ("FROM python:3.11\n", True)):
        (context / "Dockerfile").write_text(text, encoding="utf-8")
        _, found = document(capsys, ".", "--fail-on", "never")
        files = {item["file"] for item in found["result"]["files"]}
        assert ({"context/Dockerfile", "context/requirements.lock.txt"} <= files) is is_checked
    (context / "Dockerfile").write_text(ours, encoding="utf-8")
    _, found = document(capsys, "context", "--fail-on", "never")
    assert "context/Dockerfile" in {item["file"] for item in found["result"]["files"]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("environment.yml", b"dependencies: [\n", "environment.yml"),
        ("dev-requirements.txt", b"torch = 2\n", "dev-requirements.txt:1"),
        ("gpu.Dockerfile", b"FROM a\nFOO b\n", "`FOO` is not an instruction"),
        ("latin-requirements.txt", b"# \xe9\n", "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_does_not_hide_the_others(
    project: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, message: str
) -> None:
    (project / name).write_bytes(content)
    code, out, err = run(capsys, ".", "--select", "C04")
    assert code == 2
    assert "error[C04]" in out
    assert err.count(message) == 1
    assert "1 file could not be judged" in out
    code, found = document(capsys, ".", "--fail-on", "never")
    assert (code, found["ok"]) == (2, False)
    assert message in found["result"]["unread"][0]["message"]
    assert name not in [item["file"] for item in found["result"]["files"]]


def test_the_others_are_mended_beside_a_file_that_cannot_be_read(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "gpu.Dockerfile").write_text("FROM a\nFOO b\n")
    code, out, _ = run(capsys, ".", "--select", "C04", "--fix")
    assert code == 2
    assert "+++ b/Dockerfile" in out
    assert (project / "Dockerfile").read_text() != DOCKERFILE


def test_a_file_of_yaml_without_a_parser_does_not_hide_the_others(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "environment.yml").write_text("dependencies: [numpy]\n")
    monkeypatch.setitem(sys.modules, "yaml", None)
    code, out, err = run(capsys, ".", "--select", "C04")
    assert code == 2
    assert "error[C04]" in out
    assert "PyYAML is not installed" in err
    assert run(capsys, "environment.yml")[0] == 7


def test_what_the_person_named_and_the_facts_exclude_fails_the_run(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "requirements.txt").write_text("torch==2.11.0\n")
    assert run(capsys, "requirements.txt", "--driver", "535.104.05")[0] == 6
    assert run(capsys, "requirements.txt", "--driver", "615.10.01", "--select", "D01")[0] == 0
    (project / "requirements.txt").write_text("torch==1.13.1\n")
    assert run(capsys, "requirements.txt", "--gpu", "h100", "--select", "G01")[0] == 6
    assert run(capsys, "requirements.txt", "--gpu", "a100", "--select", "G01")[0] == 0


def test_a_named_pipe_behind_a_requirement_is_not_waited_for(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "requirements.txt").unlink()
    os.mkfifo(project / "requirements.txt")
    assert run(capsys, "Dockerfile", "--select", "C04")[0] == 0


def test_a_rule_is_explained_from_the_facts_and_nothing_is_checked(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "--explain", "c04", "no-such-file")
    assert code == 0
    assert out.startswith("error[C04] ")
    assert "hint: " in out
    assert "It rests on:" in out
    assert "Dockerfile" not in out
    code, found = document(capsys, "--explain", "C04,I")
    assert (code, [row["id"] for row in found["result"]["rules"]]) == (0, ["C04", "I01", "I02", "I03"])
    assert all(row["why"] and row["remedy"] and row["sources"] for row in found["result"]["rules"])


def test_an_unknown_rule_cannot_be_explained(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--explain", "C99")
    assert code == 2
    assert err.startswith("error: --explain `C99` is not a rule")


def test_a_file_that_cannot_be_read_is_called_by_its_name(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.txt").write_bytes(b"\xff")
    assert run(capsys, "missing.txt")[2].startswith("error: missing.txt cannot be read")
    assert run(capsys, "bad.txt")[2].startswith("error: bad.txt is not UTF-8 text")
