"""`provision data diff` and `refresh`: flags, exit codes, documents, and what is on disk afterwards."""

from __future__ import annotations

import datetime
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from upstream import FEW, Upstream

from provision.assets import asset_dir
from provision.cli.data.refresh import refresh
from provision.cli.output import Output
from provision.cli.parser import build_parser
from provision.refresh.land import Claim

NEEDS = ("filelock", "cuda-toolkit[cublas]==13.2.2", "nvidia-cudnn-cu13==9.26.0.51", "triton~=3.9.0")
NEW = "2.15.1"
DAY = "2026-11-23"


@pytest.fixture
def upstream():
    server = Upstream()
    yield server
    server.close()


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    return Path(shutil.copytree(asset_dir("compat"), tmp_path / "facts"))


@pytest.fixture
def data(provision, upstream, facts, tmp_path):
    upstream.recall(facts, *FEW)

    def call(action: str, *words: object, folder: Path = facts):
        shared = ("--only", "torch", "--index-url", upstream.index, "--data-dir", folder, "--cache", tmp_path / "cache")
        return provision("data", action, *shared, "--dated", DAY, *words)

    return call


def state(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_diff_shows_and_writes_nothing(data, upstream, facts):
    upstream.publish_torch(NEW, NEEDS)
    before = state(facts)
    answer = data("diff")
    assert answer.code == 0
    assert f"+ release {NEW}" in answer.out
    assert "[pypi_torch" in answer.out
    assert "was not written" in answer.out
    assert state(facts) == before


def test_refresh_writes_what_every_command_then_reads(data, provision, upstream, facts):
    upstream.publish_torch(NEW, NEEDS)
    document = data("refresh", "--json").document["result"]
    assert {change["row"] for change in document["changes"] if change["file"] == "frameworks/torch.toml"} == {
        NEW,
        f"{NEW} cu132",
    }
    assert "wheels/torch.json" in document["written"]
    assert provision("data", "check", "--data-dir", facts).code == 0
    answer = provision("resolve", "--torch", NEW, "--python", "3.12", "--data-dir", facts, "--json")
    assert answer.document["result"]["stack"]["packages"]["torch"] == NEW
    assert "has everything that upstream has" in data("refresh").out


def test_a_dry_run_writes_nothing(data, upstream, facts, tmp_path):
    upstream.publish_torch(NEW, NEEDS)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n")
    before = state(facts)
    answer = data("refresh", "--dry-run", "--changelog", changelog)
    assert answer.code == 0
    assert state(facts) == before
    assert changelog.read_text() == "# Changelog\n"
    assert f"torch {NEW}" in answer.err


def test_check_ends_with_drift(data, upstream, facts):
    assert data("diff", "--check").code == 0
    upstream.publish_torch(NEW, NEEDS)
    before = state(facts)
    assert data("refresh", "--check").code == 8
    assert state(facts) == before


def test_the_changelog_gets_an_entry(data, upstream, tmp_path):
    upstream.publish_torch(NEW, NEEDS)
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## [Unreleased]\n\n### Facts\n\n- older\n")
    assert data("refresh", "--changelog", changelog, "-o", tmp_path / "changes.txt").code == 0
    assert f"- older\n- Upstream as of {DAY}: new are" in changelog.read_text()
    assert f"+ release {NEW}" in (tmp_path / "changes.txt").read_text()


def test_an_alarm_ends_with_9_and_names_the_way_out(data, upstream, facts):
    upstream.publish_torch(NEW, NEEDS)
    row = upstream.rows("torch", "2.15.0")[0]
    row["hashes"]["sha256"] = "f" * 64
    before = state(facts)
    answer = data("refresh")
    assert answer.code == 9
    alarm = f"hash:{row['filename']}"
    assert f"--accept '{alarm}'" in answer.err
    assert data("refresh", "--json").document["error"]["alarms"][0]["id"] == alarm
    assert state(facts) == before
    assert data("refresh", "--accept", alarm).code == 0


def test_nothing_readable_ends_with_7(data, upstream):
    upstream.close()
    answer = data("refresh")
    assert answer.code == 7
    assert "nothing could be read" in answer.err


def test_what_was_not_read_is_said_loudly(data, upstream):
    del upstream.pages["torchaudio"]
    answer = data("refresh")
    assert answer.code == 0
    assert "not read: torchaudio" in answer.err
    assert "stay as they are" in answer.err


def test_a_new_folder_begins_with_the_shipped_facts(data, provision, upstream, tmp_path):
    upstream.publish_torch(NEW, NEEDS)
    folder = tmp_path / "mine"
    assert data("refresh", folder=folder).code == 0
    assert provision("data", "check", "--data-dir", folder).code == 0
    assert provision("resolve", "--torch", NEW, "--python", "3.12", "--data-dir", folder).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "torhc"), "did you mean `torch`?"),
        (("--only", ","), "--only names nothing"),
        (("--index-url", "pypi"), "not an http address"),
        (("--apt-mirror", "arch=https://mirror.example"), "names no distribution"),
        (("--apt-mirror", "debian"), "not an http address"),
        (("--accept", "everything"), "is not an alarm"),
        (("--dated", "tomorrow"), "is not a day"),
        (("--jobs", "0"), "--jobs `0` is not from 1 to 16"),
        (("--jobs", "9" * 5000), "write a whole number from 1 to 16, as in `--jobs 8`"),
        (("--jobs", "four"), "--jobs `four` is not a whole number"),
        (("--changelog", "/nowhere/CHANGELOG.md"), "is not a file"),
        (("--data-dir", "{foreign}"), "holds other things than facts"),
    ],
)
def test_bad_words_are_refused(provision, tmp_path, words, said):
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/letter.txt").write_text("mine")
    answer = provision("data", "refresh", *(word.format(foreign=tmp_path / "foreign") for word in words))
    assert answer.code == 2
    assert said in answer.err
    assert (tmp_path / "foreign/letter.txt").read_text() == "mine"


