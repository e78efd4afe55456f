"""What publishers say outside of package indexes, and what compiled files need of the system: read from loopback."""

from __future__ import annotations

import datetime
import io
import json
import struct
import tomllib
from pathlib import Path

import pytest
from upstream import Reply

from provision.errors import DataError, MissingDependencyError
from provision.index.address import IndexAddress
from provision.matrix.check import check
from provision.refresh.elf import needed_of
from provision.refresh.engine import Outcome, Plan, Refresh
from provision.refresh.ngc import read_table
from provision.refresh.prebuilt import row_of_release

DAY = datetime.date(2026, 11, 28)
HEAD = """# Release Compatibility Matrix

## Container Name: trtllm-python-py3

| Triton release version\t | NGC Tag\t | Python version\t | CUDA version | CUDA Driver version | Size |
| --- | --- | --- | --- | --- | --- |
| 26.09 | tritonserver:26.09-trtllm-python-py3 | Python 3.9.1 | 1.1.1 | 111.11 | 14.20 GB |

## Container Name: vllm-python-py3

| Triton release version\t | NGC Tag\t | Python version\t | vLLM version | CUDA version | CUDA Driver version | Size |
| --- | --- | --- | --- | --- | --- | --- |
"""
TAIL = """
## ONNX Runtime Versions

| Triton release version\t | ONNX Runtime\t |
| --- | --- |
| 26.08 | 1.28.0 |
"""
LINES = (
    "| 26.09 | tritonserver:26.09-vllm-python-py3 | Python 3.12.3  | 0.29.0 | 13.4.2.010 | 615.65.01 | 11 GB |",
    "| 26.08 | tritonserver:26.08-vllm-python-py3 | Python 3.12.3  | 0.27.1 | 13.4.1.012 | 615.61 | 10.65 GB |",
    "| 26.07 | tritonserver:26.07-vllm-python-py3 | Python 3.12.3  | 0.24.0 | 13.3.0.035 | 610.43.02 | 10.28 GB |",
)
"""The page as it is written, shortened, with a month that is made up."""


@pytest.fixture
def run(upstream, facts, client):
    """Read one source, of which the settings name a place on loopback."""
    path = facts / "refresh.toml"
    text = path.read_text()
    document = tomllib.loads(text)
    for name in ("ngc_table", "releases_api"):
        value = next(row["value"] for row in document["setting"] if row["id"] == name)
        text = text.replace(f'"{value}"', f'"{upstream.url}/{name}"')
    path.write_text(text)

    def call(axis: str, *accepted: str) -> Outcome:
        index = IndexAddress(url=upstream.index, told_by="test")
        return Refresh(facts, Plan(axes=(axis,), index=index, accepted=accepted, dated=DAY, jobs=2), client).run()

    return call


def rows_of(outcome: Outcome, facts: Path, file: str, array: str = "release") -> list[dict]:
    return tomllib.loads(outcome.texts.get(file) or (facts / file).read_text())[array]


def broken(facts: Path) -> set[str]:
    """Return the rules that facts break, but for an address on loopback in the settings."""
    return {item.rule for item in check(facts)} - {"D014"}


# images


def serve_table(upstream, *lines: str, tail: str = TAIL) -> None:
    upstream.replies["/ngc_table"] = Reply((HEAD + "\n".join(lines) + "\n" + tail).encode())


def test_a_new_month_of_images_becomes_a_row(run, upstream, facts, write):
    serve_table(upstream, *LINES)
    outcome = run("ngc")
    row = rows_of(outcome, facts, "ngc.toml")[0]
    assert (row["release"], row["cuda"], row["driver"]) == ("26.09", "13.4.2", "615.65.01")
    assert (row["python"], row["os"]) == ("3.12", "ubuntu24.04")
    assert [change.kind for change in outcome.changes] == ["added"]
    write(facts, outcome.texts)
    assert broken(facts) == set()
    assert not run("ngc").changes


def test_images_that_read_otherwise_than_they_did_stop_it(run, upstream, facts):
    serve_table(upstream, LINES[1].replace("615.61", "615.99"))
    with pytest.raises(DataError) as caught:
        run("ngc")
    assert [item["id"] for item in caught.value.details["alarms"]] == ["meaning:ngc/26.08.driver"]
    accepted = run("ngc", "meaning:ngc/26.08.driver")
    assert rows_of(accepted, facts, "ngc.toml")[0]["driver"] == "615.99"
    serve_table(upstream, LINES[2])
    with pytest.raises(DataError) as caught:
        run("ngc")
    assert [item["id"] for item in caught.value.details["alarms"]] == ["fewer:ngc/26.08"]


