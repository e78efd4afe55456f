"""provision.generate.quote: values stay the one word, or the one line, that they are."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provision.errors import ProvisionError, UsageError
from provision.generate import quote


@pytest.mark.parametrize("value", [None, True, ["a"], {"a": 1}])
def test_what_is_no_text_is_not_printed(value: object) -> None:
    with pytest.raises(ProvisionError, match="is not text"):
        quote.finalize(value)


@pytest.mark.parametrize("text", ["a\nRUN x", "a\rb", "a\x00", "a\x1b[0m", "a\u2028b", "a\u202eb"])
def test_no_value_starts_a_line(text: str) -> None:
    for function in (quote.finalize, quote.quote_shell, quote.quote_dockerfile, quote.quote_variable, quote.join_shell):
        with pytest.raises(UsageError, match="control character"):
            function(text)


@given(st.text().filter(str.isprintable))
def test_quoted_words_stay_one_word(text: str) -> None:
    assert shlex.split(quote.quote_shell(text)) == [text]
    assert shlex.split(quote.join_shell("a", text)) == ["a", text]
    quoted = quote.quote_dockerfile(text)
    assert quoted[0] == quoted[-1] == '"'
    inner = quoted[1:-1]
    assert inner.replace("\\\\", "").replace('\\"', "").replace("\\$", "").count('"') == 0
    assert "$" not in inner.replace("\\\\", "").replace("\\$", "")


def test_a_variable_is_quoted_where_it_must_be() -> None:
    assert quote.quote_variable("/opt/a:/opt/b") == "/opt/a:/opt/b"
    assert quote.quote_variable("/opt/a:${PATH}") == '"/opt/a:${PATH}"'
    assert quote.quote_variable("driver>=1") == '"driver>=1"'
