"""Variables of the command line are data, whatever they look like."""

from __future__ import annotations

from typing import Any

import pytest

from provision.errors import UsageError
from provision.node.variables import parse_variables


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("a=b", "b"),
        ("a=", ""),
        ("a=b=c", "b=c"),
        ("a=true", True),
        ("a=no", False),
        ("a=null", None),
        ("a=7", 7),
        ("a=12.10", "12.10"),
        ("a=007", "007"),
        ('a=["x", 1]', ["x", 1]),
        ('a={"x": {"y": null}}', {"x": {"y": None}}),
        ('a="7"', "7"),
        ("a=$(reboot); `reboot`", "$(reboot); `reboot`"),
    ],
)
def test_value_is_read_as_written(word: str, value: Any) -> None:
    assert parse_variables([word]) == {"a": value}


@pytest.mark.parametrize(
    "word",
    [
        "a",
        "=a",
        "1a=b",
        "a-b=c",
        "a b=c",
        "a={{ lookup('pipe', 'id') }}",
        "a={% raw %}",
        'a="\\u007b\\u007b 1 }}"',
        'a=[{"x": "\\u007b% raw %}"}]',
        'a={"\\u007b{ x }}": 1}',
        "a=[1",
        "a={",
        "@file",
        "a=\0",
    ],
)
def test_anything_else_is_refused_by_name(word: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_variables([word])
    assert "-e" in refused.value.message


def test_lock_cannot_be_set_as_a_variable() -> None:
    with pytest.raises(UsageError, match="--lock FILE"):
        parse_variables(["provision_lock={}"])


def test_same_key_twice_is_refused_unless_it_says_the_same() -> None:
    assert parse_variables(["a=1", "a=1"]) == {"a": 1}
    with pytest.raises(UsageError, match="two values"):
        parse_variables(["a=1", "a=2"])
