"""The catalogue: who is known, what is offered, and that a missing price is never nothing."""

from __future__ import annotations

import datetime

import pytest

from provision.errors import DataError, UsageError
from provision.matrix.load import Matrix
from provision.planner.catalogue import find_provider, list_offers, price_of, read_day, read_rates
from provision.records import replace

MATRIX = Matrix()
RATES = read_rates(MATRIX, {})


def instance(provider: str, name: str, region: str):
    return next(
        offer.instance
        for offer in list_offers(MATRIX, providers=[provider], regions=[region])
        if offer.instance.type == name
    )


def test_p4d_costs_what_is_published():
    """One of the five source articles says 3.696, which is a price of no such machine."""
    price = price_of(instance("aws", "p4d.24xlarge", "us-east-1"), "on-demand", RATES)
    assert (price.usd, price.as_of) == (21.957642, "2026-07-20")
    assert price.source == ("karpenter-aws-prices",)


def test_gn10xp_has_80_vcpus_and_no_price():
    row = instance("tencent", "GN10Xp.20XLARGE320", "ap-guangzhou")
    assert (row.vcpu, row.gpu, row.gpu_count) == (80, "v100-sxm2-32gb", 8)
    assert price_of(row, "on-demand", RATES) is None


@pytest.mark.parametrize("purchase", ["spot", "reserved-1y", "reserved-3y"])
def test_a_price_nobody_states_is_none(purchase):
    assert price_of(instance("azure", "Standard_ND96isr_H100_v5", "eastus"), purchase, RATES) is None


def test_a_price_of_nothing_is_none():
    row = replace(instance("aws", "p4d.24xlarge", "us-east-1"), on_demand=0.0)
    assert price_of(row, "on-demand", RATES) is None


def test_another_currency_is_reckoned_and_kept():
    row = next(offer.instance for offer in list_offers(MATRIX, providers=["aliyun"]))
    price = price_of(row, "on-demand", read_rates(MATRIX, {"CNY": 0.2}))
    assert price.currency == "CNY"
    assert price.usd == pytest.approx(price.native * 0.2)
    assert price_of(row, "on-demand", {"USD": 1.0}) is None


def test_a_derived_spot_price_says_so():
    price = price_of(instance("aws", "p4d.24xlarge", "us-east-1"), "spot", RATES)
    assert (price.status, price.as_of) == ("derived", "2025-06-28")
    assert "spotinfo" in price.source


@pytest.mark.parametrize(("name", "id_"), [("AWS", "aws"), ("alibaba", "aliyun"), ("Google Cloud", "gcp")])
def test_providers_by_any_of_their_names(name, id_):
    assert find_provider(MATRIX, name).id == id_


def test_an_unknown_provider_names_those_that_are_known():
    with pytest.raises(UsageError, match="not a provider") as caught:
        find_provider(MATRIX, "lambd")
    assert caught.value.hints[0] == "did you mean `lambda`?"


def test_an_unknown_region_is_no_empty_list():
    with pytest.raises(UsageError, match="no region"):
        list_offers(MATRIX, providers=["aws"], regions=["us-east-7"])


def test_a_region_of_another_provider_is_refused():
    with pytest.raises(UsageError, match="no region"):
        list_offers(MATRIX, providers=["aws"], regions=["us-central1"])


def test_offers_of_one_gpu():
    offers = list_offers(MATRIX, gpus=["h200"])
    assert {offer.gpu.id for offer in offers} <= {"h200-sxm", "h200-nvl"}
    assert offers


def test_every_provider_of_the_plan_is_there():
    assert {offer.instance.provider for offer in list_offers(MATRIX)} == {
        "aliyun",
        "aws",
        "azure",
        "gcp",
        "lambda",
        "runpod",
        "tencent",
    }


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("2026-07-20", datetime.date(2026, 7, 20)),
        ("2025-11", datetime.date(2025, 11, 1)),
        ("2024", datetime.date(2024, 1, 1)),
    ],
)
def test_a_date_that_is_not_whole_is_its_first_day(text, day):
    assert read_day(text) == day


def test_a_date_that_is_none_is_a_fault_of_the_facts():
    with pytest.raises(DataError):
        read_day("last year")
