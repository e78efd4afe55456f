"""Read the examples of the rules of ``provision check``: files that show a rule at work, its pages and its tests."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from provision.audit.model import Options
from provision.records import record

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "corpus" / "rules"
_LISTS = ("gpus", "platforms")


@record
class Example:
    """Files that show a rule at work.

    Attributes:
        name: What it shows, a few words.
        files: Name → contents; the first is what is checked, the others are what it refers to.
        findings: How many findings of this rule it gives.
        options: As a person would give them.
        fixed: The first file after ``--fix``, empty where nothing is fixed.
    """

    name: str
    files: Mapping[str, str]
    findings: int
    options: Options = Options()
    fixed: str = ""


def read_examples(rule: str) -> tuple[Example, ...]:
    """Return the examples of a rule, in the order of its file; an unknown key is an error, as in any other call."""
    rows = tomllib.loads((FOLDER / f"{rule}.toml").read_text(encoding="utf-8"))["example"]
    return tuple(Example(**{**row, "options": _options(row.get("options", {}))}) for row in rows)


def _options(row: Mapping[str, object]) -> Options:
    return Options(**{name: tuple(value) if name in _LISTS else value for name, value in row.items()})  # type: ignore[arg-type]
