"""Bring the prices of ``compat/cloud/instances.toml`` up to date from what providers and catalogues publish.

usage: python -m tools.refresh_cloud SOURCE [FILE …] [--as-of DAY] [--new-regions REGION,…] [--write]

SOURCE is one of

  azure     pages of the Azure Retail Prices API (asked for without an account where no FILE is named)
  aws       offer files of the AWS Price List, one a region
  gcosts    pricing.yml of gcosts, for Google Cloud
  skypilot  vms.csv of a provider in the SkyPilot catalogue; --provider says whose
  gpuhunt   a CSV of the gpuhunt catalogue; --provider says whose

Machines that the catalogue has get their new prices with the day they were valid on; the machine itself, which GPU and
how many, stays what people entered. Without --write the differences are only told. A price of nothing, a table with
fewer known machines than before or a price that is many times the old one stops the run: it is looked at first.

A table whose licence does not let its rows be passed on is not committed: `provision --data-dir` reads a copy of
compat/ that it was written to.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import sys
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.matrix.canonical import encode_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
INSTANCES = "cloud/instances.toml"
AZURE = "https://prices.azure.com/api/retail/prices"
_SECONDS = 60
_PAGES_MAX = 500
_BYTES_MAX = 512 * 1024 * 1024
_JUMP = 5.0
_FIELDS = ("on_demand", "spot", "reserved_1y", "reserved_3y")
_DATE_OF = {
    "on_demand": "on_demand_date",
    "spot": "spot_date",
    "reserved_1y": "reserved_date",
    "reserved_3y": "reserved_date",
}
_HOURS_PER_MONTH = 730.0
_HOURS_PER_YEAR = 8760.0


class RefusedError(Exception):
    """What was read cannot be trusted, or is no such table."""


@dataclass(frozen=True, slots=True)
class Quote:
    """One price of one machine, an hour, in its currency."""

    provider: str
    type: str
    region: str
    field: str
    value: float
    currency: str = "USD"
    as_of: str | None = None


def read_azure(texts: Iterable[str]) -> Iterator[Quote]:
    """Read pages of the Retail Prices API; prices of Windows and of low priority are passed by.

    Source: Microsoft Learn, Azure Retail Prices overview. A reservation is priced for its whole term.
    """
    for text in texts:
        page = _json(text)
        if not isinstance(page.get("Items"), list):
            raise RefusedError("a page of the Retail Prices API has `Items`")
        for item in page["Items"]:
            name, region = item.get("armSkuName"), item.get("armRegionName")
            if not name or not region or "Windows" in item.get("productName", ""):
                continue
            sku = item.get("skuName", "")
            if "Low Priority" in sku or item.get("serviceName", "Virtual Machines") != "Virtual Machines":
                continue
            day = str(item.get("effectiveStartDate", ""))[:10] or None
            value, field = _number(item.get("retailPrice")), "on_demand"
            if item.get("type") == "Reservation":
                years = {"1 Year": 1, "3 Years": 3}.get(item.get("reservationTerm", ""))
                if years is None:
                    continue
                value, field = value / (years * _HOURS_PER_YEAR), f"reserved_{years}y"
            elif item.get("type") != "Consumption":
                continue
            elif item.get("unitOfMeasure") != "1 Hour":
                raise RefusedError(f"{name} is priced by {item.get('unitOfMeasure')}, not by the hour")
            elif "Spot" in sku:
                field = "spot"
            yield Quote("azure", name, region, field, value, item.get("currencyCode", "USD"), day)


def read_aws(texts: Iterable[str]) -> Iterator[Quote]:
    """Read offer files of the Price List: Linux, shared, nothing installed; reservations without anything up front."""
    for text in texts:
        offer = _json(text)
        products, terms = offer.get("products"), offer.get("terms", {})
        if not isinstance(products, dict):
            raise RefusedError("an offer file of the Price List has `products`")
        day = str(offer.get("publicationDate", ""))[:10] or None
        wanted = {
            sku: product["attributes"]
            for sku, product in products.items()
            if product.get("attributes", {}).get("operatingSystem") == "Linux"
            and product["attributes"].get("tenancy") == "Shared"
            and product["attributes"].get("preInstalledSw", "NA") == "NA"
            and product["attributes"].get("capacitystatus", "Used") == "Used"
        }
        for kind, of_kind in terms.items():
            for sku, offers in of_kind.items():
                if sku not in wanted:
                    continue
                for term in offers.values():
                    field = _aws_field(kind, term.get("termAttributes", {}))
                    if field is None:
                        continue
                    for dimension in term.get("priceDimensions", {}).values():
                        if dimension.get("unit") not in ("Hrs", "Hours"):
                            continue
                        for currency, value in dimension.get("pricePerUnit", {}).items():
                            name, region = wanted[sku].get("instanceType"), wanted[sku].get("regionCode")
                            if name and region:
                                yield Quote("aws", name, region, field, _number(value), currency, day)


def _aws_field(kind: str, attributes: dict[str, str]) -> str | None:
    if kind == "OnDemand":
        return "on_demand"
    years = {"1yr": "1y", "3yr": "3y"}.get(attributes.get("LeaseContractLength", ""))
    is_plain = attributes.get("PurchaseOption") == "No Upfront"
    is_standard = attributes.get("OfferingClass", "standard") == "standard"
    return f"reserved_{years}" if kind == "Reserved" and years and is_plain and is_standard else None


def read_gcosts(texts: Iterable[str]) -> Iterator[Quote]:
    """Read pricing.yml: machines by region, by the hour, or committed by the month."""
    import yaml

    for text in texts:
        document = yaml.safe_load(text)
        machines = (document or {}).get("compute", {}).get("instance") if isinstance(document, dict) else None
        if not isinstance(machines, dict):
            raise RefusedError("pricing.yml has `compute: instance:`")
        day = str((document.get("about") or {}).get("generated", ""))[:10] or None
        for name, machine in machines.items():
            for region, cost in (machine.get("cost") or {}).items():
                for key, field, hours in (
                    ("hour", "on_demand", 1.0),
                    ("hour_spot", "spot", 1.0),
                    ("hour_1y", "reserved_1y", 1.0),
                    ("hour_3y", "reserved_3y", 1.0),
                    ("month_1y", "reserved_1y", _HOURS_PER_MONTH),
                    ("month_3y", "reserved_3y", _HOURS_PER_MONTH),
                ):
                    if cost.get(key):
                        yield Quote("gcp", name, region, field, _number(cost[key]) / hours, "USD", day)


def read_skypilot(texts: Iterable[str], provider: str) -> Iterator[Quote]:
    """Read vms.csv of one provider; where a region has several zones the cheapest counts."""
    for text in texts:
        rows = _rows(text, ("InstanceType", "Region", "Price"))
        for row in rows:
            for column, field in (("Price", "on_demand"), ("SpotPrice", "spot")):
                if row.get(column) and row["Region"]:
                    yield Quote(provider, row["InstanceType"], row["Region"], field, _number(row[column]))


def read_gpuhunt(texts: Iterable[str], provider: str) -> Iterator[Quote]:
    """Read a table of the gpuhunt catalogue."""
    for text in texts:
        for row in _rows(text, ("instance_name", "location", "price", "spot")):
            field = "spot" if row["spot"].strip().lower() == "true" else "on_demand"
            yield Quote(provider, row["instance_name"], row["location"], field, _number(row["price"]))


def _rows(text: str, columns: tuple[str, ...]) -> list[dict[str, str]]:
    reader = csv.DictReader(text.splitlines())
    missing = [column for column in columns if column not in (reader.fieldnames or ())]
    if missing:
        raise RefusedError(f"the table lacks the column {', '.join(missing)}")
    return list(reader)


def _json(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise RefusedError(f"no JSON: {error}") from error
    if not isinstance(document, dict):
        raise RefusedError("no JSON object")
    return document


def _number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise RefusedError(f"`{value}` is not a price") from error
    if not 0 <= number < float("inf"):
        raise RefusedError(f"`{value}` is not a price")
    return number


@dataclass(frozen=True, slots=True)
class Update:
    """What a table changes.

    Attributes:
        rows: All rows of the catalogue, changed and unchanged, in its order.
        changed: Lines for people, one a changed price.
        unknown: Machines of the table that the catalogue does not have, with their regions.
    """

    rows: list[dict[str, Any]]
    changed: tuple[str, ...]
    unknown: tuple[str, ...]


def update(
    rows: Sequence[dict[str, Any]],
    quotes: Iterable[Quote],
    *,
    source: str,
    where: str,
    as_of: str,
    new_regions: Iterable[str] = (),
) -> Update:
    """Return the catalogue with new prices.

    Args:
        rows: The catalogue, as TOML tables.
        quotes: What was read.
        source: Id of the publication in ``sources.toml``.
        where: Place in it.
        as_of: Day that prices without one of their own were valid on.
        new_regions: Regions to add machines of the catalogue in.

    Raises:
        RefusedError: Nothing is known of the table, a price is many times the old one, or machines are gone.
    """
    cheapest: dict[tuple[str, str, str], dict[str, Quote]] = {}
    for quote in quotes:
        # Nothing is not a price; zones of one region are one region here.
        if quote.value > 0:
            fields = cheapest.setdefault((quote.provider, quote.type, quote.region), {})
            if quote.field not in fields or quote.value < fields[quote.field].value:
                fields[quote.field] = quote
    known = {(row["provider"], row["type"], row["region"]): row for row in rows}
    models = {(row["provider"], row["type"]): row for row in rows}
    wanted = set(new_regions)
    fresh: dict[tuple[str, str, str], dict[str, Any]] = {}
    changed: list[str] = []
    problems: list[str] = []
    unknown: set[str] = set()
    touched = 0
    for key, fields in sorted(cheapest.items()):
        row = known.get(key)
        if row is None:
            model = models.get(key[:2])
            if model is None or key[2] not in wanted:
                unknown.add(" ".join(key))
                continue
            row = _in_region(model, key[2])
            changed.append(f"{' '.join(key)}: new region")
        touched += 1
        fresh[key] = _priced(row, fields, source, where, as_of, changed, problems)
    if not touched:
        raise RefusedError("the table prices none of the machines of the catalogue")
    covered = {(provider, region) for provider, _, region in cheapest}
    gone = [
        key for key, row in known.items() if (key[0], key[2]) in covered and key not in cheapest and _has_price(row)
    ]
    if len(gone) > touched:
        problems.append(f"{len(gone)} machines of the catalogue are not in it, and {touched} are: is it cut off?")
    if problems:
        raise RefusedError("; ".join(problems[:5]))
    merged = {**known, **fresh}
    return Update(rows=[merged[key] for key in sorted(merged)], changed=tuple(changed), unknown=tuple(sorted(unknown)))


def _has_price(row: dict[str, Any]) -> bool:
    return any(row.get(field) is not None for field in _FIELDS)


def _in_region(model: dict[str, Any], region: str) -> dict[str, Any]:
    without = {*_FIELDS, *_DATE_OF.values(), "interruptions"}
    row = {key: value for key, value in model.items() if key not in without}
    row["evidence"] = {key: value for key, value in model.get("evidence", {}).items() if key not in without}
    return {**row, "region": region}


def _priced(
    row: dict[str, Any],
    fields: dict[str, Quote],
    source: str,
    where: str,
    as_of: str,
    changed: list[str],
    problems: list[str],
) -> dict[str, Any]:
    found = dict(row)
    evidence = dict(row.get("evidence", {}))
    name = f"{row['provider']} {row['type']} {fields[next(iter(fields))].region}"
    for field, quote in fields.items():
        if quote.currency != row["currency"]:
            problems.append(f"{name} is priced in {quote.currency}, and the catalogue keeps {row['currency']}")
            continue
        old = row.get(field)
        value = round(quote.value, 6)
        if old and not old / _JUMP <= value <= old * _JUMP:
            problems.append(f"{name}: {field} was {old:g} and would be {value:g}")
        if old != value:
            changed.append(f"{name}: {field} {'-' if old is None else f'{old:g}'} → {value:g}")
        found[field] = value
        found[_DATE_OF[field]] = datetime.date.fromisoformat(quote.as_of or as_of)
        evidence[field] = {"source": [source], "where": where, "status": "stated", "confidence": "high"}
    found["evidence"] = evidence
    return found


SOURCES: dict[str, tuple[str, str]] = {
    "azure": ("azure-retail-prices", "Retail Prices API"),
    "aws": ("aws-price-list", "offer file of AmazonEC2"),
    "gcosts": ("gcosts", "pricing.yml"),
    "skypilot": ("skypilot-catalog", "vms.csv"),
    "gpuhunt": ("gpuhunt-catalog", "catalogue"),
}
"""Source → its id in ``sources.toml`` and the place in it."""


def fetch_azure(types: Iterable[str], open_url: Callable[[str], str]) -> Iterator[str]:
    """Ask the API for some machines, page by page."""
    for name in sorted(types):
        query = urllib.parse.urlencode({"$filter": f"serviceName eq 'Virtual Machines' and armSkuName eq '{name}'"})
        address: str | None = f"{AZURE}?{query}"
        for _ in range(_PAGES_MAX):
            if not address:
                break
            text = open_url(address)
            yield text
            address = _json(text).get("NextPageLink")


def _open(address: str) -> str:
    if not address.startswith("https://"):
        raise RefusedError(f"{address} is not https")
    try:
        with urllib.request.urlopen(address, timeout=_SECONDS) as answer:
            return str(answer.read(_BYTES_MAX).decode("utf-8"))
    except (OSError, urllib.error.URLError, UnicodeDecodeError) as error:
        raise RefusedError(f"{address} cannot be read: {error}") from error


def _read(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError(f"{name} cannot be read: {error}") from error


def _quotes(options: argparse.Namespace, rows: Sequence[dict[str, Any]]) -> Iterator[Quote]:
    texts: Iterable[str] = (_open(name) if name.startswith("https://") else _read(name) for name in options.file)
    if options.source == "azure":
        types = {row["type"] for row in rows if row["provider"] == "azure"}
        return read_azure(texts if options.file else fetch_azure(types, _open))
    if not options.file:
        raise RefusedError("name the files to read, or their https addresses")
    if options.source == "aws":
        return read_aws(texts)
    if options.source == "gcosts":
        return read_gcosts(texts)
    if options.provider is None:
        raise RefusedError("--provider says whose table it is")
    return (read_skypilot if options.source == "skypilot" else read_gpuhunt)(texts, options.provider)


def main(words: Sequence[str]) -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(prog="refresh_cloud", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("source", choices=sorted(SOURCES))
    parser.add_argument("file", nargs="*")
    parser.add_argument("--provider")
    parser.add_argument("--as-of", default=datetime.datetime.now(tz=datetime.UTC).date().isoformat())
    parser.add_argument("--new-regions", default="")
    parser.add_argument("--data-dir", type=Path, default=ROOT / "compat")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(words)
    path = options.data_dir / INSTANCES
    try:
        datetime.date.fromisoformat(options.as_of)
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        source, where = SOURCES[options.source]
        found = update(
            document["instance"],
            _quotes(options, document["instance"]),
            source=source,
            where=where,
            as_of=options.as_of,
            new_regions=[name for name in options.new_regions.split(",") if name],
        )
    except (RefusedError, OSError, ValueError, KeyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for line in found.changed:
        print(line)
    print(
        f"{len(found.changed)} changes, {len(found.unknown)} machines that the catalogue does not have", file=sys.stderr
    )
    if options.write and found.changed:
        document["instance"] = found.rows
        document["dated"] = max(document["dated"], datetime.date.fromisoformat(options.as_of))
        draft = path.with_suffix(f".{os.getpid()}.tmp")
        draft.write_text(encode_toml(INSTANCES, document), encoding="utf-8")
        draft.replace(path)
        print(f"wrote {path}; name the source in sources.toml, then run `provision data check`", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
