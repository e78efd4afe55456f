"""Filters that word what the servers of monitoring are told, and refuse settings that contradict each other.

What another program reads is written by a YAML dumper, never by a template: the same settings give the same bytes.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml
from ansible.errors import AnsibleFilterError

__all__ = ["FilterModule"]

HEADER = "# Written by provision (role {role}): changes made here are undone by its next run.\n"
JOBS = ("node", "gpu", "icmp")
"""Jobs of Prometheus whose targets come from the inventory."""

PASSWORD_BYTES_MIN, PASSWORD_BYTES_MAX = 12, 72
"""bcrypt reads no more than 72 bytes; shorter than twelve is soon found from a hash."""

_SCRAPE_SECONDS_MAX = 10
_DNS = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
_USER = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PATH = re.compile(r"/[\w./+-]+")
_DURATION = re.compile(r"[1-9]\d{0,5}(h|d|w|y)")
_SIZE = re.compile(r"([1-9]\d{0,5})(MB|GB|TB)")
_URL = re.compile(r"https?://[A-Za-z0-9._~:/?\[\]!$&'()*+,;=%-]+")
_DIGEST = re.compile(r"[a-z0-9][\w./:-]*@sha256:[0-9a-f]{64}")
_MIB = {"MB": 1, "GB": 1024, "TB": 1024 * 1024}
_DISTRIBUTIONS = ("debian", "ubuntu")


# ------------------------------------------------------------------------------------------------------- who with whom


def read_answer(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what files/credentials.py said; where it said nothing, a ``problem`` with the last line of its errors."""
    try:
        answer = json.loads(run.get("stdout") or "")
        if isinstance(answer, dict):
            return answer
    except ValueError:
        pass
    said = [line for line in str(run.get("stderr") or run.get("msg") or "").splitlines() if line.strip()]
    return {"problem": f"its script ended with {run.get('rc', '?')}: {said[-1] if said else 'it said nothing'}"}


def write_stdin(options: Mapping[str, Any], script: str) -> str:
    """Return what a node's Python reads: files/credentials.py with its options before it, as one line."""
    return f"OPTIONS = {json.dumps(json.dumps(options, default=_plain))}\n{script}"


def find_hosts(names: Iterable[str], hostvars: Mapping[str, Any]) -> dict[str, Any]:
    """Return host → how the others know it, of those hosts that this run has looked at."""
    found = {name: hostvars[name].get("gpu_monitoring_self") for name in names if name in hostvars}
    return {name: row for name, row in found.items() if row}


def name_certificate(address: str, node: str, hostname: str) -> list[str]:
    """Return the names that a host's certificate is for, as openssl takes them, the address first."""
    names = [f"IP:{address}"] if _is_ip(address) else [f"DNS:{address.lower()}"]
    names += [f"DNS:{name.lower()}" for name in (node, hostname) if _DNS.fullmatch(name) and not _is_ip(name)]
    return list(dict.fromkeys(names))


