"""Documents of one folder, as the checks of :mod:`admission` look at them: objects, Pods, and what the chart makes.

What was edited by hand may be of any form. A part that is not what it should be is left out here; its own schema says
what is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from provision.matrix.load import Matrix
from provision.records import record

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)")
_SIZES = {
    "": 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}
_CLUSTER_WIDE = frozenset(
    ("ClusterRole", "ClusterRoleBinding", "DeviceClass", "Namespace", "PersistentVolume", "PriorityClass")
) | frozenset(("RuntimeClass", "StorageClass", "CustomResourceDefinition"))
_FILE = "cluster.toml"
# Keys of files that Compose, Ray and another chart read, which lie beside those for the cluster.
_FOREIGN = frozenset(("services", "cluster_name", "alertmanager", "prometheus"))


@record
class Object:
    """One object: its file, kind, namespace (empty for those of the whole cluster), name and document."""

    path: str
    kind: str
    space: str
    name: str
    body: Mapping[str, Any]

    @property
    def labels(self) -> dict[str, Any]:
        """Its labels."""
        return table(self.body, "metadata", "labels")

    def __str__(self) -> str:
        """Return kind and name, as people say them."""
        return f"{self.kind} {self.space}/{self.name}" if self.space else f"{self.kind} {self.name}"


@record
class Pods:
    """So many Pods alike."""

    spec: Mapping[str, Any]
    labels: Mapping[str, Any]
    count: int

    @property
    def containers(self) -> list[Mapping[str, Any]]:
        """All containers, those that run first included."""
        return [*items(self.spec, "initContainers"), *items(self.spec, "containers")]


@record
class Load:
    """An object that makes Pods."""

    owner: Object
    pods: tuple[Pods, ...]

    def demand(self, resource: str, side: str = "requests") -> float:
        """Return how much of a resource all its Pods ask for."""
        return sum(
            group.count
            * sum(requests(container, side).get(resource, 0.0) for container in items(group.spec, "containers"))
            for group in self.pods
        )

    def resources(self) -> frozenset[str]:
        """Return every resource that its Pods ask for."""
        return frozenset(
            name for group in self.pods for container in group.containers for name in requests(container, "requests")
        )


class Bundle:
    """All documents of one folder, with what is said to exist besides.

    Args:
        documents: File and document.
        existing: ``Kind/name`` each.
        matrix: The facts.
    """

    def __init__(
        self, documents: Iterable[tuple[str, Mapping[str, Any]]], existing: frozenset[str], matrix: Matrix
    ) -> None:
        self.matrix = matrix
        self.existing = existing
        self.objects: list[Object] = []
        self.values: dict[str, Any] | None = None
        self.values_path = ""
        self.listed: list[tuple[str, list[str]]] = []
        self.paths: set[str] = set()
        for path, body in documents:
            kind = body.get("kind")
            self.paths.add(path)
            if kind == "Kustomization":
                self.listed.append((path, words(body, "resources")))
            elif isinstance(kind, str):
                self.objects.append(self._object(path, kind, body))
            elif not _FOREIGN & set(body):
                self.values, self.values_path = dict(body), path

    def _object(self, path: str, kind: str, body: Mapping[str, Any]) -> Object:
        shape = self.matrix.shapes.get(kind)
        is_wide = kind in _CLUSTER_WIDE or (shape is not None and not shape.is_namespaced)
        space = "" if is_wide else str(at(body, "metadata", "namespace") or "default")
        return Object(path=path, kind=kind, space=space, name=str(at(body, "metadata", "name") or ""), body=body)

    def of(self, *kinds: str) -> Iterator[Object]:
        """Yield the objects of some kinds."""
        return (item for item in self.objects if item.kind in kinds)

    def has(self, kind: str, name: str, space: str = "") -> bool:
        """Return whether an object is in the bundle, made by the chart, or said to exist."""
        if f"{kind}/{name}" in self.existing:
            return True
        return any(item.name == name and (not space or item.space == space) for item in self.of(kind)) or (
            kind == "ConfigMap" and name in self.chart_maps
        )

    def fact(self, key: str) -> str:
        """Return one single value of ``cluster.toml``."""
        return str(self.matrix.setting(_FILE, key).value)

    def facts(self, key: str) -> tuple[str, ...]:
        """Return the values of one setting of ``cluster.toml``."""
        return self.matrix.setting(_FILE, key).values

    def entries(self, key: str) -> Mapping[str, str]:
        """Return the pairs of one setting of ``cluster.toml``."""
        return self.matrix.setting(_FILE, key).entries or {}

    @cached_property
    def chart_maps(self) -> frozenset[str]:
        """Names of the ConfigMaps that the operator's chart makes of its values."""
        parts = [at(self.values or {}, key, "config") for key in ("devicePlugin", "dcgmExporter", "migManager")]
        return frozenset(str(part.get("name")) for part in parts if isinstance(part, Mapping) and part.get("create"))

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """Every object that makes Pods, with at most so many of them."""
        return tuple(load for item in self.objects for load in self._loads(item))

    def _loads(self, item: Object) -> Iterator[Load]:
        spec = at(item.body, "spec")
        if item.kind == "PodTemplate":
            yield Load(owner=item, pods=tuple(_template(item.body.get("template"), 0)))
        if not isinstance(spec, Mapping):
            return
        if item.kind == "Pod":
            yield Load(owner=item, pods=(Pods(spec=spec, labels=item.labels, count=1),))
        elif item.kind in ("Job", "Deployment", "StatefulSet", "DaemonSet"):
            count = {"Job": _whole(spec.get("parallelism")), "DaemonSet": 0}.get(
                item.kind, _whole(spec.get("replicas"))
            )
            if item.kind == "Deployment":
                count = self._most(item, count)
            yield Load(owner=item, pods=tuple(_template(spec.get("template"), count)))
        elif item.kind in ("JobSet", "TrainingRuntime"):
            times = 1
            if item.kind == "TrainingRuntime":
                spec = table(spec, "template", "spec")
                times = self._nodes(item)
            found = [
                group
                for job in items(spec, "replicatedJobs")
                for group in _template(
                    at(job, "template", "spec", "template"),
                    _whole(job.get("replicas")) * _whole(at(job, "template", "spec", "parallelism")) * times,
                )
            ]
            yield Load(owner=self._starter(item), pods=tuple(found))
        elif item.kind in ("RayCluster", "RayJob", "RayService"):
            inner = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}.get(item.kind)
            body = spec if inner is None else table(spec, inner)
            found = list(_template(at(body, "headGroupSpec", "template"), 1))
            for group in items(body, "workerGroupSpecs"):
                most = max(_whole(group.get("replicas")), _whole(group.get("maxReplicas")))
                found += _template(group.get("template"), most)
            yield Load(owner=item, pods=tuple(found))

    def _most(self, item: Object, count: int) -> int:
        for scaler in self.of("ScaledObject"):
            if scaler.space == item.space and at(scaler.body, "spec", "scaleTargetRef", "name") == item.name:
                count = _whole(at(scaler.body, "spec", "maxReplicaCount"), 100)
        surge = at(item.body, "spec", "strategy", "rollingUpdate", "maxSurge")
        return count + (surge if isinstance(surge, int) and not isinstance(surge, bool) else 0)

    def _runs(self, item: Object) -> Iterator[Object]:
        for job in self.of("TrainJob"):
            if job.space == item.space and at(job.body, "spec", "runtimeRef", "name") == item.name:
                yield job

    def _nodes(self, item: Object) -> int:
        asked = [at(job.body, "spec", "trainer", "numNodes") for job in self._runs(item)]
        return max((_whole(count) for count in asked), default=0)

    def _starter(self, item: Object) -> Object:
        """Return what a queue holds back: the TrainJob of a runtime, else the object itself."""
        return next(self._runs(item), item) if item.kind == "TrainingRuntime" else item


