"""A plan for people and as plain data."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

from provision.cli.output import Output
from provision.cli.text.paragraph import columns_of, wrap
from provision.cli.text.screen import align
from provision.planner.catalogue import Price, read_day
from provision.planner.fit import Fit
from provision.planner.job import Job
from provision.planner.plan import Plan, Row, summarise

_REASONS_SHOWN = 3


def money(usd: float) -> str:
    """Return dollars with as many digits as matter."""
    return f"{usd:,.0f}" if usd >= 1000 else f"{usd:.4g}" if usd < 1 else f"{usd:,.2f}"


def duration(hours: float) -> str:
    """Return a duration in the unit people would use."""
    if hours < 1:
        return f"{hours * 60:.3g} min"
    return f"{hours:.3g} h" if hours < 100 else f"{hours / 24:.3g} d"


COLUMNS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("USD", lambda row: money(row.cost.usd)),
    ("time", lambda row: duration(row.hours[1])),
    ("machines", lambda row: f"{row.nodes} × {row.offer.instance.provider} {row.offer.instance.type}"),
    ("region", lambda row: row.offer.instance.region),
    ("GPUs", lambda row: gpus_of(row)),  # noqa: PLW0108 - defined below
    ("paid", lambda row: row.purchase),
    ("USD/h", lambda row: f"{row.price.usd:.4g}"),
    ("price of", lambda row: row.price.as_of),
    ("memory", lambda row: _memory(row.fit)),
)


_ON_TOP = ("", "USD", "time", "machines", "paid", "USD/h")
"""Columns of the first of two lines; the other line has the rest."""
_BELOW_FROM = "machines"


def gpus_of(row: Row) -> str:
    """Return how many of which GPU, or which part of one."""
    share = row.offer.instance.gpu_share
    name = row.offer.gpu.name
    return f"{row.gpus} × {name}" if share is None else f"{row.gpus} × {share:g} of {name}"


def _memory(fit: Fit) -> str:
    if fit.memory is None:
        return ""
    tight = " tight" if fit.is_tight else ""
    return f"{fit.memory.total_gib:.0f}/{fit.usable_gib:.0f} GiB{tight}"


def show_plan(plan: Plan, job: Job, output: Output, *, top: int) -> str:
    """Return the winner with its reasons, the rows that nothing beats, the fall-backs, and what was left out."""
    winner = plan.winner
    assert winner is not None  # noqa: S101 - a plan without rows is refused before
    columns = columns_of(output)
    front = [row for row in plan.rows if row.is_first]
    others = [row for row in plan.rows if not row.is_first]
    shown = (front + others)[:top]
    shown.sort(key=lambda row: (row.cost.usd, row.hours[2]))
    lines = _table(shown, {id(row): "*" if row.is_first else "" for row in shown}, columns)
    lines += ["", "* nothing else is as cheap, as fast and as safe"]
    lines += ["", output.paint("first choice", "label"), *show_row(winner, job, columns)]
    if output.verbosity > 0:
        for row in shown:
            if row is not winner:
                heading = output.paint(f"{money(row.cost.usd)} USD, {row.purchase}", "label")
                lines += ["", heading, *show_row(row, job, columns)]
    if plan.fallbacks:
        lines += ["", output.paint("if it is out of stock (a price does not guarantee capacity)", "label")]
        lines += _table(list(plan.fallbacks), {}, columns)
    lines += ["", *_left_out(plan, output, columns)]
    return "\n".join(lines)


def _table(rows: list[Row], marks: dict[int, str], columns: int) -> list[str]:
    """Return rows as a table, or, where a line has no room for all of it, as two lines a row."""
    head = tuple(name for name, _ in COLUMNS)
    body = [(marks.get(id(row), ""), *(text(row) for _, text in COLUMNS)) for row in rows]
    wide = align([("", *head), *body])
    if max(map(len, wide)) <= columns:
        return wide
    cells = [dict(zip(("", *head), line, strict=True)) for line in body]
    narrow = align([_ON_TOP, *([line[name] for name in _ON_TOP] for line in cells)])
    lead = " " * narrow[0].index(_BELOW_FROM)
    lines = narrow[:1]
    for first, line in zip(narrow[1:], cells, strict=True):
        rest = [line["region"], line["GPUs"], line["memory"], f"price of {line['price of']}"]
        lines += [first, *wrap(", ".join(text for text in rest if text), columns, lead=lead)]
    return lines


def show_row(row: Row, job: Job, columns: int) -> list[str]:
    """Return why a row is what it is: layout, memory, speed, time, price, interruptions, what was assumed.

    Args:
        row: The row.
        job: What is to be done.
        columns: Width of a line.
    """
    facts: list[tuple[str, str]] = [("machine", f"{row.nodes} × {row.offer.name}, {gpus_of(row)}")]
    facts += _explain_layout(row)
    if row.fit.memory is not None:
        parts = sorted(row.fit.memory.parts, key=lambda part: -part.gib)
        said = ", ".join(f"{part.name} {part.gib:.1f}" for part in parts if part.gib >= 0.05)
        low, high = row.fit.memory.low_gib, row.fit.memory.high_gib
        total = row.fit.memory.total_gib
        facts.append(("memory", f"{total:.1f} GiB a GPU ({low:.0f} to {high:.0f}) of {row.fit.usable_gib:.1f}: {said}"))
    if row.speed is not None:
        ends = f"{_rate(row.speed.low)} to {_rate(row.speed.high)}"
        facts.append(("speed", f"{_rate(row.speed.median)} {row.speed.unit} ({ends}), {row.speed.mode}"))
        facts += [("", text) for text in row.speed.basis]
    if row.service is not None:
        load = (
            f"{row.service.replicas} for {row.service.requests_per_second:g} requests/s, "
            f"{row.service.minimum} usually, {row.service.replicas_slow} where it is as slow as one run in ten"
        )
        facts.append(("replicas", f"{load}; scale by the queue, not by how busy the GPU is"))
    shortest, likely, longest = row.hours
    spread = "" if shortest == longest else f" ({duration(shortest)} to {duration(longest)})"
    facts.append(("time", f"{duration(likely)}{spread}"))
    facts += [("cost", f"{money(item.usd)} USD {item.name}: {item.how}") for item in row.cost.items]
    instance = row.offer.instance
    facts.append(("price", _origin(row.price)))
    facts.append(("", f"`provision explain instance/{instance.provider}/{instance.type}/{instance.region}`"))
    if row.spot is not None:
        facts += _explain_spot(row, job)
    facts += [("assumed", text) for text in row.assumed]
    width = max(len(name) for name, _ in facts)
    return [line for name, text in facts for line in wrap(text, columns, lead=f"  {name:{width}}  ")]


def _explain_layout(row: Row) -> list[tuple[str, str]]:
    layout = row.fit.layout
    if row.fit.training is not None:
        training = row.fit.training
        words = [f"{layout.data} data-parallel", training.sharding]
        words += [f"tensor {layout.tensor}"] if layout.tensor > 1 else []
        words += [f"pipeline {layout.pipeline}"] if layout.pipeline > 1 else []
        words += [f"{training.micro_batch} × {training.sequence} tokens at once"]
        words += [f"checkpointing {training.checkpointing}", f"{training.method}, {training.precision}"]
        return [("layout", ", ".join(words))]
    if row.fit.images is not None:
        return [("layout", f"{layout.gpus} data-parallel, {row.fit.images} images of a GPU at once")]
    if row.fit.serving is not None:
        serving = row.fit.serving
        said = f"{_count(layout.tensor, 'GPU')} a replica, {_count(serving.concurrent, 'sequence')} at once"
        return [("layout", f"{said}, weights in {serving.precision}, cache in {serving.cache_precision}")]
    return []


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _explain_spot(row: Row, job: Job) -> list[tuple[str, str]]:
    spot = row.spot
    if spot is None:
        return []
    said = f"one interruption in {duration(spot.mtbf_hours)} on average, {spot.interruptions:.2g} expected"
    facts = [("spot", f"{said}: {spot.factor:.3f} times the time of the work")]
    if spot.interval_hours is not None:
        often = f"save every {duration(spot.interval_hours)} (Daly); one takes {duration(spot.checkpoint_hours)}"
        notice = row.offer.provider.spot_notice_seconds
        if notice is not None and spot.checkpoint_hours * 3600 > notice:
            often += f", longer than the {notice} s of notice"
        facts.append(("", often))
    elif not job.has_checkpoints:
        facts.append(("", "nothing is saved, so every interruption begins again"))
    return facts


def _origin(price: Price) -> str:
    native = "" if price.currency == "USD" else f" ({price.native:g} {price.currency})"
    kind = ", derived" if price.status != "stated" else ""
    return f"{price.usd:.4g} USD/h{native} of {price.as_of}, from {', '.join(price.source)}{kind}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _left_out(plan: Plan, output: Output, columns: int) -> list[str]:
    counts = summarise(plan.rejected)
    if not counts:
        return []
    said = ", ".join(f"{count} by {kind}" for kind, count in counts.items())
    lines = [f"left out: {said}"]
    if output.verbosity > 0:
        each = [f"{item.offer.name}: {item.kind}: {item.why}" for item in plan.rejected]
        return [*lines, *(line for text in each for line in wrap(text, columns, lead="  ", hanging=4))]
    for kind in counts:
        whys: dict[str, int] = {}
        for item in plan.rejected:
            if item.kind == kind:
                whys[item.why] = whys.get(item.why, 0) + 1
        often = sorted(whys.items(), key=lambda pair: (-pair[1], pair[0]))[:_REASONS_SHOWN]
        for why, count in often:
            lines += wrap(f"{kind}: {why} ({count})", columns, lead="  ", hanging=4)
    return [*lines, "`-v` names them all, and says of every row why it is what it is"]


def stale_prices(rows: tuple[Row, ...], today: datetime.date, days: float) -> list[Price]:
    """Return the prices that are older than so many days, oldest first, each once."""
    old = {row.price for row in rows if (today - read_day(row.price.as_of)).days > days}
    return sorted(old, key=lambda price: (price.as_of, price.usd))


def plan_document(plan: Plan, job: Job, *, top: int) -> dict[str, Any]:
    """Return a plan as plain data."""
    return {
        "task": job.task,
        "model": job.name or None,
        "winner": None if plan.winner is None else row_document(plan.winner),
        "rows": [row_document(row) for row in plan.rows[:top]],
        "rows_total": len(plan.rows),
        "pareto": [row_document(row) for row in plan.rows if row.is_first],
        "fallbacks": [row_document(row) for row in plan.fallbacks],
        "rejected": [
            {
                "provider": item.offer.instance.provider,
                "instance_type": item.offer.instance.type,
                "region": item.offer.instance.region,
                "kind": item.kind,
                "because": item.why,
            }
            for item in plan.rejected
        ],
    }


def row_document(row: Row) -> dict[str, Any]:
    """Return a row as plain data, every number with its unit in its name."""
    from provision.records import plain

    instance = row.offer.instance
    return {
        "provider": instance.provider,
        "instance_type": instance.type,
        "region": instance.region,
        "gpu": row.offer.gpu.id,
        "gpu_name": row.offer.gpu.name,
        "gpus": row.gpus,
        "gpu_share": instance.gpu_share,
        "nodes": row.nodes,
        "purchase": row.purchase,
        "price": {
            "usd_per_hour": row.price.usd,
            "native_per_hour": row.price.native,
            "currency": row.price.currency,
            "as_of": row.price.as_of,
            "source": list(row.price.source),
            "status": row.price.status,
        },
        "layout": {
            "tensor": row.fit.layout.tensor,
            "pipeline": row.fit.layout.pipeline,
            "data": row.fit.layout.data,
            "replicas_per_node": row.fit.replicas,
            "training": plain(row.fit.training),
            "serving": plain(row.fit.serving),
        },
        "memory": None
        if row.fit.memory is None
        else {**plain(row.fit.memory), "usable_gib": row.fit.usable_gib, "is_tight": row.fit.is_tight},
        "speed": plain(row.speed),
        "service": plain(row.service),
        "hours": {"low": row.hours[0], "median": row.hours[1], "high": row.hours[2]},
        "cost": plain(row.cost),
        "spot": plain(row.spot),
        "risk_interruptions": row.risk,
        "is_pareto": row.is_first,
        "assumed": list(row.assumed),
    }
