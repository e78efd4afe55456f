"""`provision fleet usage`: who used how many GPU-hours, and what was idle."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from provision.cli.fleet.server import add_server_flags, connect
from provision.cli.number import read_number, whole
from provision.cli.output import Output
from provision.cli.parser import add_choice, add_value, parse_path
from provision.cli.text.paragraph import columns_of
from provision.errors import UsageError

if TYPE_CHECKING:
    from provision.fleet.usage import Usage

_BYTES_MAX = 512 * 1024 * 1024
_HOURS_MAX = 24 * 366.0
_HOURS = 24.0
_GPUS_MAX = 10_000_000
_USD_MAX = 10_000.0
_KEYS = ("account", "job", "namespace", "node", "partition", "pod", "user")
_SHOWN = 20


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("records", nargs="?", type=parse_path, metavar="FILE", help="output of `sacct -P` (- is stdin)")
    add_server_flags(parser)
    add_choice(parser, "--by", _KEYS, help="group by this (default: account for Slurm, namespace for a server)")
    add_value(parser, "--hours", "N", "time range of the server (default: 24), or the time that FILE covers")
    add_value(parser, "--gpus", "N", "GPUs in the cluster, to compute the idle time in FILE")
    add_value(parser, "--gpu-price", "USD", "US dollars per GPU and hour")


def count_fleet_usage(options: argparse.Namespace, output: Output) -> int:
    """Count, and say so.

    Raises:
        UsageError: A flag or a line of the file makes no sense.
        MissingDependencyError: The server does not answer, or knows no GPU.
    """
    from provision.records import plain

    price = None if options.gpu_price is None else read_number("--gpu-price", options.gpu_price, 0, _USD_MAX, 0.0)
    usage = _ask(options) if options.records is None else _read(options)
    document = {**plain(usage), "gpu_hours": usage.gpu_hours, "usd_per_gpu_hour": price}
    if price is not None:
        document["usd"] = usage.gpu_hours * price
        document["idle_usd"] = None if usage.idle_gpu_hours is None else usage.idle_gpu_hours * price
    output.give(document, _word(usage, price, output))
    return 0


def _read(options: argparse.Namespace) -> Usage:
    from provision.files import read_text
    from provision.fleet.sacct import read_sacct
    from provision.fleet.usage import SLURM_KEYS, count_usage

    if options.prometheus is not None:
        raise UsageError("FILE and --prometheus exclude each other", hints=("leave one of the two out",))
    key = options.by or "account"
    if key not in SLURM_KEYS:
        raise UsageError(f"sacct does not count by {key}", hints=(f"name one of {', '.join(SLURM_KEYS)}",))
    name = "standard input" if str(options.records) == "-" else str(options.records)
    jobs = read_sacct(read_text(options.records, "FILE", bytes_max=_BYTES_MAX), name)
    hours = None if options.hours is None else read_number("--hours", options.hours, 0.01, _HOURS_MAX, 0.0)
    gpus = None if options.gpus is None else whole("--gpus", 1, _GPUS_MAX)(options.gpus)
    return count_usage(jobs, key, gpus=gpus, hours=hours)


def _ask(options: argparse.Namespace) -> Usage:
    from provision.fleet.usage import SERVER_KEYS, ask_usage

    if options.prometheus is None:
        raise UsageError(
            "what is to be counted is missing",
            hints=(
                "name a file: `provision fleet usage jobs.txt`, which `sacct -P` wrote",
                "or a server: `provision fleet usage --prometheus https://prometheus.example:9090`",
            ),
        )
    if options.gpus is not None:
        raise UsageError("--gpus is for FILE", hints=("leave it out: the server knows how many GPUs there are",))
    key = options.by or "namespace"
    if key not in SERVER_KEYS:
        raise UsageError(
            f"the series of a server do not name the {key}", hints=(f"name one of {', '.join(sorted(SERVER_KEYS))}",)
        )
    return ask_usage(connect(options, "usage"), key, hours=read_number("--hours", options.hours, 1, _HOURS_MAX, _HOURS))


def _word(usage: Usage, price: float | None, output: Output) -> str:
    from provision.cli.text.screen import align

    total = usage.gpu_hours
    idle = usage.idle_gpu_hours
    there = total + idle if idle is not None else None
    head = f"{total:.1f} GPU-hours by {len(usage.rows)} {usage.key}{'' if len(usage.rows) == 1 else 's'}"
    if usage.hours is not None:
        head += f" in {usage.hours:.1f} hours"
    if usage.gpus is not None:
        head += f" on {usage.gpus:.4g} GPUs"
    shown = usage.rows if output.verbosity > 0 else usage.rows[:_SHOWN]
    has_jobs, has_busy = (
        any(row.jobs is not None for row in shown),
        any(row.busy_gpu_hours is not None for row in shown),
    )
    heading = [usage.key, "GPU-hours", "share"]
    heading += ["jobs"] * has_jobs + ["busy"] * has_busy + ["USD"] * (price is not None)
    rows = [heading]
    for row in shown:
        cells = [row.name or "(unnamed)", f"{row.gpu_hours:.1f}", _share(row.gpu_hours, there or total)]
        cells += [str(row.jobs)] if has_jobs else []
        cells += [_share(row.busy_gpu_hours, row.gpu_hours)] if has_busy else []
        cells += [f"{row.gpu_hours * price:.2f}"] if price is not None else []
        rows.append(cells)
    if idle is not None:
        cells = ["(idle)", f"{idle:.1f}", _share(idle, there or 0)] + [""] * (has_jobs + has_busy)
        rows.append([*cells, f"{idle * price:.2f}"] if price is not None else cells)
    lines = [head, "", *align(rows, columns=columns_of(output))]
    if len(shown) < len(usage.rows):
        lines += ["", f"{len(usage.rows) - len(shown)} more are shown by -v"]
    if usage.without_gpu:
        lines += ["", f"{usage.without_gpu} job{'' if usage.without_gpu == 1 else 's'} without a GPU not counted"]
    return "\n".join(lines)


def _share(part: float | None, whole_of: float) -> str:
    return "?" if part is None or not whole_of else f"{100 * part / whole_of:.0f} %"
