"""Which instances there are, what they cost, and how old that knowledge is."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from provision.errors import DataError, UsageError
from provision.matrix.load import Matrix
from provision.matrix.model import CloudInstance, CloudProvider, Gpu
from provision.matrix.query import find_gpus
from provision.records import record

PURCHASES = ("on-demand", "spot", "reserved-1y", "reserved-3y")
"""Ways to pay for the same machine."""

_FIELDS = {
    "on-demand": ("on_demand", "on_demand_date"),
    "spot": ("spot", "spot_date"),
    "reserved-1y": ("reserved_1y", "reserved_date"),
    "reserved-3y": ("reserved_3y", "reserved_date"),
}


@record
class Price:
    """What one instance costs an hour.

    Attributes:
        usd: In US dollars.
        native: In the currency its publisher states it in.
        as_of: The day, month or year it was valid on, as far as that is known.
        source: Ids of publications. ``status`` is ``stated`` or ``derived``.
    """

    usd: float
    native: float
    currency: str
    as_of: str
    source: tuple[str, ...]
    status: str


@record
class Offer:
    """One instance type in one region, with the GPU it has and who rents it out."""

    instance: CloudInstance
    provider: CloudProvider
    gpu: Gpu

    @property
    def name(self) -> str:
        """``aws p4d.24xlarge us-east-1``."""
        return f"{self.instance.provider} {self.instance.type} {self.instance.region}"


def find_provider(matrix: Matrix, name: str) -> CloudProvider:
    """Return a provider by its id, name or alias.

    Raises:
        UsageError: There is none of that name.
    """
    rows: tuple[CloudProvider, ...] = matrix.rows("cloud/providers.toml", "provider")
    names = {spelling.lower(): row for row in rows for spelling in (row.id, row.name, *row.aliases)}
    found = names.get(name.strip().lower())
    if found is None:
        near = get_close_matches(name.strip().lower(), sorted(names), n=1)
        raise UsageError(
            f"`{name[:60]}` is not a provider the catalogue knows",
            hints=(
                *((f"did you mean `{names[near[0]].id}`?",) if near else ()),
                f"choose of {', '.join(row.id for row in rows)}",
            ),
        )
    return found


def list_offers(
    matrix: Matrix, *, providers: Iterable[str] = (), regions: Iterable[str] = (), gpus: Iterable[str] = ()
) -> tuple[Offer, ...]:
    """Return the instances of some providers, regions and GPUs; of all where none are named.

    Raises:
        UsageError: A name is unknown, or a region is none of the providers'.
        DataError: The catalogue names a GPU or provider that is not there.
    """
    wanted = {find_provider(matrix, name).id for name in providers}
    rows: tuple[CloudInstance, ...] = matrix.rows("cloud/instances.toml", "instance")
    rows = tuple(row for row in rows if not wanted or row.provider in wanted)
    for region in regions:
        known = sorted({row.region for row in rows})
        if region not in known:
            near = get_close_matches(region, known, n=3, cutoff=0.5)
            raise UsageError(
                f"the catalogue has no region `{region[:60]}`{' of these providers' if wanted else ''}",
                because=("it holds a few regions of each provider, not all there are",),
                hints=((f"near are {', '.join(near)}",) if near else (f"known are {', '.join(known)}",)),
            )
    regions = set(regions)
    ids = {gpu.id for name in gpus for gpu in find_gpus(matrix, name)}
    by_id = {gpu.id: gpu for gpu in matrix.gpus}
    named = {row.id: row for row in matrix.rows("cloud/providers.toml", "provider")}
    offers = []
    for row in rows:
        if (regions and row.region not in regions) or (ids and row.gpu not in ids):
            continue
        if row.gpu not in by_id or row.provider not in named:
            raise DataError(
                f"cloud/instances.toml: {row.provider} {row.type} names a GPU or provider that the facts lack",
                hints=("run `provision data check` for every fault of the data at once",),
            )
        offers.append(Offer(instance=row, provider=named[row.provider], gpu=by_id[row.gpu]))
    return tuple(offers)


def read_rates(matrix: Matrix, given: Mapping[str, float]) -> dict[str, float]:
    """Return currency → US dollars for one unit of it: what was given, else what the facts say."""
    rates = {"USD": 1.0}
    for row in matrix.rows("planning.toml", "limit"):
        if row.id.startswith("usd_per_"):
            rates[row.id.removeprefix("usd_per_").upper()] = row.value
    return {**rates, **given}


def price_of(instance: CloudInstance, purchase: str, rates: Mapping[str, float]) -> Price | None:
    """Return what an instance costs an hour, or ``None`` where nobody says so: a missing price is never nothing.

    Args:
        instance: The row.
        purchase: One of :data:`PURCHASES`.
        rates: As :func:`read_rates` returns them; a currency without a rate has no price in dollars.
    """
    field, date = _FIELDS[purchase]
    value, as_of = getattr(instance, field), getattr(instance, date)
    rate = rates.get(instance.currency)
    if value is None or not value > 0 or as_of is None or rate is None:
        return None
    origin = instance.evidence.get(field, instance)
    return Price(
        usd=value * rate,
        native=value,
        currency=instance.currency,
        as_of=as_of,
        source=tuple(origin.source),
        status=origin.status,
    )


def read_day(text: str) -> datetime.date:
    """Return the first day that a date may mean: ``2025-11`` is its first.

    Raises:
        DataError: It is not a date.
    """
    parts = [*text[:10].split("-"), "1", "1"][:3]
    try:
        return datetime.date(*(int(part) for part in parts))
    except (ValueError, TypeError) as error:
        raise DataError(f"`{text}` is not a date of a price") from error
