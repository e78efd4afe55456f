"""Text from a target is anybody's text: what could command a terminal or break a line is taken out."""

from __future__ import annotations

import re

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor moves
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # operating system commands: titles, links, clipboard
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # strings sent to the device
    r"|\x1b[ -/]*[0-~]?"  # all other escapes
)
_CONTROLS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f"
    r"\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f"  # seen by no reader
    r"\ud800-\udfff\ufffe\uffff]"  # in no document: halves of characters, and what is none
)


def clean(text: str) -> str:
    """Return a text without terminal escapes and control characters; line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n")))


def clean_line(text: str, characters_max: int = 400) -> str:
    """Return a text fit for one line: cleaned, white space collapsed, cut with an ellipsis."""
    line = " ".join(clean(text).split())
    return line if len(line) <= characters_max else line[: characters_max - 1] + "…"
