"""A policy for a scaling group of Tencent Cloud.

Its alarms and its target tracking know processors, memory and network, no GPU. What it can be told is written: bounds,
cool-down, spot nodes, and two simple policies that ``provision fleet policy`` has executed when it decides so.

Source: Tencent Cloud Auto Scaling API, CreateScalingPolicy, ModifyAutoScalingGroup, ExecuteScalingPolicy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from provision.errors import UsageError
from provision.generate.scaling.options import ScalingOptions
from provision.generate.scaling.policy import Policy

# A simple policy cannot be made without an alarm. Nothing is busier than all of a processor, so this one never fires.
_NEVER = {
    "ComparisonOperator": "GREATER_THAN",
    "MetricName": "CPU_UTILIZATION",
    "Threshold": 100,
    "Period": 300,
    "ContinuousTime": 10,
    "Statistic": "AVERAGE",
}


def check_size(policy: Policy, limits: dict[str, float]) -> None:
    """Refuse a policy with more nodes than a group may have.

    Raises:
        UsageError: It has.
    """
    most = round(limits["tencent.size-maximum"])
    if policy.maximum > most:
        raise UsageError(
            f"`maximum` {policy.maximum} is more than the {most} nodes of a scaling group of Tencent Cloud",
            hints=("lower it, or make several groups",),
        )


def group(policy: Policy, options: ScalingOptions, limits: dict[str, float]) -> dict[str, Any]:
    """Return the input of ModifyAutoScalingGroup: bounds, the longer cool-down, spot."""
    longest = max(policy.out_cooldown_seconds, policy.in_cooldown_seconds)
    found: dict[str, Any] = {
        "AutoScalingGroupId": options.name,
        "MinSize": policy.minimum,
        "MaxSize": policy.maximum,
        "DefaultCooldown": round(min(longest, limits["tencent.cooldown-maximum"])),
    }
    if not policy.handles_spot:
        return found
    return found | {
        "CapacityRebalance": True,
        "InstanceAllocationPolicy": "SPOT_MIXED",
        "SpotMixedAllocationPolicy": {
            # What must always be there is not left to the spot market.
            "BaseCapacity": policy.minimum,
            "OnDemandPercentageAboveBaseCapacity": 0,
            "SpotAllocationStrategy": "CAPACITY_OPTIMIZED",
            "CompensateWithBaseInstance": True,
        },
    }


def simple_policy(policy: Policy, options: ScalingOptions, limits: dict[str, float], *, is_out: bool) -> dict[str, Any]:
    """Return the input of CreateScalingPolicy that adds nodes or takes them away when it is executed."""
    step = (policy.out_step if is_out else policy.in_step) or 1
    cooldown = policy.out_cooldown_seconds if is_out else policy.in_cooldown_seconds
    return {
        "AutoScalingGroupId": options.name,
        "ScalingPolicyName": f"provision-{'out' if is_out else 'in'}-{options.name}",
        "ScalingPolicyType": "SIMPLE",
        "AdjustmentType": "CHANGE_IN_CAPACITY",
        "AdjustmentValue": step if is_out else -step,
        "Cooldown": round(min(cooldown, limits["tencent.cooldown-maximum"])),
        "MetricAlarm": dict(_NEVER),
    }


def gaps(policy: Policy, limits: dict[str, float]) -> Iterator[str]:
    """Yield the ids of what Tencent Cloud cannot be told of this policy."""
    cooldowns = (policy.out_cooldown_seconds, policy.in_cooldown_seconds)
    yield "tencent.metric"
    yield "tencent.thresholds"
    if max(cooldowns) > limits["tencent.cooldown-maximum"]:
        yield "tencent.cooldown-length"
    if cooldowns[0] != cooldowns[1]:
        yield "tencent.cooldown-one"
    if None in (policy.out_step, policy.in_step):
        yield "tencent.step"
    if not policy.may_drain:
        yield "tencent.drain"
