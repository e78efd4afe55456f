"""The live index against the facts: what was read once reads the same today.

Nothing is downloaded but pages and parts of wheels. Skipped, with the reason, where the index does not answer.
"""

from __future__ import annotations

import datetime

import pytest

from provision.assets import asset_dir
from provision.errors import DataError, MissingDependencyError
from provision.index.address import find_index
from provision.refresh.client import Client
from provision.refresh.engine import Plan, Refresh
from provision.refresh.land import check_result

pytestmark = pytest.mark.network

COMPANIONS = ("auto-gptq", "gptqmodel", "torchcodec", "triton")
"""What their wheels hold is read piece by piece: of all 24 that takes minutes, and is left to a refresh."""


@pytest.fixture(autouse=True)
def _fewer(monkeypatch):
    read = Refresh._companion
    monkeypatch.setattr(
        Refresh, "_companion", lambda self, shelf, name: read(self, shelf, name) if name in COMPANIONS else None
    )


@pytest.mark.parametrize("axis", ["torch", "tensorflow", "jax", "companions"])
def test_known_rows_read_the_same_and_new_ones_keep_the_rules(axis, tmp_path):
    try:
        index = find_index()
    except MissingDependencyError as error:
        pytest.skip(error.message)
    folder = asset_dir("compat")
    client = Client(cache=tmp_path, ca_bundle=index.ca_bundle)
    plan = Plan(axes=(axis,), index=index, dated=datetime.datetime.now(datetime.UTC).date(), cache=tmp_path)
    try:
        outcome = Refresh(folder, plan, client).run()
    except MissingDependencyError as error:
        pytest.skip(f"the package index does not answer: {error.because[:1]}")
    except DataError as error:
        # A file may be withdrawn any day; bytes and meanings that change are faults of the facts or of this code.
        serious = [item for item in error.details["alarms"] if item["kind"] in ("hash", "meaning", "unseen")]
        assert serious == []
        pytest.skip(f"upstream withdrew something: {error.because[:2]}")
    finally:
        client.close()
    check_result(folder, outcome.texts)
