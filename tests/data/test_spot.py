"""What is said of spot notices fits what is said of providers, what code reads, and what the role is given."""

from __future__ import annotations

import json

import pytest

from provision.assets import asset_dir
from provision.generate.spot import SpotOptions, notices_of, providers_with_notices, render_notices, render_settings
from provision.matrix.load import Matrix
from provision.matrix.model import SpotNotice

MATRIX = Matrix()
PROVIDERS = {row.id: row for row in MATRIX.rows("cloud/providers.toml", "provider")}
each_row = pytest.mark.parametrize("row", MATRIX.spot_notices, ids=lambda row: row.id)


@each_row
def test_notice_is_of_a_known_provider_and_says_the_same_of_its_warning(row: SpotNotice) -> None:
    provider = PROVIDERS[row.provider]
    if row.kind == "interruption" and provider.spot_notice_seconds is not None:
        assert row.warning_seconds == provider.spot_notice_seconds


@each_row
def test_what_a_form_needs_is_there(row: SpotNotice) -> None:
    assert (row.form == "events") == (row.name_path is not None)
    assert (row.form == "moment") == (row.utc_offset_hours is not None)
    assert (row.form == "advice") == (row.kind == "advice")
    # Without a time in the answer the warning is all that is known of the end.
    assert row.form != "flag" or row.warning_seconds is not None
    if row.wait_query is not None:
        assert "{seconds}" in row.wait_query
        assert "{etag}" in row.wait_query


@pytest.mark.parametrize("provider", providers_with_notices(MATRIX))
def test_every_provider_has_one_interruption_that_comes_first(provider: str) -> None:
    kinds = [row.kind for row in notices_of(MATRIX, provider)]
    assert kinds[0] == "interruption"
    assert kinds.count("interruption") == 1


def test_role_is_given_what_the_facts_say() -> None:
    path = asset_dir("playbooks") / "roles" / "gpu_spot" / "files" / "notices.json"
    assert path.read_text(encoding="utf-8") == render_notices(MATRIX), "run `make docs`"


def test_moved_fact_moves_what_is_written() -> None:
    settings = json.loads(render_settings(MATRIX, SpotOptions(provider="gcp", drain=("true",))))
    assert settings["notices"][0]["warning_seconds"] == 30
    longer = SpotOptions(provider="gcp", drain=("true",), warning_seconds=120)
    assert json.loads(render_settings(MATRIX, longer))["notices"][0]["warning_seconds"] == 120
