"""`provision fleet spot`: what is written for a node, and every way to ask for nothing."""

from __future__ import annotations

import json

import pytest

FILES = [
    "etc/provision/spot.json",
    "etc/systemd/system/provision-spot.service",
    "usr/local/lib/provision/spot_notice.py",
]


def test_files_lie_where_the_node_has_them(provision, tmp_path) -> None:
    answer = provision(
        "fleet", "spot", "-o", tmp_path / "n", "--provider", "aws", "--checkpoint", "save 'a b'", "--json"
    )
    assert answer.code == 0
    assert answer.document["result"]["files"] == FILES
    settings = json.loads((tmp_path / "n" / FILES[0]).read_text(encoding="utf-8"))
    assert settings["checkpoint"] == ["save", "a b"]
    assert [row["id"] for row in settings["notices"]] == ["aws-interruption", "aws-advice"]
    # A command may hold what is nobody else's to see.
    assert (tmp_path / "n" / FILES[0]).stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "n" / FILES[2]).stat().st_mode & 0o777 == 0o755


def test_a_shell_that_is_named_gets_its_words(provision, tmp_path) -> None:
    asked = "sh -c 'save && echo $(hostname)'"
    assert provision("fleet", "spot", "-o", tmp_path, "--provider", "aws", "--drain", asked).code == 0
    settings = json.loads((tmp_path / FILES[0]).read_text(encoding="utf-8"))
    assert settings["drain"] == ["sh", "-c", "save && echo $(hostname)"]


def test_second_run_writes_nothing_and_check_tells_drift(provision, tmp_path) -> None:
    words = ("fleet", "spot", "-o", tmp_path, "--provider", "gcp", "--drain", "true")
    assert provision(*words).code == 0
    assert provision(*words, "--json").document["result"]["written"] == []
    assert provision(*words, "--check").code == 0
    assert provision(*words, "--reserve-seconds", "5", "--check").code == 8


def test_provider_is_found_by_its_other_names(provision, tmp_path) -> None:
    answer = provision("fleet", "spot", "-o", tmp_path, "--provider", "Alibaba", "--drain", "true", "--json")
    assert answer.document["result"]["provider"] == "aliyun"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "--provider is missing"),
        (("--provider", "aws"), 2, "there is nothing to do when a notice comes"),
        (("--provider", "awz", "--drain", "x"), 2, "did you mean `aws`?"),
        (("--provider", "lambda", "--drain", "x"), 4, "know no spot notice of `lambda`"),
        (("--provider", "aws", "--drain", "echo '"), 2, "--drain `echo '` is not a command"),
        (("--provider", "aws", "--drain", " "), 2, "--drain is an empty command"),
        (("--provider", "aws", "--drain", "save && echo"), 2, "hint: write `--drain 'sh -c "),
        (("--provider", "aws", "--drain", "drain $(hostname)"), 2, "--drain `drain $(hostname)` needs a shell"),
        (("--provider", "aws", "--checkpoint", "x", "--resume", "y"), 2, "there is no --drain"),
        (("--provider", "aws", "--drain", "x", "--hooks", "spot.d"), 2, "--hooks is not an absolute path"),
        (("--provider", "aws", "--drain", "x", "--margin-seconds", "nan"), 2, "--margin-seconds `nan`"),
        (("--provider", "gcp", "--checkpoint", "x", "--reserve-seconds", "27"), 2, "nothing of the warning is left"),
        (("--provider", "aws", "--drain", "x", "--warning-seconds", "0"), 2, "--warning-seconds `0`"),
        (("--provider", "aws", "--drain", "x", "--advice", "panic"), 2, "panic"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else None,
)
def test_what_makes_no_sense_is_refused(provision, tmp_path, words, code, said) -> None:
    answer = provision("fleet", "spot", "-o", tmp_path / "n", *words)
    assert answer.code == code
    assert said in answer.err
    assert "Traceback" not in answer.err
    assert not (tmp_path / "n").exists()


def test_folder_must_be_named(provision) -> None:
    answer = provision("fleet", "spot", "--provider", "aws", "--drain", "x")
    assert answer.code == 2
    assert "-o DIR" in answer.err


def test_hint_for_an_unknown_provider_names_those_that_warn(provision, tmp_path) -> None:
    answer = provision("fleet", "spot", "-o", tmp_path, "--provider", "nope", "--drain", "true")
    assert answer.code == 2
    assert "aws" in answer.err
    assert "runpod" not in answer.err
