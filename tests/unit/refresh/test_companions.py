"""Rows of packages that are built against a framework: what their files say, and which releases are kept."""

from __future__ import annotations

import datetime
import re
import tomllib

import pytest
from upstream import fatbin_of

from provision.errors import DataError, UsageError
from provision.index.address import IndexAddress
from provision.matrix.check import check
from provision.refresh.engine import Plan, Refresh, read_plan

DAY = datetime.date(2026, 11, 23)
FILE = "companions.toml"
TAG = "cp312-cp312-manylinux_2_28_x86_64"
NEEDS = b"\x7fELF\x00libc.so.6\x00"
"""The start of a compiled file, as far as it matters here."""


@pytest.fixture
def facts(facts):
    """Facts that watch one package more, which no row names yet."""
    path = facts / "refresh.toml"
    path.write_text(path.read_text().replace('"autoawq",', '"autoawq",\n    "brandnew",', 1))
    return facts


@pytest.fixture
def kernels(facts):
    """Facts by which that package cannot do without its code for GPUs."""
    path = facts / "refresh.toml"
    head = '"companions_kernels"\nvalues = [\n'
    assert head in path.read_text()
    path.write_text(path.read_text().replace(head, f'{head}    "brandnew",\n', 1))


@pytest.fixture
def run(upstream, facts, client, write):
    def call(*packages: str, accepted: tuple[str, ...] = (), is_written: bool = False) -> dict[str, dict]:
        index = IndexAddress(url=upstream.index, told_by="test")
        plan = Plan(axes=(), packages=packages, index=index, accepted=accepted, dated=DAY, jobs=2)
        outcome = Refresh(facts, plan, client).run()
        if is_written:
            write(facts, outcome.texts)
        text = outcome.texts.get(FILE) or (facts / FILE).read_text()
        rows = tomllib.loads(text)["release"]
        return {row["version"]: row for row in rows if row["package"] in packages}

    return call


def test_what_binds_is_kept_and_the_rest_left_out(run, upstream):
    needs = (
        "torch==2.14.1",
        "vllm>=0.30",
        "nvidia-cutlass-dsl[cu13]==4.8.0",
        "numpy>=1",
        "triton",
        'jax>=0.5; python_version < "3.12"',
        'flash-attn>=2; extra == "fast"',
    )
    upstream.publish("brandnew", "1.0", "py3-none-any", needs)
    row = run("brandnew")["1.0"]
    assert row["requires"] == {"torch": "==2.14.1", "nvidia-cutlass-dsl": "==4.8.0", "vllm": ">=0.30"}
    assert row["links"] == ["nothing"]
    assert "cuda" not in row


def test_what_an_extra_asks_for_is_kept_where_the_facts_name_it(run, upstream, facts):
    path = facts / "refresh.toml"
    path.write_text(path.read_text().replace('{ sglang = "srt"', '{ brandnew = "gpu", sglang = "srt"', 1))
    upstream.publish("brandnew", "1.0", "py3-none-any", ('torch==2.14.1; extra == "gpu"',))
    assert run("brandnew")["1.0"]["requires"] == {"torch": "==2.14.1"}


def test_needed_libraries_tell_the_cuda_and_whether_torch_is_needed(run, upstream):
    members = {
        "brandnew/_a.so": NEEDS + b"\x01" * 3_000_000,
        "brandnew/_b.so": NEEDS + b"libtorch.so\x00libcudart.so.13\x00" + b"\x01" * 9,
    }
    upstream.publish("brandnew", "1.0", TAG, ("torch>=2.9",), members)
    row = run("brandnew")["1.0"]
    assert (row["links"], row["cuda"], row["pythons"]) == (["cudart.13", "torch"], "13", ["3.12"])


def test_one_file_for_each_cuda_names_them_all_and_none_as_the_own(run, upstream):
    members = {f"brandnew/lib{major}.so": NEEDS + f"libcudart.so.{major}\0".encode() for major in (11, 12)}
    upstream.publish("brandnew", "1.0", "py3-none-manylinux_2_28_x86_64", ("torch<3",), members)
    row = run("brandnew")["1.0"]
    assert row["links"] == ["cudart.11", "cudart.12"]
    assert "cuda" not in row
    assert "pythons" not in row


def test_code_for_gpus_is_read_of_one_wheel_a_machine(run, upstream, kernels):
    for machine, targets in (("x86_64", ("sm_80", "sm_90a", "compute_90")), ("aarch64", ("sm_90", "sm_121a"))):
        members = {
            "brandnew/_a.so": NEEDS + b"\x01" * 2_000_000 + fatbin_of(targets[0]) + b"\x02" * 99,
            "brandnew.libs/lib-1.so.3": NEEDS + fatbin_of(*targets[1:]),
        }
        upstream.publish("brandnew", "1.0", f"py3-none-manylinux_2_28_{machine}", ("torch<3",), members)
    row = run("brandnew", accepted=("*",))["1.0"]
    assert row["sm"] == ["sm_80", "sm_90a", "compute_90"]
    assert row["sm_aarch64"] == ["sm_90", "sm_121a"]


