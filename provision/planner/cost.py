"""What a job costs: machines by the hour, storage, traffic, and the share of each that interruptions add."""

from __future__ import annotations

from provision.errors import UsageError
from provision.planner.catalogue import Price
from provision.records import record


class MissingPriceError(Exception):
    """A price is needed and nobody states it; the text says which, and the flag that gives it."""


@record
class Extras:
    """What is paid beside the machines. Sizes in GB, prices in US dollars; ``None`` is unknown, not free.

    ``peak_factor`` multiplies machine hours, for capacity kept for peaks. ``storage_origin`` and ``egress_origin`` say
    of which day and from where a price is.
    """

    storage_gb: float = 0.0
    storage_usd_gb_month: float | None = None
    egress_gb: float = 0.0
    storage_origin: str = "as given"
    egress_usd_gb: float | None = None
    egress_origin: str = "as given"
    peak_factor: float = 1.0
    hours_per_month: float = 730.0


@record
class Item:
    """One line of a bill."""

    name: str
    usd: float
    how: str


@record
class Cost:
    """A bill in US dollars, and what it is for one hour of one GPU."""

    items: tuple[Item, ...]
    usd: float
    low_usd: float
    high_usd: float
    usd_per_gpu_hour: float


def add_up(
    pools: tuple[tuple[str, Price, float, float], ...],
    *,
    hours: tuple[float, float, float],
    gpus: int,
    extras: Extras,
) -> Cost:
    """Return the bill of one job.

    Args:
        pools: For each way to pay: its name, the price of a node, how many nodes, and by what interruptions stretch it.
        hours: Shortest, likely and longest duration of the work alone.
        gpus: GPUs of all nodes, for the price of one.
        extras: Storage, traffic, peaks.

    Raises:
        MissingPriceError: Something is wanted whose price nobody states.
        UsageError: A size below zero.
    """
    if min(extras.storage_gb, extras.egress_gb) < 0 or extras.peak_factor < 1:
        raise UsageError("storage and traffic are not below 0, and a peak factor is not below 1")
    longest = max((factor for *_, factor in pools), default=1.0)
    items, totals = [], [0.0, 0.0, 0.0]
    for name, price, nodes, factor in pools:
        spent = [price.usd * nodes * time * factor * extras.peak_factor for time in hours]
        peak = f" × {extras.peak_factor:g} peak" if extras.peak_factor != 1 else ""
        how = f"{nodes:g} × {hours[1]:.4g} h × {factor:.3g} × {price.usd:.4g} USD/h{peak}"
        items.append(Item(name=name, usd=spent[1], how=how))
        totals = [total + part for total, part in zip(totals, spent, strict=True)]
    machines = totals[1]
    if extras.storage_gb:
        if extras.storage_usd_gb_month is None:
            raise MissingPriceError("the price of storage is unknown here; `--storage-price` gives it")
        months = [time * longest / extras.hours_per_month for time in hours]
        spent = [extras.storage_gb * extras.storage_usd_gb_month * month for month in months]
        how = f"{extras.storage_gb:g} GB × {months[1]:.3g} months × {extras.storage_usd_gb_month:g} USD"
        how += f", {extras.storage_origin}"
        items.append(Item(name="storage", usd=spent[1], how=how))
        totals = [total + part for total, part in zip(totals, spent, strict=True)]
    if extras.egress_gb:
        if extras.egress_usd_gb is None:
            raise MissingPriceError("the price of outgoing traffic is unknown here; `--egress-price` gives it")
        flat = extras.egress_gb * extras.egress_usd_gb
        how = f"{extras.egress_gb:g} GB × {extras.egress_usd_gb:g} USD, {extras.egress_origin}"
        items.append(Item(name="egress", usd=flat, how=how))
        totals = [total + flat for total in totals]
    spread = hours[1] * gpus
    return Cost(
        items=tuple(items),
        usd=totals[1],
        low_usd=totals[0],
        high_usd=totals[2],
        usd_per_gpu_hour=machines / spread if spread else 0.0,
    )
