"""Wheels on a server: only what is wanted is fetched, and what is broken is said."""

from __future__ import annotations

import hashlib
import random

import pytest
from upstream import Reply, metadata_of, torch_members, wheel_of

from provision.index.page import IndexFile
from provision.refresh.binary import ARCH_LIST, assignments_of, newest_glibc, targets_of
from provision.refresh.client import UnreachableError
from provision.refresh.wheel import WheelReader, parse_metadata, requires_of_egg

FILE = "x-1-py3-none-any.whl"
NOISE = random.Random(1).randbytes(3_000_000)  # noqa: S311 - noise that does not compress


def put(upstream, content: bytes, **fields: object) -> IndexFile:
    upstream.replies[f"/files/{FILE}"] = Reply(content)
    values = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)} | fields
    return IndexFile(file=FILE, url=f"{upstream.url}/files/{FILE}", **values)


def test_a_wheel_is_measured_from_its_end(upstream, client):
    content = wheel_of("x", "1", ("numpy>=1.2", 'y; extra == "z"'), {"x/big.so": NOISE})
    found = WheelReader(client).contents(put(upstream, content))
    assert found.size == len(content)
    assert found.installed > len(NOISE)
    assert found.requires_dist == ("numpy>=1.2", 'y; extra == "z"')
    assert client.counts.received < 300_000


def test_what_was_read_once_is_kept_by_hash(upstream, client, tmp_path):
    row = put(upstream, wheel_of("x", "1", ("numpy",)))
    first = WheelReader(client, tmp_path).contents(row)
    before = client.counts.requests
    assert WheelReader(client, tmp_path).contents(row) == first
    assert client.counts.requests == before
    WheelReader(client, tmp_path).contents(put(upstream, wheel_of("x", "1"), sha256=None))
    assert client.counts.requests > before, "a file without a hash could be any file"


def test_metadata_beside_the_wheel_spares_the_wheel(upstream, client):
    row = put(upstream, b"no wheel at all", has_metadata=True)
    upstream.replies[f"/files/{FILE}.metadata"] = Reply(metadata_of("x", "1", [["numpy", ">=2", "", ""]]))
    assert WheelReader(client).metadata(row) == (("numpy>=2",), None)


def test_metadata_with_another_hash_is_refused(upstream, client):
    row = put(upstream, b"", has_metadata=True, metadata_sha256="0" * 64)
    upstream.replies[f"/files/{FILE}.metadata"] = Reply(metadata_of("x", "1", []))
    with pytest.raises(UnreachableError, match="not the file of its index"):
        WheelReader(client).metadata(row)


def test_promised_metadata_that_is_absent_is_read_from_the_wheel(upstream, client):
    row = put(upstream, wheel_of("x", "1", ("numpy",)), has_metadata=True)
    assert WheelReader(client).metadata(row)[0] == ("numpy",)


@pytest.mark.parametrize(
    ("content", "fields", "why"),
    [
        pytest.param(b"<html>sign in</html>", {}, "is not a zip archive", id="no zip"),
        pytest.param(wheel_of("x", "1")[:-30], {}, "is not a zip archive", id="cut off"),
        pytest.param(wheel_of("x", "1"), {"size": 5000}, "not the file of its index", id="another size"),
    ],
)
def test_a_broken_wheel_is_said(upstream, client, content, fields, why):
    with pytest.raises(UnreachableError, match=why):
        WheelReader(client).contents(put(upstream, content, **fields))


def test_a_damaged_member_is_said(upstream, client):
    content = bytearray(wheel_of("x", "1", ("numpy>=1",)))
    content[60:70] = b"\xff" * 10
    with pytest.raises(UnreachableError, match="cannot be read"):
        WheelReader(client).contents(put(upstream, bytes(content)))


def test_a_member_that_claims_to_be_huge_is_not_unpacked(upstream, client):
    content = wheel_of("x", "1", members={"x/bomb.py": b"\0" * 40_000_000})
    with WheelReader(client).open(put(upstream, content)) as wheel, pytest.raises(UnreachableError) as caught:
        wheel.read("x/bomb.py")
    assert "claims to have 40000000 bytes" in caught.value.because[0]


def test_a_search_stops_where_it_finds(upstream, client):
    library = b"\0sm_80 sm_90 compute_90\0" + NOISE + NOISE
    content = wheel_of("x", "1", members={"x/lib.so": library})
    with WheelReader(client).open(put(upstream, content)) as wheel:
        assert targets_of(wheel.scan("x/lib.so", ARCH_LIST)) == (("sm_80", "sm_90"), ("compute_90",))
        assert wheel.scan("x/none.so", ARCH_LIST) is None
    assert client.counts.received < 2_000_000


@pytest.mark.parametrize("place", [1024 * 1024 - 9, 1024 * 1024, 2 * 1024 * 1024 - 1])
def test_a_search_finds_across_the_edge_of_a_piece(upstream, client, place):
    library = NOISE[:place] + b"\0sm_80 sm_90\0" + NOISE[:100_000]
    with WheelReader(client).open(put(upstream, wheel_of("x", "1", members={"x.so": library}))) as wheel:
        assert targets_of(wheel.scan("x.so", ARCH_LIST)) == (("sm_80", "sm_90"), ())


def test_a_file_that_changes_while_it_is_read_is_refused(upstream, client):
    content = wheel_of("x", "1", members={"x/a.bin": NOISE})
    row = put(upstream, content)
    with WheelReader(client).open(row) as wheel:
        upstream.replies[f"/files/{FILE}"] = Reply(content + b"more")
        with pytest.raises(UnreachableError, match="changed while it was read"):
            wheel.read("x/a.bin")


@pytest.mark.parametrize("text", [b"", b"Name: x\n", b"Metadata-Version: 2.1\n", b"Metadata-Version: 9.0\nName: x\n"])
def test_what_is_no_metadata_is_refused(text):
    with pytest.raises(UnreachableError, match="metadata"):
        parse_metadata(text, "x.whl")


def test_requires_of_a_source_distribution_become_requires_dist():
    text = 'numpy>=1.21\n\n[:python_version < "3.10"]\nimportlib_metadata>=4.6\n\n[cuda12_pip]\njaxlib==0.4.13\n'
    assert requires_of_egg(f'{text}\n[a:os_name == "nt"]\nx\n') == (
        "numpy>=1.21",
        'importlib_metadata>=4.6 ; (python_version < "3.10")',
        'jaxlib==0.4.13 ; extra == "cuda12_pip"',
        'x ; (os_name == "nt") and extra == "a"',
    )


def test_binaries_are_read_and_never_run():
    assert newest_glibc(torch_members("")["torch/lib/libc10.so"]) == "2.17"
    assert newest_glibc(b"nothing") is None
    text = "import os\nos.abort()\nx = f()\nbuild_info = collections.OrderedDict([('cuda', '12.5'), ('n', [1])])\n"
    assert assignments_of(text) == {"build_info": {"cuda": "12.5", "n": [1]}}
    assert assignments_of("def (") == {}
    assert targets_of(None) is None