def test_images_on_a_python_of_no_known_ubuntu_are_told(run, upstream):
    serve_table(upstream, LINES[0].replace("3.12.3", "3.11.9"), LINES[1])
    outcome = run("ngc")
    assert not outcome.changes
    assert any(note.startswith("26.09 of NVIDIA's images has Python 3.11") for note in outcome.notes)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((), "no table stands under"),
        (("| 26.08 | what | ever |",), "can be read"),
    ],
)
def test_a_page_without_the_table_counts_as_not_read(run, upstream, lines, said):
    serve_table(upstream, *lines)
    with pytest.raises(MissingDependencyError) as caught:
        run("ngc")
    assert said in caught.value.because[0]


def test_a_table_with_other_columns_is_not_guessed_at():
    with pytest.raises(Exception, match="has other columns"):
        read_table((HEAD + LINES[0]).replace("CUDA Driver version", "Driver"))


# wheels of projects


ADDRESS = "flash_attn-{version}+{cuda}torch{torch}cxx11abi{abi}-{python}-{python}-linux_x86_64.whl"
REPOSITORY = "/releases_api/repos/Dao-AILab/flash-attention/releases?per_page=100"


def names_of(version: str, pythons: dict[str, str], abis: tuple[str, ...] = ("TRUE", "FALSE")) -> list[str]:
    return [
        ADDRESS.format(version=version, cuda="cu12", torch=torch, abi=abi, python=f"cp{python.replace('.', '')}")
        for torch, words in pythons.items()
        for python in words.split()
        for abi in abis
    ]


def serve_releases(upstream, *releases: tuple[str, list[str]], **more: object) -> None:
    body = [
        {"tag_name": tag, "draft": False, "prerelease": False, "assets": [{"name": name} for name in names], **more}
        for tag, names in releases
    ]
    upstream.replies[REPOSITORY] = Reply(json.dumps(body).encode())


@pytest.fixture
def newest(facts):
    """The newest release of flash-attn that the facts have wheels of, with their names."""
    rows = tomllib.loads((facts / "prebuilt.toml").read_text())["release"]
    row = next(row for row in rows if row["package"] == "flash-attn")
    return f"v{row['version']}", names_of(row["version"], row["pythons"])


def test_a_new_release_with_wheels_becomes_a_row(run, upstream, facts, newest, write):
    new = names_of("2.9.0", {"2.9": "3.10 3.11", "2.8": "3.9 3.10"})
    serve_releases(upstream, ("v2.9.0", [*new, "flash_attn-2.9.0.tar.gz"]), newest, ("fa4-v4.0", ["other.whl"]))
    outcome = run("prebuilt")
    (row,) = (row for row in rows_of(outcome, facts, "prebuilt.toml") if row["version"] == "2.9.0")
    assert row["pythons"] == {"2.9": "3.10 3.11", "2.8": "3.9 3.10"}
    assert (row["cuda"], row["cxx11_abi"], row["machines"]) == ({"12": "cu12"}, [1], ["x86_64"])
    assert "sha256" not in row
    write(facts, outcome.texts)
    assert broken(facts) == set()


BUILDS = {
    ("2.6", "12", 0),
    ("2.6", "12", 1),
    ("2.6", "11", 0),
    ("2.9", "12", 1),
    ("2.9", "13", 1),
    ("2.10", "12", 1),
    ("2.10", "13", 1),
}
"""Some of PyTorch's: minor, major of CUDA, C++ ABI."""


def row_of(*names: str):
    return row_of_release(ADDRESS, "2.9.0", dict.fromkeys(names, ""), BUILDS)


def test_a_python_counts_only_with_all_wheels_of_its_torch():
    names = names_of("2.9.0", {"2.6": "3.10 3.11"})
    row = row_of(*(name for name in names if "abiFALSE-cp311" not in name))
    assert row is not None
    assert row["pythons"] == {"2.6": "3.10"}
    assert row_of("flash_attn-2.9.0.tar.gz", *names_of("2.8.9", {"2.9": "3.10"})) is None
    alone = [name for name in names if ("abiFALSE-cp311" in name) or ("abiTRUE-cp310" in name)]
    assert len(alone) == 2
    assert row_of(*alone) is None


