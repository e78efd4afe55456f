"""A stand-in for kubectl and the cluster behind it: as much as the health loop speaks to.

Its state is one JSON file that every call reads and writes under a lock, as an API server handles one request after the
other: a change that names another version than the object has is a conflict.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class FakeKubectl:
    """A cluster in a folder, with the program in ``bin``."""

    def __init__(self, folder: Path, pools: Mapping[str, list[str]]) -> None:
        self.path = folder / "cluster.json"
        self.programs = folder / "bin"
        self.programs.mkdir(parents=True)
        nodes = {
            name: {
                "metadata": {
                    "name": name,
                    "resourceVersion": "1",
                    "labels": {"nvidia.com/gpu.product": pool},
                    "annotations": {"kept": "yes"},
                },
                "spec": {},
                "status": {"capacity": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]},
            }
            for pool, names in pools.items()
            for name in names
        }
        state = {"nodes": nodes, "pods": {}, "leases": {}, "templates": {}, "calls": [], "most_out": 0}
        state |= {"fails": {}, "answers": {}}
        self.path.write_text(json.dumps(state), encoding="utf-8")
        program = self.programs / "kubectl"
        program.write_text(f"#!{sys.executable} -SE\n{Path(__file__).read_text(encoding='utf-8')}", encoding="utf-8")
        program.chmod(0o755)

    def read(self) -> dict[str, Any]:
        """Return the whole state."""
        found: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        return found

    def set(self, **values: Any) -> None:
        """Change parts of the state.

        ``fails`` is verb → what kubectl says on stderr when it is asked for it, after so many as ``answers`` says.
        """
        self.path.write_text(json.dumps({**self.read(), **values}), encoding="utf-8")

    def change(self, node: str, **spec: Any) -> None:
        """Change the spec of a node, as a person does."""
        nodes = self.read()["nodes"]
        nodes[node]["spec"].update(spec)
        nodes[node]["metadata"]["resourceVersion"] += "0"
        self.set(nodes=nodes)

    def say(self, node: str, status: str = "True", message: str = "Xid 79", when: str = "2026-11-01T00:00:00Z") -> None:
        """Set the condition of a node, as the watch does."""
        nodes = self.read()["nodes"]
        row = {"type": "GpuUnhealthy", "status": status, "reason": "GpuFault"}
        nodes[node]["status"]["conditions"][1:] = [{**row, "message": message, "lastTransitionTime": when}]
        self.set(nodes=nodes)

    def add_pod(self, name: str, node: str, *, owner: str = "Job", gpus: int = 1) -> None:
        """Have a Pod run on a node."""
        pods = self.read()["pods"]
        owners = [{"kind": owner, "name": "x"}] if owner else []
        limits = {"nvidia.com/gpu": str(gpus)} if gpus else {"cpu": "1"}
        pods[f"work/{name}"] = {
            "metadata": {"name": name, "namespace": "work", "ownerReferences": owners},
            "spec": {"nodeName": node, "containers": [{"resources": {"limits": limits}}]},
            "status": {"phase": "Running"},
        }
        self.set(pods=pods)

    def out(self) -> list[str]:
        """Return the nodes with the taint."""
        return [name for name, node in self.read()["nodes"].items() if _is_out(node)]


def _is_out(node: dict[str, Any]) -> bool:
    return any(row["key"] == "dev.provision/unhealthy" for row in node["spec"].get("taints") or ())


class RefusedError(Exception):
    pass


def _merge(body: dict[str, Any], patch: dict[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            body.pop(key, None)
        elif isinstance(value, dict) and isinstance(body.get(key), dict):
            _merge(body[key], value)
        else:
            body[key] = value


def _store(rows: dict[str, Any], name: str, body: dict[str, Any], *, is_new: bool) -> dict[str, Any]:
    head = body["metadata"]
    if is_new and name in rows:
        raise RefusedError(f'Error from server (AlreadyExists): "{name}" already exists')
    if not is_new and rows.get(name, {}).get("metadata", {}).get("resourceVersion") != head.get("resourceVersion"):
        raise RefusedError(f'Error from server (Conflict): "{name}" the object has been modified')
    head["resourceVersion"] = str(int(head.get("resourceVersion", "0")) + 1)
    rows[name] = body
    return body


def _answer(state: dict[str, Any], words: list[str], text: str) -> Any:
    verb, rest = words[0], [word for word in words[1:] if not word.startswith("--request-timeout")]
    if verb in state["fails"]:
        if not state["answers"].get(verb):
            raise RefusedError(state["fails"][verb])
        state["answers"][verb] -= 1
    if verb == "get" and rest[0] == "nodes":
        return {"items": list(state["nodes"].values())}
    if verb == "get" and rest[0] == "pods":
        node = next(word for word in rest if word.startswith("--field-selector")).rpartition("=")[2]
        return {"items": [pod for pod in state["pods"].values() if pod["spec"].get("nodeName") == node]}
    if verb == "get":
        space = rest[rest.index("-n") + 1] if "-n" in rest else None
        rows = state[{"node": "nodes", "pod": "pods", "lease": "leases", "podtemplate": "templates"}[rest[0]]]
        found = rows.get(f"{space}/{rest[1]}" if rest[0] == "pod" else rest[1])
        if found is None and "--ignore-not-found" not in rest:
            raise RefusedError(f'Error from server (NotFound): {rest[0]}s "{rest[1]}" not found')
        return found
    if verb == "patch":
        node, patch = state["nodes"][rest[1]], json.loads(rest[rest.index("-p") + 1])
        if patch["metadata"].pop("resourceVersion") != node["metadata"]["resourceVersion"]:
            raise RefusedError("Error from server (Conflict): the object has been modified")
        _merge(node, patch)
        node["metadata"]["resourceVersion"] += "1"
        state["most_out"] = max(state["most_out"], sum(map(_is_out, state["nodes"].values())))
        return node
    if verb == "create" and rest[0] == "--raw":
        _, _, _, _, space, _, name, _ = rest[1].split("/")
        return state["pods"].pop(f"{space}/{name}")
    if verb in ("create", "replace"):
        body = json.loads(text)
        head = body["metadata"]
        if body["kind"] == "Pod":
            state["proof"] = body
            return _store(state["pods"], f"{head['namespace']}/{head['name']}", body, is_new=True)
        return _store(state["leases"], head["name"], body, is_new=verb == "create")
    if verb == "delete":
        return state["pods"].pop(f"{rest[rest.index('-n') + 1]}/{rest[1]}", None)
    if verb == "wait":
        return {}
    raise RefusedError(f"error: the stand-in does not know {' '.join(words)}")


def _main() -> int:
    path = Path(sys.argv[0]).parent.parent / "cluster.json"
    text = sys.stdin.read() if "-f" in sys.argv else ""
    with path.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        state = json.load(file)
        words = sys.argv[1:]
        state["calls"].append(words)
        code = 0
        try:
            answer = _answer(state, words[2:] if words[0] == "--context" else words, text)
            print("" if answer is None else json.dumps(answer))
        except RefusedError as error:
            print(error, file=sys.stderr)
            code = 1
        file.seek(0)
        file.truncate()
        json.dump(state, file)
        return code


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(_main())
