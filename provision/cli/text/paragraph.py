"""Labelled paragraphs: long sentences on a terminal of any width, with commands that can be copied whole."""

from __future__ import annotations

import re
import textwrap

from provision.cli.output import Output

_COLUMNS = 100
_COLUMNS_MIN, _COLUMNS_MAX = 40, 120
_COMMAND = re.compile(r"`[^`]*`")
_JOINT = "\N{NO-BREAK SPACE}"


def columns_of(output: Output) -> int:
    """Return how wide lines may be: the terminal's width within reason, and a fixed one everywhere else.

    Args:
        output: Where the lines go.
    """
    columns = output.terminal_columns()
    return _COLUMNS if columns is None else max(_COLUMNS_MIN, min(columns, _COLUMNS_MAX))


def wrap(text: str, columns: int, *, lead: str = "", hanging: int | None = None) -> list[str]:
    """Return a text as lines; what stands in backticks stays on one line where it fits on one.

    Args:
        text: One paragraph.
        columns: Width of a line.
        lead: What the first line begins with.
        hanging: Spaces that the other lines begin with; the length of ``lead`` unless given.
    """
    indent = len(lead) if hanging is None else hanging
    room = columns - indent

    def join(match: re.Match[str]) -> str:
        return match[0].replace(" ", _JOINT) if len(match[0]) < room else match[0]

    lines = textwrap.wrap(
        _COMMAND.sub(join, text),
        columns,
        initial_indent=lead,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_JOINT, " ") for line in lines]
