"""Certificates and passwords of monitoring, made by the real openssl in a folder of the test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import playbook_files
import pytest

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not installed")

SCRIPT = playbook_files.ROLES / "gpu_monitoring/files/credentials.py"
NAMES = ["IP:192.0.2.1", "DNS:gpu01"]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script; files stay with whoever runs the test, who need not be root."""
    module = playbook_files.load_script(SCRIPT)
    monkeypatch.setattr(os, "chown", lambda *_: None)
    monkeypatch.setattr(module, "group_id", lambda _: os.getgid())
    monkeypatch.setattr(module, "settle", lambda *_: False)
    return module


def options(folder: Path, **changes: Any) -> dict[str, Any]:
    """What the play tells the script, about folders of the test."""
    names = {"ca": "ca.crt", "certificate": "node.crt", "key": "node.key"}
    return {
        "ca": "",
        "ca_days": 3650,
        "days": 365,
        "folder": str(folder / "monitor"),
        "group": "provision-monitoring",
        "is_check": False,
        "is_generated": True,
        "names": NAMES,
        "password": "",
        "paths": {name: str(folder / "node" / file) for name, file in names.items()},
        "renew_days": 30,
        **changes,
    }


def issue(script: Any, folder: Path, **changes: Any) -> dict[str, Any]:
    """Run all steps as the play does, and return what the host said of its certificate before."""
    told = options(folder, **changes)
    told["ca"] = script.authority(told)["ca"]
    asked = script.request(told)
    if asked["is_due"]:
        signed = script.sign(told | {"request": asked["request"]})
        script.install(told | signed)
    return dict(asked)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_host_gets_a_certificate_that_the_authority_signed(script: Any, tmp_path: Path) -> None:
    assert issue(script, tmp_path)["is_due"]
    node = tmp_path / "node"
    words = ["openssl", "verify", "-CAfile", str(node / "ca.crt"), "-purpose", "sslserver", "-verify_ip", "192.0.2.1"]
    done = subprocess.run([*words, str(node / "node.crt")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in node.iterdir()) == ["ca.crt", "node.crt", "node.key"]
    assert (mode(node / "node.key"), mode(node / "node.crt"), mode(node)) == (0o640, 0o644, 0o755)
    assert mode(tmp_path / "monitor/authority") == 0o700
    assert mode(tmp_path / "monitor/authority/ca.key") == 0o600


def test_second_run_changes_nothing(script: Any, tmp_path: Path) -> None:
    issue(script, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    told = options(tmp_path)
    answer = script.authority(told)
    assert answer["made"] == []
    assert not script.request(told | {"ca": answer["ca"]})["is_due"]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"names": ["IP:192.0.2.7", "DNS:gpu01"]}, "IP:192.0.2.7"),
        ({"renew_days": 365}, "no more than 365 days"),
    ],
    ids=["another address", "about to expire"],
)
def test_certificate_that_does_not_fit_is_replaced(
    script: Any, tmp_path: Path, changes: dict[str, Any], word: str
) -> None:
    issue(script, tmp_path)
    before = (tmp_path / "node/node.key").read_bytes()
    assert word in "".join(issue(script, tmp_path, **changes)["why"])
    assert (tmp_path / "node/node.key").read_bytes() != before


def test_new_authority_makes_every_certificate_due(script: Any, tmp_path: Path) -> None:
    issue(script, tmp_path)
    shutil.rmtree(tmp_path / "monitor")
    assert issue(script, tmp_path)["why"] == ["the authority is a new one"]
    assert not issue(script, tmp_path)["is_due"]


def test_key_of_somebody_else_is_seen(script: Any, tmp_path: Path) -> None:
    issue(script, tmp_path)
    shutil.copy(tmp_path / "monitor/authority/ca.key", tmp_path / "node/node.key")
    assert issue(script, tmp_path)["why"] == ["it does not fit its key"]