def test_a_wheel_without_code_for_gpus_is_told_from_one_that_nobody_read(run, upstream, kernels):
    upstream.publish("brandnew", "1.0", TAG, (), {"brandnew/_a.so": NEEDS + fatbin_of("sm_80")})
    upstream.publish("brandnew", "1.0", TAG.replace("x86_64", "aarch64"), (), {"brandnew/_a.so": NEEDS})
    row = run("brandnew", accepted=("*",))["1.0"]
    assert (row["sm"], row["without_code"]) == (["sm_80"], ["aarch64"])
    assert "sm_aarch64" not in row
    upstream.publish("brandnew", "2.0", "py3-none-any", ())
    assert run("brandnew", accepted=("*",))["2.0"]["without_code"] == ["x86_64", "aarch64"]


def test_code_that_a_package_goes_on_without_is_marked(run, upstream, facts):
    path = facts / "refresh.toml"
    head = '"companions_optional_code"\nvalues = ['
    assert head in path.read_text()
    path.write_text(path.read_text().replace(head, f'{head}"brandnew", ', 1))
    upstream.publish("brandnew", "1.0", TAG, ("torch<3",), {"brandnew/_a.so": NEEDS})
    upstream.publish("brandnew", "1.1", TAG, ("torch<3",), {"brandnew/_a.so": NEEDS + fatbin_of("sm_80")})
    rows = run("brandnew", "brandnew==1.0")
    assert (rows["1.1"]["sm"], rows["1.1"]["is_code_optional"]) == (["sm_80"], True)
    assert (rows["1.0"]["without_code"], rows["1.0"].get("is_code_optional")) == (["x86_64"], None)


def test_the_code_of_a_packages_past_is_read_release_by_release(run, upstream, kernels):
    for version, target in (("1.0", "sm_70"), ("1.1", "sm_75"), ("1.2", "sm_80")):
        members = {"brandnew/_a.so": NEEDS + b"\x07" * 4_000_000 + fatbin_of(target)}
        upstream.publish("brandnew", version, TAG, (f"torch=={version}",), members)
    assert {version: row.get("sm") for version, row in run("brandnew", is_written=True).items()} == {
        "1.0": None,
        "1.1": None,
        "1.2": ["sm_80"],
    }
    rows = run("brandnew==1.0", "brandnew")
    assert {version: row.get("sm") for version, row in rows.items()} == {
        "1.0": ["sm_70"],
        "1.1": None,
        "1.2": ["sm_80"],
    }
    assert rows["1.0"]["requires"] == {"torch": "==1.0"}


def test_a_release_that_the_index_does_not_have_is_named(upstream, facts, client, kernels):
    upstream.publish("brandnew", "1.0", TAG, (), {"brandnew/_a.so": NEEDS})
    plan = Plan(
        axes=(), packages=("brandnew==3.0",), index=IndexAddress(url=upstream.index, told_by="test"), dated=DAY, jobs=2
    )
    assert Refresh(facts, plan, client).run().silent == {"brandnew==3.0": "the index has no files of it"}


def test_code_for_gpus_that_a_package_can_do_without_tells_nothing(run, upstream):
    upstream.publish("brandnew", "1.0", TAG, ("torch<3",), {"brandnew/_a.so": NEEDS + fatbin_of("sm_80")})
    assert "sm" not in run("brandnew")["1.0"]


def test_a_list_that_was_not_seen_whole_is_left_out(run, upstream, kernels):
    members = {"brandnew/_a.so": NEEDS + fatbin_of("sm_80") + fatbin_of("sm_9999")}
    upstream.publish("brandnew", "1.0", TAG, ("torch<3",), members)
    assert "sm" not in run("brandnew")["1.0"]


def test_names_that_a_tool_moved_to_the_end_are_found(run, upstream):
    members = {"brandnew/_a.so": b"\x7fELF" + b"\x01" * 3_000_000 + b"\x00libc.so.6\x00libtorch.so\x00"}
    upstream.publish("brandnew", "1.0", TAG, (), members)
    assert run("brandnew")["1.0"]["links"] == ["torch"]


def test_a_file_whose_names_are_nowhere_tells_nothing(run, upstream):
    upstream.publish("brandnew", "1.0", TAG, (), {"brandnew/_a.so": b"\x7fELF" + b"\x01" * 99})
    assert "links" not in run("brandnew")["1.0"]


