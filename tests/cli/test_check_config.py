"""Settings of a project and a baseline of known findings, for `provision check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provision.cli.main import main

OLD = "torch==1.1.0\n"
BAD = "torch==2.2.2\nnumpy==2.1.0\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "requirements.txt").write_text(BAD)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "requirements.txt").write_text(BAD)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["check", *words])
    out, err = capsys.readouterr()
    return code, out, err


def rules(capsys: pytest.CaptureFixture[str], *words: str) -> list[tuple[str, str]]:
    _, out, _ = run(capsys, "--json", *words)
    return [(item["file"], item["rule"]) for item in json.loads(out)["result"]["findings"]]


HERE, BELOW = ("requirements.txt", "N01"), ("sub/requirements.txt", "N01")


def test_a_table_of_pyproject_is_found_upwards(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rules(capsys, ".") == [HERE, BELOW]
    (project / "pyproject.toml").write_text('[tool.provision.check]\nignore = ["N01"]\n')
    assert rules(capsys, "sub/requirements.txt") == []
    assert rules(capsys, "sub/requirements.txt", "--no-config") == [BELOW]
    assert rules(capsys, "sub/requirements.txt", "--isolated") == [BELOW]


def test_the_nearest_settings_count_and_provision_toml_comes_first(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "pyproject.toml").write_text('[tool.provision.check]\nignore = ["N01"]\n')
    (project / "sub" / "provision.toml").write_text('[check]\nselect = ["N"]\n')
    (project / "sub" / "pyproject.toml").write_text('[tool.provision.check]\nignore = ["N01"]\n')
    assert rules(capsys, "requirements.txt", "sub/requirements.txt") == [BELOW]


def test_a_project_without_the_table_is_passed_by(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "provision.toml").write_text('[check]\nignore = ["N01"]\n')
    (project / "sub" / "pyproject.toml").write_text('[project]\nname = "check"\nversion = "1"\n')
    assert rules(capsys, "sub/requirements.txt") == []


def test_flags_win(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "provision.toml").write_text('[check]\nselect = ["C"]\nignore = ["C04"]\nfail-on = "never"\n')
    assert rules(capsys, "requirements.txt") == []
    assert rules(capsys, "requirements.txt", "--select", "N01") == [HERE]
    assert run(capsys, "requirements.txt", "--select", "N01")[0] == 0
    assert run(capsys, "requirements.txt", "--select", "N01", "--fail-on", "error")[0] == 6


def test_rules_are_left_out_by_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "provision.toml").write_text('[check.per-file-ignores]\n"sub/**" = ["N"]\n')
    assert rules(capsys, ".") == [HERE]
    (project / "provision.toml").write_text('[check.per-file-ignores]\n"requirements.txt" = ["N01"]\n')
    assert rules(capsys, ".") == []


def test_the_target_is_part_of_the_settings(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "requirements.txt").write_text("torch==2.6.0\n")
    assert rules(capsys, "requirements.txt") == []
    (project / "provision.toml").write_text('[check.target]\ngpu = "b200"\n')
    assert rules(capsys, "requirements.txt") == [("requirements.txt", "G01")]
    assert rules(capsys, "requirements.txt", "--gpu", "h100") == []
    (project / "provision.toml").write_text('[check.target]\npython = "3.14"\n')
    (project / "requirements.txt").write_text(OLD)
    assert ("requirements.txt", "L01") in rules(capsys, "requirements.txt")


def test_what_is_excluded_is_not_looked_for_and_is_checked_by_name(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "provision.toml").write_text('[check]\nexclude = ["sub"]\n')
    assert rules(capsys, ".") == [HERE]
    assert rules(capsys, "sub/requirements.txt") == [BELOW]


def test_a_named_file_of_settings_takes_the_place_of_all_others(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "provision.toml").write_text('[check]\nignore = ["N01"]\n')
    (project / "ci.toml").write_text('[check]\nselect = ["N01"]\n')
    assert rules(capsys, "requirements.txt", "--config", "ci.toml") == [HERE]


def test_a_comment_for_a_rule_that_the_settings_leave_out_is_not_needless(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "requirements.txt").write_text("# provision: ignore=N01 known\ntorch==2.6.0\n")
    assert rules(capsys, "requirements.txt") == [("requirements.txt", "I03")]
    (project / "provision.toml").write_text('[check]\nignore = ["N01"]\n')
    assert rules(capsys, "requirements.txt") == []


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('[check]\nselct = ["C"]\n', ("provision.toml", "selct", "did you mean `select`?")),
        ('[check]\nignore = ["N0l"]\n', ("provision.toml", "ignore", "N0L", "did you mean `N0")),
        ('[check]\nselect = "C"\n', ("provision.toml", "select", "not a list")),
        ("[check]\nfail-on = 3\n", ("provision.toml", "fail-on", "not text")),
        ('[check]\nfail-on = "errors"\n', ("provision.toml", "fail-on", "did you mean `error`?")),
        ('[check.target]\ngpus = "h100"\n', ("provision.toml", "target.gpus", "target.gpu")),
        ('[check.target]\ngpu = "h1000000"\n', ("provision.toml", "target", "h1000000")),
        ('[check.per-file-ignores]\n"a" = ["Z01"]\n', ("provision.toml", "per-file-ignores.a", "Z01")),
        ('[chekc]\nignore = ["C01"]\n', ("provision.toml", "chekc")),
        ("[check]\nignore = [\n", ("provision.toml", "not TOML")),
        ('check = "x"\n', ("provision.toml", "not a table")),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_file_key_and_what_is_near(
    text: str, parts: tuple[str, ...], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "provision.toml").write_text(text)
    code, out, err = run(capsys, "requirements.txt")
    assert (code, out) == (2, "") or (code, out) == (4, "")
    for part in parts:
        assert part in err


def test_a_table_beside_check_is_an_error_in_pyproject(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text('[tool.provision.chek]\nignore = ["C01"]\n')
    code, _, err = run(capsys, "requirements.txt")
    assert code == 2
    assert "tool.provision.chek" in err
    assert "did you mean `tool.provision.check`?" in err


@pytest.mark.parametrize("name", ["missing.toml", "empty.toml"])
def test_a_named_file_without_settings_is_an_error(
    name: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "empty.toml").write_text("")
    code, _, err = run(capsys, "requirements.txt", "--config", name)
    assert code == 2
    assert name in err


# baseline


def known(project: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((project / "known.json").read_text())["findings"]
    return rows


def test_known_findings_are_left_out_when_lines_move_and_found_when_their_line_changes(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "requirements.txt", "--write-baseline", "known.json")
    assert code == 0
    assert "1 finding is known" in out
    assert known(project) == [{"rule": "N01", "file": "requirements.txt", "text": "numpy==2.1.0", "count": 1}]
    (project / "requirements.txt").write_text(f"einops\n\n{BAD}")
    code, out, err = run(capsys, "requirements.txt", "--baseline", "known.json")
    assert (code, "1 known by the baseline" in out, "gone" in err) == (0, True, False)
    (project / "requirements.txt").write_text(BAD.replace("2.1.0", "2.2.0"))
    code, out, err = run(capsys, "requirements.txt", "--baseline", "known.json")
    assert code == 6
    assert "gone" in err
    assert "numpy==2.1.0" in err


def test_a_second_finding_on_a_line_of_the_same_text_is_new(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "FROM python:3.11\nRUN pip install torch==2.1.2+cu118\n"
    (project / "Dockerfile").write_text(text)
    run(capsys, "Dockerfile", "--select", "C04", "--write-baseline", "known.json")
    (project / "Dockerfile").write_text(text + text)
    assert rules(capsys, "Dockerfile", "--select", "C04", "--baseline", "known.json") == [("Dockerfile", "C04")]


def test_a_finding_that_is_gone_is_told_and_not_where_its_file_or_rule_was_not_checked(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, ".", "--write-baseline", "known.json")
    assert len(known(project)) == 2
    (project / "requirements.txt").write_text("torch==2.6.0\n")
    _, _, err = run(capsys, "requirements.txt", "--baseline", "known.json")
    assert "1 of the findings in known.json is gone: N01 in requirements.txt: `numpy==2.1.0`" in err
    for words in (("sub/requirements.txt",), ("requirements.txt", "--select", "C")):
        _, _, err = run(capsys, *words, "--baseline", "known.json")
        assert "gone" not in err
    (project / "sub" / "requirements.txt").unlink()
    _, _, err = run(capsys, "requirements.txt", "--baseline", "known.json")
    assert "2 of the findings" in err


def test_a_baseline_of_the_settings_is_found_from_any_folder(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(capsys, ".", "--write-baseline", "known.json")
    (project / "provision.toml").write_text('[check]\nbaseline = "known.json"\n')
    monkeypatch.chdir(project / "sub")
    assert rules(capsys, "requirements.txt") == []
    assert rules(capsys, "requirements.txt", "--no-config") == [HERE]


@pytest.mark.parametrize("text", ["", "{}", '{"schema_version": 1, "findings": [{"rule": 1}]}', "[" * 100_000])
def test_what_is_no_baseline_is_an_error(text: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "known.json").write_text(text)
    code, _, err = run(capsys, "requirements.txt", "--baseline", "known.json")
    assert code == 2
    assert "known.json is not a baseline" in err


def test_a_dry_run_writes_no_baseline(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, ".", "--write-baseline", "known.json", "--dry-run")
    assert not (project / "known.json").exists()
