"""A whole refresh against an upstream of our own: what comes in, and each thing that stops it."""

from __future__ import annotations

import datetime
import json
import tomllib

import pytest
from upstream import FEW, Reply, archive, metadata_of, stanza

from provision.errors import DataError, MissingDependencyError, UsageError
from provision.index.address import IndexAddress
from provision.matrix.check import check
from provision.matrix.load import Matrix
from provision.refresh.client import Client
from provision.refresh.engine import Plan, Refresh, read_plan
from provision.refresh.land import check_result
from provision.resolve.request import parse_request
from provision.resolve.solve import solve
from provision.resolve.stack import Stack

DAY = datetime.date(2026, 11, 23)
NEWEST = "2.15.0"
NEW = "2.15.1"
NEEDS = (
    "filelock",
    "typing-extensions>=4.10.0",
    "sympy>=1.13.3",
    "networkx>=2.5.1",
    "jinja2",
    "fsspec>=0.8.5",
    'setuptools<82; python_version >= "3.12"',
    "cuda-toolkit[cublas,cudart]==13.2.2",
    "nvidia-cudnn-cu13==9.26.0.51",
    "nvidia-nccl-cu13==2.30.7",
    "triton~=3.9.0",
)


@pytest.fixture
def run(upstream, facts, client):
    upstream.recall(facts, *FEW)

    def call(*axes: str, accepted: tuple[str, ...] = (), packages: tuple[str, ...] = (), **more):
        index = IndexAddress(url=upstream.index, told_by="test")
        plan = Plan(axes=axes, packages=packages, index=index, accepted=accepted, dated=DAY, jobs=4, **more)
        return Refresh(facts, plan, client).run()

    return call


def alarms(run, *words, **more):
    with pytest.raises(DataError) as caught:
        run(*words, **more)
    assert "nothing was written" in caught.value.message
    return [item["id"] for item in caught.value.details["alarms"]]


# nothing new, something new


def test_an_upstream_that_did_not_move_changes_nothing(run):
    outcome = run("torch")
    assert outcome.changes == ()
    assert outcome.texts == {}
    assert outcome.read == ("torch",)


def test_a_new_torch_becomes_rows_that_the_resolver_solves(run, upstream, facts, write):
    upstream.publish_torch(NEW, NEEDS, ("311", "312"))
    outcome = run("torch")
    added = {(change.file, change.row) for change in outcome.changes if change.kind == "added"}
    assert ("frameworks/torch.toml", NEW) in added
    assert ("frameworks/torch.toml", f"{NEW} cu132") in added
    assert ("wheels/torch.json", NEW) in added
    assert all(change.source for change in outcome.changes)
    build = next(row for row in tomllib.loads(outcome.texts["frameworks/torch.toml"])["build"] if row["torch"] == NEW)
    assert build["sm"] == ["sm_80", "sm_90"]
    assert build["ptx"] == ["compute_90"]
    assert build["sm_arm64"] == ["sm_90", "sm_100"]
    assert build["pythons"] == ["3.11", "3.12"]
    assert build["cudnn"] == "9.26.0.51"
    assert build["toolkit_pins"]["nvidia-cublas"] == "==13.4.1.3.*"
    assert build["glibc"] == "2.28"
    check_result(facts, outcome.texts)
    write(facts, outcome.texts)
    assert check(facts) == ()
    found = solve(parse_request({"torch": NEW, "python": "3.12"}), Matrix(facts))
    assert isinstance(found, Stack), found
    assert found.packages["torch"] == NEW
    assert all(package.sha256 for package in found.image.packages)
    assert run("torch").changes == (), "a second refresh finds nothing more"


def test_what_a_new_release_needs_comes_with_it_and_no_more(run, upstream, facts):
    upstream.publish_torch(NEW, (*NEEDS[:-1], "triton~=3.10.0"))
    upstream.publish("triton", "3.10.0", "cp312-cp312-manylinux_2_28_x86_64", ("brandnew>=2",))
    upstream.publish("triton", "3.10.0", "cp312-cp312-manylinux_2_28_aarch64", ("brandnew>=2",))
    for version in ("1.0", "2.0", "2.1", "3.0rc1"):
        upstream.publish("brandnew", version, "py3-none-any")
    outcome = run("torch")
    assert [row["version"] for row in json.loads(outcome.texts["wheels/brandnew.json"])["releases"]] == ["2.1"]
    check_result(facts, outcome.texts)


def test_what_nothing_can_meet_is_said(run, upstream):
    upstream.publish_torch(NEW, (*NEEDS, "numpy>=99"))
    upstream.page("numpy")
    outcome = run("torch")
    assert any("numpy>=99" in note for note in outcome.notes)


