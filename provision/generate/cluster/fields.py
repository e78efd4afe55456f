"""Documents that no published schema covers, held against the keys that the facts know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provision.errors import DataError
from provision.matrix.load import Matrix
from provision.matrix.model import ClusterField

__all__ = ["check_fields", "find_faults"]

_TYPES: dict[str, type] = {"flag": bool, "whole": int, "text": str}


def check_fields(document: str, value: Mapping[str, Any], matrix: Matrix) -> None:
    """Refuse a document with a key or a value that its reader does not have.

    Args:
        document: As in :class:`ClusterField`.
        value: The document as plain data.
        matrix: The facts.

    Raises:
        DataError: What this program writes and what the facts say differ.
    """
    faults = find_faults(document, value, matrix)
    if faults:
        raise DataError(
            f"cluster.toml does not know what is written for {document}",
            because=faults,
            hints=("`provision data check` says whether the facts are whole",),
        )


def find_faults(document: str, value: Mapping[str, Any], matrix: Matrix) -> tuple[str, ...]:
    """Return one sentence for each key or value that the facts do not know."""
    known = {row.path: row for row in matrix.cluster_fields if row.document == document}
    return tuple(_walk(value, "", known))


def _walk(value: Any, path: str, known: Mapping[str, ClusterField]) -> Iterator[str]:
    row = _find(path, known)
    if row is not None:
        yield from _judge(value, path, row)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, f"{path}.{key}" if path else str(key), known)
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item, f"{path}[]", known)
    else:
        yield f"`{path}` is no key"


def _find(path: str, known: Mapping[str, ClusterField]) -> ClusterField | None:
    above = path.rpartition(".")[0]
    return known.get(path) or known.get(f"{above}.*")


def _judge(value: Any, path: str, row: ClusterField) -> Iterator[str]:
    kind = _TYPES.get(row.type, dict)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        yield f"`{path}` takes a {row.type}, not {value!r}"
    elif row.values and value not in row.values:
        yield f"`{path}` takes {', '.join(row.values)}, not {value!r}"
