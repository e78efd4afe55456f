"""How `--help` looks: argparse's page with paragraphs, examples and usage that keep within the terminal."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from typing import Any

_COMMANDS = ("provision ", "eval ")
_CHOICES_MAX = 32
_COLUMN = r"\s*\S.*?\s{2,}(?=\S)"
_FLAG_OR_WORD = r"""(?:(?<=\s)-[\w-]+ (?=[^\s-]))?(?:'[^']*'|"[^"]*"|\S)+"""
"""A word of a call, with the flag whose value it is; what stands in quotes is one word."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Fill paragraphs to the width of the terminal, and leave lists and examples the lines they have.

    A line that is indented or is a call of the program is one of a list or an example. Where it is too long it goes on
    below its second column, and a call behind a backslash, so that it can still be pasted.
    """

    _is_in_usage = False

    def _format_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[Any],
        prefix: str | None,
    ) -> str:
        self._is_in_usage = True
        try:
            return super()._format_usage(usage, actions, groups, prefix)
        finally:
            self._is_in_usage = False

    def _metavar_formatter(self, action: argparse.Action, default_metavar: str) -> Callable[[int], tuple[str, ...]]:
        """Name the value of a flag in the usage where the words it takes would not fit; they are listed below it."""
        is_long = action.metavar is None and len(",".join(map(str, action.choices or ()))) > _CHOICES_MAX
        if self._is_in_usage and is_long:
            return lambda count: (default_metavar,) * count
        return super()._metavar_formatter(action, default_metavar)

    def _split_lines(self, text: str, width: int) -> list[str]:
        """Return the help of a flag as lines; words with hyphens and what stands in backticks stay whole."""
        from provision.cli.text.paragraph import wrap

        return wrap(" ".join(text.split()), width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        from provision.cli.text.paragraph import wrap

        lines: list[str] = []
        flowing: list[str] = []
        for line in (*text.strip("\n").splitlines(), ""):
            if line and not line.startswith((" ", *_COMMANDS)):
                flowing.append(line)
                continue
            if flowing:
                lines += wrap(" ".join(flowing), width, lead=indent)
                flowing.clear()
            lines += _fold(line, width, indent)
        return "\n".join(lines[:-1])


def _fold(line: str, width: int, indent: str) -> list[str]:
    """Return a line of a list or an example as one line, or as more where the width is too small for it."""
    from provision.cli.text.paragraph import wrap

    if len(indent + line) <= width:
        return [indent + line if line else ""]
    text = line.lstrip()
    lead = indent + line[: len(line) - len(text)]
    if text.startswith(_COMMANDS):
        return _fold_call(text, width, lead)
    column = re.match(_COLUMN, line)
    return wrap(line[column.end() :] if column else text, width, lead=indent + column[0] if column else lead)


def _fold_call(call: str, width: int, lead: str) -> list[str]:
    """Return a call of the program as lines that can be pasted together: a flag and its value stand on one."""
    first, *others = re.findall(_FLAG_OR_WORD, call)
    lines = [lead + first]
    for word in others:
        if len(f"{lines[-1]} {word} \\") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"{lead}    {word}")
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def part_examples(description: str) -> tuple[str, str]:
    """Part what a parser says of itself: the prose, and the lines of its examples, empty where it has none."""
    prose, _, examples = f"\n{description.strip()}".partition("\nExamples:\n")
    return prose.strip(), examples
