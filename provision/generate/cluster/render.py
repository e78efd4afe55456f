"""All files for a cluster from one request, which agree with each other or are not written."""

from __future__ import annotations

import shlex
from typing import Any

from provision.errors import IncompatibleError, UsageError
from provision.generate.cluster.admission import Contradiction, judge
from provision.generate.cluster.health import health_objects
from provision.generate.cluster.manifest import to_yaml
from provision.generate.cluster.nodepool import node_pool
from provision.generate.cluster.options import RAY, SERVING, ClusterOptions
from provision.generate.cluster.owner import Ownership
from provision.generate.cluster.plan import Plan, make_plan
from provision.generate.cluster.plugin import plugin_manifests
from provision.generate.cluster.pod import claim_template
from provision.generate.cluster.queues import queue_objects
from provision.generate.cluster.ray import ray_objects, ray_up
from provision.generate.cluster.serving import service_objects
from provision.generate.cluster.shapes import shape_of
from provision.generate.cluster.tenant import tenant_manifests
from provision.generate.cluster.training import compose_file, nccl_tests_job, training, verify_job
from provision.generate.cluster.values import operator_values
from provision.generate.cluster.watching import MONITOR_CHART, monitor_objects, monitor_values
from provision.generate.subject import Subject
from provision.generate.write import Artifact
from provision.matrix.load import Matrix
from provision.records import record

_VALUES, _COMPOSE, _ALL = "gpu-operator-values.yaml", "compose.yaml", "kustomization.yaml"
_RAY_UP, _MONITORS = "ray-up.yaml", f"{MONITOR_CHART}-values.yaml"


@record
class ClusterFiles:
    """What was rendered.

    Attributes:
        owned: Who installs the driver.
        resource: What a Job asks for.
        name: Of the work.
        artifacts: The files, by path.
        applied: Those that kubectl applies, in order.
        commands: How all of it gets into the cluster, in order.
        needs: What must run in the cluster for it, and the release that its resources were checked against.
        warnings: What a person should know.
    """

    owned: Ownership
    resource: str
    name: str
    artifacts: tuple[Artifact, ...]
    applied: tuple[str, ...]
    commands: tuple[str, ...]
    needs: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...] = ()


def render_cluster(subject: Subject, options: ClusterOptions, matrix: Matrix) -> ClusterFiles:
    """Return every file; the same lock, options and facts give the same bytes.

    Args:
        subject: What the lock says.
        options: What was asked.
        matrix: The facts.

    Raises:
        IncompatibleError: What was asked excludes itself, the lock excludes it, or the files contradict each other.
        UnknownError: The facts know no driver image, no profile or no machine.
        UsageError: Two options do not go together.
    """
    plan = make_plan(subject, options, matrix)
    header = (
        "Written by `provision cluster`; change the request, not this file.",
        f"provision.lock {subject.digest}; facts of {subject.facts_date}",
    )
    objects = _objects(plan)
    files: dict[str, list[dict[str, Any]]] = dict(objects)
    if plan.owned.owner == "operator":
        files[_VALUES] = [operator_values(plan)]
    _refuse_contradictions(files, options, matrix)
    if objects:
        files[_ALL] = [
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": list(objects),
            }
        ]
    if options.script and options.runner not in RAY:
        files[_COMPOSE] = [compose_file(plan)]
    if options.monitors is not None:
        files[_MONITORS] = [monitor_values(plan)]
    if options.machine is not None:
        files[_RAY_UP] = [ray_up(plan)]
    needed = {
        matrix.shapes[name].component for rows in objects.values() for row in rows if (name := shape_of(row, matrix))
    }
    return ClusterFiles(
        owned=plan.owned,
        resource=plan.fact("device_class") if options.is_claimed else plan.resource,
        name=plan.name,
        artifacts=tuple(Artifact(path=path, text=to_yaml(header, files[path])) for path in sorted(files)),
        applied=tuple(objects),
        commands=_commands(plan, objects),
        needs=tuple((name, matrix.cluster_components[name].version) for name in sorted(needed)),
        warnings=plan.warnings,
    )


