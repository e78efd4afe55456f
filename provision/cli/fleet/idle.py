"""`provision fleet idle`: which nodes may be released now, and what that would save."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from provision.cli.fleet.server import add_server_flags, connect
from provision.cli.number import read_number
from provision.cli.output import Output
from provision.cli.parser import add_choice, add_value
from provision.errors import UnknownError, UsageError
from provision.matrix.load import Matrix

if TYPE_CHECKING:
    from provision.fleet.idle import IdleNode, IdleReport

_PURCHASES = ("on-demand", "spot", "reserved-1y", "reserved-3y")
_MINUTES_MIN, _MINUTES_MAX = 5.0, 31 * 1440.0
_USD_MAX = 100_000.0


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_server_flags(parser)
    add_value(parser, "--minutes", "N", "length of the window (default: 60)")
    price = parser.add_argument_group("cost of a node")
    add_value(price, "--instance", "PROVIDER/TYPE[/REGION]", "machine type, as in `provision plan`")
    add_choice(
        price,
        "--purchase",
        _PURCHASES,
        help="purchase option (default: on-demand)",
    )
    add_value(price, "--price", "USD", "US dollars per hour, instead of --instance")


def run(options: argparse.Namespace, matrix: Matrix, output: Output) -> int:
    """Ask the server, judge every node, and say so.

    Raises:
        UsageError: A flag makes no sense.
        UnknownError: The facts know no price of the machine.
        MissingDependencyError: The server does not answer, or knows no node.
    """
    from provision.cli.policy_file import policy_limits
    from provision.fleet import idle
    from provision.records import plain

    default = policy_limits(matrix)["policy.idle-after"] / 60
    minutes = read_number("--minutes", options.minutes, _MINUTES_MIN, _MINUTES_MAX, default)
    price, about = _price(options, matrix)
    server = connect(options, "idle")
    report = idle.find_idle(server, matrix, window_seconds=minutes * 60)
    free = report.of("release")
    saved = None if price is None else price * len(free)
    document = {
        **plain(report),
        "released_nodes": len(free),
        "released_gpus": sum(node.evidence.gpus or 0 for node in free),
        "idle_gpus_elsewhere": _elsewhere(report),
        "usd_per_node_hour": price,
        "usd_per_hour": saved,
        "price": about,
    }
    output.give(document, _word(report, saved, about, output))
    return 0


def _price(options: argparse.Namespace, matrix: Matrix) -> tuple[float | None, str | None]:
    """Return US dollars an hour of a node and where they come from; nothing where nobody asked."""
    if options.price is not None:
        if options.instance is not None or options.purchase is not None:
            raise UsageError("--price and --instance exclude each other", hints=("leave one of the two out",))
        return read_number("--price", options.price, 0, _USD_MAX, 0.0), "as given"
    if options.instance is None:
        if options.purchase is not None:
            raise UsageError("--purchase needs --instance", hints=("name the machine: `--instance aws/p4d.24xlarge`",))
        return None, None
    return _price_of_instance(options.instance, options.purchase or "on-demand", matrix)


def _price_of_instance(text: str, purchase: str, matrix: Matrix) -> tuple[float, str]:
    from provision.cli.instance_flag import find_offer
    from provision.planner.catalogue import price_of, read_rates

    offer = find_offer(text, matrix)
    price = price_of(offer.instance, purchase, read_rates(matrix, {}))
    if price is None:
        raise UnknownError(
            f"no source states what {offer.name} costs {purchase}", hints=("give the price: `--price USD`",)
        )
    return price.usd, f"{offer.name} {purchase}, {price.usd:.2f} USD an hour as of {price.as_of}"


def _word(report: IdleReport, saved: float | None, about: str | None, output: Output) -> str:
    from provision.cli.text.screen import align

    free = report.of("release")
    gpus = sum(node.evidence.gpus or 0 for node in free)
    head = f"{len(free)} of {len(report.nodes)} nodes may be released ({gpus} GPUs)"
    if saved is not None:
        head += f", which saves {saved:.2f} USD an hour"
    lines = [f"{head}, by the last {report.window_seconds / 60:g} minutes"]
    others = _elsewhere(report)
    if others:
        lines.append(
            f"  on other nodes {others} GPU{'' if others == 1 else 's'} did as little, and cannot be given back alone"
        )
    if about is not None:
        lines.append(f"  price: {about}")
    listed = [node for node in report.nodes if output.verbosity > 0 or node.verdict != "busy"]
    if listed:
        rows = [("", "node", "GPUs", "idle", "busiest", "peak", "memory", "why"), *(_row(node) for node in listed)]
        lines += ["", *align(rows)]
    hidden = len(report.nodes) - len(listed)
    if hidden:
        lines += ["", f"{hidden} busy node{'' if hidden == 1 else 's'} not shown; -v shows them"]
    return "\n".join(lines)


def _elsewhere(report: IdleReport) -> int:
    """Count the idle GPUs of nodes that are not offered."""
    return sum(node.evidence.idle_gpus for node in report.nodes if node.verdict != "release")


def _row(node: IdleNode) -> tuple[str, ...]:
    seen = node.evidence
    return (
        node.verdict,
        seen.node,
        "?" if seen.gpus is None else str(seen.gpus),
        str(seen.idle_gpus),
        _figure(seen.busiest_percent, "%"),
        _figure(seen.peak_percent, "%"),
        _figure(seen.memory_mib, "MiB"),
        node.reason,
    )


def _figure(value: float | None, unit: str) -> str:
    return "?" if value is None else f"{value:.0f} {unit}"
