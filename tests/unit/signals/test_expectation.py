"""What no machine could be is refused where it was written, and no machine is blamed for it."""

from __future__ import annotations

import pytest

from provision.errors import UsageError
from provision.signals.expectation import Expectation, merge_expectation


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cuda", "banana"),
        ("driver", "abc"),
        ("nccl", "x"),
        ("nccl_ports", "abc"),
        ("nccl_ports", "51000-50000"),
        ("nccl_ports", "0-70000"),
        ("cluster_subnet", "nonsense"),
        ("compute_mode", "banana"),
        ("gpus", -1),
        ("gpus", "8"),
        ("is_ecc", "yes"),
        ("interfaces", "eth0"),
    ],
    ids=str,
)
def test_value_that_makes_no_sense_is_refused_by_its_name(name, value) -> None:
    with pytest.raises(UsageError, match=f"plan.toml: `{name}` must be"):
        merge_expectation(Expectation(), {name: value}, "plan.toml")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cuda", "12.8"),
        ("driver", "580.105.08"),
        ("nccl_ports", "50000-51000"),
        ("nccl_ports", "50000"),
        ("cluster_subnet", "10.20.0.0/24"),
        ("cluster_subnet", "fd00::/64"),
        ("compute_mode", "Default"),
        ("gpus", 0),
    ],
    ids=str,
)
def test_value_that_makes_sense_is_taken(name, value) -> None:
    assert getattr(merge_expectation(Expectation(), {name: value}, "plan.toml"), name) == value


def test_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError) as caught:
        merge_expectation(Expectation(), {"gpu_count": 8}, "plan.toml")
    assert "`gpu_count` is nothing that can be expected" in caught.value.message
