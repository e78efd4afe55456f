"""Several monitors that watch one fleet: each has a Prometheus and an Alertmanager, and one of them tells of an alert.

Each Prometheus evaluates every rule and sends what fires to every Alertmanager, without the label that tells the two
apart. The Alertmanagers form a mesh in which the first that told of an alert says so.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any

from provision.errors import UsageError
from provision.generate.write import Artifact
from provision.matrix.load import Matrix

MONITORS = (2, 5)
"""How few and how many monitors may watch together."""

_FILE = "cluster.toml"
_HEADER = "# Written by `provision fleet` from facts of {dated}; change the request, not this file.\n"
_PROMETHEUS, _ALERTMANAGER, _MESH = 9090, 9093, 9094
_REPLICA = "replica"
_SECONDS = "30s"
_JOBS = ("gpu", "node")


def render_monitors(
    addresses: Sequence[str], matrix: Matrix, notifiers: Mapping[str, Mapping[str, str]] | None = None
) -> tuple[Artifact, ...]:
    """Return for each monitor a folder with the configuration of its Prometheus and a Compose file of both servers.

    They read the rules, the routes and the targets that lie beside these folders.

    Args:
        addresses: Of the monitors, as they reach each other.
        matrix: Which images the servers are of.
        notifiers: Whom alerts are told to, as :func:`provision.generate.monitoring.render_alertmanager` takes it: the
            files that it names are mounted.

    Raises:
        UsageError: They are not from two to five, one is no address, or one is named twice.
    """
    places = (place for told in (notifiers or {}).values() for place in told.values())
    secrets = sorted({place for place in places if place.startswith("/")})
    hosts = [_address(text) for text in addresses]
    if len(set(hosts)) < len(hosts):
        raise UsageError("--monitor names one address twice", hints=("name each monitor once",))
    least, most = MONITORS
    if not least <= len(hosts) <= most:
        raise UsageError(
            f"--monitor is there {len(hosts)} {'time' if len(hosts) == 1 else 'times'}",
            because=(f"from {least} to {most} monitors watch together",),
            hints=(
                "name two, as in `--monitor 10.0.0.5 --monitor 10.0.0.6`",
                "a single one is set up by gpu-monitoring.yml",
            ),
        )
    found = []
    for host in hosts:
        others = [other for other in hosts if other != host]
        folder = f"monitors/{host.replace(':', '-')}"
        found.append(_artifact(f"{folder}/prometheus.yml", _prometheus(host, hosts), matrix))
        found.append(_artifact(f"{folder}/compose.yaml", _compose(host, others, secrets, matrix), matrix))
    return tuple(found)


def _address(text: str) -> str:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise UsageError(
            f"--monitor {text[:80]!a} is not an address",
            because=("Alertmanager takes no name for where its mesh listens",),
            hints=("write the address by which the monitors reach each other, as in `--monitor 10.0.0.5`",),
        ) from None
    if isinstance(found, ipaddress.IPv6Address):
        if found.scope_id is not None or found.is_link_local:
            raise UsageError(
                f"--monitor {text[:80]!a} is an address of one link",
                because=("which network device it is at differs between the monitors",),
                hints=("name one that is the same for all, as in `--monitor 10.0.0.5`",),
            )
        found = found.ipv4_mapped or found
    if found.is_unspecified or found.is_multicast or found.is_loopback:
        raise UsageError(
            f"--monitor {text} is the address of no machine",
            hints=("name the one by which the other monitors reach it",),
        )
    return str(found)


def _at(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _prometheus(host: str, hosts: Sequence[str]) -> dict[str, Any]:
    return {
        "global": {
            "scrape_interval": _SECONDS,
            "evaluation_interval": _SECONDS,
            # By it a query over both, and what is written elsewhere, tells the one from the other.
            "external_labels": {_REPLICA: host},
        },
        "rule_files": ["provision-gpu.rules.yml"],
        "alerting": {
            # Alerts of two that differ in a label are two alerts, and are told twice.
            "alert_relabel_configs": [{"action": "labeldrop", "regex": _REPLICA}],
            "alertmanagers": [{"static_configs": [{"targets": [_at(other, _ALERTMANAGER) for other in hosts]}]}],
        },
        "scrape_configs": [{"job_name": job, "file_sd_configs": [{"files": [f"targets/{job}.json"]}]} for job in _JOBS],
    }


def _compose(host: str, others: Sequence[str], secrets: Sequence[str], matrix: Matrix) -> dict[str, Any]:
    images = dict(matrix.setting(_FILE, "monitor_images").entries or {})
    folder = "/etc/prometheus"
    prometheus = {
        "image": images["prometheus"],
        "command": [
            f"--config.file={folder}/prometheus.yml",
            "--storage.tsdb.path=/prometheus",
            f"--web.listen-address={_at(host, _PROMETHEUS)}",
        ],
        "volumes": [
            f"./prometheus.yml:{folder}/prometheus.yml:ro",
            f"../../provision-gpu.rules.yml:{folder}/provision-gpu.rules.yml:ro",
            f"../../targets:{folder}/targets:ro",
            "prometheus:/prometheus",
        ],
    }
    alertmanager = {
        "image": images["alertmanager"],
        "command": [
            "--config.file=/etc/alertmanager/alertmanager.yml",
            "--storage.path=/alertmanager",
            f"--web.listen-address={_at(host, _ALERTMANAGER)}",
            f"--cluster.listen-address={_at(host, _MESH)}",
            *(f"--cluster.peer={_at(other, _MESH)}" for other in others),
        ],
        "volumes": [
            "../../alertmanager.yml:/etc/alertmanager/alertmanager.yml:ro",
            *map(_secret, secrets),
            "alertmanager:/alertmanager",
        ],
    }
    shared = {"network_mode": "host", "restart": "unless-stopped"}
    return {
        "services": {"prometheus": {**prometheus, **shared}, "alertmanager": {**alertmanager, **shared}},
        "volumes": {"prometheus": {}, "alertmanager": {}},
    }


def _secret(path: str) -> dict[str, Any]:
    """Return the mount of a file; the short form would make a folder of one that is missing."""
    return {"type": "bind", "source": path, "target": path, "read_only": True, "bind": {"create_host_path": False}}


def _artifact(path: str, document: dict[str, Any], matrix: Matrix) -> Artifact:
    import yaml

    text: str = yaml.safe_dump(document, sort_keys=False, width=2**20)
    return Artifact(path=path, text="---\n" + _HEADER.format(dated=matrix.dated) + text)
