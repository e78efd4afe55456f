"""Allow-lists: the rules they become, and those that would shut the controller out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import playbook_files
import pytest

pytest.importorskip("ansible.errors", reason="the filters raise Ansible's errors, and ansible-core is not installed")

from ansible.errors import AnsibleFilterError

access = playbook_files.load_filters("gpu_access")


def service(name: str, networks: list[Any], ports: list[Any]) -> dict[str, Any]:
    return {"name": name, "networks": networks, "ports": ports, "variable": f"gpu_access_{name}_from"}


# Rules


def test_nothing_is_restricted_where_nothing_is_asked() -> None:
    assert access.write_rules([service("ssh", [], [22]), service("jupyter", [], [8888])]) == ""


def test_table_replaces_itself_in_one_transaction() -> None:
    lines = access.write_rules([service("ssh", ["192.0.2.1"], [22])]).splitlines()
    deletion = lines.index("delete table inet provision")
    assert lines[deletion - 2] == "table inet provision {"
    assert lines.count("table inet provision {") == 2
    assert "flush ruleset" not in lines


def test_only_the_asked_port_is_restricted() -> None:
    text = access.write_rules(
        [service("ssh", ["192.0.2.0/24", "2001:db8::/32"], [2222, 22]), service("jupyter", [], [1])]
    )
    assert "tcp dport { 22, 2222 } jump ssh" in text
    assert "jupyter" not in text
    assert "policy accept" in text
    assert "ip saddr @ssh4 accept" in text
    assert "ip6 saddr @ssh6 accept" in text


def test_list_of_one_family_drops_the_other() -> None:
    text = access.write_rules([service("ssh", ["192.0.2.0/24"], [22])])
    assert "ip6 saddr" not in text
    assert text.index("ip saddr @ssh4 accept") < text.index("counter drop")


def test_open_connections_and_loopback_stay() -> None:
    lines = [line.strip() for line in access.write_rules([service("ssh", ["192.0.2.1"], [22])]).splitlines()]
    assert lines.index("ct state established,related accept") < lines.index("tcp dport { 22 } jump ssh")
    assert lines.index('iifname "lo" accept') < lines.index("tcp dport { 22 } jump ssh")


def test_networks_are_merged_so_that_no_interval_overlaps() -> None:
    merged = access.read_networks(["10.1.0.0/16", "10.0.0.0/8", "10.2.3.4", "::1"])
    assert [str(network) for network in merged] == ["10.0.0.0/8", "::1/128"]


@pytest.mark.parametrize("bad", ["login.example", "10.0.0.0/33", "} ; flush ruleset", "", None, "10.0.0.1\n"])
def test_what_is_no_network_never_becomes_a_rule(bad: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="gpu_access_ssh_from"):
        access.write_rules([service("ssh", ["10.0.0.0/8", bad], [22])])


def test_text_in_place_of_a_list_is_refused() -> None:
    with pytest.raises(AnsibleFilterError, match="must be a list"):
        access.read_networks("10.0.0.0/8", "gpu_access_ssh_from")


@pytest.mark.parametrize("port", [0, 65536, "22; x", True, -1, None])
def test_what_is_no_port_is_refused(port: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="not a port"):
        access.write_rules([service("ssh", ["10.0.0.0/8"], [port])])


# The controller's own way in

HERE = "192.0.2.7 50000 198.51.100.1 22"


@pytest.mark.parametrize(
    ("connection", "networks", "ports"),
    [
        (HERE, ["192.0.2.0/24"], [22]),
        (HERE, [], [22]),
        ("", ["10.0.0.0/8"], [22]),
        ("::ffff:192.0.2.7 50000 ::ffff:198.51.100.1 22", ["192.0.2.0/24"], [22]),
        ("fe80::1%eth0 50000 fe80::2%eth0 22", ["fe80::/10"], [22]),
    ],
)
def test_list_with_the_controller_is_taken(connection: str, networks: list[str], ports: list[int]) -> None:
    assert access.find_lockout(connection, networks, ports) == ""


@pytest.mark.parametrize(
    ("connection", "networks", "ports", "reason"),
    [
        (HERE, ["10.0.0.0/8"], [22], "192.0.2.7"),
        (HERE, ["2001:db8::/32"], [22], "192.0.2.7"),
        (HERE, ["192.0.2.0/24"], [2222], "port 22"),
        ("what is this", ["192.0.2.0/24"], [22], "cannot be read"),
    ],
)
def test_list_without_the_controller_is_refused(connection: str, networks: Any, ports: Any, reason: str) -> None:
    assert reason in access.find_lockout(connection, networks, ports)


# Contradictions

SETTINGS: dict[str, Any] = {
    "address": "",
    "audit_rules": [],
    "has_jupyter": False,
    "has_rules": False,
    "has_sudo_log": False,
    "jupyter_from": [],
    "revert_seconds": 60,
    "tls": "none",
    "tls_names": [],
    "tls_paths": ["/etc/a.crt", "/etc/a.key"],
}
NODE = {"packages": {"sudo": {}}, "os": {"service_manager": "systemd"}}
TLS = {"tls": "files", "has_jupyter": True}


@pytest.mark.parametrize(
    ("changed", "host", "reason"),
    [
        ({}, NODE, None),
        ({"tls": "files"}, NODE, "Jupyter is off"),
        (TLS, NODE, None),
        ({**TLS, "address": "192.0.2.9"}, NODE, "allow-list"),
        ({**TLS, "address": "192.0.2.9", "jupyter_from": ["10.0.0.0/8"]}, NODE, None),
        ({"has_jupyter": True, "address": "192.0.2.9", "jupyter_from": ["10.0.0.0/8"]}, NODE, "gpu_access_tls"),
        ({**TLS, "address": "127.0.0.1"}, NODE, None),
        ({**TLS, "address": "0.0.0.0' or"}, NODE, "not an address"),
        ({"audit_rules": ["-w /etc -p wa", "-D"]}, NODE, "'-D'"),
        ({"audit_rules": ["-w /etc\n-D"]}, NODE, "one line"),
        ({"tls_names": ["DNS:x,IP:0.0.0.0"]}, NODE, "neither DNS"),
        ({"tls_paths": ["a.crt"]}, NODE, "not an absolute path"),
        ({"has_sudo_log": True}, {**NODE, "packages": {}}, "not installed"),
        ({"has_rules": True}, {**NODE, "os": {"service_manager": "other"}}, "systemd"),
        ({"has_rules": True, "revert_seconds": "1; x"}, NODE, "gpu_access_revert_seconds"),
    ],
)
def test_contradiction_is_named(changed: dict[str, Any], host: Any, reason: str | None) -> None:
    problems = access.list_problems({**SETTINGS, **changed}, host)
    if reason is None:
        assert problems == []
    else:
        assert [problem for problem in problems if reason in problem]


def test_rules_are_not_loaded_once_the_timer_that_takes_them_back_has_run_out(tmp_path: Path) -> None:
    guard = playbook_files.ROLES / "gpu_access" / "files" / "guard.py"
    text = guard.read_text(encoding="utf-8").replace('"/run/provision-access"', repr(str(tmp_path / "gone")))
    text = text.replace('"/usr/sbin/nft"', repr(str(tmp_path / "nft")))
    (tmp_path / "nft").write_text(f"#!/bin/sh\ntouch {tmp_path}/loaded\n", encoding="utf-8")
    (tmp_path / "nft").chmod(0o755)
    done = subprocess.run([sys.executable, "-", "load"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "gpu_access_revert_seconds" in done.stderr
    assert not (tmp_path / "loaded").exists()
