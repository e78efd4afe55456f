"""All files for a cluster from one lock."""

from __future__ import annotations

from typing import Any

from provision.generate.cluster.devices import check_devices, resource_name
from provision.generate.cluster.jobs import compose_file, job_variables, nccl_tests_job, training_job, verify_job
from provision.generate.cluster.manifest import to_yaml
from provision.generate.cluster.options import ClusterOptions, Subject
from provision.generate.cluster.owner import Ownership, decide_owner
from provision.generate.cluster.plugin import plugin_manifests
from provision.generate.cluster.tenant import tenant_manifests
from provision.generate.cluster.values import operator_values
from provision.generate.write import Artifact
from provision.matrix.load import Matrix
from provision.records import record

__all__ = ["ClusterFiles", "render_cluster"]


@record
class ClusterFiles:
    """What was rendered.

    Attributes:
        owned: Who installs the driver.
        resource: What a Job asks for.
        artifacts: The files, by path.
        commands: How they get into the cluster, in order.
    """

    owned: Ownership
    resource: str
    artifacts: tuple[Artifact, ...]
    commands: tuple[str, ...]


def render_cluster(subject: Subject, options: ClusterOptions, matrix: Matrix) -> ClusterFiles:
    """Return every file; the same lock, options and facts give the same bytes.

    Args:
        subject: What the lock says.
        options: What was asked.
        matrix: The facts.

    Raises:
        IncompatibleError: What was asked excludes itself, or the lock excludes it.
        UnknownError: The facts know no driver image.
        UsageError: Two options do not go together.
    """
    owned = decide_owner(subject, options, matrix)
    check_devices(subject, options, owned.owner, matrix)
    resource = resource_name(options, matrix)
    header = (
        "Written by `provision cluster`; change the request, not this file.",
        f"provision.lock {subject.digest}; facts of {subject.facts_date}",
    )
    files: dict[str, list[dict[str, Any]]] = {}
    commands = []
    if owned.owner == "operator":
        chart = matrix.cluster_components["gpu-operator"]
        files["gpu-operator-values.yaml"] = [operator_values(subject, options, owned, matrix)]
        commands.append(
            f"helm upgrade --install gpu-operator {chart.chart} --version {chart.version} "
            "--namespace gpu-operator --create-namespace --values gpu-operator-values.yaml"
        )
    else:
        files["device-plugin.yaml"] = plugin_manifests(options, matrix)
        commands.append("kubectl apply -f device-plugin.yaml")
    for tenant in options.tenants:
        path = f"tenant-{tenant.name}.yaml"
        files[path] = tenant_manifests(tenant, options, resource, matrix)
        commands.append(f"kubectl apply -f {path}")
    if options.image is not None:
        files["verify.yaml"] = [verify_job(subject, options, owned.owner, resource, matrix)]
        commands.append("kubectl create -f verify.yaml")
    if options.nccl_tests_image is not None:
        files["nccl-tests.yaml"] = [nccl_tests_job(subject, options, owned.owner, resource, matrix)]
        commands.append("kubectl create -f nccl-tests.yaml")
    if options.script:
        files["train.yaml"] = training_job(subject, options, owned.owner, resource, matrix)
        commands.append("kubectl create -f train.yaml")
        variables = job_variables(subject, options, matrix)
        files["compose.yaml"] = [compose_file(subject, options, variables, matrix)]
    artifacts = tuple(Artifact(path=path, text=to_yaml(header, files[path])) for path in sorted(files))
    return ClusterFiles(owned=owned, resource=resource, artifacts=artifacts, commands=tuple(commands))
