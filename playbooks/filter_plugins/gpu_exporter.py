"""Filters that decide which exporters a node runs, and refuse settings that would leave one open."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

__all__ = ["FilterModule"]

DCGM_DROP_IN = "/etc/systemd/system/nvidia-dcgm-exporter.service.d/provision.conf"
TEXTFILE_UNIT = "/etc/systemd/system/provision-gpu-exporter.service"
VERIFIER = ("/usr/local/bin/provision", "/usr/bin/provision")
EXPECTATION = "/etc/provision/expect.toml"
SOURCES = ("auto", "dcgm", "textfile", "none")

_DCGM = "datacenter-gpu-manager"
_HASH = re.compile(r"\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}")
_NO_HASH = "*"
_USER = re.compile(r"[A-Za-z0-9._-]{1,64}")
_PATH = re.compile(r"/[\w./+-]+")
_ADDRESS = re.compile(r"[0-9A-Za-z:.-]+")
_ANY_ADDRESS = frozenset({"0.0.0.0", "::", "*"})  # noqa: S104 - these are refused
# A word of a unit file: no blank, no quote, and nothing that systemd would take for a value of its own.
_ARGUMENT = re.compile(r"--[\w.-]+(=[^\s\"'%$\\;]*)?")
# What this role decides by itself; a second word for it would open another address or another folder.
_OWN_ARGUMENTS = ("--web.", "--collector.textfile.directory")
_VERSION = re.compile(r"\d+(\.\d+){1,3}")
_INTERVAL_MIN, _INTERVAL_MAX = 5, 300

_HELP = {
    "provision_gpu_expected": "How many GPUs were planned.",
    "provision_gpu_expected_driver_info": "The driver that was planned.",
}
"""The words of `provision verify --prometheus`: node_exporter refuses two helps of one metric."""


def list_problems(host: Mapping[str, Any], settings: Mapping[str, Any], is_check: bool = False) -> list[str]:
    """Return everything for which exporters would be open, or not start, each with the way out.

    Args:
        host: What gpu_facts collected.
        settings: What vars/main.yml of gpu_exporter gathers.
        is_check: In check mode, what another role would only now make is not missed.
    """
    problems = [*_list_listener_problems(settings), *_list_word_problems(settings)]
    for name in ("certificate", "key"):
        path = settings[name]
        if not isinstance(path, str) or not _PATH.fullmatch(path):
            problems.append(f"`gpu_monitoring_{name}` is {path!r:.80}, which is not an absolute path")
        elif path.startswith("/etc/provision/") and path not in host["files"] and not is_check:
            problems.append(
                f"{path} is not there: run gpu-monitoring.yml, which makes it, or put it there and set "
                "`gpu_monitoring_tls: files`"
            )
    key = host["files"].get(settings["key"])
    if key and not is_check and (key["group"] != settings["group"] or key["mode"] not in ("0640", "0440")):
        problems.append(
            f"{settings['key']} belongs to the group {key['group']} with mode {key['mode']}: "
            f"`chgrp {settings['group']}` it and `chmod 0640` it"
        )
    if not _HASH.fullmatch(str(settings["hash"])) and not is_check:
        said = "is not set" if settings["hash"] in ("", _NO_HASH) else "is not a hash of bcrypt, which begins with $2b$"
        problems.append(
            f"`gpu_monitoring_password_hash` {said}: run gpu-monitoring.yml, which makes it, or set what "
            "`htpasswd -nB provision` says after the colon"
        )
    if not isinstance(settings["user"], str) or not _USER.fullmatch(settings["user"]):
        problems.append("`gpu_monitoring_user` is not a word of letters, digits, `.`, `_` and `-`")
    return problems


def _list_listener_problems(settings: Mapping[str, Any]) -> list[str]:
    problems = []
    address = str(settings["address"])
    if not address:
        problems.append("This node has no default route, so its address is unknown: set `gpu_monitoring_address`")
    elif address in _ANY_ADDRESS or not _ADDRESS.fullmatch(address):
        problems.append(f"`gpu_monitoring_address` is {address!r:.80}: name one address, that of the fleet's network")
    ports = settings["ports"]
    for job, port in ports.items():
        if isinstance(port, bool) or not re.fullmatch(r"\d{1,5}", str(port)) or not 0 < int(port) < 65536:
            problems.append(f"`gpu_monitoring_{job}_port` is {port!r:.40}, which is not a port")
    if len({str(port) for port in ports.values()}) != len(ports):
        problems.append("`gpu_monitoring_node_port`, `_icmp_port` and `_gpu_port` must differ")
    return problems


def _list_word_problems(settings: Mapping[str, Any]) -> list[str]:
    problems = []
    if settings["source"] not in SOURCES:
        problems.append(f"`gpu_exporter_source` is {settings['source']!r:.40}: it is {', '.join(SOURCES)}")
    seconds = str(settings["interval_seconds"])
    if not re.fullmatch(r"\d{1,3}", seconds) or not _INTERVAL_MIN <= int(seconds) <= _INTERVAL_MAX:
        problems.append(
            f"`gpu_exporter_interval_seconds` is {seconds!r:.40}: it is from {_INTERVAL_MIN} to {_INTERVAL_MAX}"
        )
    gpus = settings["gpus"]
    if str(gpus) != "auto" and (isinstance(gpus, bool) or not re.fullmatch(r"\d{1,4}", str(gpus))):
        problems.append(f"`gpu_exporter_gpus` is {gpus!r:.40}: it is `auto` or a number")
    if settings["driver"] not in ("", "auto") and not _VERSION.fullmatch(str(settings["driver"])):
        problems.append(f"`gpu_exporter_driver` is {settings['driver']!r:.40}, which is not a version of a driver")
    if str(settings["verify"]).lower() not in ("auto", "true", "false"):
        problems.append(f"`gpu_exporter_verify` is {settings['verify']!r:.40}: it is `auto`, `true` or `false`")
    arguments = settings["arguments"]
    if isinstance(arguments, str) or not isinstance(arguments, Iterable):
        return [*problems, "`gpu_exporter_node_arguments` is not a list of words"]
    for word in arguments:
        if not isinstance(word, str) or not _ARGUMENT.fullmatch(word):
            problems.append(f"`gpu_exporter_node_arguments`: {word!r:.80} is not a flag such as `--collector.ethtool`")
        elif word.startswith(_OWN_ARGUMENTS):
            problems.append(f"`gpu_exporter_node_arguments`: {word:.80} is what this role decides; leave it out")
    return problems


def choose_source(host: Mapping[str, Any], source: str, offer: str | None = None) -> str:
    """Return where metrics of GPUs come from: ``dcgm``, ``textfile`` or ``none``; ``unknown`` before apt was asked.

    Args:
        host: What gpu_facts collected.
        source: ``gpu_exporter_source``; ``auto`` keeps what this role set up before.
        offer: What ``apt-cache policy`` says of dcgm-exporter's packages.
    """
    if source != "auto":
        return source
    if DCGM_DROP_IN in host["files"]:
        return "dcgm"
    if TEXTFILE_UNIT in host["files"]:
        return "textfile"
    installed = [name for name, row in host["packages"].items() if row["status"][1:2] == "i"]
    if not any(name.startswith(_DCGM) for name in installed):
        return "textfile"
    if offer is None:
        return "unknown"
    candidates = re.findall(r"^\s+Candidate: (.+)$", offer, re.MULTILINE)
    return "dcgm" if candidates and "(none)" not in candidates else "textfile"


def is_verifying(host: Mapping[str, Any], wanted: Any) -> bool:
    """Tell whether the node verifies itself by a timer.

    Args:
        host: What gpu_facts collected.
        wanted: ``gpu_exporter_verify``.
    """
    if str(wanted).lower() != "auto":
        return str(wanted).lower() == "true"
    has_command = any(path in host["files"] or path in host["links"] for path in VERIFIER)
    return has_command and EXPECTATION in host["files"]


def write_plan(host: Mapping[str, Any], gpus: Any, driver: str, locked: Mapping[str, str]) -> str:
    """Return a textfile that tells what the node is planned to have; empty where nothing is known.

    Args:
        host: What gpu_facts collected.
        gpus: ``gpu_exporter_gpus``.
        driver: ``gpu_exporter_driver``.
        locked: ``version`` of the lock's driver, and ``digest`` of the lock. It counts where the node was made by it:
            the playbooks come with a lock of their own, which plans nothing for nodes that others made.
    """
    rows = []
    if driver == "auto":
        made_by = host["generations"][-1].get("lock_digest") if host["generations"] else None
        driver = locked["version"] if made_by is not None and made_by == locked["digest"] else ""
    count = len(host["gpus"]) if str(gpus) == "auto" else int(gpus)
    if str(gpus) != "auto" or count:
        rows.append(("provision_gpu_expected", "", count))
    if driver:
        rows.append(("provision_gpu_expected_driver_info", f'{{version="{driver}"}}', 1))
    return "".join(
        f"# HELP {name} {_HELP[name]}\n# TYPE {name} gauge\n{name}{labels} {value}\n" for name, labels, value in rows
    )


def write_record(host: Mapping[str, Any], packages: Iterable[Mapping[str, Any]], folder: str) -> str:
    """Return what was installed for monitoring and not there before, for a removal to purge: a JSON document.

    Args:
        host: What gpu_facts collected.
        packages: Rows with ``name`` that are wanted.
        folder: Where the record of the run before lies.
    """
    missing = {row["name"] for row in packages if row["name"] not in host["packages"]}
    return json.dumps({"installed": sorted(missing | set(read_record(host, folder)))}) + "\n"


def read_record(host: Mapping[str, Any], folder: str) -> list[str]:
    """Return the packages that this role installed, of those that are still there.

    Raises:
        AnsibleFilterError: The record is not JSON of this role.
    """
    path = f"{folder}/installed.json"
    text = (host["files"].get(path) or {}).get("text")
    if text is None:
        return []
    try:
        names = json.loads(text)["installed"]
    except (ValueError, KeyError, TypeError) as error:
        raise AnsibleFilterError(f"{path} is not a record of this role: mend or delete it") from error
    return [name for name in names if name in host["packages"]]


def list_units(host: Mapping[str, Any], chosen: str, has_icmp: bool, has_verify: bool) -> list[dict[str, Any]]:
    """Return every unit of this role in the order of their start, with what is wanted of it.

    Args:
        host: What gpu_facts collected.
        chosen: From :func:`choose_source`.
        has_icmp: Whether the node measures round trips.
        has_verify: Whether it verifies itself.
    """
    wanted = {
        "prometheus-node-exporter.service": chosen != "",
        "prometheus-blackbox-exporter.service": has_icmp,
        "nvidia-dcgm-exporter.service": chosen == "dcgm",
        "provision-gpu-textfile.timer": chosen == "textfile",
        "provision-gpu-exporter.service": chosen == "textfile",
        "provision-verify.timer": has_verify,
    }
    rows = []
    for name, is_wanted in wanted.items():
        row = host["units"].get(name)
        is_enabled = row is not None and row["enabled"] == "enabled"
        is_active = row is not None and row["active"] in ("active", "activating", "reloading")
        rows.append(
            {
                "name": name,
                "exists": row is not None,
                "is_wanted": is_wanted,
                "is_looping": row is not None and row.get("is_looping", False),
                "is_wrong": not (is_enabled and is_active) if is_wanted else is_enabled or is_active,
            }
        )
    return rows


def list_listeners(jobs: Sequence[str], address: str, ports: Mapping[str, Any]) -> list[str]:
    """Return ``address:port`` of each job, an IPv6 address in brackets."""
    at = f"[{address}]" if ":" in address else address
    return [f"{at}:{ports[job]}" for job in jobs]


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_exporter_choice": choose_source,
            "gpu_exporter_listeners": list_listeners,
            "gpu_exporter_planned": write_plan,
            "gpu_exporter_problems": list_problems,
            "gpu_exporter_recorded": read_record,
            "gpu_exporter_record": write_record,
            "gpu_exporter_units": list_units,
            "gpu_exporter_verifies": is_verifying,
        }