def test_releases_that_were_withdrawn_or_not_final_are_left_out(run, upstream):
    upstream.publish_torch("2.16.0rc1", NEEDS)
    upstream.publish_torch("2.16.0", NEEDS)
    for row in upstream.rows("torch", "2.16.0"):
        row["yanked"] = "broken"
    assert run("torch").changes == ()


def test_a_late_release_of_an_old_line_is_found(run, upstream):
    upstream.publish_torch("2.13.1", NEEDS)
    assert "2.13.1" in {change.row for change in run("torch").changes}


def test_a_late_wheel_of_a_known_release_is_added(run, upstream):
    upstream.publish("triton", "3.9.0", "cp316-cp316-manylinux_2_28_x86_64", **{"requires-python": ">=3.11,<3.16"})
    changes = {change.file: change for change in run("torch").changes}
    assert {change.kind for change in changes.values()} == {"changed"}
    assert any("cp316" in name for name, _, _ in changes["wheels/triton.json"].fields)
    assert {name for name, _, _ in changes["companions.toml"].fields} == {"pythons", "platform_tags"}


def test_a_newer_companion_of_the_newest_torch_is_taken(run, upstream, facts, write):
    upstream.publish_torch(NEW, NEEDS)
    tag, wide = "py3-none-manylinux_2_28_x86_64", ("torch>=2.11",)
    upstream.publish("torchaudio", "2.11.8", tag, wide)
    write(facts, run("torch").texts)
    upstream.publish("torchaudio", "2.11.9", tag, wide)
    rows = {change.row: change for change in run("torch").changes if change.file == "frameworks/torch.toml"}
    assert rows[NEW].fields == (("torchaudio", "2.11.8", "2.11.9"),)


def test_an_older_companion_of_the_newest_torch_stops_it(run, upstream, facts, write):
    upstream.publish_torch(NEW, NEEDS)
    upstream.publish("torchaudio", "2.11.8", "py3-none-manylinux_2_28_x86_64", ("torch>=2.11",))
    write(facts, run("torch").texts)
    path = facts / "frameworks/torch.toml"
    path.write_text(path.read_text().replace('torchaudio = "2.11.8"', 'torchaudio = "2.11.9"'))
    assert alarms(run, "torch") == [f"meaning:torch/{NEW}.torchaudio"]


def test_a_new_release_without_a_hash_is_not_taken(run, upstream):
    upstream.publish_torch(NEW, NEEDS)
    for row in upstream.rows("torch", NEW):
        row["hashes"] = {}
    outcome = run("torch")
    assert outcome.changes == ()
    assert any("no hash" in why for why in outcome.silent.values())


def test_a_new_release_with_a_broken_wheel_is_not_taken(run, upstream):
    upstream.publish_torch(NEW, NEEDS)
    upstream.replies[f"/files/torch-{NEW}-cp312-cp312-manylinux_2_28_aarch64.whl"] = Reply(b"no wheel", 200)
    outcome = run("torch")
    assert outcome.changes == ()
    assert any("aarch64" in name for name in outcome.silent)


def test_single_distributions_can_be_asked_for(run, upstream, facts):
    upstream.recall(facts, "sympy")
    upstream.publish("sympy", "9.0", "py3-none-any")
    assert [change.row for change in run(packages=("sympy",)).changes] == ["9.0"]


# guards


def test_another_hash_under_the_same_name_stops_it(run, upstream):
    row = upstream.rows("torch", NEWEST)[0]
    row["hashes"]["sha256"] = "f" * 64
    assert alarms(run, "torch") == [f"hash:{row['filename']}"]
    outcome = run("torch", accepted=(f"hash:{row['filename']}",))
    assert [change.kind for change in outcome.changes] == ["changed"]
    assert "f" * 16 in outcome.changes[0].fields[0][2]


def test_another_size_under_the_same_hash_stops_it(run, upstream):
    upstream.rows("torch", NEWEST)[0]["size"] = 5
    assert alarms(run, "torch")[0].startswith("hash:torch-")


def test_a_hash_that_is_gone_stops_it(run, upstream):
    row = upstream.rows("torchvision", "0.29.2")[0]
    row["hashes"] = {}
    assert alarms(run, "torch") == [f"fewer:{row['filename']}"]


def test_a_file_that_is_gone_stops_it(run, upstream):
    row = upstream.rows("torch", "2.1.0")[0]
    upstream.pages["torch"]["files"].remove(row)
    assert alarms(run, "torch") == [f"fewer:{row['filename']}"]
    (change,) = run("torch", accepted=(f"fewer:{row['filename']}",)).changes
    assert change.row == "2.1.0"


