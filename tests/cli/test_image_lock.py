"""`provision image --locked` and `--upgrade`: what they keep to, what they refuse, and what they say changes."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from provision.assets import asset_dir
from provision.resolve.request import Request
from provision.resolve.stack import Stack

STACK = ("--torch", "2.1", "--cuda", "12.1", "--python", "3.11")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty folder to stand in."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def older(tmp_path) -> Path:
    """Facts in which the newest release of one package is not known yet."""
    facts = tmp_path / "facts"
    shutil.copytree(asset_dir("compat"), facts)
    return facts


def _without_newest(facts: Path, package: str) -> str:
    """Take the newest release of a package out of a copy of the facts, and return its version."""
    path = facts / "wheels" / f"{package}.json"
    document = json.loads(path.read_text())
    version = document["releases"][0]["version"]
    document["releases"] = [row for row in document["releases"] if row["version"] != version]
    path.write_text(json.dumps(document))
    return str(version)


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_locked_keeps_to_the_lock_whatever_the_facts_say_now(provision, folder, older):
    newest = _without_newest(older, "filelock")
    assert provision("image", *STACK, "-o", "it", "--data-dir", older).code == 0
    before = _tree(folder)
    # Today's facts would choose another version.
    assert provision("image", *STACK, "-o", "it", "--check").code == 8
    answer = provision("image", *STACK, "-o", "it", "--locked", "--json")
    assert answer.code == 0, answer.err
    assert answer.document["result"]["stack"]["packages"]["filelock"] != newest
    assert answer.document["result"]["written"] == []
    assert provision("image", "-o", "it", "--locked").code == 0
    assert _tree(folder) == before


def test_locked_in_the_folder_of_the_lock_needs_no_words(provision, folder, monkeypatch):
    provision("image", *STACK, "-o", "it")
    monkeypatch.chdir(folder / "it")
    assert provision("image", "--locked").code == 0


def test_locked_without_a_folder_finds_the_lock_and_solves_nothing(provision, folder, monkeypatch):
    provision("image", *STACK)
    provision("image", "--torch", "2.3", "--cuda", "12.1", "--python", "3.11")
    provision("image", *STACK, "--format", "bake")
    before = _tree(folder)

    def refuse(*_: object) -> None:
        raise AssertionError("a lock is kept, not solved again")

    monkeypatch.setattr("provision.cli.commands.image.solve_request", refuse)
    answer = provision("image", *STACK, "--locked", "--json")
    assert answer.code == 0, answer.err
    assert answer.document["result"]["folder"] == "torch2.1.2-cu121-py311"
    assert provision("image", *STACK, "--locked", "--format", "bake").code == 0
    answer = provision("image", "--torch", "2.4", "--cuda", "12.1", "--python", "3.11", "--locked")
    assert answer.code == 8
    assert "no provision.lock here answers this request" in answer.err
    assert _tree(folder) == before


def test_locked_without_a_folder_asks_which_of_two_equals_is_meant(provision, folder):
    provision("image", *STACK, "-o", "one")
    provision("image", *STACK, "-o", "two")
    answer = provision("image", *STACK, "--locked")
    assert answer.code == 2
    assert "one, two" in answer.err
    shutil.rmtree(folder / "two")
    assert provision("image", *STACK, "--locked").code == 0
    (folder / "one" / "Dockerfile").write_text("FROM scratch\n")
    assert provision("image", *STACK, "--locked").code == 8


def test_locked_prints_what_the_lock_says(provision, folder):
    provision("image", *STACK, "-o", "it")
    answer = provision("image", "-o", "it", "--locked", "--print")
    assert answer.out == (folder / "it" / "Dockerfile").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--torch", "2.3", "--cuda", "12.1", "--python", "3.11"), "--torch: the lock was written for `2.1`"),
        ((*STACK, "--with", "jupyter"), "--with: the lock was written for nothing"),
        ((*STACK, "--gpu", "h100"), "--gpu: the lock was written for nothing, now it is `h100`"),
    ],
)
def test_locked_refuses_another_request(provision, folder, words, said):
    provision("image", *STACK, "-o", "it")
    before = _tree(folder)
    answer = provision("image", *words, "-o", "it", "--locked")
    assert answer.code == 8
    assert said in answer.err
    assert _tree(folder) == before


def test_locked_refuses_edited_files(provision, folder):
    provision("image", *STACK, "-o", "it")
    (folder / "it" / "Dockerfile").write_text("FROM scratch\n")
    answer = provision("image", "-o", "it", "--locked")
    assert answer.code == 8
    assert "Dockerfile differs" in answer.err
    assert provision("image", "-o", "it", "--locked", "--build").code == 8


def test_locked_needs_a_lock(provision):
    answer = provision("image", *STACK, "--locked")
    assert answer.code == 8
    assert "provision.lock is not there" in answer.err
    answer = provision("image", "--locked")
    assert answer.code == 2
    assert "-o DIR" in answer.err


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda text: text.replace("2.1.2", "2.1.1"), id="edited"),
        pytest.param(lambda text: text[:200], id="cut off"),
        pytest.param(lambda text: "[]", id="another document"),
        pytest.param(lambda text: text.replace('"lock_version": 1', '"lock_version": 9'), id="another version"),
        pytest.param(lambda text: text.replace('"torch": "2.1"', '"torch": "$(id)"'), id="no version asked"),
        pytest.param(lambda text: text.replace('"torch": "2.1"', '"flavour": "2.1"'), id="unknown part of a request"),
    ],
)
@pytest.mark.parametrize("flag", ["--locked", "--upgrade"])
def test_a_damaged_lock_is_named(provision, folder, damage, flag):
    provision("image", *STACK, "-o", "it")
    path = folder / "it" / "provision.lock"
    path.write_text(damage(path.read_text()))
    answer = provision("image", "-o", "it", flag)
    assert answer.code == 2
    assert "it/provision.lock" in answer.err


def test_upgrade_shows_what_changes_and_writes_it(provision, folder, older):
    newest = _without_newest(older, "filelock")
    provision("image", *STACK, "-o", "it", "--data-dir", older)
    before = _tree(folder)
    answer = provision("image", "--upgrade", "-o", "it", "--dry-run")
    assert answer.code == 0
    assert re.search(rf"^~ filelock \S+ -> {re.escape(newest)}$", answer.err, re.MULTILINE)
    assert _tree(folder) == before
    answer = provision("image", "--upgrade", "-o", "it", "--json")
    changes = {row["subject"]: (row["before"], row["after"]) for row in answer.document["result"]["changes"]}
    assert changes["filelock"][1] == newest
    lock = Stack.from_lock((folder / "it" / "provision.lock").read_text())
    assert lock.packages["filelock"] == newest
    assert lock.request == Request(cuda="12.1", python="3.11", torch="2.1")
    assert provision("image", *STACK, "-o", "it", "--check").code == 0


def test_upgrade_of_a_name_leaves_the_rest(provision, folder, older):
    names = ("filelock", "fsspec")
    newest = {name: _without_newest(older, name) for name in names}
    provision("image", *STACK, "-o", "it", "--data-dir", older)
    answer = provision("image", "--upgrade", "filelock", "-o", "it", "--json")
    assert answer.code == 0, answer.err
    packages = {row["subject"] for row in answer.document["result"]["changes"]} & set(names)
    assert packages == {"filelock"}
    lock = Stack.from_lock((folder / "it" / "provision.lock").read_text())
    assert lock.packages["filelock"] == newest["filelock"]
    assert lock.packages["fsspec"] != newest["fsspec"]
    assert lock.request == Request(cuda="12.1", python="3.11", torch="2.1")
    assert lock.image.user_requirements == ()
    assert provision("image", "--locked", "-o", "it").code == 0


@pytest.mark.parametrize("words", [(), ("numpy",), ("torch",)])
def test_upgrade_of_a_new_lock_changes_nothing(provision, folder, words):
    provision("image", *STACK, "-o", "it")
    before = _tree(folder)
    answer = provision("image", "-o", "it", "--upgrade", *words)
    assert answer.code == 0, answer.err
    assert "the lock is as new as the facts" in answer.err
    assert _tree(folder) == before


def test_upgrade_keeps_the_lines_of_the_user(provision, folder, older):
    _without_newest(older, "filelock")
    (folder / "mine.txt").write_text("einops>=0.7\n")
    provision("image", *STACK, "-r", "mine.txt", "-o", "it", "--data-dir", older)
    assert provision("image", "--upgrade", "filelock", "-o", "it").code == 0
    assert "einops>=0.7" in (folder / "it" / "requirements.user.txt").read_text()
    assert "filelock" not in (folder / "it" / "requirements.user.txt").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--upgrade", "numpi", "-o", "it"), "did you mean `numpy`"),
        (("--upgrade", "--torch", "2.3", "-o", "it"), "--upgrade takes the request from the lock"),
        (("--upgrade", "--locked", "-o", "it"), "exclude each other"),
        (("--locked", "--check", "-o", "it"), "exclude each other"),
        (("--locked", "--fetch-hashes", "-o", "it"), "exclude each other"),
    ],
)
def test_contradictions_are_worded(provision, words, said):
    provision("image", *STACK, "-o", "it")
    answer = provision("image", *words)
    assert answer.code == 2
    assert said in answer.err


KEPT = "provision.options.json"
OPTIONS = (
    *("--label", "team=vision", "--non-root-uid", "1234", "--registry-mirror", "mirror.example"),
    *("--index-url", "https://mirror.example/simple", "--frontend", "builtin", "--sbom"),
)


def test_a_folder_written_without_options_has_no_record_of_them(provision, folder):
    provision("image", *STACK, "-o", "it")
    assert not (folder / "it" / KEPT).exists()
    provision("image", *STACK, "--label", "team=vision", "-o", "it")
    assert json.loads((folder / "it" / KEPT).read_text()) == {"labels": {"team": "vision"}}
    answer = provision("image", *STACK, "-o", "it", "--json")
    assert answer.document["result"]["removed"] == [KEPT]
    assert not (folder / "it" / KEPT).exists()


def test_the_options_do_not_enter_the_lock(provision, folder):
    provision("image", *STACK, "-o", "plain")
    provision("image", *STACK, *OPTIONS, "-o", "it")
    assert (folder / "it" / "provision.lock").read_bytes() == (folder / "plain" / "provision.lock").read_bytes()
    assert f"!{KEPT}" not in (folder / "it" / ".dockerignore").read_text()


@pytest.mark.parametrize("form", ["dockerfile", "bake", "apptainer", "devcontainer", "requirements", "pylock"])
@pytest.mark.parametrize("words", [("--locked",), ("--upgrade",), ("--upgrade", "numpy")])
def test_a_folder_keeps_the_options_it_was_written_with(provision, folder, form, words):
    given = tuple(word for word in OPTIONS if form != "apptainer" or word not in ("--frontend", "builtin"))
    assert provision("image", *STACK, *given, "--format", form, "-o", "it").code == 0
    before = _tree(folder)
    answer = provision("image", "-o", "it", *words, "--json")
    assert answer.code == 0, answer.err
    assert answer.document["result"]["written"] == answer.document["result"]["removed"] == []
    assert answer.document["result"]["format"] == form
    assert _tree(folder) == before


def test_upgrade_renews_the_lock_and_keeps_the_options(provision, folder, older):
    newest = _without_newest(older, "filelock")
    provision("image", *STACK, *OPTIONS, "-o", "it", "--data-dir", older)
    assert provision("image", "--upgrade", "-o", "it").code == 0
    assert Stack.from_lock((folder / "it" / "provision.lock").read_text()).packages["filelock"] == newest
    assert provision("image", *STACK, *OPTIONS, "-o", "it", "--check").code == 0


def test_flags_given_anew_win_when_a_lock_is_renewed(provision, folder):
    provision("image", *STACK, *OPTIONS, "-o", "it")
    words = ("--label", "stage=test", "--non-root-uid", "4321")
    assert provision("image", "--upgrade", "-o", "it", *words).code == 0
    kept = json.loads((folder / "it" / KEPT).read_text())
    assert kept["labels"] == {"stage": "test", "team": "vision"}
    assert kept["non_root_uid"] == 4321
    assert kept["registry_mirror"] == "mirror.example"
    assert provision("image", "--locked", "-o", "it").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--non-root-uid", "4321"), "--non-root-uid: the folder was written with `1234`, now it is `4321`"),
        (("--label", "team=speech"), "--label: the folder was written with `team=vision`, now it is `team=speech`"),
        (("--frontend", "modern"), "--frontend: the folder was written with `builtin`, now it is `modern`"),
        (("--format", "apptainer"), "--format: the folder was written with `dockerfile`, now it is `apptainer`"),
        (("--syntax", "docker/dockerfile:1"), "--syntax: the folder was written with nothing"),
    ],
)
def test_locked_refuses_other_options(provision, folder, words, said):
    provision("image", *STACK, *OPTIONS, "-o", "it")
    before = _tree(folder)
    answer = provision("image", "--locked", "-o", "it", *words)
    assert answer.code == 8
    assert said in answer.err
    assert provision("image", "--locked", "-o", "it", "--label", "team=vision", "--frontend", "builtin").code == 0
    assert _tree(folder) == before


def test_what_cannot_be_written_again_is_not_dropped(provision, folder, older):
    _without_newest(older, "filelock")
    provision("image", *STACK, "--label", "team=vision", "-o", "it", "--data-dir", older)
    (folder / "it" / KEPT).unlink()
    before = _tree(folder)
    for words in ((), ("--dry-run",), ("numpy",)):
        answer = provision("image", "-o", "it", "--upgrade", *words)
        assert answer.code == 8
        assert "Dockerfile differs" in answer.err
        assert _tree(folder) == before
    # The flags that it was written with are the way out, and are then kept.
    assert provision("image", "-o", "it", "--locked", "--label", "team=vision").code == 0
    assert provision("image", "-o", "it", "--upgrade", "--label", "team=vision").code == 0
    assert json.loads((folder / "it" / KEPT).read_text()) == {"labels": {"team": "vision"}}


def test_an_edited_file_is_written_over_by_an_upgrade_only_with_force(provision, folder):
    provision("image", *STACK, "-o", "it")
    (folder / "it" / "entrypoint.sh").write_text("#!/bin/sh\nexit 1\n")
    assert provision("image", "--upgrade", "-o", "it").code == 8
    assert provision("image", "--upgrade", "-o", "it", "--force").code == 0
    assert provision("image", *STACK, "-o", "it", "--check").code == 0


def test_a_lock_alone_can_be_upgraded(provision, folder):
    provision("image", *STACK, "-o", "it")
    (folder / "alone").mkdir()
    shutil.copy(folder / "it" / "provision.lock", folder / "alone")
    shutil.copy(folder / "it" / "Dockerfile", folder / "alone")
    assert provision("image", "--upgrade", "-o", "alone").code == 0
    assert _tree(folder / "alone") == _tree(folder / "it")


def test_a_build_needs_the_form_of_a_dockerfile(provision):
    provision("image", *STACK, "--format", "apptainer", "-o", "it")
    answer = provision("image", "--locked", "-o", "it", "--build")
    assert answer.code == 2
    assert "--format apptainer" in answer.err


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", '{"color": "red"}', '{"non_root_uid": "1"}', '{"non_root_uid": true}', '{"labels": {"a": 1}}'),
        *('{"labels": ["a"]}', '{"frontend": "newer"}', '{"format": "zip"}', '{"sbom": 1}'),
        '{"labels": {"a": "\\n"}}',
    ],
)
@pytest.mark.parametrize("flag", ["--locked", "--upgrade"])
def test_a_damaged_record_of_options_is_named(provision, folder, text, flag):
    provision("image", *STACK, "-o", "it")
    (folder / "it" / KEPT).write_text(text)
    answer = provision("image", "-o", "it", flag)
    assert answer.code == 2
    assert f"it/{KEPT}" in answer.err


def test_certificates_are_kept(provision, folder):
    body = "\n".join(["-----BEGIN CERTIFICATE-----", "MIIB", "-----END CERTIFICATE-----", ""])
    (folder / "ca.pem").write_text(body)
    answer = provision("image", *STACK, "--ca-cert", "ca.pem", "-o", "it")
    assert answer.code == 0, answer.err
    (folder / "ca.pem").unlink()
    assert provision("image", "-o", "it", "--locked").code == 0
    assert provision("image", "-o", "it", "--upgrade").code == 0
    assert (folder / "it" / "provision-ca.crt").read_text() == body


def test_a_folder_in_the_place_of_a_file_is_named(provision, folder):
    provision("image", *STACK, "-o", "it")
    (folder / "it" / "Dockerfile").unlink()
    (folder / "it" / "Dockerfile").mkdir()
    answer = provision("image", "--upgrade", "-o", "it")
    assert answer.code == 8
    assert "Dockerfile differs" in answer.err


def test_locked_passes_by_a_folder_that_may_not_be_looked_into(provision, folder, monkeypatch):
    provision("image", *STACK, "-o", "it")
    (folder / "closed").mkdir()
    real = os.stat

    def stat(path, **how):
        if str(path).startswith("closed/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, **how)

    monkeypatch.setattr(os, "stat", stat)
    assert provision("image", *STACK, "--locked").code == 0
    answer = provision("image", *STACK, "--locked", "-o", "closed")
    assert answer.code == 2
    assert "closed/provision.lock cannot be read" in answer.err


def test_a_check_that_asks_for_nothing_checks_the_lock_that_stands_there(provision, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert provision("image", "--torch", "2.8", "-o", "ctx").code == 0
    assert provision("image", "--check", "-o", "ctx").code == 0
    Path("ctx", "Dockerfile").write_text("FROM scratch\n")
    drifted = provision("image", "--check", "-o", "ctx")
    assert drifted.code == 8
    assert "Dockerfile" in drifted.err
    missing = provision("image", "--check", "-o", "other")
    assert missing.code == 8
    assert "other/provision.lock is not there" in missing.err
    assert "say what is wanted" in missing.err
