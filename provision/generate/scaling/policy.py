"""What a fleet is scaled by: how many nodes, by which figure, how fast, and what may be taken away.

A policy stands here, below the renderers and below :mod:`provision.fleet`, because both read it: the one writes it
down for an engine, the other decides by it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from provision.errors import UsageError, shown
from provision.records import fields_of, record

METRICS = ("utilisation", "queue")
"""What a policy may go by."""

UNITS = {"utilisation": "%", "queue": "jobs a node"}
"""Unit of ``target``, ``out_above`` and ``in_below``."""

REQUIRED = ("minimum", "maximum", "metric")
"""What nobody can guess for somebody else's fleet."""

_NODES_MAX = 100_000
_LEVEL_MAX = 1_000_000.0
_SECONDS_MAX = 31 * 86_400
_TIMES = (
    "out_after_seconds",
    "in_after_seconds",
    "out_cooldown_seconds",
    "in_cooldown_seconds",
    "idle_after_seconds",
)


@record
class Policy:
    """When nodes are added and taken away.

    Attributes:
        minimum: Least number of nodes. ``maximum`` is the most, those that still start included.
        metric: One of :data:`METRICS`: the mean activity of all GPUs, or the jobs that wait or run for each node.
        target: What a change aims at, in the unit of the metric (:data:`UNITS`).
        out_above: Nodes are added above it, once it was so for ``out_after_seconds``.
        in_below: Nodes are taken away below it, once it was so for ``in_after_seconds``. Between the two nothing
            happens: that is the hysteresis.
        out_cooldown_seconds: Least time between two additions.
        in_cooldown_seconds: Least time from any change to the next removal.
        idle_after_seconds: How long a node does nothing before it counts as idle.
        out_step: Most nodes added at once, ``None`` for no limit; ``in_step`` likewise for those taken away.
        may_drain: Nodes with work on them may be drained and taken away, as suits servers behind a balancer. Otherwise
            only idle ones go, as suits training.
        handles_spot: A node that its provider has given notice to counts as gone, and is replaced at once where the
            load asks for it.
        waiting_expression: PromQL for the jobs that wait, one series; ``running_expression`` for those that run.
            A policy by the queue that asks a Prometheus needs both.

    Raises:
        UsageError: A number makes no sense, or two contradict each other.
    """

    minimum: int
    maximum: int
    metric: str
    target: float
    out_above: float
    in_below: float
    out_after_seconds: float
    in_after_seconds: float
    out_cooldown_seconds: float
    in_cooldown_seconds: float
    idle_after_seconds: float
    out_step: int | None = None
    in_step: int | None = None
    may_drain: bool = False
    handles_spot: bool = False
    waiting_expression: str | None = None
    running_expression: str | None = None

    def __post_init__(self) -> None:
        """Check every number, then what goes with what."""
        _check_metric(self.metric)
        for key, most in (("minimum", _NODES_MAX), ("maximum", _NODES_MAX)):
            _check_whole(key, getattr(self, key), 0, most)
        for key in ("out_step", "in_step"):
            if getattr(self, key) is not None:
                _check_whole(key, getattr(self, key), 1, _NODES_MAX)
        for key in _TIMES:
            _check_number(key, getattr(self, key), 0, _SECONDS_MAX, "seconds")
        highest = 100.0 if self.metric == "utilisation" else _LEVEL_MAX
        for key in ("target", "out_above", "in_below"):
            _check_number(key, getattr(self, key), 0, highest, UNITS[self.metric])
        for key in ("may_drain", "handles_spot"):
            if not isinstance(getattr(self, key), bool):
                raise UsageError(f"`{key}` is `{shown(str(getattr(self, key)), 60)}`", hints=("write true or false",))
        for key in ("waiting_expression", "running_expression"):
            text = getattr(self, key)
            if text is not None and not (isinstance(text, str) and text.strip() and text.isprintable()):
                raise UsageError(
                    f"`{key}` is not an expression", hints=('write one line of PromQL, such as "sum(jobs_waiting)"',)
                )
        self._check_together()

    @property
    def unit(self) -> str:
        """Unit of the target and of both thresholds."""
        return UNITS[self.metric]

    def _check_together(self) -> None:
        if self.minimum > self.maximum:
            raise UsageError(
                f"`minimum` {self.minimum} is more than `maximum` {self.maximum}",
                hints=("swap the two, or raise the maximum",),
            )
        if self.maximum == 0:
            raise UsageError("`maximum` 0 leaves no node", hints=("allow at least one node",))
        if self.in_below >= self.out_above:
            raise UsageError(
                f"`in_below` {self.in_below:g} is not below `out_above` {self.out_above:g}",
                because=("nodes would be added and taken away at the same load, without end",),
                hints=("leave room between the two, such as 30 and 85 for the utilisation",),
            )
        if not self.in_below < self.target <= self.out_above:
            raise UsageError(
                f"`target` {self.target:g} does not lie above `in_below` {self.in_below:g} "
                f"and up to `out_above` {self.out_above:g}",
                because=("a change aims at the target, and must not call for the opposite change",),
                hints=("choose a target between the two thresholds",),
            )
        if self.metric == "utilisation" and self.out_above >= 100:
            raise UsageError(
                "`out_above` 100 is never passed",
                because=("no GPU is more than 100 % busy",),
                hints=('choose a threshold below 100, or `metric = "queue"`',),
            )
        if self.metric == "utilisation" and self.minimum == 0:
            raise UsageError(
                "`minimum` 0 does not go with the utilisation",
                because=("where there is no node nothing is busy, and no node would ever be added",),
                hints=('keep one node, or scale by `metric = "queue"`',),
            )