def _objects(plan: Plan) -> dict[str, list[dict[str, Any]]]:
    """Return what kubectl applies, by file and in the order in which one needs the other."""
    options = plan.options
    files: dict[str, list[dict[str, Any]]] = {}
    if plan.owned.owner == "node":
        files["device-plugin.yaml"] = plugin_manifests(options, plan.matrix)
    for tenant in options.tenants:
        files[f"tenant-{tenant.name}.yaml"] = tenant_manifests(tenant, plan)
    if options.cluster is not None:
        if plan.owned.owner == "node":
            raise UsageError(
                "--monitoring watches what the GPU Operator runs",
                because=("with the driver of the nodes there is no exporter in the cluster",),
                hints=("play gpu-monitoring.yml: it watches the exporters that the nodes have", "leave it out"),
            )
        files["monitoring.yaml"] = monitor_objects(plan)
    if options.has_health:
        files["health.yaml"] = health_objects(plan)
    if options.node_class is not None:
        files["nodepool.yaml"] = [node_pool(plan)]
    if options.is_queued:
        files["queues.yaml"] = queue_objects(plan)
    if options.is_claimed:
        counts = {1} if options.image is not None else set()
        if options.has_work or options.nccl_tests_image is not None:
            counts.add(options.gpus)
        if counts:
            files["claims.yaml"] = [claim_template(plan, count) for count in sorted(counts)]
    if options.image is not None:
        files["verify.yaml"] = [verify_job(plan)]
    if options.nccl_tests_image is not None:
        files["nccl-tests.yaml"] = [nccl_tests_job(plan)]
    if options.has_work:
        if options.runner in RAY:
            files["ray.yaml"] = ray_objects(plan)
        elif options.runner in SERVING:
            files["serve.yaml"] = service_objects(plan)
        else:
            files["train.yaml"] = training(plan)
    return files


def _commands(plan: Plan, objects: dict[str, list[dict[str, Any]]]) -> tuple[str, ...]:
    commands = []
    if plan.owned.owner == "operator":
        chart = plan.matrix.cluster_components["gpu-operator"]
        commands.append(
            f"helm upgrade --install gpu-operator {chart.chart} --version {chart.version} "
            f"--namespace {plan.fact('operator_namespace')} --create-namespace --values {_VALUES}"
        )
        if plan.layout is not None:
            commands.append(
                f"kubectl label nodes --selector {shlex.quote(_to_be_cut(plan))} "
                f"{plan.fact('mig_config_label')}={plan.layout.name} --overwrite"
            )
    if plan.options.monitors is not None:
        # What else its owner set stays, and so does the chart: without a version Helm would take the newest.
        commands.append(
            f"helm upgrade {MONITOR_CHART} prometheus-community/{MONITOR_CHART} --namespace monitoring "
            f"--version REPLACE-WITH-VERSION-OF-THE-RELEASE --reuse-values --values {_MONITORS}"
        )
    return (*commands, *(f"kubectl apply -f {path}" for path in objects))


def _to_be_cut(plan: Plan) -> str:
    """Return which nodes are cut: those of the lock's products, named as before and after."""
    if not plan.products.whole:
        return f"{plan.fact('mig_capable_label')}=true"
    key = f"{plan.fact('resource')}{plan.fact('product_suffix')}"
    names = [*plan.products.whole]
    if plan.options.mig_strategy == "single":
        names += plan.products.values
    return f"{key} in ({','.join(names)})"


def _refuse_contradictions(files: dict[str, list[dict[str, Any]]], options: ClusterOptions, matrix: Matrix) -> None:
    found: tuple[Contradiction, ...] = judge(
        [(path, document) for path, rows in files.items() for document in rows],
        existing=frozenset(options.existing),
        matrix=matrix,
    )
    if found:
        raise IncompatibleError(
            f"the files would contradict each other: {len(found)} {'time' if len(found) == 1 else 'times'}",
            because=tuple(f"{item.path}: {item.because}" for item in found),
            hints=tuple(dict.fromkeys(item.way_out for item in found)),
        )
