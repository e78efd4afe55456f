"""What could command a terminal, hide from a reader or break a document goes; the rest stays."""

from __future__ import annotations

import sys
from xml.etree import ElementTree as ET

import pytest

from provision.probe.clean import clean, clean_line


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        pytest.param("\x1b[31mred\x1b[0m", "red", id="colour"),
        pytest.param("\x1b]0;title\x07x", "x", id="title"),
        pytest.param("a\r\nb\tc\rd", "a\nb\tcd", id="line-ends"),
        pytest.param("a\u202eb\u2066c\u061cd\u200fe", "abcde", id="directions"),
        pytest.param("pass\u200bwo\u00adrd\u2060=\ufeffx", "password=x", id="seen-by-nobody"),
        pytest.param("a\U000e0041b", "ab", id="tags"),
        pytest.param("a\ufffeb\uffffc\ud800d\udfffe", "abcde", id="no-characters"),
        pytest.param("Grün 温度 \ufffd \U0001f600", "Grün 温度 \ufffd \U0001f600", id="words-stay"),
    ],
)
def test_what_no_reader_should_meet_goes(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


def test_every_character_that_stays_may_stand_in_a_document() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    left = clean(every.replace("\x1b", ""))
    assert {"a", "\n", "\t", "\ufffd", "\U0010ffff"} <= set(left)
    left.encode("utf-8")
    root = ET.Element("x")
    root.text = left
    assert ET.fromstring(ET.tostring(root, encoding="unicode")).text == left


def test_one_line_is_one_line() -> None:
    assert clean_line("a \n\t b\u2028c" + "d" * 500) == ("a bc" + "d" * 395 + "…")
