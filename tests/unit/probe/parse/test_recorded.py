"""Recorded text is taken in bounded and cleaned, and refused where it is not text at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.probe.output import Unreadable
from provision.probe.parse import recorded


def test_lines_keep_their_indentation_and_lose_escapes_and_ends() -> None:
    assert recorded.read_lines("\x1b[31m  red\x1b[0m \r\n\r\nlast\t", "it") == ["  red", "", "last"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("ELF\0\0\0", id="zero-bytes"),
        pytest.param("ab\ufffd\ufffd", id="undecoded"),
        pytest.param("\n" * (recorded.ITEMS_MAX + 1), id="too-many-lines"),
    ],
)
def test_what_is_no_listing_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match=r"^it "):
        recorded.read_lines(text, "it")


def test_one_undecoded_letter_in_a_long_text_does_no_harm() -> None:
    assert recorded.read_lines("Z\ufffdrich " + "x" * 40, "it") == ["Z\ufffdrich " + "x" * 40]


def test_halves_of_characters_never_reach_a_record() -> None:
    recorded.kept("half \ud800 of one").encode()
    "".join(recorded.read_lines("half \udfff of a character that is longer", "it")).encode()


def test_kept_text_is_one_short_line() -> None:
    assert recorded.kept("a\nb\x1b]0;title\x07c") == "a bc"
    assert len(recorded.kept("x" * 1000)) == 400


@pytest.mark.parametrize(
    ("word", "value"), [("0", 0), ("-1", -1), ("+7", 7), ("999999999999999999", 999_999_999_999_999_999)]
)
def test_whole_numbers(word: str, value: int) -> None:
    assert recorded.read_integer(word, "it") == value


@pytest.mark.parametrize("word", ["", "1.0", "0x10", "1_000", "\u0661", "1" * 19, " 1", "N/A"])
def test_what_is_no_whole_number_is_refused(word: str) -> None:
    with pytest.raises(Unreadable, match="it is not a whole number"):
        recorded.read_integer(word, "it")


@pytest.mark.parametrize(("word", "value"), [("0", 0.0), ("-1.5", -1.5), (".5", 0.5), ("5.", 5.0), ("1e-3", 0.001)])
def test_numbers(word: str, value: float) -> None:
    assert recorded.read_number(word, "it") == value


@pytest.mark.parametrize("word", ["", ".", "nan", "inf", "1e", "1e999", "1_0", "0x1p3", "1,5"])
def test_what_is_no_finite_number_is_refused(word: str) -> None:
    with pytest.raises(Unreadable, match="it is not a number"):
        recorded.read_number(word, "it")


@pytest.mark.parametrize(
    ("word", "value"), [("yes", True), ("No", False), ("1", True), ("0", False), ("TRUE", True), ("off", False)]
)
def test_switches(word: str, value: bool) -> None:
    assert recorded.read_switch(word, "it") is value


@pytest.mark.parametrize("word", ["", "2", "maybe", "yes please"])
def test_what_is_no_switch_is_refused(word: str) -> None:
    with pytest.raises(Unreadable, match="neither yes nor no"):
        recorded.read_switch(word, "it")


def test_pairs_keep_what_is_known_and_the_last_of_repeated_ones() -> None:
    lines = ["kind=kvm", "", "later=thing", "kind=xen", "vendor=a=b"]

    assert recorded.pairs_of(lines, "it", frozenset({"kind", "vendor"})) == {"kind": "xen", "vendor": "a=b"}


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([], id="nothing"),
        pytest.param(["later=thing"], id="only-unknown"),
        pytest.param(["kind=kvm", "bash: command not found"], id="noise"),
        pytest.param(["=kvm"], id="no-key"),
    ],
)
def test_pairs_of_another_text_are_refused(lines: list[str]) -> None:
    with pytest.raises(Unreadable, match=r"^it "):
        recorded.pairs_of(lines, "it", frozenset({"kind"}))


def test_parts_stand_below_their_headings() -> None:
    assert recorded.headed(["", "== a b", "one", "", "== c", "== d", " two"], "it") == [
        ("a b", ["one"]),
        ("c", []),
        ("d", [" two"]),
    ]
    assert recorded.headed(["", ""], "it") == []


def test_text_before_the_first_heading_is_refused() -> None:
    with pytest.raises(Unreadable, match="begins with something else"):
        recorded.headed(["one", "== a"], "it")


def test_more_items_than_a_machine_has_are_refused() -> None:
    assert recorded.bounded([1, 2], "it") == (1, 2)
    with pytest.raises(Unreadable, match="more than"):
        recorded.bounded([0] * (recorded.ITEMS_MAX + 1), "it")


def test_frozen_mappings_neither_change_nor_follow_their_source() -> None:
    source = {"a": 1}
    kept = recorded.frozen(source)
    source["a"] = 2

    assert kept["a"] == 1
    with pytest.raises(TypeError):
        kept["a"] = 3  # type: ignore[index]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1,]", "NaN", '{"a": Infinity}', "[" * 100_000, "1" * 5000, "\ud800", '{"a": 1} {"b": 2}'],
    ids=["empty", "cut", "comma", "nan", "infinity", "deep", "huge-number", "half-character", "two"],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match="it is not JSON"):
        recorded.load_json(text, "it")


@pytest.mark.parametrize(
    "text",
    ["a", "a = ", "a = 1\na = 2", "a = " + "[" * 4_000],
    ids=["bare", "no-value", "twice", "deep"],
)
def test_what_is_no_toml_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match="it is not TOML"):
        recorded.load_toml(text, "it")


@pytest.mark.parametrize(
    "text", ["a." * 100_000 + "b = 1", "# comment\n" * 200_000], ids=["key-of-many-parts", "too-long"]
)
def test_toml_that_would_take_long_is_refused_unread(text: str) -> None:
    with pytest.raises(Unreadable, match="usual size"):
        recorded.load_toml(text, "it")


@given(st.text(alphabet=st.characters(), max_size=200))
def test_no_text_ends_in_another_exception(text: str) -> None:
    for read in (recorded.read_lines, recorded.load_json, recorded.load_toml, recorded.read_number):
        try:
            read(text, "it")
        except Unreadable as error:
            error.reason.encode()
            assert "\n" not in error.reason
