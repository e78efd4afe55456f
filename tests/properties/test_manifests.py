"""Whatever a text holds, it reads back as that text."""

from __future__ import annotations

import string

import yaml
from hypothesis import given
from hypothesis import strategies as st

from provision.generate.cluster.manifest import to_yaml

PRINTABLE = st.text(st.sampled_from(string.printable), max_size=60)
LIKE_NUMBERS = st.from_regex(r"[-+0-9.eExXoO_:yYnN~]{1,12}", fullmatch=True)


@given(st.one_of(PRINTABLE, LIKE_NUMBERS, st.text(max_size=20)))
def test_a_value_reads_back_as_it_was(text: str) -> None:
    assert yaml.safe_load(to_yaml((), ({"key": text, "list": [text]},))) == {"key": text, "list": [text]}


@given(st.dictionaries(PRINTABLE, PRINTABLE, max_size=4))
def test_keys_do_too(document: dict[str, str]) -> None:
    assert yaml.safe_load(to_yaml((), (document,))) == document


@given(LIKE_NUMBERS)
def test_no_reader_sees_a_number_in_a_text(text: str) -> None:
    (line,) = to_yaml((), ({"key": text},)).splitlines()[1:]
    value = line.removeprefix("key: ")
    assert value.startswith('"') or value[0].isalpha()
