"""Every fact names where it was read, and every publication can be found again or says why not."""

from __future__ import annotations

import pytest

from provision.assets import asset_dir
from provision.matrix.check import Finding, check
from provision.matrix.load import Matrix
from provision.matrix.model import Source


@pytest.fixture(scope="module")
def findings() -> tuple[Finding, ...]:
    return check(asset_dir("compat"))


@pytest.mark.parametrize("rule", ["D003", "D004", "D010", "D014"])
def test_shipped_sources_obey(rule: str, findings: tuple[Finding, ...]) -> None:
    assert [finding for finding in findings if finding.rule == rule] == []


def is_findable(source: Source) -> bool:
    """An index or a wheel is found by its name; anything else needs an address or an admission that there is none."""
    return source.url is not None or source.kind in ("index", "binary") or "recorded" in (source.note or "")


def test_a_source_without_an_address_admits_it() -> None:
    lacking = [source.id for source in Matrix().sources.values() if not is_findable(source) and source.edition is None]
    assert lacking == []


def test_low_authority_is_never_high_confidence() -> None:
    """A third-party article with no recorded address cannot carry a fact of high confidence alone."""
    matrix = Matrix()
    weak = {source.id for source in matrix.sources.values() if "third party" in (source.note or "")}
    rows = (*matrix.cuda, *matrix.driver_branches, *matrix.gpus, *matrix.cudnn, *matrix.container_toolkits)
    assert weak
    assert [row for row in rows if set(row.source) <= weak and row.confidence == "high"] == []
