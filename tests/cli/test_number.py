"""One reader for the numbers of all flags: what it takes, and how it says what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.cli.number import SCALES, number, read_number, whole
from provision.errors import UsageError

TRACE = str(Path(__file__).resolve().parents[2] / "docs" / "traces" / "stages.csv")


@pytest.mark.parametrize(
    ("text", "value"), [("8", 8), (" 8 ", 8), ("1.5", 1.5), (".5", 0.5), ("2e3", 2000), ("8b", 8e9), ("1.5 T", 1.5e12)]
)
def test_a_number_may_end_in_a_unit_that_the_flag_takes(text, value):
    assert number("--tokens", units=SCALES)(text) == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not a number"),
        ("many", "is not a number"),
        ("nan", "is not a number"),
        ("inf", "is not a number"),
        ("1e999", "is not a number"),
        ("1_000", "is not a number"),
        ("٣", "is not a number"),
        ("0.001", "is not from 0.01 to 24"),
        ("25", "is not from 0.01 to 24"),
        ("-1", "is not from 0.01 to 24"),
    ],
)
def test_what_is_no_number_or_beyond_the_bounds_is_told_with_the_flag_and_the_way_out(text, reason):
    with pytest.raises(UsageError) as caught:
        number("--hours", 0.01, 24)(text)
    assert caught.value.message.startswith("--hours `")
    assert caught.value.message.endswith(reason)
    assert caught.value.hints == ("write a number from 0.01 to 24",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("300h", "`h` is not a unit it takes"),
        ("5,67", "a point parts decimals, and nothing parts thousands"),
        ("1,000", "a point parts decimals, and nothing parts thousands"),
        ("1.000,50", "a point parts decimals, and nothing parts thousands"),
    ],
)
def test_a_unit_and_a_comma_are_named_as_the_reason(text, reason):
    with pytest.raises(UsageError) as caught:
        number("--hours")(text)
    assert caught.value.because == (reason,)


def test_the_units_that_are_taken_are_named_beside_one_that_is_not():
    with pytest.raises(UsageError) as caught:
        number("--params", units=SCALES)("8bn")
    assert caught.value.because == ("`bn` is not a unit it takes; these are k, m, g, b, t",)


def test_a_bound_that_is_not_taken_itself_is_called_above():
    assert number("--budget", is_above=True)("0.5") == 0.5
    with pytest.raises(UsageError, match="--budget `0` is not above 0") as caught:
        number("--budget", is_above=True, example="8")("0")
    assert caught.value.hints == ("write a number above 0, as in `--budget 8`",)


def test_a_whole_number_may_be_written_with_an_exponent_but_has_no_rest():
    assert whole("--gpus")("1e2") == 100
    assert isinstance(whole("--gpus")("8"), int)
    with pytest.raises(UsageError, match=r"--gpus `4\.5` is not a whole number"):
        whole("--gpus")("4.5")


def test_a_flag_that_was_not_given_has_its_default():
    assert read_number("--price", None, 0, 5, 2.0) == 2.0
    assert read_number("--price", "0", 0, 5, 2.0) == 0


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("plan", "--task", "finetune", "--model", "llama-3.1-8b", "--hours", "3x"), "--hours"),
        (("predict", "--task", "train", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "3x"), "--gpus"),
        (("bench", "run", "--seconds", "3x"), "--seconds"),
        (("bench", "run", "--warmup", "3x"), "--warmup"),
        (("cluster", "--torch", "2.8", "-o", "c", "--nodes", "3x"), "--nodes"),
        (("tune", "--nodes", "3x"), "--nodes"),
        (("fleet", "spot", "-o", "s", "--provider", "aws", "--margin-seconds", "3x"), "--margin-seconds"),
        (("fleet", "simulate", TRACE, "--gpus", "4", "--price", "3x"), "--price"),
        (("fleet", "idle", "--prometheus", "http://127.0.0.1:9", "--minutes", "3x"), "--minutes"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_every_command_words_a_number_that_is_none_alike(provision, words, flag):
    answer = provision(*words)
    assert answer.code == 2
    said = answer.err.replace("whole ", "").splitlines()
    assert said[0] == f"error: {flag} `3x` is not a number"
    assert "`x` is not a unit it takes" in said[1]
    assert said[3].startswith("hint: write a number ")
