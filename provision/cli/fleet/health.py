"""`provision fleet health`: bad nodes are taken out of service, within limits, and put back after proof."""

from __future__ import annotations

import argparse
import re
from typing import Any

from provision.cli.fleet.server import add_server_flags, connect
from provision.cli.number import read_number, whole
from provision.cli.output import Output
from provision.cli.parser import Once, add_choice, parse_path, shown
from provision.errors import UsageError, VerificationFailedError
from provision.matrix.load import Matrix

__all__ = ["fill", "keep_healthy"]

_JOBS = ("keep", "requeue")
_LEFT = ("limit", "busy", "failed", "not done")
"""What of the ledger says that a bad node is still in service, or that something was not done."""


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--context", action=Once, metavar="NAME", help="kubeconfig context (default: the current one)")
    parser.add_argument(
        "--state", action=Once, type=parse_path, metavar="DIR", help="folder of the ledger and of what a pass remembers"
    )
    parser.add_argument(
        "--report",
        action="append",
        type=parse_path,
        metavar="FILE",
        help="also act on this report of `provision verify --json`; may be repeated",
    )
    parser.add_argument(
        "--cluster", action=Once, metavar="NAME", help="label `cluster` of the alerts, if the server has several"
    )
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--limit-percent", action=Once, metavar="N", help="share of a pool that may be out of service (default: 10)"
    )
    limits.add_argument(
        "--returns-per-day",
        action=Once,
        type=whole("--returns-per-day", 0),
        metavar="N",
        help="times a node is put back within 24 hours (default: 3)",
    )
    limits.add_argument(
        "--pool", action=Once, metavar="LABEL", help="node label that makes pools (default: product of the GPUs)"
    )
    add_choice(limits, "--jobs", _JOBS, help="what becomes of the Pods with GPUs of a node (default: keep)")
    limits.add_argument("--no-proof", action="store_true", help="only take nodes out; put none back")
    add_server_flags(parser)


def keep_healthy(options: argparse.Namespace, matrix: Matrix, output: Output) -> int:
    """Make one pass and say what was done.

    Raises:
        UsageError: A flag makes no sense, or a report is none.
        ActionFailedError: Another pass is at work.
        MissingDependencyError: The scheduler or the Prometheus server does not answer.
    """
    from provision.fleet.health import find_alerts, load_loop, read_reports, run_pass
    from provision.fleet.kubernetes import Kubernetes

    if options.state is None:
        raise UsageError("the folder of the ledger is missing", hints=("name it: `--state health`",))
    if options.cluster is not None and options.prometheus is None:
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
    engine = Kubernetes(matrix, context=options.context, pool=options.pool)

    def find() -> list[Any]:
        alerts = [] if server is None else find_alerts(server, matrix, options.cluster)
        return [*reported, *engine.find_conditions(), *alerts]

    proof = None if options.no_proof else engine.run_proof
    rows = run_pass(engine, settings, find, proof, is_dry=output.is_dry_run)
    is_ok = not any(row["what"] in _LEFT for row in rows)
    ledger = f"{options.state}/ledger.jsonl"
    output.give({"ledger": ledger, "done": rows}, _text(rows, ledger), is_ok=is_ok)
    return 0 if is_ok else VerificationFailedError.exit_code


def _text(rows: list[dict[str, Any]], ledger: str) -> str:
    from provision.cli.text.screen import align

    if not rows:
        return "nothing to do"
    return "\n".join([*align((row["what"], row["node"], row["why"]) for row in rows), f"ledger: {ledger}"])
