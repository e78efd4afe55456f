"""`provision fleet simulate`: what policies cost on a recorded load, and how long jobs wait."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from provision.cli.number import read_number, whole
from provision.cli.output import Output
from provision.cli.parser import add_choice, add_value, parse_path
from provision.cli.text.paragraph import columns_of, wrap
from provision.errors import UnknownError, UsageError
from provision.matrix.load import Matrix

if TYPE_CHECKING:
    from provision.fleet.simulate.model import Interruptions, Machines, Outcome
    from provision.fleet.simulate.trace import Trace
    from provision.generate.scaling.policy import Policy

_TRACE_BYTES_MAX = 32 * 1024 * 1024
_UNITS = ("jobs", "gpus")
_USD_MAX = 100_000.0
_COUNT_MAX = 10_000
_SECONDS_MAX = 31 * 86_400.0
_MTBF_HOURS_MAX = 100_000.0
_SPOT_FLAGS = (
    "--spot-price",
    "--mtbf-hours",
    "--warning-seconds",
    "--checkpoint-seconds",
    "--restart-seconds",
    "--checkpoint-every",
)
_FIXED_PEAK = "fixed, for the peak"
_FIXED_MEAN = "fixed, for the mean"


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument(
        "trace",
        type=parse_path,
        metavar="TRACE",
        help="CSV file of jobs or of busy GPUs, or output of `sacct -P` (- is stdin)",
    )
    add_value(
        parser,
        "--policy",
        "FILE",
        "policy file, as for `provision fleet policy`; may be repeated",
        parse_path,
        action="append",
        dest="policies",
    )
    add_value(parser, "--fixed", "N", "also simulate a fixed fleet of N nodes; may be repeated", action="append")
    nodes = parser.add_argument_group("nodes")
    add_value(nodes, "--instance", "PROVIDER/TYPE[/REGION]", "machine type, as in `provision plan`")
    add_value(nodes, "--gpus", "N", "GPUs per node, with --price")
    add_value(nodes, "--price", "USD", "US dollars per node and hour")
    add_value(nodes, "--spot-price", "USD", "US dollars per spot node and hour")
    add_value(nodes, "--boot-seconds", "N", "time from requesting a node until it accepts jobs")
    add_value(nodes, "--billing-minimum-seconds", "N", "minimum billing time of a node")
    spot = parser.add_argument_group("spot, for policies with `handles_spot`")
    add_value(spot, "--mtbf-hours", "N", "mean time between interruptions of a node")
    add_value(spot, "--warning-seconds", "N", "time between notice and interruption")
    add_value(spot, "--checkpoint-seconds", "N", "time to save one checkpoint")
    add_value(spot, "--restart-seconds", "N", "time until a job works again")
    add_value(
        spot,
        "--checkpoint-every",
        "SECONDS|best|never",
        "time between two checkpoints; best uses Daly's formula (default: best)",
    )
    how = parser.add_argument_group("simulation")
    add_value(how, "--step-seconds", "N", "interval at which a policy is evaluated")
    add_choice(
        how,
        "--count",
        _UNITS,
        help="what a queue policy counts (default: jobs)",
    )
    add_value(how, "--seed", "N", "seed of the spot interruptions (default: 0)")
    add_value(parser, "--html", "FILE", "also write an HTML page", parse_path)
    add_value(parser, "--output", "FILE", "file for the text or the JSON document", parse_path, short="-o", dest="file")


def run(options: argparse.Namespace, matrix: Matrix, output: Output) -> int:
    """Replay the trace on fixed fleets and by every policy.

    Raises:
        UsageError: A file or a flag makes no sense, or a job fits into no fleet.
        UnknownError: The facts know no price of the machine.
    """
    from provision.files import read_text
    from provision.fleet.simulate.engine import simulate, size_for_mean, size_for_peak
    from provision.fleet.simulate.trace import read_trace
    from provision.records import plain

    name = "standard input" if str(options.trace) == "-" else str(options.trace)
    trace = read_trace(read_text(options.trace, "TRACE", bytes_max=_TRACE_BYTES_MAX), name)
    policies = _read_policies(options, matrix, output)
    machines, spot, stated = _read_machines(options, matrix, can_use_spot=any(row.handles_spot for _, row in policies))
    seed = 0 if options.seed is None else whole("--seed", 0, _COUNT_MAX)(options.seed)
    unit = options.count or "jobs"
    peak, mean = size_for_peak(trace, machines), size_for_mean(trace, machines)
    fixed = [(_FIXED_PEAK, peak), (_FIXED_MEAN, mean)]
    fixed += [
        (f"fixed, {size}", size) for size in dict.fromkeys(map(whole("--fixed", 1, _COUNT_MAX), options.fixed or ()))
    ]
    outcomes = [simulate(trace, machines, name=title, fixed=size) for title, size in fixed]
    for title, policy in policies:
        used = spot if spot is not None and policy.handles_spot else machines
        outcomes.append(simulate(trace, used, name=title, policy=policy, seed=seed, unit=unit))
    stated += _state(trace, machines, spot, policies, unit)
    document = {
        "trace": {
            "jobs": len(trace.jobs),
            "end_seconds": trace.end,
            "gpu_hours": trace.gpu_seconds / 3600,
            "gpus_mean": trace.gpu_seconds / outcomes[0].end_seconds,
        },
        "assumed": stated,
        "seed": seed,
        "saving_bound_percent": 100 * _bound(outcomes[0]),
        "fleets": [{**plain(outcome), "saving_percent": 100 * _saving(outcome, outcomes[0])} for outcome in outcomes],
    }
    if options.html is not None:
        from provision.generate.replay_page import Curve, render_replay_page

        curves = tuple(Curve(name=row.name, points=row.series, end=row.end_seconds) for row in outcomes)
        output.save(options.html, render_replay_page(name, curves, _rows(outcomes), stated))
    output.target = options.file
    output.give(document, _word(trace, outcomes, stated, columns_of(output)))
    return 0


def _read_policies(options: argparse.Namespace, matrix: Matrix, output: Output) -> list[tuple[str, Policy]]:
    from provision.cli.policy_file import load_policy

    found: list[tuple[str, Policy]] = []
    for path in options.policies or ():
        title = Path(path).stem
        if title in [name for name, _ in found]:
            title = str(path)
        found.append((title, load_policy(path, {}, matrix, output)))
    return found


def _read_machines(
    options: argparse.Namespace, matrix: Matrix, *, can_use_spot: bool
) -> tuple[Machines, Machines | None, list[str]]:
    """Return the nodes on demand, those on spot where a policy asks for them at a known price, and what was assumed.

    Raises:
        UsageError: A flag makes no sense, or is about spot where nothing would run on spot.
        UnknownError: The facts know no price of the machine.
    """
    from provision.fleet.simulate.model import Machines
    from provision.records import replace

    limits = {row.id: row.value for row in matrix.rows("planning.toml", "limit")}
    gpus, usd, spot_usd, about, facts = _read_price(options, matrix)
    machines = Machines(
        gpus=gpus,
        usd_per_hour=usd,
        boot_seconds=read_number(
            "--boot-seconds", options.boot_seconds, 0, _SECONDS_MAX, limits["simulate_boot_seconds"]
        ),
        billing_minimum_seconds=read_number(
            "--billing-minimum-seconds",
            options.billing_minimum_seconds,
            0,
            _SECONDS_MAX,
            limits["simulate_billing_minimum_seconds"],
        ),
        step_seconds=read_number(
            "--step-seconds", options.step_seconds, 1, _SECONDS_MAX, limits["simulate_step_seconds"]
        ),
    )
    stated = [f"a node has {gpus} GPU{'' if gpus == 1 else 's'} and costs {usd:.4g} USD an hour, {about}"]
    interruptions = _read_interruptions(options, limits, facts)
    flags = [flag for flag in _SPOT_FLAGS if getattr(options, flag[2:].replace("-", "_")) is not None]
    if flags and not can_use_spot:
        raise UsageError(
            f"`{flags[0]}` is about nodes on spot, and none would be on spot",
            hints=("name a policy with `handles_spot = true` by --policy", "or leave the flag out"),
        )
    if flags and spot_usd is None:
        raise UsageError(
            f"`{flags[0]}` is about nodes on spot, and no price as spot is known",
            hints=("give it: `--spot-price USD`", "or leave the flag out"),
        )
    if spot_usd is None or not can_use_spot:
        return machines, None, stated
    stated.append(f"as spot {spot_usd:.4g} USD an hour; {_state_spot(interruptions)}")
    return machines, replace(machines, usd_per_hour=spot_usd, purchase="spot", interruptions=interruptions), stated


def _read_price(
    options: argparse.Namespace, matrix: Matrix
) -> tuple[int, float, float | None, str, dict[str, float | None]]:
    """Return GPUs and prices of a node, where they come from, and what the facts say of its interruptions."""
    spot_usd = None if options.spot_price is None else read_number("--spot-price", options.spot_price, 0, _USD_MAX, 0.0)
    if options.instance is None:
        if options.price is None or options.gpus is None:
            raise UsageError(
                "what a node is and costs is missing",
                hints=("name the machine: `--instance aws/p4d.24xlarge/us-east-1`", "or give `--gpus N --price USD`"),
            )
        return (
            whole("--gpus", 1, _COUNT_MAX)(options.gpus),
            read_number("--price", options.price, 0, _USD_MAX, 0.0),
            spot_usd,
            "as given",
            {},
        )
    if options.gpus is not None:
        raise UsageError("--gpus and --instance exclude each other", hints=("leave one of the two out",))
    return _read_instance(options, matrix, spot_usd)


def _read_instance(
    options: argparse.Namespace, matrix: Matrix, spot_usd: float | None
) -> tuple[int, float, float | None, str, dict[str, float | None]]:
    from provision.cli.instance_flag import find_offer
    from provision.planner.catalogue import price_of, read_rates
    from provision.planner.spot import mtbf_of_bin

    offer = find_offer(options.instance, matrix)
    rates = read_rates(matrix, {})
    limits = {row.id: row.value for row in matrix.rows("planning.toml", "limit")}
    label = offer.instance.interruptions
    mtbf = mtbf_of_bin(label, limits["hours_per_month"]) if label is not None else None
    facts: dict[str, float | None] = {
        "mtbf_hours": mtbf,
        "warning_seconds": next(
            (
                row.warning_seconds
                for row in matrix.spot_notices
                if row.provider == offer.provider.id and row.kind == "interruption"
            ),
            None,
        ),
    }
    if options.price is not None:
        usd, about = read_number("--price", options.price, 0, _USD_MAX, 0.0), f"as given for {offer.name}"
    else:
        price = price_of(offer.instance, "on-demand", rates)
        if price is None:
            raise UnknownError(f"no source states what {offer.name} costs", hints=("give the price: `--price USD`",))
        usd, about = price.usd, f"{offer.name} as of {price.as_of}"
    if spot_usd is None:
        spot = price_of(offer.instance, "spot", rates)
        spot_usd = None if spot is None else spot.usd
    return offer.instance.gpu_count, usd, spot_usd, about, facts


def _read_interruptions(
    options: argparse.Namespace, limits: dict[str, float], facts: dict[str, float | None]
) -> Interruptions:
    from provision.fleet.simulate.model import Interruptions
    from provision.planner.spot import daly_interval

    known = facts.get("mtbf_hours")
    default = limits["spot_capped_mtbf_hours"] if known is None else known
    mtbf_hours = read_number("--mtbf-hours", options.mtbf_hours, 0.01, _MTBF_HOURS_MAX, default)
    checkpoint = read_number(
        "--checkpoint-seconds", options.checkpoint_seconds, 0, _SECONDS_MAX, limits["simulate_checkpoint_seconds"]
    )
    text = options.checkpoint_every or "best"
    if text == "best":
        # Where a save costs nothing, once a step is often enough.
        interval: float | None = max(daly_interval(checkpoint / 3600, mtbf_hours) * 3600, 1.0)
    elif text == "never":
        interval = None
    else:
        interval = read_number("--checkpoint-every", text, 1, _SECONDS_MAX, 0.0)
    return Interruptions(
        mtbf=mtbf_hours * 3600,
        warning=read_number(
            "--warning-seconds", options.warning_seconds, 0, _SECONDS_MAX, facts.get("warning_seconds") or 0
        ),
        checkpoint=checkpoint,
        restart=read_number(
            "--restart-seconds", options.restart_seconds, 0, _SECONDS_MAX, limits["restart_minutes"] * 60
        ),
        interval=interval,
    )


def _state(
    trace: Trace, machines: Machines, spot: Machines | None, policies: list[tuple[str, Policy]], unit: str
) -> list[str]:
    stated = [
        f"a node costs from its order on, {machines.billing_minimum_seconds:g} s at least, and takes jobs "
        f"{machines.boot_seconds:g} s after it; a policy is asked every {machines.step_seconds:g} s",
        "jobs run first come, first served; none overtakes another, and one on several nodes has them whole",
        "instances are always to be had, at one price",
    ]
    if (
        len({job.gpus for job in trace.jobs}) > 1
        and unit == "jobs"
        and any(row.metric == "queue" for _, row in policies)
    ):
        stated.append("jobs differ in size and a policy by queue counts them all alike; `--count gpus` counts GPUs")
    on_demand = [name for name, row in policies if row.handles_spot and spot is None]
    if on_demand:
        stated.append(f"{', '.join(on_demand)}: `handles_spot`, but no price as spot is known, so on demand")
    return stated


def _state_spot(spot: Interruptions) -> str:
    every = "never by the clock" if spot.interval is None else f"every {spot.interval:.0f} s of work"
    notice = "and on notice" if spot.is_saved_on_notice else "and not on notice, for the warning is too short"
    return (
        f"taken back every {spot.mtbf / 3600:.3g} h a node with {spot.warning:g} s of warning, jobs saved in "
        f"{spot.checkpoint:g} s {every} {notice}, at work again after {spot.restart:g} s"
    )


def _saving(outcome: Outcome, fixed: Outcome) -> float:
    return 1 - outcome.usd / fixed.usd if fixed.usd else 0.0


def _bound(fixed: Outcome) -> float:
    """Return what no fleet at the same price can save: the peak's nodes that the work does not fill."""
    return 1 - fixed.utilisation_percent / 100


