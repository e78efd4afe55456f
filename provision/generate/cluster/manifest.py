"""Plain data to YAML that every reader takes the same way."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

# What no YAML reader takes for a number, a date or a truth value; all else is quoted.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*(?:[./-][A-Za-z0-9_]+)*")
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"))
_WIDTH = 1_000_000


def to_yaml(header: Sequence[str], documents: Sequence[Mapping[str, Any]]) -> str:
    """Return YAML documents behind lines of comment, keys in the order given.

    Strings are quoted wherever a reader of YAML 1.1 or 1.2 might take them for something else: Kubernetes reads
    ``1e3`` and ``y`` as a number and a truth value, which other dumpers leave bare.

    Args:
        header: Lines without ``#``; none may hold a line end.
        documents: Plain data.

    Raises:
        ValueError: A line of the header holds a line end.
    """
    import yaml

    if any(not line.isprintable() for line in header):
        raise ValueError("a comment holds a line end")
    lines = "".join(f"# {line}\n" for line in header)
    bodies = [
        yaml.dump(
            document, Dumper=_dumper(), sort_keys=False, width=_WIDTH, default_flow_style=False, allow_unicode=True
        )
        for document in documents
    ]
    return lines + "".join(f"---\n{body}" for body in bodies)


def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Indents lists below their key, writes no aliases, and quotes what could be misread."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            del indentless
            super().increase_indent(flow, False)

        def ignore_aliases(self, data: object) -> bool:
            del data
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        if "\n" in value and value.isascii() and value.replace("\n", "").isprintable():
            style = "|"
        elif _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
            style = ""
        else:
            style = '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style or None)

    Dumper.add_representer(str, text)
    return Dumper