def test_what_no_build_of_pytorch_takes_is_no_wheel_of_a_release():
    ngc = names_of("2.9.0", {"25.09": "3.12"}, ("TRUE",))
    assert row_of(*ngc) is None
    row = row_of(*ngc, *names_of("2.9.0", {"2.9": "3.12"}))
    assert row is not None
    assert (row["pythons"], row["cxx11_abi"]) == ({"2.9": "3.12"}, [1])


def test_a_torch_without_a_wheel_for_each_cuda_is_told_apart():
    names = names_of("2.9.0", {"2.9": "3.12", "2.6": "3.12"})
    thirteen = [name.replace("cu12", "cu13") for name in names if "torch2.9" in name]
    row = row_of(*names, *thirteen)
    assert row is not None
    assert row["cuda"] == {"13": "cu13", "12": "cu12"}
    assert "builds" not in row, "no PyTorch 2.6 is built for CUDA 13"
    row = row_of(*names, *thirteen, *names_of("2.9.0", {"2.10": "3.12"}))
    assert row is not None
    assert row["builds"] == {"2.10": "cu12"}


def test_files_that_came_later_and_their_hashes_are_growth(run, upstream, facts, newest, write):
    tag, names = newest
    more = names_of(tag[1:], {"2.9": "3.12"}, ("TRUE",))
    assets = [{"name": name, "digest": f"sha256:{'0' * 64}"} for name in more] + [{"name": name} for name in names]
    serve_releases(upstream, (tag, []))
    body = json.loads(upstream.replies[REPOSITORY].body)
    body[0]["assets"] = assets
    upstream.replies[REPOSITORY] = Reply(json.dumps(body).encode())
    outcome = run("prebuilt")
    row = next(row for row in rows_of(outcome, facts, "prebuilt.toml") if row["package"] == "flash-attn")
    assert row["pythons"]["2.9"] == "3.12"
    assert row["sha256"] == {more[0]: "0" * 64}
    write(facts, outcome.texts)
    assert broken(facts) == set()


def test_a_known_release_with_other_files_stops_it(run, upstream, newest):
    tag, names = newest
    serve_releases(upstream, (tag, [name for name in names if "cp39" not in name]))
    with pytest.raises(DataError) as caught:
        run("prebuilt")
    (alarm,) = caught.value.details["alarms"]
    assert alarm["id"] == f"meaning:prebuilt/flash-attn-{tag[1:]}.pythons"
    serve_releases(upstream, (tag, []))
    with pytest.raises(DataError) as caught:
        run("prebuilt")
    assert caught.value.details["alarms"][0]["id"] == f"fewer:prebuilt/flash-attn-{tag[1:]}"


def test_a_release_without_wheels_is_told_and_a_draft_is_none(run, upstream, newest):
    serve_releases(upstream, ("v2.9.0", ["flash_attn-2.9.0.tar.gz"]), newest)
    assert any("flash-attn 2.9.0 was released without wheels" in note for note in run("prebuilt").notes)
    serve_releases(upstream, ("v2.9.0", names_of("2.9.0", {"2.9": "3.10"})), draft=True)
    assert not run("prebuilt").changes


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b"{}", b'[{"tag_name": "v1"}]'])
def test_an_answer_that_lists_no_releases_counts_as_not_read(run, upstream, body):
    upstream.replies[REPOSITORY] = Reply(body)
    with pytest.raises(MissingDependencyError):
        run("prebuilt")


def test_a_project_that_does_not_answer_hides_none_of_the_others(run, upstream, facts, newest):
    path = facts / "prebuilt.toml"
    first = """[[release]]
package = "another"
version = "1.0"
address = "https://github.com/a/another/releases/download/v{version}/another-{version}+{cuda}-{python}-linux_x86_64.whl"
cuda = { 12 = "cu12" }
pythons = { "2.8" = "3.12" }
machines = ["x86_64"]
source = ["flash-attention"]
where = "made up"
status = "stated"
confidence = "medium"

"""
    path.write_text(path.read_text().replace("[[release]]", f"{first}[[release]]", 1))
    serve_releases(upstream, ("v2.9.0", names_of("2.9.0", {"2.9": "3.10"})), newest)
    for other in ("state-spaces/mamba", "Dao-AILab/causal-conv1d"):
        upstream.replies[f"/releases_api/repos/{other}/releases?per_page=100"] = Reply(b"[]")
    nameless = [{"tag_name": "v1.0", "draft": False, "prerelease": False, "assets": [{"size": 1}]}]
    upstream.replies["/releases_api/repos/a/another/releases?per_page=100"] = Reply(json.dumps(nameless).encode())
    outcome = run("prebuilt")
    assert [row for row in rows_of(outcome, facts, "prebuilt.toml") if row["version"] == "2.9.0"]
    assert "is not a list of releases" in outcome.silent["another"]
    assert outcome.read == ("prebuilt without another",)