_HEADINGS = (
    "fleet",
    "bought",
    "nodes",
    "node-hours",
    "USD",
    "saves",
    "queue mean",
    "p95",
    "max",
    "busy",
    "taken",
    "lost GPU-h",
)
_PAID = ("fleet", "bought", "nodes", "node-hours", "USD", "saves", "busy")
_WAITED = ("fleet", "queue mean", "p95", "max", "taken", "lost GPU-h")


def _rows(outcomes: list[Outcome]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [_HEADINGS]
    for row in outcomes:
        nodes = str(row.nodes_most) if row.nodes_least == row.nodes_most else f"{row.nodes_least}-{row.nodes_most}"
        rows.append(
            (
                row.name,
                row.purchase,
                nodes,
                f"{row.node_hours:.1f}",
                f"{row.usd:.2f}",
                f"{100 * _saving(row, outcomes[0]):.1f} %",
                _span(row.queue_mean_seconds),
                _span(row.queue_p95_seconds),
                _span(row.queue_max_seconds),
                f"{row.utilisation_percent:.0f} %",
                str(row.interruptions),
                f"{row.lost_gpu_hours:.1f}",
            )
        )
    return rows


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _table(rows: list[tuple[str, ...]], columns: int) -> list[str]:
    """Return rows as a table, or as two where a line has no room for it: what is paid, and how jobs wait."""
    from provision.cli.text.screen import align

    table = align(rows)
    if max(map(len, table)) <= columns:
        return table
    paid, waited = ([tuple(row[_HEADINGS.index(name)] for name in part) for row in rows] for part in (_PAID, _WAITED))
    return [*align(paid), "", *align(waited)]


def _word(trace: Trace, outcomes: list[Outcome], stated: list[str], columns: int) -> str:
    span = outcomes[0].end_seconds
    hours, mean = trace.gpu_seconds / 3600, trace.gpu_seconds / span
    bound = f"{100 * _bound(outcomes[0]):.1f} %"
    lines = [
        f"{len(trace.jobs)} jobs in {_span(span)}, {hours:.1f} GPU hours, {mean:.1f} GPUs on average",
        "",
        *_table(_rows(outcomes), columns),
        "",
        *wrap(f"no fleet at this price saves more than {bound}: so much of the peak's fleet does nothing", columns),
        "",
        *(line for text in stated for line in wrap(text, columns, lead="assumed: ", hanging=2)),
    ]
    return "\n".join(lines)
