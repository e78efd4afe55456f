"""`tools/refresh_cloud.py`: recorded pages of our own making in, dated prices out, and what stops it."""

from __future__ import annotations

import datetime
import json
import shutil
import tomllib
from pathlib import Path

import pytest

from provision.assets import asset_dir
from provision.matrix.canonical import encode_toml
from provision.matrix.check import check
from tools import refresh_cloud
from tools.refresh_cloud import (
    Quote,
    RefusedError,
    fetch_azure,
    main,
    read_aws,
    read_azure,
    read_gcosts,
    read_gpuhunt,
    read_skypilot,
    update,
)

DAY = "2026-11-20"
TERMS = {"source": "azure-retail-prices", "where": "Retail Prices API", "as_of": DAY}


def azure_item(**changes):
    item = {
        "currencyCode": "USD",
        "retailPrice": 7.5,
        "armRegionName": "eastus",
        "armSkuName": "Standard_X",
        "skuName": "X",
        "productName": "Virtual Machines X Series",
        "serviceName": "Virtual Machines",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "effectiveStartDate": "2026-10-01T00:00:00Z",
    }
    return {**item, **changes}


def azure(*items):
    return [json.dumps({"Items": list(items), "NextPageLink": None})]


def test_azure_by_the_hour_spot_and_reserved():
    found = {
        (quote.field, quote.value, quote.as_of)
        for quote in read_azure(
            azure(
                azure_item(),
                azure_item(skuName="X Spot", retailPrice=2.5),
                azure_item(type="Reservation", reservationTerm="1 Year", retailPrice=8760 * 5),
                azure_item(type="Reservation", reservationTerm="3 Years", retailPrice=3 * 8760 * 3),
                azure_item(productName="Virtual Machines X Series Windows", retailPrice=1.0),
                azure_item(skuName="X Low Priority", retailPrice=1.0),
                azure_item(type="DevTestConsumption", retailPrice=1.0),
            )
        )
    }
    assert found == {
        ("on_demand", 7.5, "2026-10-01"),
        ("spot", 2.5, "2026-10-01"),
        ("reserved_1y", 5.0, "2026-10-01"),
        ("reserved_3y", 3.0, "2026-10-01"),
    }


def test_azure_by_another_unit_is_refused():
    with pytest.raises(RefusedError, match="not by the hour"):
        list(read_azure(azure(azure_item(unitOfMeasure="1 Month"))))


def test_azure_is_asked_page_by_page():
    pages = {
        1: json.dumps({"Items": [azure_item()], "NextPageLink": "https://prices.example/2"}),
        2: json.dumps({"Items": [azure_item(armRegionName="westus")], "NextPageLink": None}),
    }
    asked = []

    def open_url(address):
        asked.append(address)
        return pages[len(asked)]

    found = list(read_azure(fetch_azure(["Standard_X"], open_url)))
    assert [quote.region for quote in found] == ["eastus", "westus"]
    assert "armSkuName" in asked[0]
    assert asked[1] == "https://prices.example/2"


def aws_offer(**attributes):
    product = {
        "instanceType": "p9.large",
        "regionCode": "us-east-1",
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        **attributes,
    }

    def term(value, **of_term):
        return {
            "x": {"priceDimensions": {"y": {"unit": "Hrs", "pricePerUnit": {"USD": value}}}, "termAttributes": of_term}
        }

    plain = {"PurchaseOption": "No Upfront", "OfferingClass": "standard"}
    return json.dumps(
        {
            "publicationDate": "2026-11-01T00:00:00Z",
            "products": {"A": {"attributes": product}, "B": {"attributes": {**product, "operatingSystem": "Windows"}}},
            "terms": {
                "OnDemand": {"A": term("10.0"), "B": term("99.0")},
                "Reserved": {
                    "A": {
                        **term("6.0", LeaseContractLength="1yr", **plain),
                        "z": term("1.0", LeaseContractLength="1yr", PurchaseOption="All Upfront")["x"],
                    }
                },
            },
        }
    )


