"""What is written reads back as it was, for readers of YAML 1.1 and of 1.2."""

from __future__ import annotations

import re

import pytest
import yaml

from provision.generate.cluster.manifest import to_yaml

MISREAD = ["1e3", "0e123456", "y", "N", "on", "No", "null", "~", "012", "1:30", "1_000", "0x1F", ".5", "2026-01-01", ""]


@pytest.mark.parametrize(
    "text", [*MISREAD, "a: b", "- x", "#x", "*a", "&a", "'", '"', "a\\b", "{x}", "train.py", "/dev/shm"]
)
def test_a_string_stays_one(text: str) -> None:
    assert yaml.safe_load(to_yaml((), ({"key": text},))) == {"key": text}


@pytest.mark.parametrize("text", MISREAD)
def test_what_another_reader_takes_for_a_number_or_a_truth_value_is_quoted(text: str) -> None:
    assert re.search(r'key: "', to_yaml((), ({"key": text},)))


def test_keys_keep_their_order_and_documents_are_parted() -> None:
    text = to_yaml(("a comment",), ({"b": 1, "a": True}, {"c": ["x"]}))
    assert text == "# a comment\n---\nb: 1\na: true\n---\nc:\n  - x\n"


def test_the_same_object_twice_is_written_twice() -> None:
    shared = {"x": "z"}
    assert "&" not in to_yaml((), ({"a": shared, "b": shared},))


def test_a_text_of_several_lines_is_a_block() -> None:
    assert to_yaml((), ({"a": "x: q\nw: v\n"},)) == "---\na: |\n  x: q\n  w: v\n"


def test_a_comment_cannot_begin_another_line() -> None:
    with pytest.raises(ValueError, match="line end"):
        to_yaml(("a\nkey: value",), ())
