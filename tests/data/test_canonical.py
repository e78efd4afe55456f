"""Reading a fact file and writing it again gives the same bytes."""

from __future__ import annotations

import datetime
import json
import tomllib
from pathlib import Path

import pytest

from provision.assets import asset_dir
from provision.matrix.canonical import encode_json, encode_pretty, encode_toml
from provision.matrix.model import ARRAY_OF

COMPAT = asset_dir("compat")


@pytest.mark.parametrize("name", ARRAY_OF)
def test_toml_survives_a_round_trip(name: str) -> None:
    text = (COMPAT / name).read_text(encoding="utf-8")
    assert encode_toml(name, tomllib.loads(text)) == text


@pytest.mark.parametrize(
    "path",
    [*sorted((COMPAT / "wheels").glob("*.json")), *sorted((COMPAT / "published").glob("*.json"))],
    ids=lambda path: f"{path.parent.name}/{path.name}",
)
def test_json_survives_a_round_trip(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert encode_json(json.loads(text)) == text


@pytest.mark.parametrize("path", sorted((COMPAT / "shapes").glob("*.json")), ids=lambda path: path.name)
def test_shapes_survive_a_round_trip(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert encode_pretty(json.loads(text)) == text


def head(**arrays: object) -> dict[str, object]:
    return {"schema_version": 1, "dated": datetime.date(2026, 1, 2), **arrays}


ROW = {"version": "3.11", "source": ["guide"], "where": "there", "status": "stated", "confidence": "high"}


def test_keys_come_in_the_order_of_the_class() -> None:
    shuffled = {key: ROW[key] for key in reversed(ROW)} | {"released": datetime.date(2022, 10, 24)}
    lines = encode_toml("python.toml", head(python=[shuffled])).splitlines()
    assert [line.split(" ")[0] for line in lines[5:]] == [
        "version",
        "released",
        "source",
        "where",
        "status",
        "confidence",
    ]


def test_absent_values_leave_no_trace() -> None:
    bare = encode_toml("python.toml", head(python=[ROW]))
    assert encode_toml("python.toml", head(python=[{**ROW, "note": None, "because": [], "evidence": {}}])) == bare


@pytest.mark.parametrize(
    "text",
    ['say "so"', "back\\slash", "tab\there", "\x1f and \x7f", "glibc ≥ 2.28 ü", "'apostrophe'", "#no comment"],
    ids=ascii,
)
def test_any_text_is_written_so_that_it_is_read_back(text: str) -> None:
    document = head(python=[{**ROW, "note": text, "evidence": {"version": {"where": text}}}])
    assert tomllib.loads(encode_toml("python.toml", document)) == document


def test_long_lists_go_one_item_a_line_so_that_a_change_is_one_line() -> None:
    row = {**ROW, "source": [f"publication-{number}" for number in range(20)]}
    lines = encode_toml("python.toml", head(python=[row])).splitlines()
    assert '    "publication-7",' in lines


def test_awkward_keys_are_quoted() -> None:
    setting = {**{key: ROW[key] for key in ("source", "where", "status", "confidence")}, "id": "x"}
    document = head(setting=[{**setting, "entries": {"12.4": "a", "with space": "b", "plain-1": "c", "": "d"}}])
    assert tomllib.loads(encode_toml("cuda.toml", document)) == document


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(ValueError, match="colour"):
        encode_toml("python.toml", head(python=[{**ROW, "colour": "green"}]))


def test_a_value_without_a_place_is_refused() -> None:
    with pytest.raises(TypeError, match="set"):
        encode_toml("python.toml", head(python=[{**ROW, "note": {"a", "b"}}]))


def test_json_keeps_one_release_a_line() -> None:
    releases = [{"version": "2.0", "index": "pypi"}, {"version": "1.0", "index": "pypi"}]
    lines = encode_json({"schema_version": 1, "package": "x", "releases": releases}).splitlines()
    assert lines[-4:] == ['{"version":"2.0","index":"pypi"},', '{"version":"1.0","index":"pypi"}', "]", "}"]