def test_aws_takes_linux_shared_and_nothing_up_front():
    found = {(quote.type, quote.field, quote.value, quote.as_of) for quote in read_aws([aws_offer()])}
    assert found == {
        ("p9.large", "on_demand", 10.0, "2026-11-01"),
        ("p9.large", "reserved_1y", 6.0, "2026-11-01"),
    }
    assert list(read_aws([aws_offer(tenancy="Dedicated")])) == []


def test_gcosts_by_hour_and_by_month():
    text = """
about: {generated: 2026-11-02}
compute:
  instance:
    a9-highgpu-1g:
      cost:
        us-central1: {hour: 3.0, hour_spot: 1.0, month_1y: 1460.0}
"""
    found = {(quote.field, quote.value, quote.as_of) for quote in read_gcosts([text])}
    assert found == {
        ("on_demand", 3.0, "2026-11-02"),
        ("spot", 1.0, "2026-11-02"),
        ("reserved_1y", 2.0, "2026-11-02"),
    }


def test_tables_of_other_catalogues():
    head = "InstanceType,AcceleratorName,Price,Region,SpotPrice"
    sky = f"{head}\ngpu_1x,H100,3.0,us-east-1,\ngpu_2x,H100,6.0,us-east-1,2.0\n"
    assert [(quote.type, quote.field) for quote in read_skypilot([sky], "lambda")] == [
        ("gpu_1x", "on_demand"),
        ("gpu_2x", "on_demand"),
        ("gpu_2x", "spot"),
    ]
    hunt = "instance_name,location,price,gpu_name,spot\nx,us,1.5,H100,False\nx,us,0.5,H100,True\n"
    assert [(quote.field, quote.value) for quote in read_gpuhunt([hunt], "runpod")] == [
        ("on_demand", 1.5),
        ("spot", 0.5),
    ]


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (read_azure, "["),
        (read_azure, "{}"),
        (read_azure, "[]"),
        (read_aws, "{}"),
        (read_gcosts, "[]"),
        (read_gcosts, ""),
        (lambda texts: read_skypilot(texts, "x"), "a,b\n1,2\n"),
        (lambda texts: read_gpuhunt(texts, "x"), ""),
        (lambda texts: read_gpuhunt(texts, "x"), "instance_name,location,price,spot\nx,us,free,False\n"),
        (lambda texts: read_gpuhunt(texts, "x"), "instance_name,location,price,spot\nx,us,nan,False\n"),
        (lambda texts: read_gpuhunt(texts, "x"), "instance_name,location,price,spot\nx,us,-1,False\n"),
    ],
)
def test_what_is_no_such_table_is_refused(read, text):
    with pytest.raises(RefusedError):
        list(read([text]))


def row(name="Standard_X", region="eastus", **own):
    usual = {"provider": "azure", "type": name, "region": region, "gpu": "t4", "currency": "USD", "on_demand": 8.0}
    return {**usual, "on_demand_date": datetime.date(2026, 6, 18), **own}


def quote(value=7.5, name="Standard_X", region="eastus", field="on_demand", **own):
    return Quote("azure", name, region, field, value, **own)


def test_a_price_gets_its_day_and_its_source():
    found = update([row()], [quote(as_of="2026-10-01"), quote(2.0, field="spot")], **TERMS)
    changed = found.rows[0]
    assert (changed["on_demand"], changed["on_demand_date"]) == (7.5, datetime.date(2026, 10, 1))
    assert (changed["spot"], changed["spot_date"]) == (2.0, datetime.date(2026, 11, 20))
    assert changed["evidence"]["spot"]["source"] == ["azure-retail-prices"]
    assert found.changed == (
        "azure Standard_X eastus: on_demand 8 → 7.5",
        "azure Standard_X eastus: spot - → 2",
    )


def test_the_cheapest_zone_counts_and_nothing_is_no_price():
    found = update([row()], [quote(7.5), quote(7.0), quote(0.0)], **TERMS)
    assert found.rows[0]["on_demand"] == 7.0


def test_machines_nobody_entered_are_told_and_not_added():
    found = update([row()], [quote(), quote(name="Standard_Y")], **TERMS)
    assert found.unknown == ("azure Standard_Y eastus",)
    assert len(found.rows) == 1


