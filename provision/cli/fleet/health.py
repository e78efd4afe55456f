"""`provision fleet health`: bad nodes are taken out of service, within limits, and put back after proof."""

from __future__ import annotations

import argparse
import re
from typing import Any

from provision.cli.fleet.server import add_server_flags, connect, connect_alertmanager
from provision.cli.number import read_number, whole
from provision.cli.output import Output
from provision.cli.parser import add_choice, add_switch, add_value, parse_path
from provision.cli.targets import add_host_flags, run_on_target, targets_of
from provision.errors import UsageError, VerificationFailedError, shown
from provision.matrix.load import Matrix

_JOBS = ("keep", "requeue")
_ASK_SECONDS = 60.0
_LEFT = ("limit", "busy", "failed", "not done")
"""What of the ledger says that a bad node is still in service, or that something was not done."""


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_value(parser, "--context", "NAME", "kubeconfig context (default: the current one)")
    fleet = parser.add_argument_group("hosts reached over ssh, in place of a Kubernetes cluster")
    add_host_flags(fleet)
    add_value(fleet, "--ssh-config", "FILE", "ssh configuration file", parse_path)
    add_value(
        fleet,
        "--maintenance",
        "FILE",
        "file of the hosts in maintenance (default: maintenance.json in the folder of --state)",
        parse_path,
    )
    add_value(
        fleet,
        "--alertmanager",
        "URL",
        "Alertmanager that silences hosts in maintenance, reached as the Prometheus server is",
    )
    add_value(parser, "--state", "DIR", "folder of the ledger and of what a pass remembers", parse_path)
    add_value(
        parser,
        "--report",
        "FILE",
        "also act on this report of `provision verify --json`; may be repeated",
        parse_path,
        action="append",
    )
    add_value(parser, "--cluster", "NAME", "label `cluster` of the alerts, if the server has several")
    limits = parser.add_argument_group("limits")
    add_value(limits, "--limit-percent", "N", "share of a pool that may be out of service (default: 10)")
    add_value(
        limits,
        "--returns-per-day",
        "N",
        "times a node is put back within 24 hours (default: 3)",
        whole("--returns-per-day", 0),
    )
    add_value(limits, "--pool", "LABEL", "node label that makes pools (default: product of the GPUs)")
    add_choice(limits, "--jobs", _JOBS, help="what becomes of the Pods with GPUs of a node (default: keep)")
    add_switch(limits, "--no-proof", "only take nodes out; put none back")
    add_server_flags(parser)


def run(options: argparse.Namespace, matrix: Matrix, output: Output) -> int:
    """Make one pass and say what was done.

    Raises:
        UsageError: A flag makes no sense, or a report is none.
        ActionFailedError: Another pass is at work.
        MissingDependencyError: The scheduler or the Prometheus server does not answer.
    """
    from provision.fleet.health import find_alerts, load_loop, read_reports, run_pass

    if options.state is None:
        raise UsageError("the folder of the ledger is missing", hints=("name it: `--state health`",))
    if options.cluster is not None and options.prometheus is None and options.alertmanager is None:
        raise UsageError("--cluster has no effect without --prometheus", hints=("leave it out, or name the server",))
    for flag, text in (("--context", options.context), ("--pool", options.pool)):
        if text is not None and not re.fullmatch(r"[^\s\x00-\x1f\x7f-][^\s\x00-\x1f\x7f]{0,252}", text):
            raise UsageError(f"{flag} `{shown(text)}` is not a name", hints=("write it as the cluster does",))
    usual = load_loop().LIMITS
    returns = options.returns_per_day
    settings = {
        "state": str(options.state),
        "limit_percent": read_number("--limit-percent", options.limit_percent, 0, 100, usual["limit_percent"]),
        "returns_per_day": usual["returns_per_day"] if returns is None else returns,
        "jobs": options.jobs or "keep",
    }
    reported = read_reports(options.report or ())
    server = None if options.prometheus is None else connect(options, "health")
    engine = _engine(options, matrix)

    def find() -> list[Any]:
        alerts = [] if server is None else find_alerts(server, matrix, options.cluster)
        return [*reported, *engine.find_conditions(), *alerts]

    proof = None if options.no_proof else engine.run_proof
    rows = run_pass(engine, settings, find, proof, is_dry=output.is_dry_run)
    is_ok = not any(row["what"] in _LEFT for row in rows)
    ledger = f"{options.state}/ledger.jsonl"
    output.give({"ledger": ledger, "done": rows}, _text(rows, ledger), is_ok=is_ok)
    return 0 if is_ok else VerificationFailedError.exit_code


def _engine(options: argparse.Namespace, matrix: Matrix) -> Any:
    """Return what takes nodes out: a list of hosts where one is named, else the cluster that kubectl reaches."""
    lists = options.hosts or options.inventory
    others = {"ssh_config", "maintenance", "alertmanager", "limit"} if not lists else {"context", "pool"}
    for name in sorted(others):
        if getattr(options, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            if lists:
                raise UsageError(f"{flag} has no effect on hosts reached over ssh", hints=("leave it out",))
            raise UsageError(f"{flag} has no effect without a list of hosts", hints=("add `--inventory FILE`",))
    if not lists:
        from provision.fleet.kubernetes import Kubernetes

        return Kubernetes(matrix, context=options.context, pool=options.pool)
    if options.jobs == "requeue":
        raise UsageError(
            "`--jobs requeue` has no effect on hosts reached over ssh",
            because=("nothing would start a job on another host",),
            hints=("leave it out",),
        )
    from provision.fleet.hosts import Hosts

    told = ("hosts", "inventory", "limit", "ssh_config")
    unset = dict.fromkeys(("bundles", "shard", "user", "port", "identity", "jump"))
    wanted = argparse.Namespace(targets=(), **{name: getattr(options, name) for name in told}, **unset)
    names = {}
    for target in targets_of(wanted):
        if target.kind != "ssh":
            raise UsageError(f"`{shown(target.name)}` is not reached over ssh", hints=("leave it out of the list",))
        names[target.name if options.inventory else target.host] = target
    config = () if options.ssh_config is None else ("--ssh-config", str(options.ssh_config))
    flags = {
        name: (*config, *(("-i", str(options.inventory), f"--limit={name}") if options.inventory else (target.name,)))
        for name, target in names.items()
    }
    return Hosts(
        flags,
        options.maintenance or options.state / "maintenance.json",
        lambda name, command: run_on_target(wanted, names[name].name, command, _ASK_SECONDS),
        alertmanager=connect_alertmanager(options),
        cluster=options.cluster,
    )


def _text(rows: list[dict[str, Any]], ledger: str) -> str:
    from provision.cli.text.screen import align

    if not rows:
        return "nothing to do"
    lines = [*align((row["what"], row["node"], row["why"]) for row in rows)]
    lines += [f"repair of {row['node']}: {row['repair']}" for row in rows if row.get("repair")]
    return "\n".join([*lines, f"ledger: {ledger}"])