# libraries of the system


def elf_of(*needed: str) -> bytes:
    """Return a compiled file as far as its loader reads it: one segment, its dynamic section, its names."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in needed)
    places = [names.index(b"\0" + name.encode() + b"\0") + 1 for name in needed]
    base, start = 0x4000, 64 + 2 * 56
    entries = [(1, place) for place in places] + [(5, base + start), (10, len(names)), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    size = start + len(names) + len(dynamic)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 4096)
    section = struct.pack("<IIQQQQQQ", 2, 6, start + len(names), 0, 0, len(dynamic), len(dynamic), 8)
    return head + load + section + names + dynamic


@pytest.mark.parametrize("needed", [(), ("libc.so.6",), ("libGL.so.1", "libm.so.6", "libGL.so.1")])
def test_needed_libraries_are_read_in_their_order(needed):
    assert needed_of(io.BytesIO(elf_of(*needed))) == needed


def test_an_extension_of_this_python_is_read_too():
    import select
    import sysconfig

    path = getattr(select, "__file__", None)
    if path is None or not sysconfig.get_config_var("LIBC"):
        pytest.skip("select is part of the program")
    with Path(path).open("rb") as file:
        needed = needed_of(file)
    assert needed is not None


@pytest.mark.parametrize("content", [b"", b"MZ", b"\x7fELF\x01\x01" + bytes(70), elf_of("libc.so.6")[:180], b"\x7fELF"])
def test_what_is_no_whole_file_tells_nothing(content):
    assert needed_of(io.BytesIO(content)) is None


@pytest.fixture
def library(facts, upstream):
    """Name and needs of a package whose compiled files the facts were read from."""
    row = next(
        row
        for row in tomllib.loads((facts / "system_libraries.toml").read_text())["need"]
        if row["id"] == "pyrealsense2"
    )
    # An index is asked for its first names before all others.
    upstream.publish("ffmpeg-python", "0.0.1", "py3-none-any", ())
    return row["id"], tuple(row["libraries"])


TAG = "cp312-cp312-manylinux_2_28_x86_64"


def need_of(outcome: Outcome, facts: Path, name: str) -> dict:
    return next(row for row in rows_of(outcome, facts, "system_libraries.toml", "need") if row["id"] == name)


def test_a_newer_release_with_the_same_needs_is_the_one_that_was_read(run, upstream, facts, library, write):
    name, libraries = library
    members = {
        f"{name}/_a.so": elf_of("libc.so.6", "liblocal.so.3", *libraries),
        f"{name}.libs/liblocal.so.3": elf_of(),
    }
    upstream.publish(name, "99.0", TAG, (), members)
    outcome = run("system")
    assert need_of(outcome, facts, name)["version"] == "99.0"
    assert not outcome.notes
    write(facts, outcome.texts)
    assert broken(facts) == set()


def test_other_needs_stop_it_until_they_are_accepted(run, upstream, facts, library):
    name, libraries = library
    upstream.publish(name, "99.0", TAG, (), {f"{name}/_a.so": elf_of("libGL.so.1", "libstrange.so.7", *libraries)})
    with pytest.raises(DataError) as caught:
        run("system")
    assert [item["id"] for item in caught.value.details["alarms"]] == [f"meaning:system_libraries/{name}-99.0"]
    outcome = run("system", "meaning:system_libraries/*")
    assert need_of(outcome, facts, name)["libraries"] == sorted({"libGL.so.1", *libraries}, key=str.lower)
    assert any("needs libstrange.so.7, which no row" in note for note in outcome.notes)


def test_what_a_person_read_is_left_to_a_person(run, upstream, library):
    upstream.publish("python-magic", "99.0", "py3-none-any", ())
    outcome = run("system")
    assert not outcome.changes
    assert any(note.startswith("python-magic 99.0 came after") for note in outcome.notes)


def test_a_release_that_needs_nothing_of_the_system_is_told(run, upstream, library):
    name, _ = library
    upstream.publish(name, "99.0", TAG, (), {f"{name}/_a.so": elf_of("libc.so.6")})
    outcome = run("system")
    assert not outcome.changes
    assert any(note.startswith(f"{name} 99.0 needs nothing of the system") for note in outcome.notes)
