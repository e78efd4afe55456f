"""Variables that a person sets on the command line: checked, and passed to Ansible as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from provision.errors import UsageError
from provision.probe.clean import clean_line

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "yes": True, "no": False}
_WHOLE_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})")
_MARKS = ("{{", "{%", "{#")
_VALUE_CHARACTERS_MAX = 64 * 1024
_NOT_HERE = ("provision_lock",)


def parse_variables(words: Iterable[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` words.

    A value is true, false or null, a whole number, JSON where it begins with a bracket or a quote, and text otherwise:
    a version such as ``12.10`` stays the text it is.

    Raises:
        UsageError: A word is not written like this, a key comes twice, or a value holds a template.
    """
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise UsageError(
                f"-e `{clean_line(word, 60)}` is not KEY=VALUE",
                hints=("write it as in `-e gpu_driver_flavour=open`; files of variables belong into the inventory",),
            )
        if name in _NOT_HERE:
            raise UsageError(f"-e {name}: a lock is named with `--lock FILE`")
        _reject_template(name, text)
        if len(text) > _VALUE_CHARACTERS_MAX or "\0" in text:
            raise UsageError(f"-e {name}: its value is too long, or no text")
        value = _read(name, text)
        # JSON has another way to write a mark.
        _reject_template(name, value)
        if name in values and values[name] != value:
            raise UsageError(f"-e {name} was given two values", hints=("keep one of the two",))
        values[name] = value
    return values


def _reject_template(name: str, value: object) -> None:
    if _holds_template(value):
        raise UsageError(
            f"-e {name}: its value holds a template",
            because=("Ansible would run it",),
            hints=("put variables with templates into the inventory",),
        )


def _holds_template(value: object) -> bool:
    if isinstance(value, str):
        return any(mark in value for mark in _MARKS)
    if isinstance(value, dict):
        return any(_holds_template(item) for pair in value.items() for item in pair)
    return isinstance(value, list) and any(map(_holds_template, value))


def _read(name: str, text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _WHOLE_NUMBER.fullmatch(text):
        return int(text)
    if not text.startswith(("[", "{", '"')):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"-e {name}: its value is not JSON",
            because=(str(error),),
            hints=("quote it for your shell: `-e 'KEY=[…]'`",),
        ) from error
