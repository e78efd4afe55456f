from __future__ import annotations

from collections.abc import Mapping

import pytest

from provision.audit.model import Source, Span, Variable
from provision.audit.requirements_file import Listing, read_listing
from provision.audit.shell import content_of
from provision.errors import UsageError


def read(text: str, files: Mapping[str, str] | None = None, file: str = "requirements.txt") -> Listing:
    known = {file: text, **(files or {})}
    source = Source(file, text)
    place = Span(file=file, start=0, end=0)
    variables = {"V": Variable(name="V", value="2.1", kind="env", span=place, name_span=place)}
    return read_listing(
        content_of(source),
        source,
        lambda name: Source(name, known[name]) if name in known else None,
        variables=variables,
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torch==2.1.2+cu118", [("torch", (), "==2.1.2+cu118", "2.1.2+cu118")]),
        ("  torch == 2.1 , != 2.1.1  # why", [("torch", (), "==2.1,!=2.1.1", None)]),
        ("Torch_Vision[B,a]>=0.1", [("torch-vision", ("a", "b"), ">=0.1", None)]),
        ("torch (>=2)", [("torch", (), ">=2", None)]),
        ("torch==2.*", [("torch", (), "==2.*", None)]),
        ("torch @ https://x/torch-2.1-cp310-cp310-linux_x86_64.whl", [("torch", (), "", "2.1")]),
        ("torch @ git+https://h/o/x", [("torch", (), "", None)]),
        ("https://x/torch-2.1.0%2Bcu118-cp310-cp310-linux_x86_64.whl", [("torch", (), "==2.1.0+cu118", "2.1.0+cu118")]),
        ("git+https://h/o/apex.git@main", [("apex", (), "", None)]),
        ("git+https://h/o/x#egg=flash_attn", [("flash-attn", (), "", None)]),
        ("torch==${V}", [("torch", (), "==2.1", "2.1")]),
        ("torch==2.1 --hash=sha256:00 \\\n    --hash=sha256:11", [("torch", (), "==2.1", "2.1")]),
        ("torch\\\n==2.1", [("torch", (), "==2.1", "2.1")]),
        ("\ufefftorch\r\n", [("torch", (), "", None)]),
    ],
)
def test_a_line_is_read_as_pip_reads_it(
    line: str, expected: list[tuple[str, tuple[str, ...], str, str | None]]
) -> None:
    found = read(line)
    assert [(item.name, item.extras, item.specifier, item.version) for item in found.requirements] == expected
    assert found.is_complete


def test_hashes_and_markers_are_noticed() -> None:
    found = read("torch==2.1 ; python_version < '3.12' --hash=sha256:00\nnumpy\n").requirements
    assert [(item.is_hashed, item.marker, item.applies) for item in found] == [
        (True, "python_version < '3.12'", None),
        (False, "", True),
    ]


def test_files_are_followed_from_where_they_are_named() -> None:
    files = {"sub/b.txt": "numpy\n-c c.txt\n", "sub/c.txt": "numpy<2\n"}
    found = read("-r b.txt\ntorch\n", files, file="sub/a.txt")
    assert [item.name for item in found.requirements] == ["numpy", "torch"]
    assert [item.text for item in found.constraints] == ["numpy<2"]
    assert found.sources == ["sub/a.txt", "sub/b.txt", "sub/c.txt"]


def test_a_file_that_names_itself_ends() -> None:
    assert not read("-r requirements.txt\ntorch\n").is_complete


@pytest.mark.parametrize(
    "line", [".", "./x", "-e .", "-r missing.txt", "torch==${UNKNOWN}", "--frobnicate", "-r https://x/y"]
)
def test_what_cannot_be_known_leaves_it_incomplete(line: str) -> None:
    assert not read(f"numpy\n{line}\n").is_complete


def test_options_of_indexes_are_kept_in_order() -> None:
    found = read("-i https://a\n--extra-index-url=https://b\n--find-links https://c # note\n--no-index\n--pre\n")
    assert [(item.kind, item.url) for item in found.indexes] == [
        ("index", "https://a"),
        ("extra", "https://b"),
        ("find-links", "https://c"),
    ]
    assert found.has_no_index
    assert found.is_complete


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("numpy\ntorch = 2.1\n", "requirements.txt:2: `torch = 2.1` is not a requirement"),
        ("==2\n", "requirements.txt:1: "),
        ("torch>=2.*\n", "requirements.txt:1: "),
        ("-i\n", "requirements.txt:1: -i lacks its value"),
        ("-X\n", "requirements.txt:1: `-X` is not an option"),
    ],
)
def test_a_malformed_line_is_refused_with_its_number(text: str, where: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert caught.value.message.startswith(where)


@pytest.mark.parametrize("text", ["torch>=2.0.0+cu118", "torch >= 2.5.1+cu124", "torch~=2.1.0+cu118"])
def test_a_local_version_has_no_order(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        read(f"{text}\n")
    assert any("local version" in reason for reason in raised.value.because)
