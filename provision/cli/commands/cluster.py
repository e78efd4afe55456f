"""Write a Kubernetes bundle for a stack: operator, monitoring, queues, tenants, work.

The stack comes from a lock (--lock), of an image or of nodes, or from a request like those of `provision resolve`. The
lock also decides what installs the driver: with a lock of nodes, gpu-node.yml does, and the cluster gets only the
device plugin; otherwise the GPU Operator does. Both at once are refused.

Each flag adds its objects: --tenant a namespace with a quota, --kueue queues for the quotas, --monitoring the
monitoring of the GPUs, --health a watch on each node and what `provision fleet health` needs, --nodepool a NodePool of
Karpenter, --image a Job that runs the verification of the image. Arguments after `--` add a workload: training with
torchrun, a Ray job or, with `--runner deployment`, a service. All files are checked against each other before any is
written; contradictions are refused with the reason. --judge checks existing files in the same way.

The same lock, flags and facts produce the same bytes. No cluster is changed. --server-dry-run asks the cluster of the
current kubectl context whether it accepts the files (exit code 6 if not).

Examples:
  provision cluster --lock provision.lock --monitoring prod -o cluster
  provision cluster --lock provision_lock.yml --tenant vision=8 --tenant speech=4 -o cluster
  provision cluster --torch 2.9 --image registry.example/team/train:1 --nodes 2 --gpus 8 -o cluster -- train.py
  provision cluster --judge cluster --existing Secret/hub-token
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from provision.cli.number import whole
from provision.cli.output import Output
from provision.cli.parser import add_choice, add_switch, add_value, parse_path
from provision.cli.request import (
    add_request_flags,
    read_matrix,
)
from provision.cli.scheduled import judge_variables, read_stack, refuse_starter
from provision.errors import UsageError, VerificationFailedError, shown
from provision.matrix.load import Matrix

if TYPE_CHECKING:
    from provision.fleet.admission import Judged
    from provision.generate.cluster.options import ClusterOptions
    from provision.generate.cluster.render import ClusterFiles
    from provision.generate.subject import Subject

_OWNERS = ("operator", "node")
_STRATEGIES = ("none", "single", "mixed")
_SHARINGS = ("none", "time-slicing", "mps")
_RUNNERS = ("jobset", "trainjob", "job", "rayjob", "raycluster", "deployment", "rayservice")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_request_flags(parser)
    add_value(
        parser.add_argument_group("or a lock"),
        "--lock",
        "FILE",
        "provision.lock, or a lock written by `provision node lock`",
        parse_path,
    )
    gpus = parser.add_argument_group("GPUs of the cluster")
    add_choice(gpus, "--driver-owner", _OWNERS, help="what installs the driver (default: decided by the lock)")
    add_value(gpus, "--node-os", "NAME", "operating system of the nodes, checked for support")
    add_choice(gpus, "--mig-strategy", _STRATEGIES, help="how MIG devices are exposed (default: none)")
    add_value(gpus, "--mig-profile", "NAME", "MIG profile of the GPUs (`1g.10gb`)")
    add_choice(gpus, "--sharing", _SHARINGS, help="how a GPU is shared (default: none)")
    add_value(gpus, "--replicas", "N", "replicas per shared GPU", whole("--replicas", 0))
    add_switch(gpus, "--dra", "Pods claim GPUs through the DRA driver, which the cluster must have")
    add_value(gpus, "--rdma", "RESOURCE[=N]", "RDMA devices per Pod; adds IPC_LOCK")
    add_value(gpus, "--nodepool", "KIND.GROUP/NAME", "node class with which Karpenter creates GPU nodes")
    add_value(gpus, "--monitoring", "CLUSTER", "add GPU monitoring, labelled with this cluster name")
    add_value(gpus, "--runbooks", "URL", "URL of the published docs/runbooks.md")
    add_value(
        gpus,
        "--monitoring-replicas",
        "N",
        "values of kube-prometheus-stack for so many Prometheus and Alertmanagers, no two on one node",
        whole("--monitoring-replicas", 0),
    )
    add_switch(
        gpus,
        "--health",
        "watch the GPUs of each node, and let `provision fleet health` take bad nodes out; needs --image",
    )
    tenants = parser.add_argument_group("tenants")
    add_value(
        tenants,
        "--tenant",
        "NAME=GPUS",
        "namespace with a quota, default limits and a restrictive network policy; may be repeated",
        action="append",
    )
    add_switch(tenants, "--kueue", "queue workloads until their tenant's quota is free, instead of rejecting them")
    jobs = parser.add_argument_group("workload")
    add_value(jobs, "--image", "IMAGE", "image built by `provision image`")
    add_value(jobs, "--name", "NAME", "name of the workload (default: derived from it)")
    add_value(jobs, "--namespace", "NAME", "namespace (default: that of the only tenant)")
    add_choice(jobs, "--runner", _RUNNERS, help="what runs the workload (default: jobset)")
    for name, text in (
        ("--nodes", "Pods (default: 1)"),
        ("--gpus", "GPUs per Pod (default: 1)"),
        ("--cpus", "CPUs per Pod (default: no limit)"),
        ("--memory-gib", "memory per Pod, including /dev/shm"),
        ("--shm-gib", "size of /dev/shm (default: what NCCL's guide recommends per GPU)"),
    ):
        add_value(jobs, name, "N", text, whole(name, 0))
    for name, metavar, text in (
        ("--env", "NAME=VALUE", "environment variable"),
        ("--env-from", "SECRET", "Secret whose keys become environment variables"),
        ("--volume", "CLAIM=PATH", "PersistentVolumeClaim to mount at a path"),
    ):
        add_value(jobs, name, metavar, f"{text}; may be repeated", action="append")
    add_value(jobs, "--priority", "CLASS", "priority class")
    add_value(jobs, "--data", "URL", "copy this to /data first (`s3://bucket/path`; also oss://, cos://)")
    add_value(jobs, "--checkpoints", "URL", "copy this to /checkpoints first, and back while it runs and at the end")
    add_value(jobs, "--store-secret", "SECRET", "Secret with the keys of the object storage")
    add_value(jobs, "--store-endpoint", "URL", "address of the object storage (default: that of AWS)")
    add_value(jobs, "--nccl-tests-image", "IMAGE", "image with nccl-tests, for a Job that measures NCCL")
    jobs.add_argument("script", nargs="*", metavar="SCRIPT", help="after `--`: the script to run and its arguments")
    service = parser.add_argument_group("service (--runner deployment)")
    add_value(service, "--port", "N", "port it listens on (default: 8000)", whole("--port", 0))
    add_value(service, "--warm-up", "PATH[ JSON]", "request that it must answer before it counts as ready")
    add_value(service, "--autoscale", "FEWEST:MOST", "scale the number of Pods by GPU utilisation; also for Ray")
    add_value(service, "--prometheus", "URL", "Prometheus server with the utilisation")
    ray = parser.add_argument_group("Ray (--runner rayjob, raycluster, rayservice)")
    add_value(ray, "--policy", "FILE", "scaling policy whose bounds and idle time the autoscaler takes", parse_path)
    add_value(ray, "--ray-up", "INSTANCE", "also write ray-up.yaml for this machine (`aws/p5.48xlarge/us-east-1`)")
    out = parser.add_argument_group("output")
    add_value(out, "--output", "DIR", "output folder", parse_path, short="-o", dest="folder")
    add_switch(out, "--check", "write nothing; exit with 8 if a file differs")
    add_value(
        out,
        "--judge",
        "DIR",
        "write nothing; exit with 6 if the files in this folder contradict each other",
        parse_path,
    )
    add_value(
        out, "--existing", "KIND/NAME", "object that already exists in the cluster; may be repeated", action="append"
    )
    add_switch(out, "--server-dry-run", "validate the files with the cluster of the current kubectl context")
    add_value(out, "--context", "NAME", "kubeconfig context for --server-dry-run", _context)


def run(options: argparse.Namespace, output: Output) -> int:
    """Render, then write or compare.

    Raises:
        UsageError: Neither a lock nor a request, or both; no folder.
        DriftError: ``--check``, and a file is not what would be written.
    """
    from provision.generate.cluster.render import render_cluster
    from provision.generate.write import check_artifacts, find_leftovers, write_artifacts

    if options.judge is not None:
        return _judge_files(options, output)
    if options.folder is None:
        raise UsageError("cluster needs to know where to", hints=("name a folder with `-o DIR`",))
    if options.context is not None and not options.server_dry_run:
        raise UsageError(
            "--context has no effect without --server-dry-run", hints=("leave it out, or ask the cluster",)
        )
    matrix = read_matrix(options)
    chosen = _options(options, matrix, output)
    subject = read_stack(options, "cluster", matrix, output)
    files = render_cluster(subject, _with_variables(chosen, options, subject, matrix, output), matrix)
    _refuse_idle(options)
    for sentence in files.warnings:
        output.warn(sentence)
    leftovers = find_leftovers(options.folder, files.artifacts, "*.yaml", "Written by `provision cluster`")
    if options.check:
        check_artifacts(options.folder, files.artifacts, leftovers)
        written: tuple[str, ...] = ()
    else:
        for path in leftovers:
            output.warn(f"{path} is left over of another request")
        written = write_artifacts(options.folder, files.artifacts, dry_run=output.is_dry_run).written
    output.note(f"facts of {matrix.dated}")
    judged = _ask_server(options, files, output) if options.server_dry_run else ()
    is_ok = all(item.verdict != "refused" for item in judged)
    document = _document(subject, files, options.folder, written)
    if options.server_dry_run:
        document["server"] = [_row(item) for item in judged]
    output.give(
        document,
        "\n".join([_text(files, options, written, output), *map(_judged_text, judged)]),
        is_ok=is_ok,
    )
    return 0 if is_ok else VerificationFailedError.exit_code


def _ask_server(options: argparse.Namespace, files: ClusterFiles, output: Output) -> tuple[Judged, ...]:
    """Have the cluster judge what lies in the folder; with ``--dry-run`` nothing lies there.

    Raises:
        UsageError: Nothing was written that could be judged.
        MissingDependencyError: There is no kubectl, or no cluster behind it.
    """
    from provision.fleet.admission import judge_files

    if output.is_dry_run:
        raise UsageError(
            "--server-dry-run sends the files, and --dry-run writes none", hints=("leave one of the two out",)
        )
    asked = [("apply", path) for path in files.applied]
    if not asked:
        output.warn("Helm's values are nothing that a cluster can judge: it was not asked")
    return judge_files(
        options.folder,
        asked,
        context=options.context,
        namespaces=[row.partition("=")[0] for row in options.tenant or ()],
    )


def _row(item: Judged) -> dict[str, object]:
    return {"file": item.path, "verdict": item.verdict, "objects": list(item.objects), "because": list(item.because)}


def _judged_text(item: Judged) -> str:
    if item.verdict == "taken":
        return f"the cluster would take {item.path}: {', '.join(item.objects)}"
    said = (
        f"the cluster cannot judge {item.path} before its namespace is there"
        if item.verdict == "unjudged"
        else f"the cluster would not take {item.path}"
    )
    return "\n".join([said, *(f"  {line}" for line in item.because)])


def _options(options: argparse.Namespace, matrix: Matrix, output: Output) -> ClusterOptions:
    from provision.generate.cluster import options as grammar

    scale = None if options.autoscale is None else grammar.parse_scale(options.autoscale)
    idle_seconds = None
    if options.policy is not None:
        scale, idle_seconds = _read_policy(options, scale, matrix, output)
    return grammar.ClusterOptions(
        owner=options.driver_owner,
        system=options.node_os,
        mig_strategy=options.mig_strategy or ("none" if options.mig_profile is None else "mixed"),
        mig_profile=options.mig_profile,
        sharing=options.sharing or "none",
        replicas=options.replicas,
        is_claimed=options.dra,
        rdma=None if options.rdma is None else grammar.parse_rdma(options.rdma),
        node_class=None if options.nodepool is None else grammar.parse_node_class(options.nodepool),
        tenants=tuple(sorted(map(grammar.parse_tenant, options.tenant or ()), key=lambda tenant: tenant.name)),
        is_queued=options.kueue,
        cluster=options.monitoring,
        runbooks=options.runbooks,
        monitors=options.monitoring_replicas,
        has_health=options.health,
        existing=tuple(sorted(map(grammar.parse_existing, options.existing or ()))),
        image=options.image,
        name=options.name,
        namespace=options.namespace,
        runner=options.runner or "jobset",
        script=tuple(options.script),
        nodes=1 if options.nodes is None else options.nodes,
        gpus=1 if options.gpus is None else options.gpus,
        cpus=options.cpus,
        memory_gib=options.memory_gib,
        shm_gib=options.shm_gib,
        nccl_tests_image=options.nccl_tests_image,
        volumes=tuple(sorted(map(grammar.parse_volume, options.volume or ()))),
        secrets=tuple(options.env_from or ()),
        priority=options.priority,
        data=None if options.data is None else grammar.parse_place("--data", options.data),
        checkpoints=(
            None if options.checkpoints is None else grammar.parse_place("--checkpoints", options.checkpoints)
        ),
        store_secret=options.store_secret,
        store_endpoint=options.store_endpoint,
        port=8000 if options.port is None else options.port,
        warm_up=None if options.warm_up is None else grammar.parse_warm_up(options.warm_up),
        scale=scale,
        idle_seconds=idle_seconds,
        machine=None if options.ray_up is None else grammar.parse_machine(options.ray_up),
        prometheus=options.prometheus,
    )


def _read_policy(
    options: argparse.Namespace, scale: tuple[int, int] | None, matrix: Matrix, output: Output
) -> tuple[tuple[int, int], int]:
    """Return fewest and most workers, and after how many idle seconds one goes, of a policy.

    Raises:
        UsageError: It cannot be read, or --autoscale is there too.
    """
    from provision.cli.policy_file import load_policy

    if scale is not None:
        raise UsageError(
            "--policy and --autoscale exclude each other",
            because=("both say how many workers there are",),
            hints=("leave one of the two out",),
        )
    policy = load_policy(options.policy, {}, matrix)
    output.note(
        f"of {shown(str(options.policy))} the autoscaler takes minimum, maximum and idle_after_seconds; "
        "it adds workers for tasks that wait, and takes idle ones away"
    )
    return (policy.minimum, policy.maximum), round(policy.idle_after_seconds)


def _judge_files(options: argparse.Namespace, output: Output) -> int:
    """Hold the files of a folder against each other.

    Raises:
        UsageError: The folder is none, or a file in it cannot be read.
    """
    from provision.cli.manifests import read_manifests
    from provision.generate.cluster.admission import judge
    from provision.generate.cluster.options import parse_existing
    from provision.records import plain

    if options.folder is not None or options.check or options.server_dry_run or options.script:
        raise UsageError(
            "--judge looks at files that are there, and writes none", hints=("leave the flags about writing out",)
        )
    documents = read_manifests(options.judge)
    existing = frozenset(map(parse_existing, options.existing or ()))
    found = judge(documents, existing=existing, matrix=read_matrix(options))
    files = sorted({path for path, _ in documents})
    said = f"{len(found)} contradictions in {len(files)} files" if found else f"{len(files)} files agree"
    lines = [f"{options.judge}: {said}"]
    for item in found:
        lines += [f"  {item.path}: {item.because} ({item.rule})", f"    {item.way_out}"]
    document = {"folder": str(options.judge), "files": files, "contradictions": plain(found)}
    output.give(document, "\n".join(lines), is_ok=not found)
    return VerificationFailedError.exit_code if found else 0


def _refuse_idle(options: argparse.Namespace) -> None:
    """Refuse flags that would have no effect, and a script that names its starter once more."""
    has_work = bool(options.script) or options.runner == "raycluster"
    has_image = options.image is not None or options.nccl_tests_image is not None
    is_service = options.runner == "deployment" and has_work
    is_ray = options.runner in ("rayjob", "raycluster", "rayservice") and has_work
    a_script, an_image = "name its script behind `--`, as in `-- train.py`", "name their image with `--image IMAGE`"
    for flags, is_used, what, way_out in (
        (("nodes", "runner", "data", "checkpoints"), has_work, "a workload", a_script),
        (("gpus", "env"), has_work or options.nccl_tests_image is not None, "a workload", a_script),
        (
            ("shm_gib", "namespace", "name", "rdma", "priority", "volume", "env_from"),
            has_image,
            "Jobs",
            an_image,
        ),
        (("port", "warm_up"), is_service, "a service", "use `--runner deployment`"),
        (("autoscale",), is_service or is_ray, "a service or a Ray cluster", "use `--runner deployment`"),
    ):
        given = next((flag for flag in flags if getattr(options, flag) is not None), None)
        if given is not None and not is_used:
            raise UsageError(
                f"--{given.replace('_', '-')} has no effect here",
                because=(f"it applies to {what}, and there is none",),
                hints=(way_out, "or leave it out"),
            )
    if options.runner in (None, "jobset", "trainjob", "job"):
        refuse_starter(options.script)


def _with_variables(
    chosen: ClusterOptions, options: argparse.Namespace, subject: Subject, matrix: Matrix, output: Output
) -> ClusterOptions:
    """Return the options with the variables of ``--env``, judged by the facts.

    Raises:
        UsageError: The facts refute one.
    """
    if not options.env:
        return chosen
    from provision.generate.tuning import Situation
    from provision.records import replace

    situation = Situation(libraries=subject.libraries, facts=frozenset({"container"}))
    return replace(chosen, variables=judge_variables(options.env, situation, matrix, output))


def _document(subject: Subject, files: ClusterFiles, folder: Path, written: tuple[str, ...]) -> dict[str, object]:
    return {
        "folder": str(folder),
        "lock": {"name": subject.name, "digest": subject.digest, "facts_date": subject.facts_date},
        "driver": {"owner": files.owned.owner, "version": files.owned.driver, "because": files.owned.because},
        "resource": files.resource,
        "name": files.name,
        "files": [artifact.path for artifact in files.artifacts],
        "written": list(written),
        "apply": list(files.applied),
        "commands": list(files.commands),
        "needs": [{"component": name, "checked_against": version} for name, version in files.needs],
    }


def _text(files: ClusterFiles, options: argparse.Namespace, written: tuple[str, ...], output: Output) -> str:
    verb = "would write" if output.is_dry_run else "wrote"
    what = f"{verb} {len(written)} of {len(files.artifacts)} files" if written else "up to date"
    lines = [f"{options.folder}: {what}"]
    lines += [f"  {artifact.path}" for artifact in files.artifacts]
    who = "the GPU Operator" if files.owned.owner == "operator" else "the nodes"
    lines.append(f"driver: {who}{f', {files.owned.driver}' if files.owned.driver else ''}; {files.owned.because}")
    lines.append(f"a Pod asks for {files.resource}")
    if files.needs:
        named = (f"{name} (checked against {version})" for name, version in files.needs)
        lines.append(f"the cluster must run {', '.join(named)}")
    lines += ["then, in that folder:", *(f"  {command}" for command in files.commands)]
    if len(files.applied) > 1:
        lines.append("`kubectl apply -k .` applies the same files at once")
    return "\n".join(lines)


def _context(text: str) -> str:
    if not re.fullmatch(r"[^\s\x00-\x1f\x7f-][^\s\x00-\x1f\x7f]{0,252}", text):
        raise UsageError(f"`{shown(text)}` is not a context", hints=("`kubectl config get-contexts` lists them",))
    return text
