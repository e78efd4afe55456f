"""What keeps documents that are sound each by itself from working together, found before they reach a cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from provision.generate.cluster.bundle import Bundle, Load, Object, Pods, at, items, number, requests, table, words
from provision.generate.cluster.plugin import TAINT
from provision.generate.cluster.shapes import find_faults, shape_of
from provision.matrix.load import Matrix
from provision.records import record

_Check = Callable[[Bundle], Iterator["Contradiction"]]
RULES: dict[str, _Check] = {}
"""Id of a contradiction → what finds it."""

_VALUES = "gpu-operator"
_METRIC = re.compile(r"\bDCGM_(?:FI|EXP)_[A-Z0-9_]+")
# What a rule of ours is keyed by, and who puts it onto a series of the exporter.
_KEYS = ("cluster", "job", "node")
_DISCOVERY = "gpu-feature-discovery"
_PLUGINS = "--config.custom-plugin-monitor"
_BUILTIN_ROLES = ("cluster-admin", "admin", "edit", "view")


@record
class Contradiction:
    """Two parts of a bundle that exclude each other.

    Attributes:
        rule: Key of :data:`RULES`.
        path: The file of the part that cannot work.
        because: What is said where, in one sentence.
        way_out: One sentence or command.
    """

    rule: str
    path: str
    because: str
    way_out: str


def judge(
    documents: Iterable[tuple[str, Mapping[str, Any]]], *, existing: frozenset[str] = frozenset(), matrix: Matrix
) -> tuple[Contradiction, ...]:
    """Return every contradiction among documents, in the order of :data:`RULES`.

    Args:
        documents: File and document; Helm values have no kind.
        existing: What the cluster has already, ``Kind/name`` each.
        matrix: The facts.
    """
    bundle = Bundle(documents, existing, matrix)
    found = [item for check in RULES.values() for item in check(bundle)]
    return tuple(dict.fromkeys(found))


def _rule(name: str) -> Callable[[Callable[[Bundle], Iterator[tuple[str, str, str]]]], _Check]:
    def register(check: Callable[[Bundle], Iterator[tuple[str, str, str]]]) -> _Check:
        def run(bundle: Bundle) -> Iterator[Contradiction]:
            for path, because, way_out in check(bundle):
                yield Contradiction(rule=name, path=path, because=because, way_out=way_out)

        RULES[name] = run
        return run

    return register


@_rule("form")
def _form(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    """A key that its reader does not have is dropped in silence, or refused by the server."""
    for item in bundle.objects:
        name = shape_of(item.body, bundle.matrix)
        if name is not None:
            release = bundle.matrix.shapes[name]
            for fault in find_faults(name, item.body, bundle.matrix):
                yield item.path, f"{item}: {fault}", f"write it as {release.component} {release.version} reads it"
    if bundle.values is not None:
        for fault in find_faults(_VALUES, bundle.values, bundle.matrix):
            yield bundle.values_path, fault, "write it as the chart's values.yaml has it"


@_rule("one-name")
def _one_name(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    seen: dict[tuple[str, str, str, str], Object] = {}
    for item in bundle.objects:
        group = str(item.body.get("apiVersion")).partition("/")[0]
        key = (group, item.kind, item.space, item.name)
        first = seen.setdefault(key, item)
        if first is not item:
            yield (
                item.path,
                f"{item} is in {first.path} as well; the second replaces the first",
                "give one another --name",
            )


@_rule("namespace")
def _namespace(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    made = {item.name for item in bundle.of("Namespace")} | set(bundle.facts("builtin_namespaces"))
    if bundle.values is not None:
        made.add(bundle.fact("operator_namespace"))
    for item in bundle.objects:
        if item.space and item.space not in made and f"Namespace/{item.space}" not in bundle.existing:
            made.add(item.space)
            yield (
                item.path,
                f"{item} lies in a namespace that nothing makes",
                f"make it with `--tenant {item.space}=GPUS`, "
                f"or say that it is there: `--existing Namespace/{item.space}`",
            )


@_rule("reference")
def _reference(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    for load, pods in _groups(bundle):
        for kind, name in _references(pods.spec):
            if not bundle.has(kind, name, load.owner.space):
                yield (
                    load.owner.path,
                    f"{load.owner} uses {kind} {name}, which is not in these files",
                    f"add it, or say that it is there: `--existing {kind}/{name}`",
                )
    for job in bundle.of("TrainJob"):
        kind, name = at(job.body, "spec", "runtimeRef", "kind"), at(job.body, "spec", "runtimeRef", "name")
        if not bundle.has(
            str(kind or "ClusterTrainingRuntime"), str(name), job.space if kind == "TrainingRuntime" else ""
        ):
            yield (
                job.path,
                f"{job} runs {kind} {name}, which is not in these files",
                f"add it, or say that it is there: `--existing {kind}/{name}`",
            )


@_rule("runtime-class")
def _runtime_class(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    operator = set() if bundle.values is None else {bundle.fact("runtime_class")}
    return _missing_class(bundle, "RuntimeClass", "runtimeClassName", "runs under", operator)


@_rule("priority-class")
def _priority_class(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    builtin = set(bundle.facts("builtin_priorities"))
    return _missing_class(bundle, "PriorityClass", "priorityClassName", "has", builtin)


def _missing_class(
    bundle: Bundle, kind: str, field: str, verb: str, elsewhere: set[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield work whose Pods name a class that neither the files nor the cluster make."""
    offered = {item.name for item in bundle.of(kind)} | elsewhere
    for load, pods in _groups(bundle):
        name = pods.spec.get(field)
        if name is not None and str(name) not in offered and f"{kind}/{name}" not in bundle.existing:
            yield (
                load.owner.path,
                f"{load.owner} {verb} {kind} {name}, which nothing makes",
                f"say that it is there: `--existing {kind}/{name}`",
            )


