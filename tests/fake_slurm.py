"""A stand-in for Slurm's commands: as much of `scontrol`, `sinfo` and `squeue` as the health program speaks to.

``install`` puts the three names into a folder that goes on the PATH. Their state is one JSON file that every call reads
and writes under a lock, as slurmctld handles one request after the other.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_NAMES = ("scontrol", "sinfo", "squeue")


class FakeSlurm:
    """A cluster in a folder."""

    def __init__(self, folder: Path, partitions: Mapping[str, list[str]]) -> None:
        self.folder = folder
        self.path = folder / "cluster.json"
        self.programs = folder / "bin"
        self.programs.mkdir(parents=True)
        names = sorted({name for nodes in partitions.values() for name in nodes})
        state = {
            "partitions": dict(partitions),
            "nodes": {name: {"state": "idle", "reason": "none"} for name in names},
            "reservations": {},
            "jobs": {},
            "calls": [],
            "sleep": 0,
            "most_out": 0,
        }
        self.path.write_text(json.dumps(state), encoding="utf-8")
        for name in _NAMES:
            program = self.programs / name
            program.write_text(
                f"#!{sys.executable} -SE\n{Path(__file__).read_text(encoding='utf-8')}", encoding="utf-8"
            )
            program.chmod(0o755)

    def read(self) -> dict[str, Any]:
        """Return the whole state."""
        found: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        return found

    def set(self, **values: Any) -> None:
        """Change parts of the state."""
        self.path.write_text(json.dumps({**self.read(), **values}), encoding="utf-8")

    def set_node(self, name: str, state: str, reason: str = "none") -> None:
        """Put a node into a state."""
        nodes = self.read()["nodes"]
        nodes[name] = {"state": state, "reason": reason}
        self.set(nodes=nodes)

    def environment(self, node: str, **more: str) -> dict[str, str]:
        """Return what a call on a node has in its environment."""
        return {"PATH": f"{self.programs}:{os.environ['PATH']}", "SLURMD_NODENAME": node, **more}


def _settings(words: list[str]) -> dict[str, str]:
    return {key.lower(): value for key, _, value in (word.partition("=") for word in words)}


def _scontrol(state: dict[str, Any], words: list[str]) -> int:
    given = _settings(words)
    if words[:2] == ["create", "reservation"]:
        name = given["reservationname"]
        if name in state["reservations"]:
            print("Error creating the reservation: Duplicate reservation name", file=sys.stderr)
            return 1
        state["reservations"][name] = given
    elif words[:1] == ["delete"]:
        state["reservations"].pop(given["reservationname"], None)
    elif words[:1] == ["update"]:
        node = state["nodes"][given["nodename"]]
        is_busy = any(given["nodename"] in job["nodes"] for job in state["jobs"].values())
        if given["state"] == "DRAIN":
            node.update(state="draining" if is_busy else "drained", reason=given["reason"])
        else:
            node.update(state="idle", reason="none")
        out = sum(row["state"].startswith("drain") for row in state["nodes"].values())
        state["most_out"] = max(state["most_out"], out)
    elif words[:3] == ["--oneliner", "show", "node"] and words[3] not in state["nodes"]:
        print(f"Node {words[3]} not found", file=sys.stderr)
        return 1
    elif words[:3] == ["--oneliner", "show", "node"]:
        row = state["nodes"][words[3]]
        is_busy = any(words[3] in job["nodes"] for job in state["jobs"].values())
        flags = {"drained": "IDLE+DRAIN", "draining": "MIXED+DRAIN", "idle": "MIXED" if is_busy else "IDLE"}
        reason = "" if row["reason"] == "none" else f" Reason={row['reason']} [root@2026-11-24T18:13:25] Comment=x"
        flag = flags.get(row["state"], row["state"].upper())
        print(f"NodeName={words[3]} Arch=x86_64 State={flag} Partitions=gpu{reason}")
    elif words[:1] == ["requeue"]:
        job = state["jobs"].get(words[1])
        if job is None or not job.get("requeue", True):
            print(f"Requested operation is presently disabled for job {words[1]}", file=sys.stderr)
            return 1
        del state["jobs"][words[1]]
    return 0


def _sinfo(state: dict[str, Any]) -> int:
    for partition, names in state["partitions"].items():
        for name in names:
            row = state["nodes"][name]
            print(f"{name}|{partition}|{row['state']}|{row['reason']}")
    return 0


def _squeue(state: dict[str, Any], words: list[str]) -> int:
    node = _settings(words)["--nodelist"]
    print("\n".join(name for name, job in state["jobs"].items() if node in job["nodes"]))
    return 0


def _main() -> int:
    path = Path(sys.argv[0]).parent.parent / "cluster.json"
    with path.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        state = json.load(file)
        name, words = Path(sys.argv[0]).name, sys.argv[1:]
        if state["sleep"]:
            fcntl.flock(file, fcntl.LOCK_UN)
            time.sleep(state["sleep"])
            return 1
        state["calls"].append([name, *words])
        if name == "scontrol":
            status = _scontrol(state, words)
        else:
            status = _sinfo(state) if name == "sinfo" else _squeue(state, words)
        file.seek(0)
        file.truncate()
        json.dump(state, file)
        return status


if __name__ == "__main__":
    sys.exit(_main())