def test_the_facts_of_an_installed_program_are_not_written_over(provision, upstream, monkeypatch, facts):
    shutil.copytree(facts, facts.parent / "_assets" / "compat")
    monkeypatch.setattr("provision.assets._PACKAGE", facts.parent)
    answer = provision("data", "refresh", "--only", "torch", "--index-url", upstream.index)
    assert answer.code == 2
    assert "--data-dir DIR" in answer.err


def test_an_interrupt_leaves_the_facts_as_they_were(upstream, facts, tmp_path):
    upstream.recall(facts, *FEW)
    upstream.publish_torch(NEW, NEEDS)
    upstream.hook = lambda path: time.sleep(1) if path.startswith("/files/") else None
    before = state(facts)
    words = ["data", "refresh", "--only", "torch", "--index-url", upstream.index, "--data-dir", str(facts)]
    process = subprocess.Popen(
        [sys.executable, "-m", "provision", *words, "--cache", str(tmp_path / "cache")],
        stderr=subprocess.PIPE,
        text=True,
    )
    limit = time.monotonic() + 60
    while not any(path.startswith("/files/") for path, _ in upstream.asked) and time.monotonic() < limit:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert state(facts) == before


def test_the_day_of_today_is_the_default(provision, upstream, facts, tmp_path):
    upstream.recall(facts, *FEW)
    upstream.publish_torch(NEW, NEEDS)
    words = ("--only", "torch", "--index-url", upstream.index, "--data-dir", facts, "--cache", tmp_path)
    document = json.loads(provision("data", "diff", *words, "--json").out)
    assert document["result"]["dated"] == datetime.datetime.now(datetime.UTC).date().isoformat()


def test_a_second_refresh_is_refused_before_it_reads_anything(data, upstream, facts):
    upstream.publish_torch(NEW, NEEDS)
    before = state(facts)
    with Claim(facts):
        answer = data("refresh")
        assert answer.code == 5
        assert "another refresh of the facts" in answer.err
        assert upstream.asked == []
        # What writes nothing may read.
        assert data("diff").code == 0
        assert data("refresh", "--dry-run").code == 0
    assert state(facts) == before
    assert data("refresh").code == 0
    assert state(facts) != before


@pytest.mark.parametrize(
    ("action", "said", "silent"),
    [
        ("refresh", "Add what was published upstream", "Look after the facts"),
        ("diff", "--accept ID", "Add what was published upstream"),
        ("check", "Check the facts against every rule", "--accept"),
    ],
)
def test_each_action_has_its_own_help(provision, action, said, silent):
    answer = provision("data", action, "--help")
    assert answer.code == 0
    assert answer.out.startswith(f"usage: provision data {action} ")
    assert said in answer.out
    assert silent not in answer.out


def test_a_proxy_and_certificates_of_pip_go_along_with_another_index(monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_INDEX_URL", "https://one.example/simple")
    monkeypatch.setenv("PIP_PROXY", "proxy.example:3128")
    monkeypatch.setenv("PIP_CERT", "/ca.pem")
    monkeypatch.setattr("provision.refresh.client.Client", lambda **values: (_ for _ in ()).throw(_SeenError(values)))
    with pytest.raises(_SeenError) as caught:
        refresh(build_parser("data").read(["diff", "--index-url", "https://two.example/simple"]), Output())
    assert caught.value.args[0]["proxy"] == "http://proxy.example:3128"
    assert caught.value.args[0]["ca_bundle"] == "/ca.pem"


class _SeenError(Exception):
    """What the client was to be made with."""
