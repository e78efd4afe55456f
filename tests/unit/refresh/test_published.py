"""Every release of the packages that are kept: what a page and the metadata of its wheels become."""

from __future__ import annotations

import datetime
import hashlib
import json
import re

import pytest
from upstream import Reply

from provision.errors import MissingDependencyError
from provision.index.address import IndexAddress
from provision.matrix.canonical import encode_json
from provision.matrix.load import Matrix
from provision.refresh.client import Client
from provision.refresh.engine import Plan, Refresh
from provision.refresh.land import check_result

DAY = datetime.date(2026, 11, 25)
NAMES = ("kept", "other")
FILE = "published/kept.json"


@pytest.fixture
def facts(facts):
    for path in (facts / "published").iterdir():
        path.unlink()
    settings = facts / "refresh.toml"
    text = settings.read_text(encoding="utf-8")
    listed = "".join(f'    "{name}",\n' for name in NAMES)
    new, count = re.subn(r'(id = "group_published"\nvalues = \[\n).*?\]', rf"\g<1>{listed}]", text, flags=re.DOTALL)
    assert count == 1
    settings.write_text(new, encoding="utf-8")
    return facts


@pytest.fixture
def run(upstream, facts, client):
    for name in NAMES:
        upstream.page(name)

    def call(**more):
        index = IndexAddress(url=upstream.index, told_by="test")
        plan = Plan(axes=("published",), index=index, dated=DAY, jobs=2, **more)
        return Refresh(facts, plan, client).run()

    return call


def keep(facts, outcome):
    for name, text in outcome.texts.items():
        (facts / name).parent.mkdir(exist_ok=True)
        (facts / name).write_text(text, encoding="utf-8")


def source(upstream, name, version):
    """Put a source distribution onto the index."""
    row = upstream._row(f"{name}-{version}.tar.gz", "0" * 64, 10, "2026-11-21T08:00:00Z")
    upstream.page(name)["files"].append(row)


def test_releases_are_told_with_pythons_files_needs_and_extras(run, upstream, facts):
    wheel = "cp311-cp311-manylinux_2_28_x86_64"
    needs = ("other>=1", "stranger", 'other[fast]; extra == "Quick_Start" and python_version < "3.12"')
    upstream.publish("kept", "1.10", wheel, needs, **{"requires-python": ">=3.9, <3.13"})
    upstream.publish("kept", "1.10", "cp312-abi3-manylinux_2_28_aarch64", needs, **{"requires-python": ">=3.9, <3.13"})
    upstream.publish("kept", "1.9", "py3-none-any")
    upstream.publish("kept", "2.0rc1", "py3-none-any")
    source(upstream, "kept", "1.9")
    outcome = run()
    document = json.loads(outcome.texts[FILE])
    assert document["releases"] == [
        {"versions": ["1.10"], "requires_python": "<3.13,>=3.9", "requires": "0-1", "files": 0},
        {"versions": ["1.9"], "requires": "2", "files": 1},
    ]
    assert document["requires"] == [["", "other>=1"], ["quick-start", 'other[fast]; python_version < "3.12"'], [""]]
    assert document["files"] == ["x86_64 3.11; aarch64 3.12+", "any 3.0+; sdist"]
    assert outcome.texts[FILE] == encode_json(document)
    keep(facts, outcome)
    release = Matrix(facts).published("kept").release("1.10")
    assert (release.extras, [need.name for need in release.needs("quick-start")]) == (("quick-start",), ["other"])


def test_the_result_keeps_the_rules_of_the_facts(run, upstream, facts):
    upstream.publish("kept", "1.0", "py3-none-any", ("other",), yanked=True)
    upstream.publish("other", "1.0", "py3-none-any")
    outcome = run()
    assert [change.row for change in outcome.changes] == ["1.0", "1.0"]
    check_result(facts, outcome.texts)


