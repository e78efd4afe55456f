"""`provision fleet policy`: what a scaling policy says now, and the policy written down for an engine."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.cli.fleet.server import add_server_flags, connect
from provision.cli.number import number, whole
from provision.cli.output import Output
from provision.cli.parser import add_choice, add_switch, add_value, did_you_mean, parse_path
from provision.cli.policy_file import load_policy
from provision.cli.text.paragraph import columns_of, wrap
from provision.errors import MissingDependencyError, UsageError, first_of, shown
from provision.matrix.load import Matrix

if TYPE_CHECKING:
    from provision.fleet.observe import Seen
    from provision.fleet.policy import Decision
    from provision.generate.scaling.policy import Policy
    from provision.generate.scaling.render import ScalingFiles

_ENGINES = ("k8s", "aws", "tencent")
_METRICS = ("utilisation", "queue")
_COUNTS = {
    "minimum": "minimum number of nodes",
    "maximum": "maximum number of nodes, including those that are starting",
    "out_step": "maximum number of nodes added at once (default: no limit)",
    "in_step": "maximum number of nodes removed at once (default: no limit)",
}
_NUMBERS = {
    "target": "target value of the metric: utilisation in per cent, or waiting and running jobs per node",
    "out_above": "add nodes above this value",
    "in_below": "remove nodes below this value",
    "out_after_seconds": "how long that must last before nodes are added",
    "in_after_seconds": "how long that must last before nodes are removed",
    "out_cooldown_seconds": "minimum time between two additions",
    "in_cooldown_seconds": "minimum time between any change and a removal",
    "idle_after_seconds": "time without work after which a node counts as idle",
}
_TEXTS = {
    "waiting_expression": "PromQL query for the number of waiting jobs",
    "running_expression": "PromQL query for the number of running jobs",
}
_SWITCHES = {
    "may_drain": "also drain busy nodes; otherwise only idle nodes are removed",
    "handles_spot": "replace nodes that have received a spot notice",
}
_OBSERVED = {
    "nodes": "nodes",
    "booting": "booting",
    "idle": "idle",
    "noticed": "noticed",
    "utilisation": "utilisation_percent",
    "waiting": "jobs_waiting",
    "running": "jobs_running",
}
_REMEMBERED = {
    "above_for": "above_since",
    "below_for": "below_since",
    "out_ago": "last_out",
    "in_ago": "last_in",
}
_WHOLE = ("nodes", "booting", "idle", "noticed")
_NAMED = 20
_PERCENT_MAX = 100


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("policy", nargs="?", type=parse_path, metavar="POLICY", help="TOML file with the policy")
    policy = parser.add_argument_group("policy (flags take precedence over the file)")
    add_choice(
        policy,
        "--metric",
        _METRICS,
        help="metric to scale by: mean GPU utilisation, or waiting and running jobs",
    )
    for key, text in {**_COUNTS, **_NUMBERS}.items():
        add_value(policy, f"--{key.replace('_', '-')}", "N", text)
    for key, text in _TEXTS.items():
        add_value(policy, f"--{key.replace('_', '-')}", "PROMQL", text)
    for key, text in _SWITCHES.items():
        add_switch(policy, f"--{key.replace('_', '-')}", text)
    add_server_flags(parser)
    add_value(
        parser,
        "--observe",
        "KEY=N,…",
        f"observed values, instead of those of the server: {', '.join((*_OBSERVED, *_REMEMBERED))} "
        "(the last four in seconds)",
        action="append",
    )
    render = parser.add_argument_group("writing the policy for an autoscaler")
    add_choice(render, "--render", _ENGINES, help="autoscaler to write the policy for")
    add_value(render, "--name", "NAME", "name of the Deployment or scaling group")
    add_value(render, "--namespace", "NAME", "namespace of the Deployment (default: default)")
    add_value(render, "--launch-template", "NAME", "AWS launch template, for spot nodes")
    add_value(
        render, "--instance-type", "TYPE", "AWS instance type, in order of preference; may be repeated", action="append"
    )
    add_value(
        render,
        "--output",
        "DIR|FILE",
        "with --render the output folder, otherwise the file for the result",
        parse_path,
        short="-o",
        dest="folder",
    )
    add_switch(render, "--check", "end with exit code 8 when the folder would change")


def run(options: argparse.Namespace, matrix: Matrix, output: Output) -> int:
    """Decide, write down, or both.

    Raises:
        UsageError: The policy or a flag makes no sense, or there is nothing to do.
        MissingDependencyError: The server does not answer.
        DriftError: ``--check``, and a file is not what would be written.
    """
    policy = load_policy(options.policy, _given(options), matrix, output)
    is_seen = options.prometheus is not None or bool(options.observe)
    if not is_seen and options.render is None:
        raise UsageError(
            "there is nothing to decide by and nothing to write",
            hints=(
                "say what is seen: `--observe nodes=4,utilisation=93`",
                "or name a server: `--prometheus https://prometheus.example:9090`",
                "or write the policy down: `--render k8s --name chat -o scaling`",
            ),
        )
    _check_flags(options)
    seen = _look(options, matrix, policy) if is_seen else None
    decision = _decide(policy, seen, output) if seen is not None else None
    is_counted = options.prometheus is None or "booting" in _observed(options.observe or ())
    if decision is not None and decision.action == "out" and not is_counted:
        output.note("a Prometheus does not see nodes that start; say how many do with `--observe booting=N`")
    files = _render(options, matrix, policy, decision)
    return _tell(options, output, matrix, policy, seen, decision, files)


def _given(options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {} if options.metric is None else {"metric": options.metric}
    for key in _COUNTS:
        text = getattr(options, key)
        if text is not None:
            found[key] = whole(f"--{key.replace('_', '-')}", 0)(text)
    for key in _NUMBERS:
        text = getattr(options, key)
        if text is not None:
            found[key] = number(f"--{key.replace('_', '-')}")(text)
    found |= {key: getattr(options, key) for key in _TEXTS if getattr(options, key) is not None}
    return found | {key: True for key in _SWITCHES if getattr(options, key)}


def _check_flags(options: argparse.Namespace) -> None:
    """Refuse flags that would have no effect."""
    if options.render is None:
        for flag in ("name", "namespace", "launch_template", "instance_type", "check"):
            if getattr(options, flag):
                raise UsageError(f"--{flag.replace('_', '-')} needs --render", hints=(f"choose {', '.join(_ENGINES)}",))
        return
    if options.name is None:
        raise UsageError(
            "what is scaled has no name",
            hints=("name the Deployment, the Auto Scaling group or the id of the scaling group with `--name NAME`",),
        )
    if options.folder is None:
        raise UsageError("where to is missing", hints=("name a folder with `-o DIR`",))


def _look(options: argparse.Namespace, matrix: Matrix, policy: Policy) -> Seen:
    from provision.fleet.observe import Seen, observe
    from provision.fleet.policy import Observation, State
    from provision.records import replace

    given = _observed(options.observe or ())
    values = {_OBSERVED[key]: value for key, value in given.items() if key in _OBSERVED}
    if options.prometheus is not None:
        seen = observe(connect(options, "policy"), matrix, policy)
        # Who counts the idle nodes by hand knows their names as well.
        idle = () if "idle" in values else seen.idle
    else:
        if "nodes" not in values:
            raise UsageError(
                "--observe does not say how many nodes there are", hints=("write `--observe nodes=4,utilisation=93`",)
            )
        seen, idle = Seen(observation=Observation(time_seconds=0.0, nodes=0), state=State(), idle=()), ()
    observation = replace(seen.observation, **values)
    now = observation.time_seconds
    past = {_REMEMBERED[key]: now - value for key, value in given.items() if key in _REMEMBERED}
    return Seen(observation=observation, state=replace(seen.state, **past), idle=idle)


def _observed(words: list[str] | tuple[()]) -> dict[str, float]:
    found: dict[str, float] = {}
    known = (*_OBSERVED, *_REMEMBERED)
    for part in (part for word in words for part in word.split(",")):
        key, equals, text = part.partition("=")
        if not equals or key not in known:
            raise UsageError(
                f"--observe `{shown(part)}` has no known key",
                hints=(*did_you_mean(key, known), "write it as in `nodes=4,utilisation=93,above_for=120`"),
            )
        if key in found:
            raise UsageError(f"--observe names `{key}` twice", hints=("keep one of the two",))
        most = _PERCENT_MAX if key == "utilisation" else math.inf
        value = number(f"--observe {key}", 0, most, is_whole=key in _WHOLE)(text)
        found[key] = int(value) if key in _WHOLE else value
    return found


def _decide(policy: Policy, seen: Seen, output: Output) -> Decision:
    from provision.fleet.policy import decide

    decision = decide(policy, seen.state, seen.observation)
    for name, since, began in (
        ("above_for", seen.state.above_since, decision.state.above_since),
        ("below_for", seen.state.below_since, decision.state.below_since),
    ):
        if decision.action == "hold" and since is None and began is not None:
            output.note(f"for how long it has been so is not known; say it with `--observe {name}=SECONDS`")
    return decision


def _render(
    options: argparse.Namespace, matrix: Matrix, policy: Policy, decision: Decision | None
) -> ScalingFiles | None:
    if options.render is None:
        return None
    from provision.generate.scaling.options import ScalingOptions
    from provision.generate.scaling.render import render_policy

    chosen = ScalingOptions(
        engine=options.render,
        name=options.name,
        namespace=options.namespace or "default",
        launch_template=options.launch_template,
        instance_types=tuple(options.instance_type or ()),
    )
    level = decision.level if decision is not None else None
    return render_policy(policy, chosen, matrix, level if level is not None and math.isfinite(level) else None)


def _tell(
    options: argparse.Namespace,
    output: Output,
    matrix: Matrix,
    policy: Policy,
    seen: Seen | None,
    decision: Decision | None,
    files: ScalingFiles | None,
) -> int:
    from provision.generate.write import check_artifacts, write_artifacts
    from provision.records import plain

    document: dict[str, Any] = {"policy": plain(policy)}
    lines: list[str] = []
    is_known = True
    if decision is not None and seen is not None:
        named = seen.idle[: decision.count] if decision.action == "release" else ()
        level = decision.level if decision.level is not None and math.isfinite(decision.level) else None
        document |= {
            "observation": plain(seen.observation),
            "decision": {**plain(decision), "level": level, "nodes": list(named)},
        }
        lines += _word(policy, seen, decision, named)
        is_known = decision.level is not None
    if files is not None:
        folder: Path = options.folder
        if options.check:
            check_artifacts(folder, files.artifacts)
            written: tuple[str, ...] = ()
            said = f"{folder} is what the policy and the facts of {matrix.dated} write"
        else:
            written = write_artifacts(folder, files.artifacts, dry_run=output.is_dry_run).written
            verb = "would write" if output.is_dry_run else "wrote"
            said = f"{verb} {len(written)} of {len(files.artifacts)} files in {folder}"
        document |= {
            "folder": str(folder),
            "files": [artifact.path for artifact in files.artifacts],
            "written": list(written),
            "commands": list(files.commands),
            "gaps": dict(files.gaps),
        }
        lines += [*([""] if lines else []), said, *(f"  {path}" for path in written)]
        lines += ["", "send it:", *(f"  {command}" for command in files.commands)]
        lines += ["", "what this engine cannot be told:", *_bullets(files.gaps.values(), output)]
    else:
        output.target = options.folder
    output.give(document, "\n".join(lines), is_ok=is_known)
    return 0 if is_known else MissingDependencyError.exit_code


def _word(policy: Policy, seen: Seen, decision: Decision, named: tuple[str, ...]) -> list[str]:
    from provision.cli.text.screen import align

    what = {"hold": "hold", "out": "add", "release": "release", "in": "drain and take away"}[decision.action]
    count = "" if not decision.count else f" {decision.count} node{'' if decision.count == 1 else 's'}"
    look = seen.observation
    rows = [("because", decision.reason)]
    rows += [("but not more" if decision.count else "and", text) for text in decision.limits]
    if named:
        rows.append(("which", first_of(named, _NAMED)))
    rows.append(("nodes", f"{look.nodes} there, {look.booting} start, {look.idle} idle, {look.noticed} under notice"))
    rows.append(
        (
            "policy",
            f"{policy.minimum} to {policy.maximum} nodes, target {policy.target:g} {policy.unit}, "
            f"out above {policy.out_above:g}, in below {policy.in_below:g}",
        )
    )
    return [f"{what}{count}", *align(rows, indent="  ")]


def _bullets(texts: Iterable[str], output: Output) -> list[str]:
    return [line for text in texts for line in wrap(text, columns_of(output), lead="  - ")]
