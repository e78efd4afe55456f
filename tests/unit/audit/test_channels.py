"""PyTorch among the packages of conda."""

from __future__ import annotations

import pytest

from provision.audit.channels import conda_pytorch, is_from_channel, release_of, wish_of
from provision.audit.documents import parse_document
from provision.audit.model import Environment, Options, Source


def read(channels: str, package: str = "pytorch=2.1.0") -> Environment:
    text = f"name: x\nchannels: [{channels}]\ndependencies: ['{package}']\n"
    return parse_document(Source("environment.yml", text), {}.get, Options()).environments[0]


@pytest.mark.parametrize(
    ("channels", "alone", "first"),
    [
        ("pytorch, nvidia", True, True),
        ("https://mirror.example/pytorch/, defaults", True, True),
        ("pytorch, conda-forge", False, True),
        ("conda-forge, pytorch", False, False),
        ("conda-forge", False, False),
    ],
)
def test_the_channel_counts_by_what_is_asked_before_it(channels: str, alone: object, first: object) -> None:
    (install,) = read(channels).installs
    assert is_from_channel(install) is alone
    assert is_from_channel(install, is_alone=False) is first


@pytest.mark.parametrize(
    ("package", "wish", "release"),
    [
        ("pytorch=2.1.0", "2.1.0", "2.1.0"),
        ("pytorch==2.1.0", "2.1.0", "2.1.0"),
        ("pytorch=2.1", "2.1", None),
        ("pytorch>=2.1", None, None),
        ("pytorch", None, None),
    ],
)
def test_a_release_has_three_numbers(package: str, wish: str | None, release: str | None) -> None:
    ((_, requirement),) = conda_pytorch(read("pytorch", package))
    assert (wish_of(requirement), release_of(requirement)) == (wish, release)
