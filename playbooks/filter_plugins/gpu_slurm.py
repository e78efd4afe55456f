"""Filters that word what Slurm is told, and refuse what it could not be told.

A row is what one node says of itself: ``name``, ``address``, ``cpus``, ``memory_mib``, ``gpus``, ``type`` and ``mig``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["FilterModule"]

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_FILE = re.compile(r"/dev/[A-Za-z0-9_./-]{1,200}")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9]{1,60}")
_OURS = ("ClusterName", "SlurmctldHost", "NodeName", "PartitionName", "GresTypes")
_WRITTEN = "# Written by provision: change the variables of gpu_slurm, not this file.\n"


def find_problems(settings: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any] | None]) -> list[str]:
    """Return why no configuration can be written, each with the way out.

    Args:
        settings: What all nodes share.
        rows: Host of the inventory → its row; null where this run did not look at it.
    """
    unseen = sorted(host for host, row in rows.items() if not row)
    if unseen:
        return [
            f"slurm.conf names every node, and this run has not looked at {', '.join(unseen)}: run the play without "
            "--limit, or take them out of the inventory"
        ]
    found = [
        f"gpu_slurm_{key} is `{settings[key]}`: letters, digits, `_`, `.` and `-` are a name"
        for key in ("cluster", "partition")
        if not _WORD.fullmatch(str(settings[key]))
    ]
    nodes = [row for row in rows.values() if row]
    if not any(row["is_compute"] for row in nodes):
        found.append("no host computes: put nodes into the group gpu_nodes")
    found += [problem for row in nodes for problem in _row_problems(row)]
    names = [row["name"] for row in nodes]
    found += [
        f"two hosts are called {name}: Slurm knows a node by that" for name in sorted({*names}) if names.count(name) > 1
    ]
    found += _option_problems(settings["options"]) + _topology_problems(settings["topology"], names)
    return found


def _row_problems(row: Mapping[str, Any]) -> list[str]:
    found = []
    if not _NAME.fullmatch(str(row["name"])):
        found.append(f"`{row['name']}` is not a host name")
    found += [
        f"gpu_slurm_{key} of {row['name']} is {row[key]}: a number from {least} on"
        for key, least in (("cpus", 1), ("memory_mib", 1), ("gpus", 0))
        if isinstance(row[key], bool) or not isinstance(row[key], int) or row[key] < least
    ]
    if row["type"] and not _WORD.fullmatch(str(row["type"])):
        found.append(f"gpu_slurm_gpu_type of {row['name']} is `{row['type']}`: a word such as h100")
    for mig in row["mig"]:
        files = mig.get("files") if isinstance(mig, Mapping) else None
        is_listed = isinstance(files, list) and files and all(_FILE.fullmatch(str(file)) for file in files)
        if not (is_listed and _WORD.fullmatch(str(mig.get("type", "")))):
            found.append(
                f"gpu_slurm_mig_devices of {row['name']}: each has `type` and `files`, the device nodes "
                "that a job of it needs"
            )
    return found


def _option_problems(options: Any) -> list[str]:
    if not isinstance(options, Mapping):
        return ["gpu_slurm_options is not a mapping of Slurm's words to values"]
    found = [f"gpu_slurm_options: `{key}` is decided by a variable of its own" for key in options if key in _OURS]
    found += [
        f"gpu_slurm_options: `{key}` is not a word of slurm.conf" for key in options if not _KEY.fullmatch(str(key))
    ]
    found += [
        f"gpu_slurm_options: `{key}` has more than one line" for key, value in options.items() if "\n" in str(value)
    ]
    return found


def _topology_problems(topology: Any, names: Sequence[str]) -> list[str]:
    if not isinstance(topology, Mapping):
        return ["gpu_slurm_topology is not a mapping of switches to the nodes behind them"]
    found = []
    for switch, nodes in topology.items():
        if not _WORD.fullmatch(str(switch)) or not isinstance(nodes, list) or not nodes:
            found.append(f"gpu_slurm_topology: `{switch}` is not a switch with a list of nodes")
            continue
        found += [f"gpu_slurm_topology: `{node}` behind {switch} is not a node" for node in nodes if node not in names]
    placed = [node for nodes in topology.values() if isinstance(nodes, list) for node in nodes]
    found += [
        f"gpu_slurm_topology: `{node}` is behind two switches" for node in sorted({*placed}) if placed.count(node) > 1
    ]
    return found


def write_slurm_conf(settings: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return slurm.conf, the same on every host."""
    nodes = sorted((row for row in rows if row["is_compute"]), key=lambda row: str(row["name"]))
    lines = {
        "ClusterName": settings["cluster"],
        "SlurmctldHost": f"{settings['controller']['name']}({settings['controller']['address']})",
        "AuthType": "auth/munge",
        "SlurmUser": "slurm",
        "StateSaveLocation": "/var/lib/slurm/slurmctld",
        "SlurmdSpoolDir": "/var/lib/slurm/slurmd",
        "SlurmctldPidFile": "/run/slurmctld.pid",
        "SlurmdPidFile": "/run/slurmd.pid",
        "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
        "SlurmdLogFile": "/var/log/slurm/slurmd.log",
        "MpiDefault": "none",
        "ReturnToService": "1",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        # Without it a job takes all memory of its node, and no second one fits beside it.
        "DefMemPerCPU": str(min(row["memory_mib"] // row["cpus"] for row in nodes)),
        "GresTypes": "gpu",
        "ProctrackType": "proctrack/cgroup" if settings["constrain"] else "proctrack/linuxproc",
        "TaskPlugin": "task/cgroup,task/affinity" if settings["constrain"] else "task/none",
        "JobRequeue": "1",
    }
    if settings["topology"]:
        lines["TopologyPlugin"] = "topology/tree"
    if settings["accounting"]:
        lines |= {
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": settings["controller"]["address"],
            "AccountingStorageTRES": "gres/gpu",
        }
    if settings["health"]:
        program = settings["program"]
        lines |= {
            "HealthCheckProgram": program,
            "HealthCheckInterval": str(settings["health_interval"]),
            # Drained nodes too: they are offered a proof. Not all at the same time.
            "HealthCheckNodeState": "ANY,CYCLE",
            "Prolog": program,
            "Epilog": program,
            "PrologFlags": "Alloc",
            # A job whose prolog fails goes elsewhere, and is not held for a person.
            "SchedulerParameters": "nohold_on_prolog_fail",
        }
    lines |= {str(key): str(value) for key, value in settings["options"].items()}
    text = _WRITTEN + "".join(f"{key}={value}\n" for key, value in lines.items())
    for row in nodes:
        words = [f"NodeName={row['name']}", f"NodeAddr={row['address']}", f"CPUs={row['cpus']}"]
        words += [f"RealMemory={row['memory_mib']}", *_gres_words(row), "State=UNKNOWN"]
        text += " ".join(words) + "\n"
    names = ",".join(str(row["name"]) for row in nodes)
    return f"{text}PartitionName={settings['partition']} Nodes={names} Default=YES MaxTime=INFINITE State=UP\n"


def _gres_words(row: Mapping[str, Any]) -> list[str]:
    counts: dict[str, int] = {}
    if row["mig"]:
        for mig in row["mig"]:
            counts[f"gpu:{mig['type']}"] = counts.get(f"gpu:{mig['type']}", 0) + 1
    elif row["gpus"]:
        counts[f"gpu:{row['type']}" if row["type"] else "gpu"] = row["gpus"]
    return [f"Gres={','.join(f'{name}:{count}' for name, count in sorted(counts.items()))}"] if counts else []


def write_gres_conf(settings: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return gres.conf: what NVML finds, or the device nodes by name."""
    if settings["autodetect"]:
        return _WRITTEN + "AutoDetect=nvml\n"
    text = _WRITTEN
    for row in sorted((row for row in rows if row["is_compute"]), key=lambda row: str(row["name"])):
        start = f"NodeName={row['name']} Name=gpu"
        if row["mig"]:
            text += "".join(
                f"{start} Type={mig['type']} MultipleFiles={','.join(mig['files'])}\n" for mig in row["mig"]
            )
        elif row["gpus"]:
            kind = f" Type={row['type']}" if row["type"] else ""
            files = "/dev/nvidia0" if row["gpus"] == 1 else f"/dev/nvidia[0-{row['gpus'] - 1}]"
            text += f"{start}{kind} File={files}\n"
    return text


def write_topology_conf(topology: Mapping[str, Sequence[str]]) -> str:
    """Return topology.conf: the switches that nodes hang from, and one above them all where there are several."""
    text = _WRITTEN + "".join(
        f"SwitchName={switch} Nodes={','.join(nodes)}\n" for switch, nodes in sorted(topology.items())
    )
    return text + (f"SwitchName=provision_top Switches={','.join(sorted(topology))}\n" if len(topology) > 1 else "")


class FilterModule:
    """What Ansible asks for the filters."""

    def filters(self) -> dict[str, Any]:
        """Return name → filter."""
        return {
            "gpu_slurm_conf": write_slurm_conf,
            "gpu_slurm_gres": write_gres_conf,
            "gpu_slurm_problems": find_problems,
            "gpu_slurm_topology": write_topology_conf,
        }
