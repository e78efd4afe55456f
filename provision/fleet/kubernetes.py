"""Kubernetes as an engine of the health loop, through kubectl: a taint keeps work off a node, an annotation says why.

A node that a person cordoned is theirs: the taint stands beside ``unschedulable``, which is never touched. Each change
is one patch that names the version it was made for, so that it happens whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from provision.errors import MissingDependencyError
from provision.fleet.health import Verdict, load_loop, run_verify
from provision.generate.cluster.bundle import number
from provision.generate.cluster.health import CONDITION, NAMESPACE, TEMPLATE
from provision.generate.cluster.plan import FILE
from provision.generate.cluster.plugin import TAINT
from provision.matrix.load import Matrix

_LEASE = "provision-health"
_LEASE_SECONDS = 120
_CALL_SECONDS = 60.0
_READY_SECONDS = 600
_TRIES = 3
_PERSON = "cordoned by somebody"
_GONE = ("Succeeded", "Failed")


class Kubernetes:
    """One cluster.

    Args:
        matrix: The facts, which know what GPUs are called.
        context: Of kubeconfig; the current one unless given.
        pool: Label of nodes; those with one value are a pool, of which no more than a share may be out.

    Raises:
        MissingDependencyError: There is no kubectl.
    """

    GROUP = "pool with GPUs"

    def __init__(self, matrix: Matrix, *, context: str | None = None, pool: str | None = None) -> None:
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            raise MissingDependencyError(
                "a cluster can only be reached through kubectl, which is not here",
                hints=("install kubectl and point KUBECONFIG at the cluster",),
            )
        self._kubectl = [kubectl, *(() if context is None else ("--context", context))]
        self._context = context
        resource = str(matrix.setting(FILE, "resource").value)
        self._prefix = resource.partition("/")[0] + "/"
        self._resource = resource
        self._pool = pool or f"{resource}{matrix.setting(FILE, 'product_suffix').value}"
        self._loop = load_loop()
        self._lease: dict[str, Any] = {}

    def nodes(self) -> list[Any]:
        """Return the nodes that have GPUs, or had."""
        return [self._row(node, is_busy=False) for node in self._items("get", "nodes") if self._has_gpus(node)]

    def node(self, name: str) -> Any:
        """Return one node, and whether Pods with GPUs run on it."""
        return self._row(self._get("node", name), is_busy=bool(self.jobs(name)))

    def drain(self, name: str, reason: str) -> None:
        """Keep work off a node."""
        for _ in range(_TRIES):
            node = self._get("node", name)
            if self._row(node, is_busy=False).is_out:
                raise self._error(f"{name} was taken out by somebody else meanwhile")
            taints = [*_taints(node), {"key": TAINT, "effect": "NoSchedule"}]
            note = {"reason": reason, "since": self._loop.now(), "gpus": self._count(node)}
            if self._patch(node, taints, json.dumps(note)):
                return
        raise self._error(f"{name} changes all the time; asked again next time")

    def resume(self, name: str) -> None:
        """Let work onto a node again."""
        for _ in range(_TRIES):
            node = self._get("node", name)
            if self._patch(node, [row for row in _taints(node) if row.get("key") != TAINT], None):
                return
        raise self._error(f"{name} changes all the time; asked again next time")

    def jobs(self, name: str) -> list[str]:
        """Return the Pods with GPUs on a node, as NAMESPACE/NAME; those of a DaemonSet are left out."""
        rows = self._items("get", "pods", "--all-namespaces", f"--field-selector=spec.nodeName={name}")
        return sorted(
            f"{row['metadata'].get('namespace', 'default')}/{row['metadata']['name']}"
            for row in rows
            if row.get("status", {}).get("phase") not in _GONE
            and not any(owner.get("kind") == "DaemonSet" for owner in _owners(row))
            and any(map(self._takes_gpus, row["spec"].get("containers", ())))
        )

    def requeue(self, job: str) -> None:
        """Evict a Pod, which what made it starts elsewhere; disruption budgets are kept."""
        space, _, name = job.partition("/")
        if not _owners(self._get("pod", name, space)):
            raise self._error(f"{job} has no owner that would start it again")
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": space},
        }
        self._call("create", "--raw", f"/api/v1/namespaces/{space}/pods/{name}/eviction", "-f", "-", document=eviction)

    def take_lock(self, name: str) -> bool:
        """Return whether this call has the Lease now; one whose holder died can be taken after two minutes."""
        del name
        now = datetime.now(UTC)
        spec = {
            "holderIdentity": f"{socket.gethostname()}-{now.timestamp()}",
            "leaseDurationSeconds": _LEASE_SECONDS,
            "renewTime": now.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        }
        head = {"name": _LEASE, "namespace": NAMESPACE}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": head, "spec": spec}
        found = self._call("get", "lease", _LEASE, "-n", NAMESPACE, "--ignore-not-found", "-o", "json")
        if not found.strip():
            return self._has_lease("create", lease)
        old = self._read(found)
        renewed = _time(old["spec"].get("renewTime"))
        if old["spec"].get("holderIdentity") and now - renewed < timedelta(seconds=_LEASE_SECONDS):
            return False
        return self._has_lease("replace", {**old, "spec": spec})

    def _has_lease(self, verb: str, lease: Mapping[str, Any]) -> bool:
        try:
            self._lease = self._read(self._call(verb, "-f", "-", "-o", "json", document=lease))
        except self._loop.EngineError as error:
            if "AlreadyExists" in str(error) or "Conflict" in str(error):
                return False
            raise
        return True

    def give_lock(self) -> None:
        """Give the Lease back."""
        lease = {**self._lease, "spec": {**self._lease["spec"], "holderIdentity": ""}}
        self._call("replace", "-f", "-", "-o", "json", document=lease)

    def find_conditions(self) -> list[Verdict]:
        """Return what node-problem-detector says of nodes."""
        return [
            Verdict(
                node=node["metadata"]["name"],
                id=f"condition/{row.get('reason', CONDITION)}",
                sentence=str(row.get("message") or CONDITION),
                since=_time(row.get("lastTransitionTime")).timestamp(),
            )
            for node in filter(self._has_gpus, self._items("get", "nodes"))
            for row in node.get("status", {}).get("conditions", ())
            if row.get("type") == CONDITION and row.get("status") == "True"
        ]

    def run_proof(self, name: str) -> tuple[int | None, str, str]:
        """Verify a node from a Pod that has all of its GPUs; return status, output and errors.

        A GPU that is gone is in no count of the node, so that one with fewer than when it was taken out is not proved.
        """
        template = self._get("podtemplate", TEMPLATE, NAMESPACE)["template"]
        node = self._get("node", name)
        count, before = self._count(node), int(number(_note(node).get("gpus")) or 0)
        if count < before:
            return None, "", f"{count} of {before} GPUs are left since it was taken out"
        pod = f"{TEMPLATE}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]
        spec = dict(template["spec"])
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        }
        main, *more = spec["containers"]
        kept = {key: value for key, value in main["resources"]["limits"].items() if key != self._resource}
        resources = {side: {**kept, self._resource: str(count)} for side in ("limits", "requests")}
        spec["containers"] = [{**main, "resources": resources}, *more]
        head = {**template.get("metadata", {}), "name": pod, "namespace": NAMESPACE}
        where = "" if self._context is None else f"?context={self._context}"
        try:
            self._call(
                "create", "-f", "-", document={"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}
            )
            ready = ("wait", "--for=condition=Ready", f"pod/{pod}", "-n", NAMESPACE, f"--timeout={_READY_SECONDS}s")
            self._call(*ready, seconds=_READY_SECONDS + _CALL_SECONDS)
            return run_verify(f"kubectl://{NAMESPACE}/{pod}{where}")
        except self._loop.EngineError as error:
            return None, "", str(error)
        finally:
            self._delete(pod)

    def end_pass(self) -> None:
        """Do nothing: the taint says all."""

    def _delete(self, pod: str) -> None:
        # One that stays is told by the next proof, which cannot make its own.
        with suppress(self._loop.EngineError):
            self._call("delete", "pod", pod, "-n", NAMESPACE, "--ignore-not-found", "--timeout=30s")

    def _row(self, node: Mapping[str, Any], *, is_busy: bool) -> Any:
        spec, head = node.get("spec", {}), node["metadata"]
        is_ours = any(row.get("key") == TAINT for row in _taints(node))
        conditions = {row.get("type"): row.get("status") for row in node.get("status", {}).get("conditions", ())}
        is_ready = conditions.get("Ready", "True") == "True"
        reason = ""
        if spec.get("unschedulable"):
            reason = _PERSON
        elif is_ours:
            reason = str(_note(node).get("reason") or f"the taint {TAINT} without its annotation")
        is_out = bool(is_ours or spec.get("unschedulable") or not is_ready)
        return self._loop.Node(head["name"], head.get("labels", {}).get(self._pool, ""), is_out, is_busy, reason)

    def _has_gpus(self, node: Mapping[str, Any]) -> bool:
        # A node that lost all of them still names the resource, with 0.
        return any(key.startswith(self._prefix) for key in node.get("status", {}).get("capacity", {}))

    def _count(self, node: Mapping[str, Any]) -> int:
        return int(number(node.get("status", {}).get("capacity", {}).get(self._resource)) or 0)

    def _takes_gpus(self, container: Mapping[str, Any]) -> bool:
        resources = container.get("resources", {})
        if resources.get("claims"):
            return True
        return any(
            key.startswith(self._prefix) for key in {**resources.get("limits", {}), **resources.get("requests", {})}
        )

    def _patch(self, node: Mapping[str, Any], taints: list[dict[str, Any]], note: str | None) -> bool:
        """Change taints and annotation at once; return ``False`` where the node has changed since it was read."""
        head = {"resourceVersion": node["metadata"]["resourceVersion"], "annotations": {TAINT: note}}
        patch = json.dumps({"metadata": head, "spec": {"taints": taints or None}})
        try:
            self._call("patch", "node", node["metadata"]["name"], "--type=merge", "-p", patch)
        except self._loop.EngineError as error:
            if "Conflict" in str(error) or "has been modified" in str(error):
                return False
            raise
        return True

    def _get(self, kind: str, name: str, space: str | None = None) -> dict[str, Any]:
        where = () if space is None else ("-n", space)
        return self._read(self._call("get", kind, name, *where, "-o", "json"))

    def _items(self, *words: str) -> list[dict[str, Any]]:
        found = self._read(self._call(*words, "-o", "json")).get("items")
        if not isinstance(found, list):
            raise self._error(f"kubectl {' '.join(words)} gave no list")
        return found

    def _read(self, text: str) -> dict[str, Any]:
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise self._error("kubectl gave no JSON object")
        return document

    def _call(self, *words: str, document: Mapping[str, Any] | None = None, seconds: float = _CALL_SECONDS) -> str:
        text = None if document is None else json.dumps(document)
        limit = () if words[0] == "wait" else (f"--request-timeout={_CALL_SECONDS:g}s",)
        status, out, said = self._loop.run([*self._kubectl, *words, *limit], seconds + 5, text)
        if status:
            raise self._error(self._loop.plain(said or out or f"kubectl ended with {status}", 400))
        return str(out)

    def _error(self, text: str) -> Exception:
        error: Exception = self._loop.EngineError(text)
        return error


def _taints(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(node.get("spec", {}).get("taints") or ())


def _note(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was written beside the taint."""
    try:
        found = json.loads(node["metadata"]["annotations"][TAINT])
    except (KeyError, TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _owners(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(pod["metadata"].get("ownerReferences") or ())


def _time(text: Any) -> datetime:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