def test_request_cannot_ask_for_names_of_its_own(script: Any, tmp_path: Path) -> None:
    told = options(tmp_path)
    script.authority(told)
    key = tmp_path / "evil.key"
    subprocess.run(["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-out", key],
                   check=True, capture_output=True)  # fmt: skip
    words = ["openssl", "req", "-new", "-key", str(key), "-subj", "/CN=evil", "-addext", "subjectAltName=DNS:monitor"]
    asked = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    path = tmp_path / "evil.crt"
    path.write_text(script.sign(told | {"request": asked})["certificate"])
    assert script.names_in(str(path)) == {"IP:192.0.2.1", "DNS:gpu01"}


def test_authority_that_lost_its_key_is_told_and_not_replaced(script: Any, tmp_path: Path) -> None:
    issue(script, tmp_path)
    shutil.copy(tmp_path / "node/node.key", tmp_path / "monitor/authority/ca.key")
    with pytest.raises(script.ImpossibleError, match="is not the key of"):
        script.authority(options(tmp_path))


def test_check_makes_nothing(script: Any, tmp_path: Path) -> None:
    told = options(tmp_path, is_check=True)
    assert script.authority(told) == {"made": ["the authority", "the password"], "ca": "", "hash": ""}
    assert script.request(told)["is_due"]
    assert list(tmp_path.iterdir()) == []


# Passwords


def test_password_is_made_once_and_its_hash_stays(script: Any, tmp_path: Path) -> None:
    first, second = (script.authority(options(tmp_path)) for _ in range(2))
    assert first["hash"].startswith("$2b$10$")
    assert first["hash"] == second["hash"]
    path = tmp_path / "monitor/password"
    assert (len(path.read_bytes()), mode(path)) == (32, 0o640)
    assert script.crypt(path.read_bytes(), first["hash"].encode()).decode() == first["hash"]
    assert script.crypt(b"another password", first["hash"].encode()).decode() != first["hash"]


def test_password_that_is_given_takes_the_place_of_another(script: Any, tmp_path: Path) -> None:
    first = script.authority(options(tmp_path))
    second = script.authority(options(tmp_path, password="given-password"))
    assert second["made"] == ["the password"]
    assert second["hash"] != first["hash"]
    assert (tmp_path / "monitor/password").read_text() == "given-password"
    assert script.authority(options(tmp_path, password="given-password"))["made"] == []


def test_secret_of_one_user_is_for_nobody_else(script: Any, tmp_path: Path) -> None:
    told = {"path": str(tmp_path / "grafana-password"), "owner": str(os.getuid()), "password": ""}
    assert script.secret(told)["made"] == ["the password"]
    assert mode(tmp_path / "grafana-password") == 0o600
    assert script.secret(told)["made"] == []
    with pytest.raises(script.ImpossibleError, match="the user nobody-of-this-name is not there"):
        script.secret(told | {"owner": "nobody-of-this-name"})


# Files that were given


def test_given_files_are_judged_and_left_alone(script: Any, tmp_path: Path) -> None:
    issue(script, tmp_path)
    assert script.check(options(tmp_path)) == {"why": []}
    (tmp_path / "node/node.key").chmod(0o644)
    assert script.check(options(tmp_path))["why"] == ["everybody on this host can read the key"]
    (tmp_path / "node/node.key").chmod(0o600)
    assert "cannot read the key" in script.check(options(tmp_path))["why"][0]
    (tmp_path / "node/node.crt").unlink()
    assert "node.crt is not there" in script.check(options(tmp_path))["why"][0]


def test_script_reads_its_options_from_standard_input_and_words_what_it_cannot(tmp_path: Path) -> None:
    pytest.importorskip("ansible", reason="filters are loaded as ansible-core loads them, which is not installed")
    filters = playbook_files.load_filters("gpu_monitoring")
    told = {"action": "secret", "path": str(tmp_path / "x"), "owner": "nobody-of-this-name", "password": "\"'\\ü\n😀"}
    text = filters.write_stdin(told, SCRIPT.read_text(encoding="utf-8"))
    done = subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"problem": "the user nobody-of-this-name is not there"}
