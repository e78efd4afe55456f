"""Documents that core Kubernetes does not define, held against the keys that the facts know."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from provision.errors import DataError
from provision.matrix.load import Matrix

_SCALARS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "integer or string": (int, str),
}
_HEAD = frozenset(("apiVersion", "kind", "metadata"))
_VALUES, _POLICY = "gpu-operator", "ClusterPolicy"


def check_shape(name: str, value: Mapping[str, Any], matrix: Matrix) -> None:
    """Refuse a document with a key or a value that its reader does not have.

    Args:
        name: As in :class:`provision.matrix.model.Shape`.
        value: The document as plain data.
        matrix: The facts.

    Raises:
        DataError: What this program writes and what the facts say differ.
    """
    faults = find_faults(name, value, matrix)
    if faults:
        raise DataError(
            f"the facts do not know what is written for {name}",
            because=faults,
            hints=("`provision data check` says whether the facts are whole",),
        )


def shape_of(document: Mapping[str, Any], matrix: Matrix) -> str | None:
    """Return the name of a custom resource's shape; ``None`` where the facts have none of this group and version."""
    shape = matrix.shapes.get(str(document.get("kind")))
    return shape.name if shape is not None and shape.api == document.get("apiVersion") else None


def find_faults(name: str, value: Mapping[str, Any], matrix: Matrix) -> tuple[str, ...]:
    """Return one sentence for each key or value that the facts do not know, and each required key that is not there.

    Helm values of the operator are the spec of its ClusterPolicy and what its chart takes besides; they need not be
    whole, since the chart has defaults.
    """
    shape = matrix.shapes[name]
    if name == _VALUES:
        fields = _merge(matrix.shapes[_POLICY].fields["spec"], shape.fields)
        return tuple(_walk(value, fields, "", is_partial=True))
    if shape.api is None:
        return tuple(_walk(value, shape.fields, "", is_partial=False))
    body = {key: item for key, item in value.items() if key not in _HEAD}
    return tuple(_walk(body, shape.fields, "", is_partial=False))


def _walk(value: Any, node: Any, path: str, *, is_partial: bool) -> Iterator[str]:
    if isinstance(node, Mapping):
        if "[]" in node:
            yield from _items(value, node["[]"], path, is_partial=is_partial)
        else:
            yield from _keys(value, node, path, is_partial=is_partial)
    elif isinstance(node, list):
        if value not in node or isinstance(value, bool) != isinstance(node[0], bool):
            yield f"`{path}` takes {', '.join(repr(item) if item == '' else str(item) for item in node)}, not {value!r}"
    elif node in _SCALARS:
        if not isinstance(value, _SCALARS[node]) or (isinstance(value, bool) and node != "boolean"):
            article = "an" if node[0] == "i" else "a"
            yield f"`{path}` takes {article} {node}, not {value!r}"
    elif node != "any" and not isinstance(value, Mapping):
        yield f"`{path}` takes a {node}, not {value!r}"


def _items(value: Any, node: Any, path: str, *, is_partial: bool) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"`{path}` takes a list, not {value!r}"
        return
    for item in value:
        yield from _walk(item, node, f"{path}[]", is_partial=is_partial)


def _keys(value: Any, node: Mapping[str, Any], path: str, *, is_partial: bool) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"`{path}` takes keys, not {value!r}"
        return
    known = {key.removesuffix("!"): item for key, item in node.items()}
    for key, item in value.items():
        here = f"{path}.{key}" if path else str(key)
        below = known.get(str(key), known.get("*"))
        if below is None:
            yield f"`{here}` is not a key"
        else:
            yield from _walk(item, below, here, is_partial=is_partial)
    if not is_partial:
        for key in node:
            if key.endswith("!") and key.removesuffix("!") not in value:
                yield (
                    f"`{path}.{key.removesuffix('!')}` is missing" if path else f"`{key.removesuffix('!')}` is missing"
                )


def _merge(one: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    merged = {key.removesuffix("!"): item for key, item in one.items()}
    for key, item in more.items():
        below = merged.get(key)
        merged[key] = _merge(below, item) if isinstance(below, Mapping) and isinstance(item, Mapping) else item
    return merged