def test_a_known_machine_in_a_new_region_takes_its_gpu_along_and_no_old_price():
    before = row(spot=3.0, spot_date=datetime.date(2026, 1, 1), interruptions="<5%")
    found = update([before], [quote(), quote(9.0, region="westus")], **TERMS, new_regions=["westus"])
    fresh = next(item for item in found.rows if item["region"] == "westus")
    assert (fresh["gpu"], fresh["on_demand"]) == ("t4", 9.0)
    assert not {"spot", "spot_date", "interruptions"} & set(fresh)


@pytest.mark.parametrize(
    ("quotes", "said"),
    [
        ([], "none of the machines"),
        ([quote(name="other")], "none of the machines"),
        ([quote(800.0)], "would be 800"),
        ([quote(0.5)], "would be 0.5"),
        ([quote(currency="EUR")], "priced in EUR"),
    ],
)
def test_what_cannot_be_trusted_stops_it(quotes, said):
    with pytest.raises(RefusedError, match=said):
        update([row()], quotes, **TERMS)


def test_a_table_that_was_cut_off_stops_it():
    rows = [row(name=f"Standard_{number}") for number in range(5)]
    with pytest.raises(RefusedError, match="cut off"):
        update(rows, [quote(name="Standard_0")], **TERMS)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    copy = tmp_path / "compat"
    shutil.copytree(asset_dir("compat"), copy)
    return copy


def table_of_azure(data: Path, factor: float) -> str:
    rows = tomllib.loads((data / "cloud/instances.toml").read_text(encoding="utf-8"))["instance"]
    return json.dumps(
        {
            "Items": [
                azure_item(
                    armSkuName=item["type"], armRegionName=item["region"], retailPrice=item["on_demand"] * factor
                )
                for item in rows
                if item["provider"] == "azure"
            ]
        }
    )


def test_a_written_catalogue_keeps_every_rule(data, tmp_path, capsys):
    page = tmp_path / "page.json"
    page.write_text(table_of_azure(data, 1.1), encoding="utf-8")
    sources = data / "sources.toml"
    document = tomllib.loads(sources.read_text(encoding="utf-8"))
    known = {"id": "azure-retail-prices", "title": "Retail Prices API", "kind": "documentation"}
    document["source"].append({**known, "url": "https://prices.example/api", "retrieved": datetime.date(2026, 11, 20)})
    document["source"].sort(key=lambda item: item["id"])
    sources.write_text(encode_toml("sources.toml", document), encoding="utf-8")
    before = (data / "cloud/instances.toml").read_bytes()
    words = ["azure", str(page), "--data-dir", str(data), "--as-of", DAY]
    assert main(words) == 0
    assert (data / "cloud/instances.toml").read_bytes() == before
    assert main([*words, "--write"]) == 0
    assert (data / "cloud/instances.toml").read_bytes() != before
    # The old source of Azure's prices is still cited by the rows, so that nothing dangles.
    assert check(data) == ()
    assert "→" in capsys.readouterr().out


def test_a_refusal_writes_nothing(data, tmp_path, capsys):
    page = tmp_path / "page.json"
    page.write_text(table_of_azure(data, 100.0), encoding="utf-8")
    before = (data / "cloud/instances.toml").read_bytes()
    assert main(["azure", str(page), "--data-dir", str(data), "--write"]) == 1
    assert (data / "cloud/instances.toml").read_bytes() == before
    assert capsys.readouterr().err.startswith("error:")


@pytest.mark.parametrize(
    "words", [["aws"], ["skypilot", "x.csv"], ["gcosts", "/nowhere"], ["azure", "http://x.example"]]
)
def test_bad_calls_are_worded(words, data, capsys):
    assert main([*words, "--data-dir", str(data)]) == 1
    assert capsys.readouterr().err.startswith("error:")


def test_every_source_of_the_usage_is_there():
    assert all(name in (refresh_cloud.__doc__ or "") for name in refresh_cloud.SOURCES)
