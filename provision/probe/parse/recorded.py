"""How recorded text is taken in: bounded, cleaned, and refused where it is not text at all."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from provision.probe.clean import clean, clean_line
from provision.probe.output import Unreadable

ITEMS_MAX = 100_000
"""More lines, records or elements than this are no listing of one machine."""

_CHARACTERS_MAX = 64 * 1024 * 1024
_TOML_CHARACTERS_MAX = 1024 * 1024
_TOML_LINE_MAX = 4096
_SHARE_UNDECODED_MAX = 20
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][+-]?[0-9]{1,2})?")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_SWITCHES = {"yes": True, "true": True, "1": True, "on": True, "no": False, "false": False, "0": False, "off": False}

_Item = TypeVar("_Item")
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def read_lines(text: str, what: str) -> list[str]:
    """Return the lines of a text, cleaned, white space at their ends dropped, empty ones kept.

    Args:
        text: As it came from the target.
        what: The tool or file, for the refusal.

    Raises:
        Unreadable: It is binary, or longer than any listing of one machine.
    """
    if len(text) > _CHARACTERS_MAX:
        raise Unreadable(f"{what} is longer than any listing of one machine")
    if "\0" in text or text.count("\ufffd") * _SHARE_UNDECODED_MAX > len(text):
        raise Unreadable(f"{what} is binary")
    lines = [line.rstrip() for line in clean(_SURROGATES.sub("\ufffd", text)).split("\n")]
    if len(lines) > ITEMS_MAX:
        raise Unreadable(f"{what} has more than {ITEMS_MAX} lines")
    return lines


def kept(text: str, characters_max: int = 400) -> str:
    """Return a word or sentence fit for a record: one line, without escapes, control characters or half characters."""
    return clean_line(_SURROGATES.sub("\ufffd", text), characters_max)


def bounded(items: Sequence[_Item], what: str) -> tuple[_Item, ...]:
    """Return items as a tuple.

    Raises:
        Unreadable: There are more than :data:`ITEMS_MAX`.
    """
    if len(items) > ITEMS_MAX:
        raise Unreadable(f"{what} lists more than {ITEMS_MAX} entries")
    return tuple(items)


def frozen(items: Mapping[_Key, _Value]) -> Mapping[_Key, _Value]:
    """Return a mapping that cannot be changed through what is returned."""
    return MappingProxyType(dict(items))


def read_integer(word: str, what: str) -> int:
    """Return a whole number of at most 18 digits.

    Raises:
        Unreadable: The word is something else.
    """
    if not _INTEGER.fullmatch(word):
        raise Unreadable(f"{what} is not a whole number: `{kept(word, 40)}`")
    return int(word)


def read_number(word: str, what: str) -> float:
    """Return a finite number.

    Raises:
        Unreadable: The word is something else.
    """
    if not _NUMBER.fullmatch(word):
        raise Unreadable(f"{what} is not a number: `{kept(word, 40)}`")
    return float(word)


def read_switch(word: str, what: str) -> bool:
    """Return what ``yes``, ``true``, ``on`` and ``1``, or their opposites, say.

    Raises:
        Unreadable: The word is something else.
    """
    if (answer := _SWITCHES.get(word.lower())) is None:
        raise Unreadable(f"{what} is neither yes nor no: `{kept(word, 40)}`")
    return answer


def pairs_of(lines: Sequence[str], what: str, known: frozenset[str]) -> dict[str, str]:
    """Return key → value of ``key=value`` lines, those with other keys left out; of repeated ones the last.

    A later collector may tell more than is known here, but a text that tells nothing of what is known is another text.

    Args:
        lines: From :func:`read_lines`.
        what: The probe, for the refusal.
        known: Keys that mean something; at least one of them has to be there.

    Raises:
        Unreadable: A line has another form, or no key is known.
    """
    found: dict[str, str] = {}
    for line in lines:
        key, equals, value = line.partition("=")
        if not line:
            continue
        if not equals or not _KEY.fullmatch(key):
            raise Unreadable(f"{what} has a line of another form: `{kept(line, 80)}`")
        if key in known:
            found[key] = kept(value)
    if not found:
        raise Unreadable(f"{what} tells nothing that is known")
    return found


def headed(lines: Sequence[str], what: str) -> list[tuple[str, list[str]]]:
    """Return heading and lines of each part that begins with ``== HEADING``, empty lines left out.

    Raises:
        Unreadable: Text stands before the first heading.
    """
    parts: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("== "):
            parts.append((line[3:].strip(), []))
        elif line and not parts:
            raise Unreadable(f"{what} begins with something else than a heading: `{kept(line, 80)}`")
        elif line:
            parts[-1][1].append(line)
    return parts


def load_json(text: str, what: str) -> Any:
    """Return a JSON document.

    Raises:
        Unreadable: It is none; the reason names the line.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise Unreadable(f"{what} is not JSON: line {error.lineno}, column {error.colno}: {kept(error.msg)}") from error
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{what} is not JSON that can be read: {kept(str(error), 80)}") from error


def load_toml(text: str, what: str) -> dict[str, Any]:
    """Return a TOML document.

    Raises:
        Unreadable: It is none; the reason names the line.
    """
    import tomllib

    # The time a dotted key takes grows with the square of its parts.
    if len(text) > _TOML_CHARACTERS_MAX or max(map(len, text.split("\n"))) > _TOML_LINE_MAX:
        raise Unreadable(f"{what} is not TOML of a usual size")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{what} is not TOML: {kept(str(error), 120)}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"`{name}` is not a JSON number")