def at(body: Any, *keys: str) -> Any:
    """Return what stands below some keys; ``None`` where one of them is not there."""
    for key in keys:
        if not isinstance(body, Mapping):
            return None
        body = body.get(key)
    return body


def table(body: Any, *keys: str) -> dict[str, Any]:
    """Return the keys and values that stand below some keys; none where something else does."""
    found = at(body, *keys)
    return {str(key): value for key, value in found.items()} if isinstance(found, Mapping) else {}


def words(body: Any, *keys: str) -> list[str]:
    """Return the list of texts that stands below some keys; none where something else does."""
    found = at(body, *keys)
    return [str(item) for item in found] if isinstance(found, list) else []


def items(body: Any, *keys: str) -> list[Mapping[str, Any]]:
    """Return the items of a list that are themselves keys and values."""
    found = at(body, *keys)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def number(quantity: Any) -> float | None:
    """Return the value of a quantity of Kubernetes (``2``, ``500m``, ``16Gi``); ``None`` for what is none."""
    found = _QUANTITY.fullmatch(str(quantity)) if not isinstance(quantity, bool) else None
    return None if found is None or found[2] not in _SIZES else float(found[1]) * _SIZES[found[2]]


def requests(container: Mapping[str, Any], side: str) -> dict[str, float]:
    """Return what a container asks for; a resource with a limit alone is asked for by it."""
    found: dict[str, float] = {}
    for part in ("limits", "requests") if side == "requests" else ("limits",):
        table = at(container, "resources", part)
        if isinstance(table, Mapping):
            found |= {str(name): value for name, text in table.items() if (value := number(text)) is not None}
    return found


def _template(template: Any, count: int) -> Iterator[Pods]:
    spec = at(template, "spec")
    if isinstance(spec, Mapping):
        yield Pods(spec=spec, labels=table(template, "metadata", "labels"), count=count)


def _whole(value: Any, missing: int = 1) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else missing
