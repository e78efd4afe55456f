"""A policy for an Auto Scaling group of AWS: nodes are added by target tracking, and taken away by an alarm.

Target tracking has one figure to aim at, and takes nodes away as it sees fit. So it adds only; what takes away is a
simple policy behind an alarm of our own, which has the threshold, the waiting time and the cool-down that were asked
for.

Source: EC2 Auto Scaling API, PutScalingPolicy, UpdateAutoScalingGroup; CloudWatch API, PutMetricAlarm, PutMetricData.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from provision.errors import UsageError
from provision.generate.scaling.options import ScalingOptions
from provision.generate.scaling.policy import Policy

_NAMESPACE = "Provision/GPU"
_METRICS = {"utilisation": ("Activity", "Percent"), "queue": ("JobsPerNode", "None")}


def group(policy: Policy, options: ScalingOptions) -> dict[str, Any]:
    """Return the input of UpdateAutoScalingGroup: bounds, protection of nodes with work, spot.

    Raises:
        UsageError: Spot nodes are to be handled, and no launch template is named.
    """
    found: dict[str, Any] = {
        "AutoScalingGroupName": options.name,
        "MinSize": policy.minimum,
        "MaxSize": policy.maximum,
        "DefaultInstanceWarmup": round(policy.out_cooldown_seconds),
        "NewInstancesProtectedFromScaleIn": not policy.may_drain,
    }
    if not policy.handles_spot:
        return found
    if options.launch_template is None:
        raise UsageError(
            "a group that mixes spot nodes in needs a launch template",
            because=("AWS takes no mixed instances from a launch configuration",),
            hints=("name it with `--launch-template NAME`, and the machines with `--instance-type TYPE`",),
        )
    template: dict[str, Any] = {
        "LaunchTemplateSpecification": {"LaunchTemplateName": options.launch_template, "Version": "$Default"}
    }
    if options.instance_types:
        template["Overrides"] = [{"InstanceType": name} for name in options.instance_types]
    return found | {
        "CapacityRebalance": True,
        "MixedInstancesPolicy": {
            "LaunchTemplate": template,
            "InstancesDistribution": {
                # What must always be there is not left to the spot market.
                "OnDemandBaseCapacity": policy.minimum,
                "OnDemandPercentageAboveBaseCapacity": 0,
                "SpotAllocationStrategy": "price-capacity-optimized",
            },
        },
    }


def policy_out(policy: Policy, options: ScalingOptions, limits: dict[str, float]) -> dict[str, Any]:
    """Return the input of PutScalingPolicy that adds nodes."""
    name, unit = _METRICS[policy.metric]
    return {
        "AutoScalingGroupName": options.name,
        "PolicyName": "provision-out",
        "PolicyType": "TargetTrackingScaling",
        "EstimatedInstanceWarmup": round(policy.out_cooldown_seconds),
        "TargetTrackingConfiguration": {
            "TargetValue": float(policy.target),
            "DisableScaleIn": True,
            "CustomizedMetricSpecification": {
                "MetricName": name,
                "Namespace": _NAMESPACE,
                "Dimensions": _dimensions(options),
                "Statistic": "Average",
                "Unit": unit,
                "Period": round(limits["aws.period"]),
            },
        },
    }


def policy_in(policy: Policy, options: ScalingOptions) -> dict[str, Any]:
    """Return the input of PutScalingPolicy that takes nodes away."""
    return {
        "AutoScalingGroupName": options.name,
        "PolicyName": "provision-in",
        "PolicyType": "SimpleScaling",
        "AdjustmentType": "ChangeInCapacity",
        "ScalingAdjustment": -(policy.in_step or 1),
        "Cooldown": round(policy.in_cooldown_seconds),
    }


def alarm_in(policy: Policy, options: ScalingOptions, limits: dict[str, float]) -> dict[str, Any]:
    """Return the input of PutMetricAlarm that the second policy waits for, without the policy's name.

    A figure that is missing never takes a node away.
    """
    name, unit = _METRICS[policy.metric]
    period = limits["aws.period"]
    span = min(policy.in_after_seconds, limits["aws.alarm-span"])
    return {
        "AlarmName": f"provision-in-{options.name}",
        "Namespace": _NAMESPACE,
        "MetricName": name,
        "Dimensions": _dimensions(options),
        "Statistic": "Average",
        "Unit": unit,
        "Period": round(period),
        "EvaluationPeriods": max(1, math.ceil(span / period)),
        "Threshold": float(policy.in_below),
        "ComparisonOperator": "LessThanThreshold",
        "TreatMissingData": "notBreaching",
    }


def metric_data(policy: Policy, options: ScalingOptions, level: float) -> dict[str, Any]:
    """Return the input of PutMetricData for a level that was seen."""
    name, unit = _METRICS[policy.metric]
    datum = {"MetricName": name, "Dimensions": _dimensions(options), "Unit": unit, "Value": float(level)}
    return {"Namespace": _NAMESPACE, "MetricData": [datum]}


def gaps(policy: Policy, limits: dict[str, float]) -> Iterator[str]:
    """Yield the ids of what AWS cannot be told of this policy."""
    yield "aws.publish"
    yield "aws.out-threshold"
    if policy.out_cooldown_seconds:
        yield "aws.out-cooldown"
    if policy.out_step is not None:
        yield "aws.out-step"
    if policy.in_step is None:
        yield "aws.in-step"
    if policy.in_after_seconds > limits["aws.alarm-span"]:
        yield "aws.span"
    if not policy.may_drain:
        yield "aws.idle"
    if policy.handles_spot:
        yield "aws.spot-replacement"


def _dimensions(options: ScalingOptions) -> list[dict[str, str]]:
    return [{"Name": "AutoScalingGroupName", "Value": options.name}]