@_rule("quota")
def _quota(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    for quota in bundle.of("ResourceQuota"):
        hard = at(quota.body, "spec", "hard")
        for key, text in hard.items() if isinstance(hard, Mapping) else ():
            allowed = number(text)
            for load in bundle.loads:
                asked = _asked(bundle, load, str(key))
                if load.owner.space == quota.space and allowed is not None and asked > allowed:
                    yield (
                        load.owner.path,
                        f"{load.owner} asks for {_shown(asked)} of {key} with all its Pods, {quota} allows {text}",
                        f"raise the share of --tenant {quota.space}, or ask for less with --nodes and --gpus",
                    )


@_rule("limit-range")
def _limit_range(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    for limits, limit in (
        (item, row) for item in bundle.of("LimitRange") for row in items(item.body, "spec", "limits")
    ):
        if limit.get("type") != "Container":
            continue
        for load, pods in _groups(bundle):
            if load.owner.space != limits.space:
                continue
            for container in items(pods.spec, "containers"):
                for because in _limited(container, limit):
                    yield (
                        load.owner.path,
                        f"{load.owner}: {because} by {limits}",
                        "set the container's own with --cpus and --memory-gib, or widen the LimitRange",
                    )


def _limited(container: Mapping[str, Any], limit: Mapping[str, Any]) -> Iterator[str]:
    asked, most = requests(container, "requests"), requests(container, "limits")
    default = at(limit, "default")
    gpus = [name for name in asked if name.startswith("nvidia.com/")]
    has_gpu = gpus or at(container, "resources", "claims")
    if isinstance(default, Mapping) and "cpu" in default and "cpu" not in most and has_gpu:
        count = _shown(sum(asked[name] for name in gpus)) if gpus else "its"
        yield f"a container with {count} GPUs and no limit of processors is held to {default['cpu']}"
    for side, given in (("max", most), ("min", asked)):
        bounds = at(limit, side)
        for name, text in bounds.items() if isinstance(bounds, Mapping) else ():
            bound = number(text)
            mine = given.get(str(name))
            if mine is not None and bound is not None and (mine > bound if side == "max" else mine < bound):
                yield f"{name} {_shown(mine)} of a container is refused, {side} is {text}"


@_rule("resource")
def _resource(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    offer = _offer(bundle)
    if offer is None:
        return
    prefix = bundle.fact("resource").partition("/")[0] + "/"
    offered, why = offer
    for load in bundle.loads:
        for name in sorted(load.resources()):
            if name.startswith(prefix) and name not in offered:
                yield (
                    load.owner.path,
                    f"{load.owner} asks for {name}, and {why}",
                    "have --mig-strategy, --mig-profile, --sharing and --dra say the same for the cluster and its work",
                )


@_rule("mig-layout")
def _mig_layout(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    strategy = at(bundle.values, "mig", "strategy")
    if strategy in (None, "none"):
        return
    way_out = "write a layout with `--mig-profile 1g.10gb`"
    if not at(bundle.values, "migManager", "enabled"):
        yield bundle.values_path, f"mig.strategy is {strategy}, and the MIG manager that cuts GPUs is off", way_out
    elif not _layouts(bundle):
        yield (
            bundle.values_path,
            f"mig.strategy is {strategy}, and no layout cuts a GPU: none would have a device",
            way_out,
        )


@_rule("product")
def _product(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    suffix, shared = bundle.fact("product_suffix"), bundle.fact("shared_suffix")
    prefix = bundle.fact("resource").partition("/")[0] + "/"
    profiles = sorted({profile for profile, _ in _layouts(bundle)})
    is_single = at(bundle.values, "mig", "strategy") == "single"
    for load, pods in _groups(bundle):
        bases = {name.removesuffix(shared) for name in _gpu_resources(pods, prefix)}
        for key, values in _required(pods.spec).items():
            if not key.startswith(prefix) or not key.endswith(suffix):
                continue
            if not _is_labelled(bundle):
                yield (
                    load.owner.path,
                    f"{load.owner} chooses nodes by {key}, and nothing labels nodes: "
                    "GPU feature discovery does not run",
                    "have it run, as the files of a request do",
                )
            elif bases and key.removesuffix(suffix) not in bases:
                yield (
                    load.owner.path,
                    f"{load.owner} asks for {', '.join(sorted(bases))} and chooses nodes by {key}, "
                    "the label of another resource",
                    f"choose them by {min(bases)}{suffix}",
                )
            elif (
                is_single
                and values
                and profiles
                and not any(value.endswith(f"-MIG-{item}") for value in values for item in profiles)
            ):
                yield (
                    load.owner.path,
                    f"{load.owner} chooses nodes by {key} {', '.join(values)}, "
                    f"which nodes cut into {profiles[0]} no longer have",
                    f"choose them by {values[0]}-MIG-{profiles[0]}",
                )


@_rule("node-pool")
def _node_pool(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    pools = list(bundle.of("NodePool"))
    if not pools:
        return
    prefix = bundle.fact("resource").partition("/")[0] + "/"
    for load, pods in _groups(bundle):
        if not _gpu_resources(pods, prefix) or load.owner.kind == "DaemonSet":
            continue
        faults = [fault for pool in pools if (fault := _misfit(pool, pods, bundle)) is not None]
        if len(faults) == len(pools):
            yield (
                load.owner.path,
                f"{load.owner} would wait for ever: {faults[0]}",
                "write both from one request, with the same --gpu",
            )


def _misfit(pool: Object, pods: Pods, bundle: Bundle) -> str | None:
    """Return why no node of a pool takes a Pod; ``None`` where one may."""
    template = at(pool.body, "spec", "template")
    labels = {str(key): [str(value)] for key, value in table(template, "metadata", "labels").items()}
    for row in items(template, "spec", "requirements"):
        if row.get("operator") == "In":
            labels[str(row.get("key"))] = words(row, "values")
    for key, values in _required(pods.spec).items():
        if not set(values) & set(labels.get(key, ())):
            have = " or ".join(labels.get(key, ["none"]))
            return f"it needs nodes with {key} {' or '.join(values)}, and those of {pool} have {have}"
    kept = items(pods.spec, "tolerations")
    for taint in items(template, "spec", "taints"):
        if taint.get("effect") != "PreferNoSchedule" and not any(_tolerates(row, taint) for row in kept):
            return f"nodes of {pool} have the taint {taint.get('key')}, which its Pods do not tolerate"
    whole = bundle.fact("resource")
    for name in _gpu_resources(pods, whole.partition("/")[0] + "/"):
        if name != whole:
            return f"Karpenter does not know that nodes of {pool} will have {name}"
    return None


@_rule("queue")
def _queue(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    label = bundle.fact("queue_label")
    for queue in bundle.of("LocalQueue"):
        name = str(at(queue.body, "spec", "clusterQueue"))
        if not bundle.has("ClusterQueue", name):
            yield queue.path, f"{queue} leads to ClusterQueue {name}, which nothing makes", "write both with --kueue"
    for queue in bundle.of("ClusterQueue"):
        for group in items(queue.body, "spec", "resourceGroups"):
            for flavor in items(group, "flavors"):
                if not bundle.has("ResourceFlavor", str(flavor.get("name"))):
                    yield (
                        queue.path,
                        f"{queue} has ResourceFlavor {flavor.get('name')}, which nothing makes: it would admit nothing",
                        "write both with --kueue",
                    )
    for load in bundle.loads:
        asked = load.owner.labels.get(label)
        if asked is None:
            continue
        local = next(
            (item for item in bundle.of("LocalQueue") if item.name == asked and item.space == load.owner.space), None
        )
        if local is None:
            if f"LocalQueue/{asked}" not in bundle.existing:
                yield (
                    load.owner.path,
                    f"{load.owner} waits in queue {asked}, which its namespace does not have",
                    f"write it with --kueue, or say that it is there: `--existing LocalQueue/{asked}`",
                )
            continue
        target = at(local.body, "spec", "clusterQueue")
        for queue in bundle.of("ClusterQueue"):
            if queue.name == target:
                yield from _queued(bundle, load, queue)


def _queued(bundle: Bundle, load: Load, queue: Object) -> Iterator[tuple[str, str, str]]:
    quotas: dict[str, float] = {}
    for group in items(queue.body, "spec", "resourceGroups"):
        for flavor in items(group, "flavors"):
            for row in items(flavor, "resources"):
                quotas[str(row.get("name"))] = quotas.get(str(row.get("name")), 0.0) + (
                    number(row.get("nominalQuota")) or 0.0
                )
            yield from _flavored(bundle, load, str(flavor.get("name")))
    for name in sorted(load.resources()):
        asked = load.demand(name)
        if name not in quotas:
            yield (
                load.owner.path,
                f"{load.owner} asks for {name}, which {queue} does not cover: it is never admitted",
                "write both from one request",
            )
        elif asked > quotas[name]:
            yield (
                load.owner.path,
                f"{load.owner} asks for {_shown(asked)} of {name}, {queue} has {_shown(quotas[name])}: "
                "it waits for ever",
                f"raise the share of --tenant {load.owner.space}, or ask for less with --nodes and --gpus",
            )


def _flavored(bundle: Bundle, load: Load, name: str) -> Iterator[tuple[str, str, str]]:
    for flavor in bundle.of("ResourceFlavor"):
        labels = at(flavor.body, "spec", "nodeLabels")
        if flavor.name != name or not isinstance(labels, Mapping):
            continue
        for pods in load.pods:
            for key, values in _required(pods.spec).items():
                if key in labels and labels[key] not in values:
                    yield (
                        load.owner.path,
                        f"{load.owner} needs {key} {' or '.join(values)}, {flavor} has nodes with {labels[key]}",
                        "write both from one request, with the same --gpu",
                    )


@_rule("monitor")
def _monitor(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    monitors = list(bundle.of("ServiceMonitor"))
    for monitor in monitors:
        wanted = table(monitor.body, "spec", "selector", "matchLabels")
        spaces = words(monitor.body, "spec", "namespaceSelector", "matchNames") or [monitor.space]
        is_anywhere = at(monitor.body, "spec", "namespaceSelector", "any") is True
        services = [
            (space, labels, ports)
            for space, labels, ports in _services(bundle)
            if all(labels.get(key) == value for key, value in wanted.items()) and (is_anywhere or space in spaces)
        ]
        if not services:
            yield (
                monitor.path,
                f"{monitor} selects {_pairs(wanted)} in {', '.join(spaces)}, which no Service has: nothing is scraped",
                "take the labels of the exporter's Service",
            )
        for endpoint in items(monitor.body, "spec", "endpoints") if services else ():
            port = endpoint.get("port")
            if port is not None and not any(str(port) in ports for _, _, ports in services):
                yield (
                    monitor.path,
                    f"{monitor} scrapes the port {port}, which the Service does not have",
                    "take its name",
                )
    if not any(True for _ in bundle.of("PrometheusRule")):
        return
    made = {
        str(row.get("targetLabel"))
        for monitor in monitors
        for end in items(monitor.body, "spec", "endpoints")
        for row in items(end, "relabelings")
    }
    for rules in bundle.of("PrometheusRule"):
        missing = [key for key in _KEYS if key not in made]
        if monitors and missing:
            yield (
                rules.path,
                f"{rules} is keyed by {', '.join(missing)}, which no ServiceMonitor puts onto a series: "
                "no alert would fire",
                "set it by relabelings, as --monitoring does",
            )
        if not monitors and f"ServiceMonitor/{bundle.entries('exporter_service')['name']}" not in bundle.existing:
            yield rules.path, f"{rules} has rules for series that nothing scrapes", "write both with --monitoring"


@_rule("counter")
def _counter(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    """What rules, dashboards and scalers ask for is collected."""
    text = at(bundle.values, "dcgmExporter", "config", "data")
    if bundle.values is None:
        return
    if at(bundle.values, "dcgmExporter", "enabled") is False:
        collected: set[str] = set()
    elif isinstance(text, str):
        collected = {line.partition(",")[0].strip() for line in text.splitlines() if not line.startswith("#")}
    else:
        collected = set()
    for item in bundle.of("PrometheusRule", "ScaledObject"):
        missing = sorted(set(_METRIC.findall(str(item.body.get("spec")))) - collected)
        if missing:
            yield (
                item.path,
                f"{item} asks for {missing[0]}{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}, "
                "which dcgm-exporter is not told to collect",
                "have the values name the counters, as --monitoring does",
            )


@_rule("port")
def _port(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    for service in bundle.of("Service"):
        selector = at(service.body, "spec", "selector")
        if not isinstance(selector, Mapping):
            continue
        chosen = [
            pods
            for load, pods in _groups(bundle)
            if load.owner.space == service.space
            and all(pods.labels.get(key) == value for key, value in selector.items())
        ]
        if not chosen:
            yield (
                service.path,
                f"{service} selects {_pairs(selector)}, which no Pod of these files has",
                "take the labels of its Pods",
            )
        for row in items(service.body, "spec", "ports") if chosen else ():
            target = str(row.get("targetPort", row.get("port")))
            if not any(target in _ports(container) for pods in chosen for container in pods.containers):
                yield (
                    service.path,
                    f"{service} sends to the port {target}, which its Pods do not open",
                    "name one that they open, with --port",
                )
    for load, pods in _groups(bundle):
        for container in pods.containers:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                for way in ("httpGet", "tcpSocket"):
                    port = at(container, probe, way, "port")
                    if isinstance(port, str) and port not in _ports(container):
                        yield (
                            load.owner.path,
                            f"{load.owner}: {probe} asks the port {port}, which the container does not open",
                            "name one that it opens",
                        )


@_rule("scaler")
def _scaler(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    for scaler in bundle.of("ScaledObject"):
        name = str(at(scaler.body, "spec", "scaleTargetRef", "name"))
        kind = str(at(scaler.body, "spec", "scaleTargetRef", "kind") or "Deployment")
        target = next((item for item in bundle.of(kind) if item.name == name and item.space == scaler.space), None)
        if target is None:
            yield (
                scaler.path,
                f"{scaler} scales {kind} {name}, which its namespace does not have",
                "write both from one request",
            )
        elif at(target.body, "spec", "replicas") is not None:
            yield (
                target.path,
                f"{target} sets its replicas, and {scaler} sets them too: each apply would undo what was scaled",
                "leave replicas out where something scales",
            )
        clusters = set(re.findall(r'cluster="([^"]*)"', str(at(scaler.body, "spec", "triggers"))))
        named = {
            str(row.get("replacement"))
            for monitor in bundle.of("ServiceMonitor")
            for end in items(monitor.body, "spec", "endpoints")
            for row in items(end, "relabelings")
            if row.get("targetLabel") == "cluster"
        }
        if clusters and named and not clusters & named:
            yield (
                scaler.path,
                f"{scaler} asks for the cluster {', '.join(sorted(clusters))}, "
                f"series are of {', '.join(sorted(named))}",
                "write both from one request, with one --monitoring",
            )


@_rule("pod-security")
def _pod_security(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    levels = {item.name: item.labels.get("pod-security.kubernetes.io/enforce") for item in bundle.of("Namespace")}
    allowed = set(bundle.facts("baseline_capabilities"))
    for load, pods in _groups(bundle):
        level = levels.get(load.owner.space)
        if level not in ("baseline", "restricted"):
            continue
        for container in pods.containers:
            added = words(container, "securityContext", "capabilities", "add")
            beyond = sorted(set(added) - allowed)
            if at(container, "securityContext", "privileged") is True:
                beyond.append("privileged")
            if beyond:
                yield (
                    load.owner.path,
                    f"{load.owner} has {', '.join(beyond)}, and Namespace {load.owner.space} enforces {level}: "
                    "its Pods are refused",
                    "label the namespace `pod-security.kubernetes.io/enforce: privileged`, or leave --rdma out",
                )
        if any("hostPath" in volume for volume in items(pods.spec, "volumes")) or pods.spec.get("hostNetwork") is True:
            yield (
                load.owner.path,
                f"{load.owner} uses the host's paths or network, and Namespace {load.owner.space} enforces {level}",
                "use a claim with --volume, or another namespace",
            )


@_rule("two-ways")
def _two_ways(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    """One GPU is handed out by one alone."""
    claims = [load for load, pods in _groups(bundle) if pods.spec.get("resourceClaims")]
    if claims and at(bundle.values, "devicePlugin", "enabled") is True:
        yield (
            claims[0].owner.path,
            f"{claims[0].owner} claims GPUs, and the device plugin of {bundle.values_path} hands out the same ones",
            "write both with --dra, which turns the plugin off",
        )
    daemon = next((item for item in bundle.of("DaemonSet") if _offers(item)), None)
    if claims and daemon is not None:
        yield (
            claims[0].owner.path,
            f"{claims[0].owner} claims GPUs, and {daemon} hands out the same ones",
            "write both with --dra, which leaves the plugin out",
        )
    if daemon is not None and at(bundle.values, "devicePlugin", "enabled") is not False and bundle.values is not None:
        yield (
            daemon.path,
            f"{daemon} offers the GPUs that the operator of {bundle.values_path} offers as well",
            "keep the file of the one who owns the driver, and remove the other",
        )


def _closing(bundle: Bundle, space: str, direction: str) -> list[Object]:
    """Return the policies of a namespace that close it: for ``Ingress`` or ``Egress`` only what they name is open."""
    return [
        item
        for item in bundle.of("NetworkPolicy")
        if item.space == space and direction in words(item.body, "spec", "policyTypes")
    ]


@_rule("ray-closed")
def _ray_closed(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    port = int(bundle.entries("ray_ports")["dashboard"])
    operator = dict(bundle.entries("ray_operator_label"))
    for ray in bundle.of("RayCluster", "RayJob", "RayService"):
        closed = _closing(bundle, ray.space, "Ingress")
        opened = any(
            any(row.get("port") == port for row in items(rule, "ports"))
            and any(at(peer, "podSelector", "matchLabels") == operator for peer in items(rule, "from"))
            for item in closed
            for rule in items(item.body, "spec", "ingress")
        )
        if closed and not opened:
            yield (
                ray.path,
                f"{ray} is asked by its operator on port {port}, and {closed[0]} lets nobody in",
                "let the operator in, as --tenant does for --runner rayjob, raycluster and rayservice",
            )


@_rule("ray-autoscaler")
def _ray_autoscaler(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    """It runs beside the head, asks the API server for workers, and sets how many there are."""
    way_out = "write both from one request, with --autoscale"
    ports = {int(port) for port in bundle.facts("api_ports")}
    for ray in bundle.of("RayCluster", "RayJob", "RayService"):
        spec = next(
            (part for key in ("rayClusterSpec", "rayClusterConfig") if (part := table(ray.body, "spec", key))),
            table(ray.body, "spec"),
        )
        is_scaled = spec.get("enableInTreeAutoscaling") is True
        for group in items(spec, "workerGroupSpecs"):
            least, most = (number(group.get(key)) for key in ("minReplicas", "maxReplicas"))
            begin = number(group.get("replicas"))
            if None not in (least, most, begin) and not float(least or 0) <= float(begin or 0) <= float(most or 0):
                yield (
                    ray.path,
                    f"{ray} begins with {begin:g} workers, and its bounds are {least:g} and {most:g}",
                    "begin with the fewest",
                )
            if least != most and not is_scaled:
                yield ray.path, f"{ray} has bounds, and enableInTreeAutoscaling is off: nothing scales it", way_out
        if not is_scaled:
            continue
        if at(spec, "headGroupSpec", "template", "spec", "automountServiceAccountToken") is False:
            yield ray.path, f"the head of {ray} has no account by which its autoscaler could ask for workers", way_out
        if bundle.fact("queue_label") in ray.labels:
            yield (
                ray.path,
                f"{ray} waits in a queue of Kueue, which refuses a cluster that its autoscaler changes",
                "leave --kueue or --autoscale out",
            )
        closed = _closing(bundle, ray.space, "Egress")
        opened = {
            port.get("port")
            for item in closed
            for rule in items(item.body, "spec", "egress")
            if not items(rule, "to")
            for port in items(rule, "ports")
        }
        if closed and not ports <= opened:
            yield (
                ray.path,
                f"the autoscaler of {ray} asks the API server, and {closed[0]} lets it reach nobody",
                "open its ports to the head, as --tenant does with --autoscale",
            )


@_rule("store-closed")
def _store_closed(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    """What copies from object storage must get out of a namespace."""
    for load, pods in _groups(bundle):
        copies = [row for row in items(pods.spec, "initContainers") if row.get("image") == bundle.fact("rclone_image")]
        closed = _closing(bundle, load.owner.space, "Egress")
        is_open = any(
            not items(rule, "to") and not at(item.body, "spec", "podSelector", "matchLabels")
            for item in closed
            for rule in items(item.body, "spec", "egress")
        )
        if copies and closed and not is_open:
            yield (
                load.owner.path,
                f"{load.owner} copies from object storage, and {closed[0]} lets it reach nothing outside",
                "open the port of the storage, as --tenant does with --data and --checkpoints",
            )


@_rule("account")
def _account(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    """Rights that lead to a role or an account which is not there are given to nobody."""
    for item in bundle.of("ClusterRoleBinding", "RoleBinding"):
        wanted = [(at(item.body, "roleRef", "kind"), at(item.body, "roleRef", "name"), item.space)]
        wanted += [
            (row.get("kind"), row.get("name"), str(row.get("namespace") or item.space))
            for row in items(item.body, "subjects")
            if row.get("kind") == "ServiceAccount"
        ]
        for kind, name, space in wanted:
            is_builtin = kind == "ClusterRole" and (name in _BUILTIN_ROLES or str(name).startswith("system:"))
            if not is_builtin and not bundle.has(str(kind), str(name), "" if kind == "ClusterRole" else space):
                yield (
                    item.path,
                    f"{item} is about {kind} {name}, which nothing makes",
                    f"add it, or say that it is there: `--existing {kind}/{name}`",
                )


@_rule("watch-plugin")
def _watch_plugin(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    """node-problem-detector ends at once when one of its plugins is not what it reads."""
    for load, pods in _groups(bundle):
        for container in pods.containers:
            for word in (*words(container, "command"), *words(container, "args")):
                flag, _, paths = word.partition("=")
                if flag != _PLUGINS:
                    continue
                files = _mounted(bundle, load.owner, pods.spec, container)
                for path in paths.split(","):
                    for because in _plugin_faults(path, files):
                        yield load.owner.path, f"{load.owner}: {because}", "write it again with --health"


def _plugin_faults(path: str, files: Mapping[str, tuple[str, int]]) -> Iterator[str]:
    if path not in files:
        yield f"its plugin {path} is in no ConfigMap that is mounted there"
        return
    plugin = _read(files[path][0])
    conditions = {row.get("type") for row in items(plugin, "conditions")}
    most = _seconds(at(plugin, "pluginConfig", "timeout"))
    for rule in items(plugin, "rules"):
        script = str(rule.get("path"))
        if script not in files:
            yield f"{path} runs {script}, which is in no ConfigMap that is mounted there"
        elif not files[script][1] & 0o111:
            yield f"{path} runs {script}, which is mounted with a mode that lets nobody run it"
        if rule.get("type") == "permanent" and rule.get("condition") not in conditions:
            yield f"{path} sets the condition {rule.get('condition')}, which has no default there"
        seconds = _seconds(rule.get("timeout"))
        if most is not None and seconds is not None and seconds > most:
            yield f"{path} gives {script} {rule.get('timeout')}, more than its pluginConfig allows"


def _mounted(
    bundle: Bundle, owner: Object, spec: Mapping[str, Any], container: Mapping[str, Any]
) -> dict[str, tuple[str, int]]:
    """Return path in a container → text and mode, of what comes from ConfigMaps of the bundle."""
    volumes = {volume.get("name"): at(volume, "configMap") for volume in items(spec, "volumes")}
    found = {}
    for mount in items(container, "volumeMounts"):
        volume = volumes.get(mount.get("name"))
        for item in bundle.of("ConfigMap"):
            if item.name == at(volume, "name") and item.space == owner.space:
                mode = at(volume, "defaultMode")
                for key, text in table(item.body, "data").items():
                    found[f"{mount.get('mountPath')}/{key}"] = (str(text), mode if isinstance(mode, int) else 0o644)
    return found


def _seconds(text: Any) -> float | None:
    found = re.fullmatch(r"([0-9.]+)(ms|s|m|h)", str(text))
    return None if found is None else float(found[1]) * {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}[found[2]]


@_rule("taken-out")
def _taken_out(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    """A node that is taken out must keep its GPUs, or no proof lets it back."""
    proof = next((load for load in bundle.loads if load.owner.kind == "PodTemplate"), None)
    if proof is None:
        return
    way_out = "write both from one request, with --health"
    taint = {"key": TAINT, "effect": "NoSchedule"}
    daemons = [load for load in bundle.loads if load.owner.kind == "DaemonSet" and _offers(load.owner)]
    for load in (proof, *daemons):
        for pods in load.pods:
            if not any(_tolerates(row, taint) for row in items(pods.spec, "tolerations")):
                yield (
                    load.owner.path,
                    f"{load.owner} does not tolerate {TAINT}, the taint of nodes that are taken out",
                    way_out,
                )
    if bundle.values is not None and not any(
        _tolerates(row, taint) for row in items(bundle.values, "daemonsets", "tolerations")
    ):
        yield (
            bundle.values_path,
            f"the operator's daemons do not tolerate {TAINT}, the taint of nodes that are taken out: "
            "such a node would have no GPU after a restart",
            way_out,
        )


@_rule("listed")
def _listed(bundle: Bundle) -> Iterator[tuple[str, str, str]]:
    """What `kubectl apply -k` reads is what is there."""
    for path, names in bundle.listed:
        for name in names:
            if name not in bundle.paths:
                yield path, f"it lists {name}, which is not there", "write the folder again"
        for item in bundle.objects:
            if item.path not in names:
                yield (
                    path,
                    f"it does not list {item.path}, so that `kubectl apply -k` leaves {item} out",
                    "write the folder again",
                )
                names.append(item.path)


def _groups(bundle: Bundle) -> Iterator[tuple[Load, Pods]]:
    for load in bundle.loads:
        for pods in load.pods:
            yield load, pods


def _references(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a Pod cannot start without."""
    for volume in items(spec, "volumes"):
        for key, kind, name in (
            ("persistentVolumeClaim", "PersistentVolumeClaim", "claimName"),
            ("secret", "Secret", "secretName"),
            ("configMap", "ConfigMap", "name"),
        ):
            part = volume.get(key)
            if isinstance(part, Mapping) and not part.get("optional"):
                yield kind, str(part.get(name))
    for claim in items(spec, "resourceClaims"):
        if "resourceClaimTemplateName" in claim:
            yield "ResourceClaimTemplate", str(claim["resourceClaimTemplateName"])
    for secret in items(spec, "imagePullSecrets"):
        yield "Secret", str(secret.get("name"))
    account = spec.get("serviceAccountName")
    if account not in (None, "default"):
        yield "ServiceAccount", str(account)
    for container in (*items(spec, "initContainers"), *items(spec, "containers")):
        for source in items(container, "envFrom"):
            for key, kind in (("secretRef", "Secret"), ("configMapRef", "ConfigMap")):
                part = source.get(key)
                if isinstance(part, Mapping) and not part.get("optional"):
                    yield kind, str(part.get("name"))
        for variable in items(container, "env"):
            for key, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
                part = at(variable, "valueFrom", key)
                if isinstance(part, Mapping) and not part.get("optional"):
                    yield kind, str(part.get("name"))


def _asked(bundle: Bundle, load: Load, key: str) -> float:
    """Return how much of one key of a quota a load takes."""
    suffix = bundle.fact("claim_quota_suffix")
    if key.endswith(suffix):
        return sum(group.count * _claimed(bundle, load, group, key.removesuffix(suffix)) for group in load.pods)
    side, dot, name = key.partition(".")
    if dot and side in ("requests", "limits"):
        return load.demand(name, side)
    return load.demand(key) if key in ("cpu", "memory") else 0.0


def _claimed(bundle: Bundle, load: Load, pods: Pods, device_class: str) -> float:
    names = {str(claim.get("resourceClaimTemplateName")) for claim in items(pods.spec, "resourceClaims")}
    return sum(
        number(at(row, "exactly", "count")) or 1.0
        for item in bundle.of("ResourceClaimTemplate")
        if item.name in names and item.space == load.owner.space
        for row in items(item.body, "spec", "spec", "devices", "requests")
        if at(row, "exactly", "deviceClassName") == device_class
    )


def _plugin_config(bundle: Bundle) -> tuple[Mapping[str, Any], str] | None:
    """Return the configuration of the device plugin and where it stands; ``None`` where the files have no plugin."""
    if bundle.values is not None:
        data = at(bundle.values, "devicePlugin", "config", "data")
        default = at(bundle.values, "devicePlugin", "config", "default")
        text = data.get(str(default)) if isinstance(data, Mapping) else None
        found = _read(text) if isinstance(text, str) else {}
        return {**found, "flags": {"migStrategy": at(bundle.values, "mig", "strategy") or "single"}}, bundle.values_path
    for daemon in bundle.of("DaemonSet"):
        names = {
            name for kind, name in _references(table(daemon.body, "spec", "template", "spec")) if kind == "ConfigMap"
        }
        for item in bundle.of("ConfigMap"):
            if item.name in names and _offers(daemon):
                return _read(at(item.body, "data", "config.yaml")), item.path
    return None


def _offer(bundle: Bundle) -> tuple[frozenset[str], str] | None:
    """Return which resources nodes will have, and what says so; ``None`` where the files do not."""
    found = _plugin_config(bundle)
    if found is None:
        return None
    config, path = found
    if at(bundle.values, "devicePlugin", "enabled") is False:
        return frozenset(), f"{path} turns the device plugin off"
    whole, prefix, suffix = bundle.fact("resource"), bundle.fact("mig_resource_prefix"), bundle.fact("shared_suffix")
    strategy = at(config, "flags", "migStrategy")
    profiles = {profile for profile, _ in _layouts(bundle)}
    if bundle.values is None and strategy == "mixed":
        # The nodes are cut by their own play, into what these files do not know.
        profiles = {row.profile for row in bundle.matrix.rows("planning.toml", "mig_profile")}
    names = {whole} | ({f"{prefix}{profile}" for profile in profiles} if strategy == "mixed" else set())
    for way in ("timeSlicing", "mps"):
        part = at(config, "sharing", way)
        for row in items(part, "resources"):
            name = str(row.get("name"))
            if isinstance(part, Mapping) and part.get("renameByDefault") and name in names:
                names = (names - {name}) | {f"{name}{suffix}"}
    return frozenset(names), f"{path} has nodes offer {', '.join(sorted(names))}"


def _layouts(bundle: Bundle) -> list[tuple[str, int]]:
    """Return profile and number of the devices that the layouts of the MIG manager make."""
    config = _read(at(bundle.values, "migManager", "config", "data", "config.yaml"))
    found = []
    for parts in (table(config, "mig-configs")).values():
        for part in parts if isinstance(parts, list) else ():
            if at(part, "mig-enabled") is True:
                found += [(str(name), int(number(count) or 0)) for name, count in table(part, "mig-devices").items()]
    return found


def _read(text: Any) -> Mapping[str, Any]:
    import yaml

    if not isinstance(text, str):
        return {}
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return document if isinstance(document, Mapping) else {}


def _offers(daemon: Object) -> bool:
    """Return whether a DaemonSet is a device plugin; feature discovery is another program of its image."""
    containers = items(daemon.body, "spec", "template", "spec", "containers")
    return any("device-plugin" in str(container.get("image")) and not _discovers(container) for container in containers)


def _discovers(container: Mapping[str, Any]) -> bool:
    return any(_DISCOVERY in word for word in (*words(container, "command"), *words(container, "args")))


def _is_labelled(bundle: Bundle) -> bool:
    """Return whether something says on a node of which product its GPUs are, or the files do not tell."""
    if bundle.values is not None:
        return at(bundle.values, "gfd", "enabled") is not False
    daemons = [load for load in bundle.loads if load.owner.kind == "DaemonSet"]
    found = [container for load in daemons for pods in load.pods for container in pods.containers]
    return any(map(_discovers, found)) or not any(_offers(load.owner) for load in daemons)


def _gpu_resources(pods: Pods, prefix: str) -> set[str]:
    return {
        name for container in pods.containers for name in requests(container, "requests") if name.startswith(prefix)
    }


def _required(spec: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return what labels a Pod's node must have: key to values, one of them."""
    found = {str(key): [str(value)] for key, value in table(spec, "nodeSelector").items()}
    terms = items(
        spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"
    )
    for row in (row for term in terms for row in items(term, "matchExpressions")):
        if row.get("operator") == "In":
            found[str(row.get("key"))] = words(row, "values")
    return found


def _tolerates(row: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    key = row.get("key")
    if key is not None and key != taint.get("key"):
        return False
    if row.get("effect") not in (None, taint.get("effect")):
        return False
    return row.get("operator") == "Exists" or row.get("value", "") == taint.get("value", "")


def _services(bundle: Bundle) -> Iterator[tuple[str, Mapping[str, Any], set[str]]]:
    """Yield namespace, labels and ports of every Service: those of the files, and the one that the operator makes."""
    for item in bundle.of("Service"):
        yield item.space, item.labels, {str(row.get("name")) for row in items(item.body, "spec", "ports")}
    if bundle.values is not None and at(bundle.values, "dcgmExporter", "enabled") is not False:
        exporter = bundle.entries("exporter_service")
        yield bundle.fact("operator_namespace"), {exporter["label"]: exporter["value"]}, {exporter["port"]}


def _ports(container: Mapping[str, Any]) -> set[str]:
    return {str(row.get(key)) for row in items(container, "ports") for key in ("name", "containerPort")}


def _pairs(labels: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in labels.items())


def _shown(value: float) -> str:
    for size, unit in ((2.0**30, "Gi"), (2.0**20, "Mi")):
        if value >= size and value % size == 0:
            return f"{value / size:.15g}{unit}"
    return f"{value:.15g}"
