"""The one way a file of ``compat/`` is written, so that a changed fact is a changed line and nothing else.

``encode(decode(text)) == text`` holds for every shipped file (tested).
"""

from __future__ import annotations

import datetime
import json
from json.encoder import encode_basestring
from typing import Any

from provision.matrix.decode import field_order
from provision.matrix.model import ARRAY_OF

_WIDTH = 110
_SHARED = ("requires", "files")


def encode_toml(name: str, document: dict[str, Any]) -> str:
    """Return the canonical text of a TOML file.

    Args:
        name: Path below compat/, a key of ``ARRAY_OF``.
        document: ``schema_version``, ``dated`` and one list of tables per array. ``None`` values and empty
            lists and tables are left out. Rows are written in the order given.
    """
    above = "../" * name.count("/") or "./"
    stem = name.rsplit("/", 1)[-1].removesuffix(".toml")
    lines = [f"#:schema {above}schema/{stem}.schema.json"]
    for key, value in document.items():
        if key not in ARRAY_OF[name]:
            lines.append(f"{key} = {_value(value)}")
    for array, row_type in ARRAY_OF[name].items():
        for row in document.get(array, ()):
            lines += ["", f"[[{array}]]"]
            unknown = set(row) - set(field_order(row_type))
            if unknown:
                raise ValueError(f"{name}: {array} has unknown keys {sorted(unknown)}")
            for key in field_order(row_type):
                value = row.get(key)
                if value is None or value in ([], {}, ()):
                    continue
                lines.append(_pair(key, value))
    return "\n".join(lines) + "\n"


def encode_json(document: dict[str, Any]) -> str:
    """Return the canonical text of a JSON file: one release a line, and one item of what releases share.

    Keys are in the order given.
    """
    head = {key: value for key, value in document.items() if key != "releases"}
    lines = ["{"]
    for key, value in head.items():
        if key in _SHARED:
            items = ",\n".join(json.dumps(item, separators=(",", ":")) for item in value)
            lines.append(f"{json.dumps(key)}: [\n{items}\n],")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(value)},")
    lines.append('"releases": [')
    releases = [json.dumps(row, separators=(",", ":")) for row in document["releases"]]
    lines.append(",\n".join(releases))
    lines += ["]", "}"]
    return "\n".join(lines) + "\n"


def encode_pretty(document: dict[str, Any]) -> str:
    """Return the canonical text of a JSON file of nested data: a key a line, in the order given."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _pair(key: str, value: Any) -> str:
    line = f"{key} = {_value(value)}"
    if len(line) <= _WIDTH or not isinstance(value, (list, tuple)):
        return line
    items = "".join(f"    {_value(item)},\n" for item in value)
    return f"{key} = [\n{items}]"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, str):
        # JSON lets DEL stand as it is, TOML does not.
        return encode_basestring(value).replace("\x7f", "\\u007f")
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, dict):
        if not value:
            return "{}"
        pairs = ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items() if item is not None)
        return "{ " + pairs + " }"
    raise TypeError(f"{type(value).__name__} has no place in compat/")


def _key(key: str) -> str:
    is_bare = key.isascii() and all(letter.isalnum() or letter in "-_" for letter in key) and key
    return key if is_bare else _value(key)