def test_a_page_that_lost_half_its_files_stops_it(run, upstream):
    del upstream.pages["torch"]["files"][20:]
    found = alarms(run, "torch")
    assert len(found) > 100
    assert {name.partition(":")[0] for name in found} == {"fewer"}


def test_another_bound_on_python_stops_it(run, upstream):
    for row in upstream.rows("torch", NEWEST):
        row["requires-python"] = ">=3.12"
    assert f"requires:torch-{NEWEST}" in alarms(run, "torch")


def test_the_same_bound_in_another_order_is_the_same(run, upstream):
    for row in upstream.rows("torchvision", "0.29.1"):
        row["requires-python"] = " >=3.10 , !=3.14.1"
    assert run("torch").changes == ()


def test_another_requirement_of_the_same_wheel_stops_it(run, upstream, facts):
    release = json.loads((facts / "wheels/triton.json").read_text())["releases"][0]
    for wheel in release["wheels"]:
        path = f"/files/{wheel['file']}.metadata"
        upstream.replies[path] = Reply(metadata_of("triton", release["version"], [["surprise", ">=1", "", ""]]))
    assert alarms(run, "torch") == [f"requires:triton-{release['version']}"]


def test_a_withdrawn_release_stops_it(run, upstream):
    for row in upstream.rows("torch", "2.9.0"):
        row["yanked"] = "broken"
    assert alarms(run, "torch") == ["yanked:torch-2.9.0"]
    (change,) = run("torch", accepted=("yanked:torch-*",)).changes
    assert change.fields == (("yanked", "", "True"),)


def test_a_column_nobody_has_read_stops_it(run, upstream):
    upstream.rows("torch", NEWEST)[0]["quarantined"] = True
    assert alarms(run, "torch") == ["unseen:torch.files.quarantined"]
    assert run("torch", accepted=("unseen:*",)).changes == ()


def test_a_fact_that_reads_otherwise_stops_it(run, facts, upstream):
    path = facts / "companions.toml"
    path.write_text(path.read_text().replace('requires_python = ">=3.11,<3.16"', 'requires_python = ">=3.11,<3.17"', 1))
    assert alarms(run, "torch") == ["meaning:companions/triton+3.9.0.requires_python"]


def test_an_acceptance_that_nothing_needed_is_said(run):
    outcome = run("torch", accepted=("hash:none.whl",))
    assert "--accept hash:none.whl was not needed" in outcome.notes


# what cannot be read


def test_a_page_that_fails_leaves_its_facts_alone(run, upstream, facts):
    upstream.replies["/simple/triton/"] = Reply(b"", 500)
    upstream.publish_torch(NEW, NEEDS)
    outcome = run("torch")
    assert "500" in outcome.silent["triton"]
    assert outcome.read == ("torch without triton",)
    assert "wheels/triton.json" not in outcome.texts
    assert "wheels/torch.json" in outcome.texts
    assert "frameworks/torch.toml" not in outcome.texts, "a row is made of all its pages or not at all"


