"""The bill: every line, and no line that nobody can price."""

from __future__ import annotations

import pytest

from provision.errors import UsageError
from provision.planner.catalogue import Price
from provision.planner.cost import Extras, MissingPriceError, add_up

STEADY = Price(usd=10.0, native=10.0, currency="USD", as_of="2026-07-20", source=("x",), status="stated")
SPOT = Price(usd=4.0, native=4.0, currency="USD", as_of="2026-07-20", source=("x",), status="stated")
HOURS = (80.0, 100.0, 150.0)


def bill(*pools, **extras):
    return add_up(tuple(pools), hours=HOURS, gpus=8, extras=Extras(**extras))


def test_hours_by_price_by_nodes():
    cost = bill(("on-demand", STEADY, 2, 1.0))
    assert (cost.low_usd, cost.usd, cost.high_usd) == (1600.0, 2000.0, 3000.0)
    assert cost.usd_per_gpu_hour == 2000 / 100 / 8


def test_interruptions_stretch_what_is_paid():
    assert bill(("spot", SPOT, 1, 1.25)).usd == 500.0


def test_a_mix_is_the_sum_of_its_pools():
    cost = bill(("spot", SPOT, 0.5, 1.1), ("on-demand", STEADY, 0.5, 1.1))
    assert cost.usd == pytest.approx(100 * 1.1 * (2 + 5))
    assert [item.name for item in cost.items] == ["spot", "on-demand"]


def test_a_peak_factor_multiplies_machines_alone():
    cost = bill(
        ("on-demand", STEADY, 1, 1.0), peak_factor=1.15, storage_gb=730.0, storage_usd_gb_month=0.1, egress_gb=0.0
    )
    assert cost.usd == pytest.approx(1150 + 730 * 0.1 * 100 / 730)


def test_storage_is_kept_as_long_as_the_slowest_pool():
    cost = bill(("spot", SPOT, 1, 2.0), storage_gb=730.0, storage_usd_gb_month=1.0)
    assert next(item.usd for item in cost.items if item.name == "storage") == pytest.approx(200.0)


def test_traffic_is_paid_once():
    cost = bill(("on-demand", STEADY, 1, 1.0), egress_gb=100.0, egress_usd_gb=0.09)
    assert cost.high_usd - cost.low_usd == pytest.approx(10 * 70)
    assert cost.usd == pytest.approx(1009)


@pytest.mark.parametrize("extras", [{"storage_gb": 1.0}, {"egress_gb": 1.0}])
def test_a_missing_price_is_never_nothing(extras):
    with pytest.raises(MissingPriceError, match="unknown"):
        bill(("on-demand", STEADY, 1, 1.0), **extras)


@pytest.mark.parametrize("extras", [{"storage_gb": -1.0}, {"egress_gb": -1.0}, {"peak_factor": 0.5}])
def test_sizes_that_are_none_are_refused(extras):
    with pytest.raises(UsageError):
        bill(("on-demand", STEADY, 1, 1.0), **extras)


def test_every_line_says_how_it_was_reckoned():
    cost = bill(("on-demand", STEADY, 2, 1.0), storage_gb=1.0, storage_usd_gb_month=0.02)
    assert all(item.how for item in cost.items)
    assert cost.usd == pytest.approx(sum(item.usd for item in cost.items))