def test_of_a_package_read_for_the_first_time_only_what_asks_for_something_else_is_kept(run, upstream):
    for version, need in (("1.0", "torch>=2.1"), ("1.1", "torch>=2.1"), ("1.2", "torch>=2.2"), ("1.3", "torch>=2.2")):
        upstream.publish("brandnew", version, "py3-none-any", (need,))
    upstream.publish("brandnew", "0.9", "py3-none-any", ("torch>=2.0",), **{"upload-time": "2020-01-01T00:00:00Z"})
    assert list(run("brandnew", is_written=True)) == ["1.3", "1.1"]
    upstream.publish("brandnew", "1.4", "py3-none-any", ("torch>=2.2",))
    assert list(run("brandnew")) == ["1.4", "1.3", "1.1"]


def test_each_release_that_pins_or_is_built_against_torch_is_kept(run, upstream):
    for version in ("1.0", "1.1"):
        upstream.publish("brandnew", version, "py3-none-any", ("torch==2.14.1",))
    for version in ("2.0", "2.1"):
        upstream.publish("brandnew", version, TAG, (), {"brandnew/_a.so": NEEDS + b"libtorch.so\0"})
    assert list(run("brandnew")) == ["2.1", "2.0", "1.1", "1.0"]


def test_another_requirement_of_the_newest_release_stops_it(run, upstream):
    upstream.publish("brandnew", "1.0", "py3-none-any", ("torch==2.14.1",))
    run("brandnew", is_written=True)
    upstream.pages["brandnew"]["files"].clear()
    upstream.publish("brandnew", "1.0", "py3-none-any", ("torch==2.14.0",))
    with pytest.raises(DataError) as caught:
        run("brandnew")
    assert [item["id"] for item in caught.value.details["alarms"]] == ["meaning:companions/brandnew+1.0.requires"]
    accepted = run("brandnew", accepted=("meaning:companions/brandnew*",))
    assert accepted["1.0"]["requires"] == {"torch": "==2.14.0"}


def test_the_facts_that_were_written_keep_every_rule(run, upstream, facts):
    upstream.publish("brandnew", "1.0", TAG, ("torch==2.14.1",), {"brandnew/_a.so": NEEDS + b"libcudart.so.13\0"})
    run("brandnew", is_written=True)
    assert check(facts) == ()


def _forget(facts, name: str) -> None:
    path = facts / FILE
    parts = path.read_text().split("[[release]]\n")
    path.write_text("[[release]]\n".join(part for part in parts if not part.startswith(f'package = "{name}"')))


def test_the_table_of_torchcodec_pairs_its_releases(run, upstream, facts):
    _forget(facts, "torchcodec")
    table = ("| `torchcodec` | `torch` |", "| `9.2` | `>=2.14` |", "| `9.1` | `2.13` |", "| `9.0` | `main` |")
    for version in ("9.0.1", "9.1.0", "9.2.0"):
        members = {"torchcodec/a.so": NEEDS + b"libc10.so\0"}
        # A description stands below the fields of the metadata.
        upstream.publish("torchcodec", version, TAG, ("torch\n\n" + "\n".join(table),), members)
    rows = run("torchcodec")
    assert {version: row.get("paired_torch") for version, row in rows.items()} == {
        "9.2.0": ">=2.14",
        "9.1.0": "==2.13.*",
        "9.0.1": None,
    }


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('min_torch_version = _parse_version("2.14.0")', ">=2.14.0"),
        (
            '(_parse_version("9.0.0"), _parse_version("2.13.0")),\n(_parse_version("8"), _parse_version("2.1"))',
            "==2.13.0",
        ),
        ("import torch", None),
    ],
)
def test_the_start_up_code_of_torchao_pairs_a_release(run, upstream, facts, code, expected):
    _forget(facts, "torchao")
    upstream.publish("torchao", "9.0.0", TAG, (), {"torchao/__init__.py": code.encode()})
    assert run("torchao")["9.0.0"].get("paired_torch") == expected


def test_what_a_publisher_says_elsewhere_is_taken_from_the_settings(run, upstream, facts):
    path = facts / "refresh.toml"
    path.write_text(
        re.sub(r"entries = \{ \"torchao 0", 'entries = { "brandnew 1.0" = "==2.3.0", "torchao 0', path.read_text())
    )
    upstream.publish("brandnew", "1.0", "py3-none-any", ("torch>=2.3",))
    row = run("brandnew")["1.0"]
    assert row["paired_torch"] == "==2.3.0"
    assert row["evidence"]["paired_torch"]["status"] == "stated"


def test_packages_of_the_group_can_be_named_one_by_one(facts):
    assert read_plan(["sglang", "BrandNew"], facts) == ((), ("sglang", "brandnew"))
    assert read_plan(["SGLang==0.5.1"], facts) == ((), ("sglang==0.5.1",))
    for word in ("nonesuch", "torch==2.9.0", "sglang=="):
        with pytest.raises(UsageError, match="--only"):
            read_plan([word], facts)
    assert read_plan([], facts)[1] == ()