def list_problems(settings: Mapping[str, Any], host: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with one host's place in the monitoring, and with what all share.

    Args:
        settings: What vars/main.yml of gpu_monitoring gathers.
        host: What gpu_facts collected.
    """
    problems = []
    monitors, hosts = list(settings["monitors"]), settings["hosts"]
    if len(monitors) != 1:
        problems.append(
            f"The group `gpu_monitor` has {len(monitors)} hosts; one host watches: put exactly one into it. "
            "`provision fleet rules --monitor` writes servers for several"
        )
    elif monitors[0] not in settings["play_hosts"]:
        problems.append(
            f"`{monitors[0]}` watches this host and is not in this run: it signs certificates and knows the password. "
            f"Add it to `--limit`, as in `--limit {settings['host']},{monitors[0]}`"
        )
    if not settings["nodes"]:
        problems.append("No host is watched: put hosts into the group `gpu_nodes`")
    problems += _list_place_problems(settings, hosts)
    problems += _list_secret_problems(settings)
    if host["os"]["distribution"] not in _DISTRIBUTIONS or host["os"]["service_manager"] != "systemd":
        problems.append(
            f"This is {host['os']['name'] or 'an unknown system'} with {host['os']['service_manager']} as its first "
            "process; exporters and servers come from Debian's or Ubuntu's packages and run under systemd"
        )
    if not host["os"]["is_root"]:
        problems.append("The play is not root on this host: set `gpu_become: true`, or connect as root")
    return problems


def _list_place_problems(settings: Mapping[str, Any], hosts: Mapping[str, Any]) -> list[str]:
    problems = []
    address, node = str(settings["address"]), str(settings["node"])
    if not address:
        problems.append("This host has no default route, so its address is unknown: set `gpu_monitoring_address`")
    elif not (_is_ip(address) or _DNS.fullmatch(address)):
        problems.append(f"`gpu_monitoring_address` is {address!r:.80}, which is neither an address nor a name")
    elif _is_ip(address) and ipaddress.ip_address(address).is_unspecified:
        problems.append(f"`gpu_monitoring_address` is {address}: name one address, that of the fleet's own network")
    elif is_loopback(address) and set(settings["nodes"]) | set(settings["monitors"]) != {settings["host"]}:
        problems.append(f"`gpu_monitoring_address` is {address}, where no other host can reach it")
    if not re.fullmatch(r"[^\s\x00-\x1f\"\\{}]{1,253}", node):
        problems.append(f"`gpu_monitoring_node` is {node!r:.80}: a label is one word")
    for name, row in hosts.items():
        if name == settings["host"]:
            continue
        for key, variable in (("node", "gpu_monitoring_node"), ("address", "gpu_monitoring_address")):
            if row[key] and row[key] == settings[key]:
                problems.append(f"`{variable}` is {row[key]} on `{name}` too: each host has one of its own")
    for job, port in settings["ports"].items():
        if not _is_port(port):
            problems.append(f"`gpu_monitoring_{job}_port` is {port!r:.40}, which is not a port")
    if len({str(port) for port in settings["ports"].values()}) != len(settings["ports"]):
        problems.append("`gpu_monitoring_node_port`, `_icmp_port` and `_gpu_port` must differ")
    return problems


def _list_secret_problems(settings: Mapping[str, Any]) -> list[str]:
    problems = []
    if not isinstance(settings["user"], str) or not _USER.fullmatch(settings["user"]):
        problems.append("`gpu_monitoring_user` is not a word of letters, digits, `.`, `_` and `-`")
    problems += _list_password_problems("gpu_monitoring_password", settings["password"])
    if settings["tls"] not in ("generated", "files"):
        problems.append(f"`gpu_monitoring_tls` is {settings['tls']!r:.40}: it is `generated` or `files`")
    days = {name: settings[name] for name in ("renew_days", "days", "ca_days")}
    wrong = [name for name, value in days.items() if not _is_number(value, 1, 36500)]
    problems += [f"`gpu_monitoring_{name}` is {days[name]!r:.40}, which is not a number of days" for name in wrong]
    if not wrong and not int(days["renew_days"]) < int(days["days"]) < int(days["ca_days"]):
        problems.append(
            "`gpu_monitoring_renew_days` < `gpu_monitoring_days` < `gpu_monitoring_ca_days` does not hold: "
            f"{days['renew_days']}, {days['days']}, {days['ca_days']}"
        )
    for name, path in settings["paths"].items():
        if not isinstance(path, str) or not _PATH.fullmatch(path) or ".." in path.split("/"):
            problems.append(f"`gpu_monitoring_{name}` is {path!r:.80}, which is not an absolute path")
        elif settings["tls"] == "generated" and not path.startswith("/etc/provision/monitoring/"):
            problems.append(
                f"`gpu_monitoring_{name}` is {path}: what is generated lies in /etc/provision/monitoring. "
                "For files of your own set `gpu_monitoring_tls: files`"
            )
    if len(set(map(str, settings["paths"].values()))) != len(settings["paths"]):
        problems.append("`gpu_monitoring_ca`, `_certificate` and `_key` must be three files")
    return problems


def _list_password_problems(variable: str, password: Any) -> list[str]:
    """What is wrong with a password that was given; it is never repeated."""
    if password == "":
        return []
    if not isinstance(password, str) or not re.fullmatch(r"[\x21-\x7e]+", password):
        return [f"`{variable}` holds something else than printable ASCII characters without blanks"]
    if not PASSWORD_BYTES_MIN <= len(password) <= PASSWORD_BYTES_MAX:
        return [f"`{variable}` has not from {PASSWORD_BYTES_MIN} to {PASSWORD_BYTES_MAX} characters"]
    return []


# ---------------------------------------------------------------------------------------------------------- Prometheus


def list_prometheus_problems(settings: Mapping[str, Any], host: Mapping[str, Any]) -> list[str]:
    """Return contradictions in the variables of gpu_prometheus, and between them and the monitor."""
    problems = _list_listener_problems("gpu_prometheus", settings)
    if not isinstance(settings["retention_time"], str) or not _DURATION.fullmatch(settings["retention_time"]):
        problems.append(f"`gpu_prometheus_retention_time` is {settings['retention_time']!r:.40}: write `30d`")
    size = _SIZE.fullmatch(str(settings["retention_size"]))
    if not size:
        problems.append(f"`gpu_prometheus_retention_size` is {settings['retention_size']!r:.40}: write `20GB`")
    elif not settings["is_ours"]:
        free, needed = host["disk"].get("/var"), int(size[1]) * _MIB[size[2]]
        if free is not None and free < needed:
            problems.append(
                f"/var has {free} MiB free and `gpu_prometheus_retention_size` asks for {needed}: make room, or set "
                f"a smaller one, such as `{max(free // 2, 1)}MB`"
            )
    if not _is_number(settings["interval_seconds"], 1, 3600):
        problems.append(f"`gpu_prometheus_interval_seconds` is {settings['interval_seconds']!r:.40}: write `30`")
    if not _is_number(settings["probers"], 0, 64):
        problems.append(f"`gpu_prometheus_icmp_probers` is {settings['probers']!r:.40}: write `2`")
    if _serves("prometheus.service", host) and not settings["is_ours"] and not settings["is_takeover"]:
        problems.append(
            "A Prometheus serves here that this play did not set up, and it would run with another "
            "configuration: take another monitor, or set `gpu_prometheus_takeover: true`. Its files stay as they are"
        )
    return problems


def write_targets(
    nodes: Sequence[str], hostvars: Mapping[str, Any], files: Mapping[str, Any], folder: str, probers: int
) -> dict[str, str]:
    """Return job → the text of its file of targets.

    A host that this run did not look at (it is down, or ``--limit`` left it out) keeps the targets that it had: what
    does not answer is what monitoring is for. One that was never looked at has none yet.

    Args:
        nodes: Hosts that are watched, in the order of the inventory.
        hostvars: Facts of all hosts: ``gpu_monitoring_self``, and ``gpu_monitoring_jobs``, what a node serves.
        files: Path → what gpu_facts saw on the monitor, with the text of the targets.
        folder: Where those files lie.
        probers: How many nodes send packets to each node.
    """
    earlier = {job: _read_targets(files, f"{folder}/{job}.json") for job in JOBS}
    rows: dict[str, list[dict[str, Any]]] = {job: [] for job in JOBS}
    reached: dict[str, dict[str, str]] = {}
    for name in nodes:
        own, served = (hostvars[name].get(fact) for fact in ("gpu_monitoring_self", "gpu_monitoring_jobs"))
        label = own["node"] if own else hostvars[name].get("gpu_monitoring_node", name)
        if own and served:
            for job in ("node", "gpu"):
                if job in served:
                    rows[job].append({"targets": [_at(own["address"], own["ports"][job])], "labels": {"node": label}})
            prober = _at(own["address"], own["ports"]["icmp"]) if "icmp" in served else ""
            reached[label] = {"address": own["address"], "prober": prober}
            continue
        for job in ("node", "gpu"):
            rows[job] += [row for row in earlier[job] if row["labels"].get("node") == label]
        reached[label] = {
            "address": next(
                (_text(row, "__param_target") for row in earlier["icmp"] if _text(row, "node") == label), ""
            ),
            "prober": next((row["targets"][0] for row in earlier["icmp"] if _text(row, "prober") == label), ""),
        }
    rows["icmp"] = _probes(reached, int(probers))
    return {job: json.dumps(rows[job], indent=1, sort_keys=True) + "\n" for job in JOBS}


def _probes(reached: Mapping[str, Mapping[str, str]], probers: int) -> list[dict[str, Any]]:
    """Who sends packets to whom: each node is reached from the next ones in the inventory, in a ring."""
    able = [node for node, row in reached.items() if row["prober"]]
    rows = []
    for place, (node, row) in enumerate(reached.items()):
        if not row["address"]:
            continue
        later = list(reached)[place + 1 :]
        others = sorted((name for name in able if name != node), key=lambda name: (name not in later, able.index(name)))
        rows += [
            {
                "targets": [reached[prober]["prober"]],
                "labels": {"node": node, "prober": prober, "__param_target": row["address"]},
            }
            for prober in others[:probers]
        ]
    return rows


def _text(row: Mapping[str, Any], label: str) -> str:
    return str(row["labels"].get(label, ""))


def _read_targets(files: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    try:
        rows = json.loads((files.get(path) or {}).get("text") or "[]")
    except ValueError:
        return []
    rows = rows if isinstance(rows, list) else []
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("labels"), dict) and row.get("targets")]


def write_prometheus(settings: Mapping[str, Any]) -> str:
    """Return the configuration of Prometheus.

    Args:
        settings: ``interval_seconds``, ``rules``, ``targets`` (folder), ``ca``, ``user``, ``password_file``, ``node``
            (of the monitor), ``prometheus`` and ``alertmanager`` (address and port of each, the latter empty where
            there is none).
    """
    seconds = int(settings["interval_seconds"])
    secured = {
        "scheme": "https",
        "tls_config": {"ca_file": settings["ca"]},
        "basic_auth": {"username": settings["user"], "password_file": settings["password_file"]},
    }
    scrapes = [_scrape(job, secured, settings["targets"]) for job in JOBS]
    scrapes += [
        {
            "job_name": job,
            **({} if is_loopback(settings[job][0]) else secured),
            "static_configs": [{"targets": [_at(*settings[job])], "labels": {"node": settings["node"]}}],
        }
        for job in ("prometheus", "alertmanager")
        if settings[job]
    ]
    document: dict[str, Any] = {
        "global": {
            "scrape_interval": f"{seconds}s",
            "scrape_timeout": f"{min(seconds, _SCRAPE_SECONDS_MAX)}s",
            "evaluation_interval": f"{seconds}s",
        },
        "rule_files": [settings["rules"]],
    }
    if settings["alertmanager"]:
        at = settings["alertmanager"]
        security = {} if is_loopback(at[0]) else secured
        document["alerting"] = {"alertmanagers": [{**security, "static_configs": [{"targets": [_at(*at)]}]}]}
    document["scrape_configs"] = scrapes
    return _dump(document, "gpu_prometheus")


def _scrape(job: str, secured: Mapping[str, Any], folder: str) -> dict[str, Any]:
    scrape: dict[str, Any] = {
        "job_name": job,
        **secured,
        "file_sd_configs": [{"files": [f"{folder}/{job}.json"], "refresh_interval": "5m"}],
    }
    if job == "icmp":
        scrape |= {"metrics_path": "/probe", "params": {"module": ["icmp"]}}
    return scrape


def write_web(user: str, password_hash: str, certificate: str, key: str) -> str:
    """Return what a server of Prometheus' toolkit is told about TLS and who may ask it."""
    document = {
        "tls_server_config": {"cert_file": certificate, "key_file": key},
        "basic_auth_users": {user: password_hash},
    }
    return _dump(document, "gpu_prometheus")


# --------------------------------------------------------------------------------------------------------- Alertmanager


def list_alertmanager_problems(settings: Mapping[str, Any], host: Mapping[str, Any], text: str) -> list[str]:
    """Return contradictions in the variables of gpu_alertmanager; addresses are not repeated, for one may hold a token.

    Args:
        settings: What vars/main.yml of gpu_alertmanager gathers.
        host: What gpu_facts collected.
        text: The configuration without addresses, as ``provision fleet rules`` writes it.
    """
    problems = _list_listener_problems("gpu_alertmanager", settings)
    names = [row["name"] for row in _read_yaml(text).get("receivers", [])]
    webhooks = settings["webhooks"]
    if not isinstance(webhooks, Mapping):
        problems.append("`gpu_alertmanager_webhooks` is not a mapping of a receiver to an address")
        webhooks = {}
    for name, address in webhooks.items():
        if name not in names:
            problems.append(
                f"`gpu_alertmanager_webhooks` names the receiver `{name!s:.40}`; there are {', '.join(names)}"
            )
        if not isinstance(address, str) or not _URL.fullmatch(address):
            problems.append(
                f"`gpu_alertmanager_webhooks`: that of `{name!s:.40}` is not an address that can be posted to; write "
                "`https://hooks.example/gpu`"
            )
    if _serves("prometheus-alertmanager.service", host) and not settings["is_ours"] and not settings["is_takeover"]:
        problems.append(
            "An Alertmanager serves here that this play did not set up: take another monitor, or set "
            "`gpu_alertmanager_takeover: true`. Its files stay as they are"
        )
    return problems


def write_alertmanager(text: str, webhooks: Mapping[str, str]) -> str:
    """Return the configuration of Alertmanager with addresses put in: the very text where there are none.

    Args:
        text: As ``provision fleet rules`` writes it, with receivers that tell nobody.
        webhooks: Receiver → the address that its alerts are posted to.
    """
    if not webhooks:
        return text
    document = _read_yaml(text)
    for row in document["receivers"]:
        if row["name"] in webhooks:
            row["webhook_configs"] = [{"url": webhooks[row["name"]], "send_resolved": True}]
    return _dump(document, "gpu_alertmanager")


# -------------------------------------------------------------------------------------------------------------- Grafana


def list_grafana_problems(settings: Mapping[str, Any], host: Mapping[str, Any]) -> list[str]:
    """Return contradictions in the variables of gpu_grafana, and between them and the monitor."""
    problems = _list_listener_problems("gpu_grafana", settings)
    if not is_loopback(str(settings["listen"])):
        problems.append("`gpu_grafana_listen` must be loopback: put a proxy of your own with a certificate before it")
    source = settings["source"]
    if source not in ("none", "package", "container"):
        problems.append(f"`gpu_grafana_source` is {source!r:.40}: it is `none`, `package` or `container`")
    if source == "package" and not (settings["repository"] and settings["key"]):
        problems.append("`gpu_grafana_source` is `package`: it needs `gpu_grafana_repository` and `gpu_grafana_key`")
    if source != "package" and (settings["repository"] or settings["key"]):
        problems.append("`gpu_grafana_repository` and `gpu_grafana_key` are for `gpu_grafana_source: package`")
    if settings["repository"] and not (
        isinstance(settings["repository"], str) and _URL.fullmatch(settings["repository"])
    ):
        problems.append("`gpu_grafana_repository` is not an address; write `https://mirror.example/grafana`")
    if settings["key"] and "BEGIN PGP PUBLIC KEY BLOCK" not in str(settings["key"]):
        problems.append("`gpu_grafana_key` is not a public key in text form (`-----BEGIN PGP PUBLIC KEY BLOCK-----`)")
    if source == "container" and not _DIGEST.fullmatch(str(settings["image"])):
        problems.append(
            "`gpu_grafana_source` is `container`: `gpu_grafana_image` names an image by its digest, such as "
            "`mirror.example/grafana@sha256:…`"
        )
    if source == "container" and settings["has_tls"]:
        problems.append(
            "`gpu_grafana_source` is `container`, which cannot read the password: leave `gpu_prometheus_listen` on "
            "loopback, or take `package`"
        )
    if source != "container" and settings["image"]:
        problems.append("`gpu_grafana_image` is for `gpu_grafana_source: container`")
    if source == "container" and not any(host["engines"].get(engine) for engine in ("docker", "podman")):
        problems.append("`gpu_grafana_source` is `container`, and neither docker nor podman is on the monitor")
    return problems + _list_password_problems("gpu_grafana_password", settings["password"])


def write_datasource(settings: Mapping[str, Any]) -> str:
    """Return what Grafana is told of Prometheus; the password stays in its file, which Grafana reads.

    Args:
        settings: ``url``, and where it is asked over TLS ``user``, ``password_file`` and ``ca``.
    """
    source: dict[str, Any] = {
        "name": "Prometheus",
        "uid": "provision",
        "type": "prometheus",
        "access": "proxy",
        "url": settings["url"],
        "isDefault": True,
        "editable": False,
    }
    if settings["user"]:
        source |= {
            "basicAuth": True,
            "basicAuthUser": settings["user"],
            "jsonData": {"tlsAuthWithCACert": True},
            "secureJsonData": {
                "basicAuthPassword": f"$__file{{{settings['password_file']}}}",
                "tlsCACert": f"$__file{{{settings['ca']}}}",
            },
        }
    return _dump({"apiVersion": 1, "datasources": [source]}, "gpu_grafana")


def write_provider(folder: str) -> str:
    """Return what tells Grafana that dashboards lie in a folder, and are changed there alone."""
    provider = {
        "name": "provision",
        "folder": "GPU",
        "type": "file",
        "allowUiUpdates": False,
        "disableDeletion": True,
        "options": {"path": folder},
    }
    return _dump({"apiVersion": 1, "providers": [provider]}, "gpu_grafana")


# --------------------------------------------------------------------------------------------------------------- shared


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address; a name is taken for one that others reach, but for localhost."""
    return address == "localhost" or (_is_ip(address) and ipaddress.ip_address(address).is_loopback)


def join_address(address: str, port: Any) -> str:
    """Return ``address:port``, an IPv6 address in brackets."""
    return _at(address, port)


def _list_listener_problems(role: str, settings: Mapping[str, Any]) -> list[str]:
    problems = []
    listen = str(settings["listen"])
    if not _is_ip(listen) or ipaddress.ip_address(listen).is_unspecified:
        problems.append(
            f"`{role}_listen` is {listen!r:.60}: name one address, 127.0.0.1 or that of the fleet's own network"
        )
    if not _is_port(settings["port"]):
        problems.append(f"`{role}_port` is {settings['port']!r:.40}, which is not a port")
    return problems


def _serves(unit: str, host: Mapping[str, Any]) -> bool:
    """Whether a unit runs, or would after a restart; one that a removal left behind does neither."""
    row = host["units"].get(unit) or {}
    return row.get("enabled") in ("enabled", "enabled-runtime") or row.get("active") == "active"


def _at(address: str, port: Any) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _is_ip(text: Any) -> bool:
    try:
        ipaddress.ip_address(str(text))
    except ValueError:
        return False
    return True


def _is_number(value: Any, least: int, most: int) -> bool:
    return (
        not isinstance(value, bool) and re.fullmatch(r"\d{1,6}", str(value)) is not None and least <= int(value) <= most
    )


def _is_port(value: Any) -> bool:
    return _is_number(value, 1, 65535)


def _read_yaml(text: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise AnsibleFilterError(f"this is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise AnsibleFilterError("this is not a YAML mapping")
    return document


def _dump(document: Mapping[str, Any], role: str) -> str:
    # What Ansible hands over are its own kinds of text and of containers, which a safe dumper does not know.
    plain = json.loads(json.dumps(document, default=_plain))
    text: str = yaml.safe_dump(plain, sort_keys=False, width=2**20, allow_unicode=True)
    return "---\n" + HEADER.format(role=role) + text


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    return str(value)


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_alertmanager_config": write_alertmanager,
            "gpu_alertmanager_problems": list_alertmanager_problems,
            "gpu_at": join_address,
            "gpu_grafana_datasource": write_datasource,
            "gpu_grafana_problems": list_grafana_problems,
            "gpu_grafana_provider": write_provider,
            "gpu_is_loopback": is_loopback,
            "gpu_monitoring_answer": read_answer,
            "gpu_monitoring_hosts": find_hosts,
            "gpu_monitoring_names": name_certificate,
            "gpu_monitoring_problems": list_problems,
            "gpu_monitoring_stdin": write_stdin,
            "gpu_monitoring_targets": write_targets,
            "gpu_prometheus_config": write_prometheus,
            "gpu_prometheus_problems": list_prometheus_problems,
            "gpu_web_config": write_web,
        }