def test_what_is_known_is_not_read_again(run, upstream, facts):
    upstream.publish("kept", "1.0", "py3-none-any", ("other",))
    upstream.publish("other", "1.0", "py3-none-any")
    keep(facts, run())
    upstream.publish("kept", "1.1", "py3-none-any", ("other<2",))
    upstream.asked.clear()
    outcome = run(cache=None)
    asked = [path for path, _ in upstream.asked]
    assert not any("kept-1.0" in path for path in asked)
    assert any("kept-1.1" in path for path in asked)
    assert [(change.kind, change.row) for change in outcome.changes] == [("added", "1.1")]


def test_metadata_beside_a_wheel_saves_the_wheel(run, upstream):
    row = upstream.publish("kept", "1.0", "py3-none-any")
    content = b"Metadata-Version: 2.1\nName: kept\nVersion: 1.0\nRequires-Dist: other<3\n\nRequires-Dist: no\n"
    upstream.replies[f"/files/{row['filename']}.metadata"] = Reply(content)
    row["core-metadata"] = {"sha256": hashlib.sha256(content).hexdigest()}
    assert json.loads(run().texts[FILE])["requires"] == [["", "other<3"]]
    assert f"/files/{row['filename']}" not in [path for path, _ in upstream.asked]


@pytest.mark.parametrize("fault", ["gone", "another hash", "no requirement"])
def test_needs_that_cannot_be_read_stay_unknown(run, upstream, fault):
    row = upstream.publish("kept", "1.0", "py3-none-any", ("other ><",) if fault == "no requirement" else ("other",))
    if fault == "gone":
        upstream.replies[f"/files/{row['filename']}"] = Reply(status=404)
    if fault == "another hash":
        upstream.replies[f"/files/{row['filename']}.metadata"] = Reply(b"Metadata-Version: 2.1\nName: kept\n\n")
        row["core-metadata"] = {"sha256": "0" * 64}
    upstream.publish("other", "1.0", "py3-none-any")
    outcome = run()
    assert json.loads(outcome.texts[FILE])["releases"] == [{"versions": ["1.0"], "files": 0}]
    assert "kept 1.0" in outcome.silent


def test_old_releases_are_known_without_their_needs(run, upstream):
    upstream.publish("kept", "1.0", "py3-none-any", ("other",), **{"upload-time": "2019-01-01T00:00:00Z"})
    assert json.loads(run().texts[FILE])["releases"] == [{"versions": ["1.0"], "files": 0}]


def test_needs_of_extras_for_work_on_a_package_are_left_out_and_the_extras_are_known(run, upstream):
    content = (
        b"Metadata-Version: 2.1\nName: kept\nVersion: 1.0\nProvides-Extra: dev-all\n"
        b'Requires-Dist: other; extra == "dev-all"\n\n'
    )
    row = upstream.publish("kept", "1.0", "py3-none-any")
    upstream.replies[f"/files/{row['filename']}.metadata"] = Reply(content)
    assert json.loads(run().texts[FILE])["requires"] == [[""], ["dev-all"]]


def test_two_ways_to_write_a_version_are_one_release(run, upstream):
    upstream.publish("kept", "1.0", "py3-none-any")
    upstream.publish("kept", "1.0.0", "cp311-cp311-manylinux_2_28_x86_64")
    (group,) = json.loads(run().texts[FILE])["releases"]
    assert len(group["versions"]) == 1


def test_a_release_that_went_away_stops_the_refresh(run, upstream, facts):
    upstream.publish("kept", "1.0", "py3-none-any")
    upstream.publish("kept", "1.1", "py3-none-any")
    upstream.publish("other", "1.0", "py3-none-any")
    keep(facts, run())
    upstream.page("kept")["files"].pop()
    with pytest.raises(Exception, match="upstream does not agree") as caught:
        run()
    assert [item["id"] for item in caught.value.details["alarms"]] == ["fewer:published/kept.json/1.1"]
    assert [change.kind for change in run(accepted=("fewer:published/kept.json/1.1",)).changes] == ["removed"]


def test_an_index_that_does_not_answer_changes_nothing(upstream, facts, client):
    index = IndexAddress(url=f"{upstream.url}/nothing", told_by="test")
    with pytest.raises(MissingDependencyError, match="nothing could be read"):
        Refresh(facts, Plan(axes=("published",), index=index, dated=DAY), Client(attempts=1)).run()
