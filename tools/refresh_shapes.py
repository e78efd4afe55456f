"""Reduce published CustomResourceDefinitions to the facts of ``compat/shapes/``.

usage: python -m tools.refresh_shapes COMPONENT VERSION WHERE FILE [FILE …] [--write]

COMPONENT is an id of ``cluster.toml`` and a source, VERSION the release that the files are of, WHERE their folder in
its repository, FILE a CustomResourceDefinition. Of each the version that the server stores is kept: which keys there
are, their types, the values of enumerations, and which keys are required. Descriptions, status, patterns and rules in
CEL are left out, and so is what core Kubernetes defines (a Pod in a template), which its own schemas check.

Without --write it is only told which files would change.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from provision.matrix.canonical import encode_pretty

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "compat" / "shapes"
# Keys by which a subtree is known as a type of core Kubernetes.
_CORE = (
    ("PodSpec", {"containers", "restartPolicy", "volumes"}),
    ("EnvVar", {"name", "value", "valueFrom"}),
    ("ResourceRequirements", {"claims", "limits", "requests"}),
    ("Affinity", {"nodeAffinity", "podAffinity", "podAntiAffinity"}),
    ("Volume", {"emptyDir", "hostPath", "persistentVolumeClaim", "configMap"}),
    ("PersistentVolumeClaimSpec", {"accessModes", "storageClassName", "volumeName"}),
)


def reduce(schema: dict[str, Any]) -> Any:
    """Return a schema as nested data.

    A type is its name; an enumeration the list of its values; an object its keys, a required one with ``!`` behind it;
    ``*`` stands for any key, and ``[]`` for the items of a list.
    """
    properties = schema.get("properties")
    if properties:
        names = set(properties)
        for core, keys in _CORE:
            if keys <= names:
                return core
        required = set(schema.get("required", ()))
        found = {f"{name}!" if name in required else name: reduce(properties[name]) for name in sorted(properties)}
        return "PodTemplateSpec" if found.get("spec") == "PodSpec" or found.get("spec!") == "PodSpec" else found
    if schema.get("type") == "array":
        return {"[]": reduce(schema.get("items", {}))}
    more = schema.get("additionalProperties")
    if isinstance(more, dict):
        return {"*": reduce(more)}
    if schema.get("enum"):
        return list(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if schema.get("type") in ("string", "integer", "number", "boolean"):
        return schema["type"]
    return "any"


def facts_of(definition: dict[str, Any], component: str, version: str, where: str) -> dict[str, Any]:
    """Return the facts of one definition.

    Raises:
        ValueError: It is none, or the server stores none of its versions.
    """
    if definition.get("kind") != "CustomResourceDefinition":
        raise ValueError("is not a CustomResourceDefinition")
    spec = definition["spec"]
    stored = next((item for item in spec["versions"] if item.get("storage")), None)
    if stored is None:
        raise ValueError("no version of it is stored")
    fields = reduce(stored["schema"]["openAPIV3Schema"])
    for name in ("apiVersion", "kind", "metadata", "status", "status!"):
        fields.pop(name, None)
    return {
        "schema_version": 1,
        "name": spec["names"]["kind"],
        "api": f"{spec['group']}/{stored['name']}",
        "is_namespaced": spec["scope"] == "Namespaced",
        "component": component,
        "version": version,
        "source": [component],
        "where": where,
        "fields": fields,
    }


def main(words: Sequence[str] | None = None) -> int:
    """Compare, and write where that is asked for."""
    parser = argparse.ArgumentParser(prog="refresh_shapes")
    parser.add_argument("component")
    parser.add_argument("version")
    parser.add_argument("where")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(words)
    for path in options.files:
        try:
            definition = yaml.safe_load(path.read_text(encoding="utf-8"))
            facts = facts_of(definition, options.component, options.version, options.where)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            return 2
        target = FOLDER / f"{facts['name'].lower()}.json"
        text = encode_pretty(facts)
        before = target.read_text(encoding="utf-8") if target.exists() else ""
        if text == before:
            continue
        print(f"{target.name}: {len(text)} bytes, {facts['api']} of {options.component} {options.version}")
        if before:
            lost = sorted(set(_paths(json.loads(before)["fields"])) - set(_paths(facts["fields"])))
            print("".join(f"  no longer there: {item}\n" for item in lost), end="")
        if options.write:
            FOLDER.mkdir(exist_ok=True)
            target.write_text(text, encoding="utf-8")
    return 0


def _paths(node: Any, above: str = "") -> list[str]:
    if not isinstance(node, dict):
        return [above]
    return [path for key, below in node.items() for path in _paths(below, f"{above}.{key.removesuffix('!')}")]


if __name__ == "__main__":
    sys.exit(main())
