"""What role gpu_exporter decides on the controller: refusals, the source of GPU metrics, units, files that agree."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import playbook_files
import pytest
import role_files as roles

from provision.generate.monitoring import render_counters
from provision.generate.verify_units import TEXTFILE, TEXTFILES
from provision.matrix.load import Matrix
from provision.verify.report import prometheus

ROLE = playbook_files.ROLES / "gpu_exporter"
exporter = playbook_files.load_filters("gpu_exporter")
VARS = roles.load(ROLE / "vars" / "main.yml")
HASH = "$2b$10$" + "a" * 53
KEY = "/etc/provision/monitoring/node.key"
CERTIFICATE = "/etc/provision/monitoring/node.crt"


def host(**parts: Any) -> dict[str, Any]:
    """A node as gpu_facts tells of it: bare but for its certificate and key."""
    files = {
        CERTIFICATE: {"mode": "0644", "owner": "root", "group": "root"},
        KEY: {"mode": "0640", "owner": "root", "group": "provision-monitoring"},
    }
    bare: dict[str, Any] = {"files": files, "links": {}, "folders": {}, "packages": {}, "units": {}, "gpus": []}
    bare["generations"] = []
    return {**bare, **parts}


SETTINGS: dict[str, Any] = {
    "address": "10.0.0.7",
    "arguments": [],
    "certificate": CERTIFICATE,
    "driver": "580.105.08",
    "gpus": "auto",
    "group": "provision-monitoring",
    "hash": HASH,
    "interval_seconds": 30,
    "key": KEY,
    "ports": {"node": 9100, "icmp": 9115, "gpu": 9400},
    "source": "auto",
    "user": "provision",
    "verify": "auto",
}


def problems(*, on: dict[str, Any] | None = None, is_check: bool = False, **changes: Any) -> list[str]:
    return exporter.list_problems(on or host(), {**copy.deepcopy(SETTINGS), **changes}, is_check)


# Refusals


def test_sound_settings_are_not_refused() -> None:
    assert problems() == []
    assert problems(address="fd00::7", source="none", gpus=8, verify=True, arguments=["--collector.ethtool"]) == []


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("address", "", "set `gpu_monitoring_address`"),
        ("address", "0.0.0.0", "name one address"),  # noqa: S104 - it is refused
        ("address", "::", "name one address"),
        ("address", "10.0.0.7 --web.listen-address=:9", "name one address"),
        ("arguments", "--collector.ethtool", "not a list of words"),
        ("arguments", ["--collector.ethtool --x"], "not a flag"),
        ("arguments", ["--web.listen-address=:9100"], "leave it out"),
        ("arguments", ["--collector.textfile.directory=/tmp"], "leave it out"),
        ("arguments", ["--collector.ethtool=%h"], "not a flag"),
        ("certificate", "node.crt", "not an absolute path"),
        ("driver", "new", "not a version of a driver"),
        ("gpus", True, "`auto` or a number"),
        ("gpus", "many", "`auto` or a number"),
        ("hash", "", "is not set"),
        ("hash", "*", "is not set"),
        ("hash", "secret", "is not a hash of bcrypt"),
        ("interval_seconds", 1, "from 5 to 300"),
        ("interval_seconds", "soon", "from 5 to 300"),
        ("ports", {"node": 9100, "icmp": 9100, "gpu": 9400}, "must differ"),
        ("ports", {"node": 0, "icmp": 9115, "gpu": 9400}, "not a port"),
        ("source", "magic", "it is auto, dcgm, textfile, none"),
        ("user", "a b", "not a word of letters"),
        ("verify", "maybe", "`auto`, `true` or `false`"),
    ],
)
def test_each_fault_is_refused_with_its_way_out(name: str, value: Any, said: str) -> None:
    found = problems(**{name: value})
    assert len(found) == 1
    assert said in found[0]


def test_all_faults_are_told_at_once() -> None:
    assert len(problems(on=host(files={}), address="", hash="", source="magic")) == 5


def test_a_hash_is_never_repeated() -> None:
    assert "hunter2" not in " ".join(problems(hash="hunter2"))


@pytest.mark.parametrize(("mode", "group"), [("0644", "provision-monitoring"), ("0600", "root"), ("0640", "root")])
def test_key_that_others_can_read_or_exporters_cannot_is_refused(mode: str, group: str) -> None:
    node = host()
    node["files"][KEY] = {"mode": mode, "owner": "root", "group": group}
    (said,) = problems(on=node)
    assert "`chgrp provision-monitoring` it and `chmod 0640` it" in said


def test_in_check_mode_nothing_is_missed_that_another_role_would_make() -> None:
    assert problems(on=host(files={}), hash="*", is_check=True) == []
    assert problems(on=host(files={}), hash="*") != []


def test_files_of_your_own_elsewhere_are_not_looked_for() -> None:
    assert problems(certificate="/etc/ssl/node.pem", key="/etc/ssl/private/node.pem") == []


# Where metrics of GPUs come from

DCGM = {"datacenter-gpu-manager-4-core": {"status": "ii", "version": "1:4.6.0-1"}}
OFFERED = "datacenter-gpu-manager-exporter:\n  Installed: (none)\n  Candidate: 4.8.1-1\n"
NOT_OFFERED = "datacenter-gpu-manager-exporter:\n  Installed: (none)\n  Candidate: (none)\n"


@pytest.mark.parametrize("source", ["dcgm", "textfile", "none"])
def test_source_that_was_named_is_taken(source: str) -> None:
    assert exporter.choose_source(host(packages=DCGM), source) == source


@pytest.mark.parametrize(
    ("packages", "offer", "chosen"),
    [
        ({}, None, "textfile"),
        ({}, OFFERED, "textfile"),
        (DCGM, None, "unknown"),
        (DCGM, OFFERED, "dcgm"),
        (DCGM, NOT_OFFERED, "textfile"),
        (DCGM, OFFERED + NOT_OFFERED, "textfile"),
        (DCGM, "", "textfile"),
        ({"datacenter-gpu-manager-4-core": {"status": "rc", "version": "1"}}, OFFERED, "textfile"),
    ],
)
def test_auto_takes_dcgm_exporter_where_dcgm_is_and_it_is_offered(
    packages: dict[str, Any], offer: str | None, chosen: str
) -> None:
    assert exporter.choose_source(host(packages=packages), "auto", offer) == chosen


@pytest.mark.parametrize(("path", "chosen"), [(exporter.DCGM_DROP_IN, "dcgm"), (exporter.TEXTFILE_UNIT, "textfile")])
def test_auto_keeps_what_was_set_up_without_asking_apt(path: str, chosen: str) -> None:
    assert exporter.choose_source(host(packages=DCGM, files={path: {}}), "auto") == chosen


def test_what_auto_looks_for_is_what_the_role_writes() -> None:
    written = {row["path"] for row in VARS["gpu_exporter_unit_files"]}
    assert {exporter.DCGM_DROP_IN, exporter.TEXTFILE_UNIT} <= written


# Units

ENABLED = {"enabled": "enabled", "active": "active"}


def units(on: dict[str, Any], chosen: str = "textfile", *, has_icmp: bool = True) -> dict[str, Any]:
    return {row["name"]: row for row in exporter.list_units(on, chosen, has_icmp, False)}


def test_bare_node_lacks_what_is_wanted_and_has_nothing_to_stop() -> None:
    rows = units(host())
    assert [name for name, row in rows.items() if row["is_wrong"]] == [
        "prometheus-node-exporter.service",
        "prometheus-blackbox-exporter.service",
        "provision-gpu-textfile.timer",
        "provision-gpu-exporter.service",
    ]
    assert not any(row["exists"] for row in rows.values())


def test_source_that_changed_stops_the_other_exporter() -> None:
    node = host(units={"provision-gpu-exporter.service": ENABLED, "provision-gpu-textfile.timer": ENABLED})
    rows = units(node, "dcgm")
    assert rows["provision-gpu-exporter.service"] == {
        "name": "provision-gpu-exporter.service",
        "exists": True,
        "is_wanted": False,
        "is_looping": False,
        "is_wrong": True,
    }
    assert rows["nvidia-dcgm-exporter.service"]["is_wanted"]


@pytest.mark.parametrize(
    "row", [{"enabled": "disabled", "active": "active"}, {"enabled": "enabled", "active": "failed"}]
)
def test_unit_that_will_not_be_there_tomorrow_is_wrong(row: dict[str, str]) -> None:
    assert units(host(units={"prometheus-node-exporter.service": row}))["prometheus-node-exporter.service"]["is_wrong"]


def test_a_unit_that_is_active_only_between_two_ends_is_told_from_one_that_runs() -> None:
    rows = units(
        host(
            units={
                "prometheus-node-exporter.service": {**ENABLED, "is_looping": True},
                "prometheus-blackbox-exporter.service": {**ENABLED, "is_looping": False},
            }
        )
    )
    assert [name for name, row in rows.items() if row["is_looping"]] == ["prometheus-node-exporter.service"]


def test_running_units_are_left_alone() -> None:
    names = [name for name, row in units(host()).items() if row["is_wanted"]]
    assert not any(row["is_wrong"] for row in units(host(units=dict.fromkeys(names, ENABLED))).values())


def test_verify_runs_only_where_command_and_expectation_are_there() -> None:
    command, expected = {"/usr/local/bin/provision": {}}, {"/etc/provision/expect.toml": {}}
    assert not exporter.is_verifying(host(files=command), "auto")
    assert not exporter.is_verifying(host(files=expected), "auto")
    assert exporter.is_verifying(host(files={**command, **expected}), "auto")
    assert exporter.is_verifying(host(files=expected, links={"/usr/bin/provision": "/opt/x"}), "auto")
    assert exporter.is_verifying(host(files={}), True)
    assert not exporter.is_verifying(host(files={**command, **expected}), "false")


def test_removal_knows_every_file_and_unit_that_any_choice_could_have_left() -> None:
    left = {row["path"] for row in VARS["gpu_exporter_all_files"]}
    written = {row["path"] for name in ("unit_files", "config_files", "record") for row in VARS[f"gpu_exporter_{name}"]}
    assert written <= left
    assert all(
        row["is_wrong"]
        for row in exporter.list_units(host(units=dict.fromkeys(units(host()), ENABLED)), "", False, False)
    )


# What is told of the plan

NO_LOCK = {"version": "", "digest": ""}


def test_plan_is_told_in_the_words_of_verify() -> None:
    text = exporter.write_plan(host(), 8, "580.105.08", NO_LOCK)
    assert "provision_gpu_expected 8\n" in text
    assert 'provision_gpu_expected_driver_info{version="580.105.08"} 1\n' in text
    for name, words in re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE):
        assert prometheus._HELP[name] == words, "node_exporter drops a metric that has two helps"


def test_plan_of_a_node_without_gpus_says_nothing_unless_asked() -> None:
    assert exporter.write_plan(host(), "auto", "", NO_LOCK) == ""
    assert "provision_gpu_expected 2\n" in exporter.write_plan(host(gpus=[{}, {}]), "auto", "", NO_LOCK)
    assert "provision_gpu_expected 0\n" in exporter.write_plan(host(), 0, "", NO_LOCK)


@pytest.mark.parametrize(
    ("digests", "is_told"), [([], False), ([None], False), (["sha256:1"], True), (["sha256:1", "sha256:2"], False)]
)
def test_driver_of_the_lock_is_planned_where_the_node_was_last_made_by_it(digests: list[Any], is_told: bool) -> None:
    node = host(generations=[{"number": number, "lock_digest": digest} for number, digest in enumerate(digests)])
    text = exporter.write_plan(node, "auto", "auto", {"version": "580.105.08", "digest": "sha256:1"})
    assert ('version="580.105.08"' in text) is is_told


# What was installed

RECORD = "/etc/provision/monitoring/installed.json"


def test_record_names_what_was_missing_and_keeps_what_it_named_before() -> None:
    wanted = [{"name": "dbus"}, {"name": "prometheus-node-exporter"}]
    first = exporter.write_record(host(packages={"dbus": {}}), wanted, "/etc/provision/monitoring")
    assert json.loads(first) == {"installed": ["prometheus-node-exporter"]}
    later = host(packages={"dbus": {}, "prometheus-node-exporter": {}}, files={RECORD: {"text": first}})
    more = [*wanted, {"name": "prometheus-blackbox-exporter"}]
    assert json.loads(exporter.write_record(later, more, "/etc/provision/monitoring"))["installed"] == [
        "prometheus-blackbox-exporter",
        "prometheus-node-exporter",
    ]
    assert exporter.read_record(later, "/etc/provision/monitoring") == ["prometheus-node-exporter"]


def test_record_that_somebody_wrote_is_refused() -> None:
    with pytest.raises(exporter.AnsibleFilterError, match="not a record of this role"):
        exporter.read_record(host(files={RECORD: {"text": "[]"}}), "/etc/provision/monitoring")


def test_listener_of_ipv6_stands_in_brackets() -> None:
    assert exporter.list_listeners(["node"], "fd00::7", SETTINGS["ports"]) == ["[fd00::7]:9100"]
    assert exporter.list_listeners(["node", "gpu"], "10.0.0.7", SETTINGS["ports"]) == ["10.0.0.7:9100", "10.0.0.7:9400"]


# Files that must agree with facts and with each other


def test_counters_are_those_that_rules_and_panels_ask_for() -> None:
    assert (ROLE / "files" / "dcgm-counters.csv").read_text(encoding="utf-8") == render_counters(Matrix())


def test_textfiles_lie_where_verify_writes() -> None:
    assert VARS["gpu_exporter_textfiles"] == TEXTFILES
    assert f"{{{{ gpu_exporter_textfiles }}}}/{TEXTFILE}" in {row["path"] for row in VARS["gpu_exporter_all_files"]}


def test_every_exporter_has_one_address_and_its_password() -> None:
    for name in (
        "node-exporter.conf.j2",
        "blackbox-exporter.conf.j2",
        "gpu-exporter.service.j2",
        "dcgm-exporter.conf.j2",
    ):
        text = (ROLE / "templates" / name).read_text(encoding="utf-8")
        assert len(re.findall(r"gpu_exporter_address \| gpu_at\(gpu_exporter_ports\.", text)) == 1, name
        assert "{{ gpu_exporter_web }}" in text, name
        assert "NoNewPrivileges=yes" in text, name
        assert "$ARGS" not in text, name


def test_units_come_before_the_packages_that_start_them() -> None:
    names = [task.name for task in roles.tasks_of(ROLE, "tasks") if task.file.name == "main.yml"]
    before = next(number for number, name in enumerate(names) if name.startswith("Write the units"))
    assert before < names.index("Install the exporters")


def test_blackbox_can_be_asked_for_echoes_and_nothing_else() -> None:
    assert list(roles.load(ROLE / "files" / "blackbox.yml")["modules"]) == ["icmp"]


# The certificate

CHECK = ROLE / "files" / "certificate.py"


@pytest.fixture
def pair(tmp_path: Path) -> dict[str, str]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    found = {name: str(tmp_path / f"node.{name}") for name in ("certificate", "key")}
    words = ("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subprocess.run(
        [*words, "-subj", "/CN=node", "-keyout", found["key"], "-out", found["certificate"]],
        check=True,
        capture_output=True,
    )
    Path(found["key"]).chmod(0o640)
    import grp

    return {**found, "group": grp.getgrgid(Path(found["key"]).stat().st_gid).gr_name}


def check(options: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-", json.dumps(options)],
        input=CHECK.read_text(encoding="utf-8"),
        capture_output=True,
        text=True,
        check=False,
    )


def test_certificate_with_its_key_passes(pair: dict[str, str]) -> None:
    done = check(pair)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda pair: Path(pair["key"]).write_text("no key"), "are no certificate and its key"),
        (lambda pair: Path(pair["key"]).unlink(), "are no certificate and its key"),
        (lambda pair: Path(pair["key"]).chmod(0o600), "cannot be read by the group"),
        (lambda pair: Path(pair["key"]).chmod(0o644), "can be read by everybody"),
        (lambda pair: pair.update(group="no-such-group"), "there is no group no-such-group"),
    ],
    ids=["damaged", "absent", "closed", "open", "group"],
)
def test_certificate_that_exporters_could_not_use_is_refused_in_one_line(
    pair: dict[str, str], change: Any, said: str
) -> None:
    change(pair)
    done = check(pair)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


# Beside gpu-node.yml

MONITORING = ("gpu_alertmanager", "gpu_exporter", "gpu_grafana", "gpu_monitoring", "gpu_prometheus")


def written_by_monitoring() -> set[str]:
    """Every path that a role of gpu-monitoring.yml writes below one that is written down in full."""
    found = set()
    for name in MONITORING:
        file = playbook_files.ROLES / name / "vars" / "main.yml"
        values = roles.load(file) if file.is_file() else {}
        for row in roles.mappings_in(values):
            path = str(row.get("path", ""))
            for key, value in values.items():
                path = path.replace(f"{{{{ {key} }}}}", str(value))
            if path.startswith("/") and "{{" not in path:
                found.add(path)
    return found


def test_monitoring_is_neither_a_trace_nor_a_rest_of_gpu_node() -> None:
    verify = playbook_files.load_filters("gpu_verify")
    paths = {path for path in written_by_monitoring() if "provision" in path}
    assert len(paths) > 15
    wants = "/etc/systemd/system/multi-user.target.wants/provision-gpu-exporter.service"
    links = {
        wants: "/etc/systemd/system/provision-gpu-exporter.service",
        "/usr/local/bin/provision": "/opt/x/provision",
    }
    node = host(files={path: {} for path in paths}, links=links)
    assert verify.list_residue(node, {"kept": [], "kept_modules": []}) == []
    assert not verify._has_trace(node)


@pytest.mark.parametrize("path", ["/etc/provision/jupyter/x.py", "/etc/systemd/system/provision-mig.service"])
def test_what_gpu_node_wrote_is_still_seen(path: str) -> None:
    verify = playbook_files.load_filters("gpu_verify")
    node = host(files={path: {}})
    assert verify.list_residue(node, {"kept": [], "kept_modules": []}) == [f"file {path}"]
    assert verify._has_trace(node)