def default_values(metric: str, limits: Mapping[str, float]) -> dict[str, float]:
    """Return what a policy says where nobody says otherwise.

    Args:
        metric: One of :data:`METRICS`.
        limits: The facts' limits by id; ``policy.target.queue`` counts before ``policy.target``.
    """
    found = {}
    for key in fields_of(Policy):
        name = f"policy.{key.removesuffix('_seconds').replace('_', '-')}"
        for id_ in (f"{name}.{metric}", name):
            if id_ in limits:
                found[key] = limits[id_]
                break
    return found


def read_policy(values: Mapping[str, Any], limits: Mapping[str, float]) -> Policy:
    """Return the policy of a file or of flags, with the facts' defaults for what they leave out.

    Args:
        values: Key → value, keys as the fields of :class:`Policy`.
        limits: As :func:`default_values` takes them.

    Raises:
        UsageError: A key is unknown or missing, or a value makes no sense.
    """
    known = fields_of(Policy)
    for key in values:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            raise UsageError(
                f"`{shown(str(key), 60)}` is not a key of a policy",
                hints=(*(f"did you mean `{word}`?" for word in near), f"keys are {', '.join(known)}"),
            )
    for key in REQUIRED:
        if key not in values:
            raise UsageError(
                f"the policy lacks `{key}`",
                hints=("it needs `minimum` and `maximum` (nodes) and `metric` (`utilisation` or `queue`)",),
            )
    _check_metric(values["metric"])
    return Policy(**{**default_values(str(values["metric"]), limits), **values})


def _check_metric(value: object) -> None:
    if value not in METRICS:
        near = get_close_matches(str(value), METRICS, n=1)
        raise UsageError(
            f"`metric` cannot be `{shown(str(value), 60)}`",
            hints=(*(f"did you mean `{word}`?" for word in near), f"choose {' or '.join(METRICS)}"),
        )


def _check_whole(key: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(
            f"`{key}` {shown(str(value), 60)} is not a number of nodes",
            hints=(f"write a whole number from {least} to {most}",),
        )


def _check_number(key: str, value: object, least: float, most: float, unit: str) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not least <= value <= most:  # type: ignore[operator]
        raise UsageError(
            f"`{key}` {shown(str(value), 60)} makes no sense",
            hints=(f"write a number of {unit} from {least:g} to {most:g}",),
        )
