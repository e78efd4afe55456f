"""A policy as a folder of files for one engine, with the commands that send them and what the engine cannot be told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from provision.errors import DataError
from provision.generate.cluster.manifest import to_yaml
from provision.generate.scaling import aws, kubernetes, tencent
from provision.generate.scaling.options import ScalingOptions
from provision.generate.scaling.policy import Policy
from provision.generate.write import Artifact
from provision.matrix.load import Matrix
from provision.records import record


@record
class ScalingFiles:
    """What was rendered.

    Attributes:
        artifacts: The files.
        commands: How they get to the engine, in order.
        gaps: What the engine cannot be told: id of the fact → sentence.
    """

    artifacts: tuple[Artifact, ...]
    commands: tuple[str, ...]
    gaps: Mapping[str, str]


def render_policy(policy: Policy, options: ScalingOptions, matrix: Matrix, level: float | None = None) -> ScalingFiles:
    """Return the files of a policy; the same policy, options, level and facts give the same bytes.

    Args:
        policy: What is asked for.
        options: For which engine, and what it scales.
        matrix: Bounds of engines, and what they cannot be told.
        level: The figure that was seen, for engines that must be told it; ``None`` where none was.

    Raises:
        UsageError: The engine needs something that was not said, or its bounds exclude the policy.
        DataError: A fact is missing.
    """
    limits = {row.id: row.value for row in matrix.rows("scaling.toml", "limit")}
    try:
        if options.engine == "k8s":
            files, commands, ids = _kubernetes(policy, options, matrix, limits)
        elif options.engine == "aws":
            files, commands, ids = _aws(policy, options, limits, level)
        else:
            files, commands, ids = _tencent(policy, options, limits)
    except KeyError as error:
        raise DataError(f"scaling.toml: the limit `{error.args[0]}` is missing") from error
    said = {row.id: row.says for row in matrix.rows("scaling.toml", "gap")}
    missing = [key for key in ids if key not in said]
    if missing:
        raise DataError(f"scaling.toml: the gap `{missing[0]}` is missing")
    gaps = {key: said[key] for key in ids}
    notes = Artifact(path="SCALING.md", text=_notes(options, commands, gaps, matrix))
    return ScalingFiles(artifacts=(*files, notes), commands=tuple(commands), gaps=gaps)


def _kubernetes(
    policy: Policy, options: ScalingOptions, matrix: Matrix, limits: dict[str, float]
) -> tuple[list[Artifact], list[str], list[str]]:
    header = ("Written by `provision fleet policy`; change the policy, not this file.", f"facts of {matrix.dated}")
    files = {}
    if policy.metric == "queue":
        files["prometheus.rules.yaml"] = kubernetes.jobs_rules(policy)
    files["prometheus-adapter.yaml"] = kubernetes.adapter_config(policy, matrix)
    files["autoscaler.yaml"] = kubernetes.autoscaler(policy, options, limits)
    artifacts = [Artifact(path=path, text=to_yaml(header, (document,))) for path, document in files.items()]
    return artifacts, ["kubectl apply -f autoscaler.yaml"], list(kubernetes.gaps(policy, limits))


def _aws(
    policy: Policy, options: ScalingOptions, limits: dict[str, float], level: float | None
) -> tuple[list[Artifact], list[str], list[str]]:
    files = {
        "update-auto-scaling-group.json": aws.group(policy, options),
        "put-scaling-policy-out.json": aws.policy_out(policy, options, limits),
        "put-scaling-policy-in.json": aws.policy_in(policy, options),
        "put-metric-alarm-in.json": aws.alarm_in(policy, options, limits),
    }
    simple = "aws autoscaling put-scaling-policy --cli-input-json file://put-scaling-policy-in.json"
    commands = [
        "aws autoscaling update-auto-scaling-group --cli-input-json file://update-auto-scaling-group.json",
        "aws autoscaling put-scaling-policy --cli-input-json file://put-scaling-policy-out.json",
        "aws cloudwatch put-metric-alarm --cli-input-json file://put-metric-alarm-in.json "
        f'--alarm-actions "$({simple} --query PolicyARN --output text)"',
    ]
    if level is not None:
        files["put-metric-data.json"] = aws.metric_data(policy, options, level)
        commands.append("aws cloudwatch put-metric-data --cli-input-json file://put-metric-data.json")
    return _json(files), commands, list(aws.gaps(policy, limits))


def _tencent(
    policy: Policy, options: ScalingOptions, limits: dict[str, float]
) -> tuple[list[Artifact], list[str], list[str]]:
    tencent.check_size(policy, limits)
    files = {
        "modify-auto-scaling-group.json": tencent.group(policy, options, limits),
        "create-scaling-policy-out.json": tencent.simple_policy(policy, options, limits, is_out=True),
        "create-scaling-policy-in.json": tencent.simple_policy(policy, options, limits, is_out=False),
    }
    commands = [
        "tccli as ModifyAutoScalingGroup --cli-input-json file://modify-auto-scaling-group.json",
        "tccli as CreateScalingPolicy --cli-input-json file://create-scaling-policy-out.json",
        "tccli as CreateScalingPolicy --cli-input-json file://create-scaling-policy-in.json",
    ]
    return _json(files), commands, list(tencent.gaps(policy, limits))


def _json(files: Mapping[str, Any]) -> list[Artifact]:
    return [Artifact(path=path, text=json.dumps(document, indent=2) + "\n") for path, document in files.items()]


def _notes(options: ScalingOptions, commands: list[str], gaps: Mapping[str, str], matrix: Matrix) -> str:
    lines = [f"# Scaling policy of `{options.name}`", ""]
    lines += [f"Written by `provision fleet policy` from facts of {matrix.dated}; change the policy, not these files."]
    lines += ["", "## Send it", "", "```sh", *commands, "```", ""]
    lines += ["## What this engine cannot be told", ""]
    lines += [f"- {sentence} (`provision explain scaling/{key}`)" for key, sentence in gaps.items()]
    return "\n".join(lines) + "\n"
