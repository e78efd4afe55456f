"""Check the tables of compat/ against their JSON Schemas.

    python -m tools.check_schemas

A table ``NAME.toml`` has the schema ``compat/schema/NAME.schema.json``; the files of ``published/``, ``shapes/`` and
``wheels/`` have one for all of a folder. Every fault is printed with its file and place; the exit status is 1 where
there is one.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs

COMPAT = Path(__file__).resolve().parents[1] / "compat"
_BASE, _COMMON = "json-schema:///", "common.schema.json"
_TREES = ("published", "shapes", "wheels")


def main() -> int:
    """Print each fault and what was looked at; return the exit status."""
    groups = {name: sorted((COMPAT / name).rglob("*.json")) for name in _TREES}
    for table in sorted(COMPAT.rglob("*.toml")):
        groups.setdefault(table.stem, []).append(table)
    faults = [fault for name, paths in groups.items() for fault in check(name, paths)]
    print("\n".join(faults) or f"{sum(map(len, groups.values()))} files of compat/ keep their schemas")
    return 1 if faults else 0


def check(name: str, paths: list[Path], schemas: Path = COMPAT / "schema") -> Iterator[str]:
    """Yield what is wrong with files of one schema, a line each.

    Args:
        name: Of the schema.
        paths: The files; that there is none is a fault too.
        schemas: The folder of the schemas.
    """
    path = schemas / f"{name}.schema.json"
    if not path.is_file() or not paths:
        yield f"{name}: no {'file' if path.is_file() else 'schema'} of that name"
        return
    validator = validator_of(path)
    for file in paths:
        for error in validator.iter_errors(_plain(file)):
            place = "".join(f"[{part!r}]" for part in error.instance_path)
            yield f"{file.relative_to(file.parents[1])}{place}: {error.message}"


def validator_of(path: Path) -> jsonschema_rs.Draft202012Validator:
    """Return what holds documents against a schema, which may refer to ``common.schema.json`` beside it."""
    schemas = {name: json.loads((path.parent / name).read_text(encoding="utf-8")) for name in (path.name, _COMMON)}
    registry = jsonschema_rs.Registry([(f"{_BASE}{_COMMON}", schemas[_COMMON])])
    schema = {"$id": f"{_BASE}{path.name}", **schemas[path.name]}
    return jsonschema_rs.Draft202012Validator(schema, registry=registry, validate_formats=True)


def _plain(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    # Dates of TOML are checked as the texts that JSON has.
    return json.loads(json.dumps(tomllib.loads(text), default=str)) if path.suffix == ".toml" else json.loads(text)


if __name__ == "__main__":
    sys.exit(main())
