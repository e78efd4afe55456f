from __future__ import annotations

import pytest

from provision.audit.model import Source, Span


@pytest.mark.parametrize(
    ("text", "start", "end", "expected"),
    [
        ("ab\ncd\n", 0, 2, (1, 1, 2, "ab")),
        ("ab\ncd\n", 4, 5, (2, 2, 1, "cd")),
        ("ab\r\ncd", 4, 6, (2, 1, 2, "cd")),
        ("ab\ncd", 1, 5, (1, 2, 1, "ab")),
        ("\ufeffab\n", 1, 3, (1, 1, 2, "ab")),
        ("", 0, 0, (1, 1, 0, "")),
        ("a\n", 2, 2, (2, 1, 0, "")),
    ],
)
def test_a_span_has_a_line_and_a_column(text: str, start: int, end: int, expected: tuple[int, int, int, str]) -> None:
    place = Source("f", text).position(Span(file="f", start=start, end=end))
    assert (place.line, place.column, place.length, place.text) == expected
