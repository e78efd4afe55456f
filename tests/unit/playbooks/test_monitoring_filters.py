"""What the servers of monitoring are told, and which settings are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import playbook_files
import pytest
import yaml

pytest.importorskip("ansible", reason="filters are loaded as ansible-core loads them, which is not installed")

FILTERS = playbook_files.load_filters("gpu_monitoring")
FOLDER = "/etc/provision/monitoring/targets"
HOST = {
    "disk": {"/var": 100_000},
    "engines": {"docker": None, "podman": None},
    "os": {"distribution": "debian", "service_manager": "systemd", "name": "Debian 12", "is_root": True},
    "packages": {},
    "units": {},
}


def known(node: str, address: str, **ports: int) -> dict[str, Any]:
    """How the others know a host that this run looked at."""
    own = {"node": node, "address": address, "ports": {"node": 9100, "icmp": 9115, "gpu": 9400} | ports}
    return {"gpu_monitoring_self": own, "gpu_monitoring_jobs": ["node", "icmp", "gpu"]}


THREE = {"a": known("a", "192.0.2.1"), "b": known("b", "192.0.2.2"), "c": known("c", "192.0.2.3")}


def targets(
    hosts: dict[str, Any], before: dict[str, str] | None = None, probers: int = 2
) -> dict[str, list[dict[str, Any]]]:
    """The targets of each job, after a run that left those of ``before``."""
    files = {f"{FOLDER}/{job}.json": {"text": text} for job, text in (before or {}).items()}
    found = FILTERS.write_targets(list(hosts), hosts, files, FOLDER, probers)
    return {job: json.loads(text) for job, text in found.items()}


# Targets


def test_every_target_carries_one_label_of_its_node() -> None:
    found = targets(THREE)
    assert [(row["targets"], row["labels"]) for row in found["node"]] == [
        (["192.0.2.1:9100"], {"node": "a"}),
        (["192.0.2.2:9100"], {"node": "b"}),
        (["192.0.2.3:9100"], {"node": "c"}),
    ]
    assert [row["targets"] for row in found["gpu"]] == [["192.0.2.1:9400"], ["192.0.2.2:9400"], ["192.0.2.3:9400"]]


def test_round_trips_are_measured_from_the_next_nodes_to_each() -> None:
    found = targets(THREE, probers=1)["icmp"]
    assert [(row["labels"]["prober"], row["labels"]["node"], row["labels"]["__param_target"]) for row in found] == [
        ("b", "a", "192.0.2.1"),
        ("c", "b", "192.0.2.2"),
        ("a", "c", "192.0.2.3"),
    ]
    assert found[0]["targets"] == ["192.0.2.2:9115"]


@pytest.mark.parametrize(("probers", "count"), [(0, 0), (1, 3), (2, 6), (9, 6)])
def test_nobody_measures_the_way_to_itself(probers: int, count: int) -> None:
    found = targets(THREE, probers=probers)["icmp"]
    assert len(found) == count
    assert all(row["labels"]["prober"] != row["labels"]["node"] for row in found)


def test_one_node_alone_measures_nothing() -> None:
    assert targets({"a": THREE["a"]})["icmp"] == []


def test_node_that_is_down_keeps_its_targets() -> None:
    before = FILTERS.write_targets(list(THREE), THREE, {}, FOLDER, 2)
    after = targets(THREE | {"b": {}}, before)
    assert after == {job: json.loads(text) for job, text in before.items()}


def test_node_that_left_the_inventory_is_not_asked_any_more() -> None:
    before = FILTERS.write_targets(list(THREE), THREE, {}, FOLDER, 2)
    after = targets({name: THREE[name] for name in ("a", "c")}, before)
    assert "192.0.2.2" not in json.dumps(after)


def test_node_that_was_never_looked_at_has_no_targets() -> None:
    assert targets({"a": {}}) == {"node": [], "gpu": [], "icmp": []}


def test_what_a_node_does_not_serve_is_not_asked() -> None:
    hosts = THREE | {"b": {**THREE["b"], "gpu_monitoring_jobs": ["node"]}}
    found = targets(hosts)
    assert [row["labels"]["node"] for row in found["gpu"]] == ["a", "c"]
    assert {row["labels"]["prober"] for row in found["icmp"]} == {"a", "c"}
    assert {row["labels"]["node"] for row in found["icmp"]} == {"a", "b", "c"}


def test_addresses_of_the_sixth_version_stand_in_brackets() -> None:
    hosts = {"a": known("a", "2001:db8::1"), "b": known("b", "2001:db8::2")}
    found = targets(hosts)
    assert found["node"][0]["targets"] == ["[2001:db8::1]:9100"]
    assert found["icmp"][0]["labels"]["__param_target"] == "2001:db8::1"


@pytest.mark.parametrize("text", ["", "{", "{}", '[{"labels": []}]', "[1]"])
def test_file_that_somebody_broke_counts_as_empty(text: str) -> None:
    assert targets({"a": {}}, dict.fromkeys(("node", "gpu", "icmp"), text))["node"] == []


# Prometheus

SETTINGS: dict[str, Any] = {
    "alertmanager": ["127.0.0.1", 9093],
    "ca": "/ca.crt",
    "interval_seconds": 30,
    "node": "monitor",
    "password_file": "/password",
    "prometheus": ["127.0.0.1", 9090],
    "rules": "/rules/*.yml",
    "targets": FOLDER,
    "user": "provision",
}


def scrapes(**changes: Any) -> dict[str, Any]:
    """Job → how it is scraped."""
    document = yaml.safe_load(FILTERS.write_prometheus(SETTINGS | changes))
    return {row["job_name"]: row for row in document["scrape_configs"]}


def test_exporters_are_asked_over_tls_with_the_password_out_of_its_file() -> None:
    for job in ("node", "gpu", "icmp"):
        row = scrapes()[job]
        assert row["scheme"] == "https"
        assert row["tls_config"] == {"ca_file": "/ca.crt"}
        assert row["basic_auth"] == {"username": "provision", "password_file": "/password"}
        assert row["file_sd_configs"][0]["files"] == [f"{FOLDER}/{job}.json"]


def test_servers_of_the_monitor_carry_its_label_too() -> None:
    for job in ("prometheus", "alertmanager"):
        assert scrapes()[job]["static_configs"][0]["labels"] == {"node": "monitor"}
        assert "scheme" not in scrapes()[job]


def test_alertmanager_beyond_loopback_is_told_over_tls() -> None:
    document = yaml.safe_load(FILTERS.write_prometheus(SETTINGS | {"alertmanager": ["192.0.2.9", 9093]}))
    (manager,) = document["alerting"]["alertmanagers"]
    assert manager["scheme"] == "https"
    assert manager["basic_auth"]["password_file"] == "/password"


def test_without_alertmanager_nobody_is_told() -> None:
    assert "alerting" not in yaml.safe_load(FILTERS.write_prometheus(SETTINGS | {"alertmanager": []}))
    assert "alertmanager" not in scrapes(alertmanager=[])


@pytest.mark.parametrize(("seconds", "timeout"), [(30, "10s"), (10, "10s"), (2, "2s")])
def test_a_question_takes_no_longer_than_the_time_between_two(seconds: int, timeout: str) -> None:
    document = yaml.safe_load(FILTERS.write_prometheus(SETTINGS | {"interval_seconds": seconds}))
    assert document["global"]["scrape_timeout"] == timeout


def test_same_settings_give_the_same_bytes() -> None:
    assert FILTERS.write_prometheus(SETTINGS) == FILTERS.write_prometheus(dict(reversed(SETTINGS.items())))


# Alertmanager

RENDERED = (playbook_files.ROLES / "gpu_alertmanager/files/alertmanager.yml").read_text(encoding="utf-8")


def test_without_webhooks_the_rendering_stays_as_it_is() -> None:
    assert FILTERS.write_alertmanager(RENDERED, {}) == RENDERED


def test_webhook_is_put_into_its_receiver_alone() -> None:
    text = FILTERS.write_alertmanager(RENDERED, {"release": "https://hooks.example/r"})
    rows = {row["name"]: row for row in yaml.safe_load(text)["receivers"]}
    assert rows["release"]["webhook_configs"] == [{"url": "https://hooks.example/r", "send_resolved": True}]
    assert "webhook_configs" not in rows["default"]
    assert yaml.safe_load(text)["route"] == yaml.safe_load(RENDERED)["route"]


# Refusals

MONITORING: dict[str, Any] = {
    "address": "192.0.2.1",
    "ca_days": 3650,
    "days": 365,
    "host": "a",
    "hosts": {"a": {"node": "a", "address": "192.0.2.1"}, "b": {"node": "b", "address": "192.0.2.2"}},
    "monitors": ["b"],
    "node": "a",
    "nodes": ["a", "b"],
    "password": "",
    "paths": {
        name: f"/etc/provision/monitoring/{file}"
        for name, file in (("ca", "ca.crt"), ("certificate", "node.crt"), ("key", "node.key"))
    },
    "play_hosts": ["a", "b"],
    "ports": {"node": 9100, "icmp": 9115, "gpu": 9400},
    "renew_days": 30,
    "tls": "generated",
    "user": "provision",
}


def test_a_place_without_faults_is_let_pass() -> None:
    assert FILTERS.list_problems(MONITORING, HOST) == []


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"monitors": []}, "has 0 hosts"),
        ({"monitors": ["a", "b"]}, "has 2 hosts"),
        ({"monitors": ["c"]}, "--limit a,c"),
        ({"nodes": []}, "gpu_nodes"),
        ({"address": ""}, "no default route"),
        ({"address": "0.0.0.0"}, "name one address"),  # noqa: S104 - what is refused
        ({"address": "127.0.0.1"}, "no other host can reach it"),
        ({"address": "a b"}, "neither an address nor a name"),
        ({"address": "192.0.2.2"}, "on `b` too"),
        ({"node": "b"}, "on `b` too"),
        ({"node": "two words"}, "one word"),
        ({"ports": {"node": 9100, "icmp": 9100, "gpu": 9400}}, "must differ"),
        ({"ports": {"node": 0, "icmp": 9115, "gpu": 9400}}, "not a port"),
        ({"user": "a:b"}, "gpu_monitoring_user"),
        ({"password": "short"}, "from 12 to 72"),
        ({"password": "x" * 73}, "from 12 to 72"),
        ({"password": "with a blank in it"}, "without blanks"),
        ({"password": 123456789012}, "without blanks"),
        ({"tls": "none"}, "`generated` or `files`"),
        ({"renew_days": 365}, "does not hold"),
        ({"days": True}, "not a number of days"),
        ({"paths": MONITORING["paths"] | {"key": "/etc/ssl/x.key"}}, "gpu_monitoring_tls: files"),
        ({"paths": MONITORING["paths"] | {"key": "x.key"}}, "not an absolute path"),
        ({"paths": dict.fromkeys(MONITORING["paths"], "/etc/provision/monitoring/x")}, "three files"),
    ],
    ids=str,
)
def test_a_fault_is_named_with_its_way_out(changes: dict[str, Any], word: str) -> None:
    (problem,) = FILTERS.list_problems(MONITORING | changes, HOST)
    assert word in problem


def test_all_faults_are_told_at_once_and_no_password() -> None:
    problems = FILTERS.list_problems(MONITORING | {"user": "", "password": "geheim", "tls": "x", "days": 0}, HOST)
    assert len(problems) == 4
    assert "geheim" not in "".join(problems)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"distribution": "fedora"}, "Debian's or Ubuntu's"),
        ({"service_manager": "other"}, "systemd"),
        ({"is_root": False}, "gpu_become"),
    ],
)
def test_a_host_that_cannot_is_named(changes: dict[str, Any], word: str) -> None:
    (problem,) = FILTERS.list_problems(MONITORING, HOST | {"os": HOST["os"] | changes})
    assert word in problem


PROMETHEUS: dict[str, Any] = {
    "interval_seconds": 30,
    "is_ours": False,
    "is_takeover": False,
    "listen": "127.0.0.1",
    "port": 9090,
    "probers": 2,
    "retention_size": "20GB",
    "retention_time": "30d",
}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, None),
        ({"listen": "0.0.0.0"}, "name one address"),  # noqa: S104 - what is refused
        ({"listen": "monitor"}, "name one address"),
        ({"port": "x"}, "not a port"),
        ({"retention_time": "30"}, "`30d`"),
        ({"retention_size": "20"}, "`20GB`"),
        ({"retention_size": "200GB"}, "make room"),
        ({"retention_size": "200GB", "is_ours": True}, None),
        ({"interval_seconds": 0}, "gpu_prometheus_interval_seconds"),
        ({"probers": -1}, "gpu_prometheus_icmp_probers"),
    ],
    ids=str,
)
def test_prometheus_is_refused_what_it_cannot_be(changes: dict[str, Any], word: str | None) -> None:
    problems = FILTERS.list_prometheus_problems(PROMETHEUS | changes, HOST)
    assert len(problems) == (word is not None)
    assert word is None or word in problems[0]


@pytest.mark.parametrize(("changes", "count"), [({}, 1), ({"is_ours": True}, 0), ({"is_takeover": True}, 0)])
@pytest.mark.parametrize(
    "row", [{"enabled": "enabled", "active": "failed"}, {"enabled": "disabled", "active": "active"}]
)
def test_a_prometheus_of_somebody_else_is_left_alone(row: dict[str, str], changes: dict[str, Any], count: int) -> None:
    host = HOST | {"units": {"prometheus.service": row}}
    assert len(FILTERS.list_prometheus_problems(PROMETHEUS | changes, host)) == count


def test_a_prometheus_that_a_removal_left_behind_is_taken() -> None:
    host = HOST | {"units": {"prometheus.service": {"enabled": "disabled", "active": "inactive"}}}
    assert FILTERS.list_prometheus_problems(PROMETHEUS, host) == []


@pytest.mark.parametrize(
    ("webhooks", "count"),
    [
        ({}, 0),
        ({"default": "https://hooks.example/gpu?token=geheim"}, 0),
        ({"nobody": "https://hooks.example/gpu?token=geheim"}, 1),
        ({"default": "ftp://hooks.example/geheim"}, 1),
        ({"nobody": "geheim"}, 2),
        ("https://hooks.example/geheim", 1),
    ],
    ids=str,
)
def test_webhooks_are_judged_and_not_repeated(webhooks: object, count: int) -> None:
    settings = {"is_ours": True, "is_takeover": False, "listen": "127.0.0.1", "port": 9093, "webhooks": webhooks}
    problems = FILTERS.list_alertmanager_problems(settings, HOST, RENDERED)
    assert len(problems) == count
    assert "geheim" not in "".join(problems)


GRAFANA: dict[str, Any] = {
    "has_tls": False,
    "image": "",
    "key": "",
    "listen": "127.0.0.1",
    "password": "",
    "port": 3000,
    "repository": "",
    "source": "none",
}
KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
IMAGE = "mirror.example/grafana@sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, []),
        ({"source": "package", "repository": "https://mirror.example/grafana", "key": KEY}, []),
        ({"source": "package"}, ["needs `gpu_grafana_repository`"]),
        ({"repository": "https://mirror.example/grafana"}, ["are for `gpu_grafana_source: package`"]),
        ({"source": "package", "repository": "mirror", "key": "x"}, ["is not an address", "not a public key"]),
        ({"source": "container", "image": IMAGE}, ["neither docker nor podman"]),
        ({"source": "container", "image": "grafana:latest"}, ["by its digest", "neither docker nor podman"]),
        ({"image": IMAGE}, ["is for `gpu_grafana_source: container`"]),
        ({"listen": "192.0.2.1"}, ["must be loopback"]),
        ({"source": "snap"}, ["`none`, `package` or `container`"]),
        ({"password": "short"}, ["from 12 to 72"]),
    ],
    ids=str,
)
def test_grafana_is_refused_what_contradicts_itself(changes: dict[str, Any], words: list[str]) -> None:
    problems = FILTERS.list_grafana_problems(GRAFANA | changes, HOST)
    assert len(problems) == len(words)
    assert all(word in problem for word, problem in zip(words, problems, strict=True))


def test_grafana_reads_the_password_from_its_file() -> None:
    settings = {"url": "https://192.0.2.9:9090", "user": "provision", "password_file": "/password", "ca": "/ca.crt"}
    (source,) = yaml.safe_load(FILTERS.write_datasource(settings))["datasources"]
    assert source["secureJsonData"] == {"basicAuthPassword": "$__file{/password}", "tlsCACert": "$__file{/ca.crt}"}
    (plain,) = yaml.safe_load(FILTERS.write_datasource(settings | {"user": ""}))["datasources"]
    assert "secureJsonData" not in plain


# Certificates


@pytest.mark.parametrize(
    ("address", "node", "hostname", "names"),
    [
        ("192.0.2.1", "GPU01", "gpu01", ["IP:192.0.2.1", "DNS:gpu01"]),
        ("gpu01.example", "gpu01", "host", ["DNS:gpu01.example", "DNS:gpu01", "DNS:host"]),
        ("2001:db8::1", "no name,IP:192.0.2.9", "-", ["IP:2001:db8::1"]),
        ("192.0.2.1", "192.0.2.1", "gpu01", ["IP:192.0.2.1", "DNS:gpu01"]),
    ],
)
def test_certificate_is_for_the_address_and_for_what_is_a_name(
    address: str, node: str, hostname: str, names: list[str]
) -> None:
    assert FILTERS.name_certificate(address, node, hostname) == names


@pytest.mark.parametrize("run", [{}, {"stdout": "x"}, {"stdout": "[]"}, {"stdout": "", "stderr": "a\nlast\n", "rc": 1}])
def test_script_that_says_nothing_is_a_problem(run: dict[str, Any]) -> None:
    assert "its script ended" in FILTERS.read_answer(run)["problem"]
    assert ("last" in FILTERS.read_answer(run)["problem"]) is ("stderr" in run)


# The files of roles


def test_roles_carry_what_the_facts_render() -> None:
    from provision.generate.monitoring import DASHBOARDS, render_alertmanager, render_dashboard, render_rules
    from provision.matrix.load import Matrix

    matrix = Matrix()
    wanted = {
        "gpu_alertmanager/files/alertmanager.yml": render_alertmanager(matrix),
        "gpu_prometheus/files/provision-gpu.rules.yml": render_rules(matrix),
        **{
            f"gpu_grafana/files/dashboards/provision-{name}.json": render_dashboard(matrix, name) for name in DASHBOARDS
        },
    }
    stale = [path for path, text in wanted.items() if Path(playbook_files.ROLES, path).read_text("utf-8") != text]
    assert stale == [], "run `make docs`"