def test_a_truncated_page_is_no_page_with_fewer_files(run, upstream):
    text = json.dumps(upstream.pages["torch"]).encode()
    upstream.replies["/simple/torch/"] = Reply(text[: len(text) // 2], kind="application/vnd.pypi.simple.v1+json")
    outcome = run("torch")
    assert "not a list of files" in outcome.silent["torch"]
    assert outcome.changes == ()


def test_an_index_that_is_away_is_an_error_only_where_nothing_else_was_read(upstream, facts, client):
    upstream.close()
    plan = Plan(axes=("torch",), index=IndexAddress(url=upstream.index, told_by="test"), dated=DAY)
    with pytest.raises(MissingDependencyError, match="nothing could be read"):
        Refresh(facts, plan, client).run()
    with pytest.raises(MissingDependencyError, match="nothing could be read"):
        Refresh(facts, Plan(axes=("torch",), dated=DAY), client).run()


def test_an_html_index_gives_the_same(run, upstream):
    upstream.publish_torch(NEW, NEEDS)
    for name in list(upstream.pages):
        links = "".join(
            f'<a href="{row["url"]}#sha256={row["hashes"]["sha256"]}" data-upload-time="{row.get("upload-time", "")}"'
            f' data-requires-python="{(row["requires-python"] or "").replace("<", "&lt;").replace(">", "&gt;")}"'
            f"{' data-yanked' if row['yanked'] else ''}"
            f"{' data-core-metadata=true' if row.get('core-metadata') else ''}>f</a>"
            for row in upstream.pages[name]["files"]
        )
        upstream.replies[f"/simple/{name}/"] = Reply(f"<html><body>{links}</body></html>".encode(), kind="text/html")
    assert f"{NEW} cu132" in {change.row for change in run("torch").changes}


# archives


UBUNTU = {
    "restricted": stanza("nvidia-driver-595", "595.99.09-0ubuntu1", Depends="libnvidia-gl-595")
    + stanza("nvidia-driver-590", "590.48.01-0ubuntu5", Depends="nvidia-driver-595", Description="metapackage")
    + stanza("linux-modules", "1"),
    "multiverse": stanza(
        "nvidia-driver-615", "615.71.09-1", Depends="nvidia-driver-615-open", Description="(transitional)"
    ),
}
ONLY_SYSTEM = 'entries = { "ubuntu26.04" = "resolute resolute-updates" }'


@pytest.fixture
def drivers(run, upstream, facts):
    """One system with three drivers, all of them in the facts."""
    path = facts / "refresh.toml"
    lines = path.read_text().splitlines()
    at = lines.index('id = "apt_suites"')
    lines[at + 1] = ONLY_SYSTEM
    path.write_text("\n".join(lines) + "\n")
    path = facts / "drivers.toml"
    head, *rows = path.read_text().split("\n[[")
    keep = []
    for row in rows:
        is_other = row.startswith("distro_driver") and 'os = "ubuntu26.04"' in row
        is_wanted = any(f'branch = {number}\nflavour = "desktop"' in row for number in (615, 595, 590))
        keep += [] if is_other and not is_wanted else [row]
    path.write_text("\n[[".join([head, *keep]))

    def call(lists: dict[str, str], **more):
        archive(upstream, "ubuntu", "resolute", lists)
        return run("drivers", mirrors={"ubuntu": f"{upstream.url}/ubuntu"}, **more)

    return call


def test_a_newer_driver_of_an_archive_is_taken(drivers):
    (change,) = drivers(UBUNTU).changes
    assert change.row == "ubuntu26.04 595 desktop"
    assert change.fields == (("version", "595.99.02", "595.99.09"),)
    assert change.source == ("ubuntu-archive",)


def test_an_older_driver_than_before_stops_it(drivers):
    lists = {**UBUNTU, "restricted": UBUNTU["restricted"].replace("595.99.09", "595.10.01")}
    with pytest.raises(DataError) as caught:
        drivers(lists)
    assert [item["id"] for item in caught.value.details["alarms"]] == ["older:ubuntu26.04-595-desktop"]
    assert drivers(lists, accepted=("older:ubuntu26.04-595-desktop",)).changes[0].fields[0][2] == "595.10.01"


def test_a_driver_that_is_gone_stops_it(drivers):
    lists = {**UBUNTU, "multiverse": ""}
    with pytest.raises(DataError) as caught:
        drivers(lists)
    assert [item["id"] for item in caught.value.details["alarms"]] == ["fewer:ubuntu26.04-615-desktop"]
    kinds = [change.kind for change in drivers(lists, accepted=("fewer:ubuntu26.04-615-desktop",)).changes]
    assert sorted(kinds) == ["changed", "removed"]


def test_a_list_that_is_not_the_one_that_was_signed_for_is_not_read(drivers, upstream, facts):
    drivers(UBUNTU)
    path = "/ubuntu/dists/resolute/restricted/binary-amd64/Packages.gz"
    upstream.replies[path] = Reply(upstream.replies[path].body[:-1] + b"x")
    with pytest.raises(MissingDependencyError, match="nothing could be read") as caught:
        Refresh(
            facts,
            Plan(axes=("drivers",), mirrors={"ubuntu": f"{upstream.url}/ubuntu"}, dated=DAY),
            Client(attempts=1),
        ).run()
    assert "its hash is another" in caught.value.because[0]


def test_an_archive_nobody_named_is_said(run, facts):
    with pytest.raises(MissingDependencyError) as caught:
        run("drivers")
    assert any("--apt-mirror ubuntu=URL" in why for why in caught.value.because)


# words


def test_words_of_only(facts):
    assert read_plan(["torch", "sympy"], facts) == (("torch",), ("sympy",))
    assert read_plan([], facts)[0][0] == "torch"
    with pytest.raises(UsageError, match="neither a source nor a distribution") as caught:
        read_plan(["torhc"], facts)
    assert "did you mean `torch`?" in caught.value.hints


def test_the_result_is_held_against_every_rule(run, upstream, facts):
    upstream.publish_torch(NEW, NEEDS)
    texts = dict(run("torch").texts)
    texts["frameworks/torch.toml"] = texts["frameworks/torch.toml"].replace('cuda = "13.2"', 'cuda = "77.7"', 1)
    before = {path: path.read_bytes() for path in facts.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match="would break") as caught:
        check_result(facts, texts)
    assert any("D008" in why for why in caught.value.because)
    assert {path: path.read_bytes() for path in facts.rglob("*") if path.is_file()} == before
