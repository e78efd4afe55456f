"""A published definition is reduced to its keys, and what would change is told before it is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import refresh_shapes

POD = {
    "type": "object",
    "properties": {"containers": {"type": "array"}, "restartPolicy": {"type": "string"}, "volumes": {"type": "array"}},
}


def definition(**spec: Any) -> dict[str, Any]:
    old = {"name": "v1alpha1", "storage": False, "schema": {"openAPIV3Schema": {"type": "object", "properties": {}}}}
    properties = {"apiVersion": {"type": "string"}, "spec": {"type": "object", **spec}, "status": {"type": "object"}}
    new = {"name": "v1", "storage": True, "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}
    return {
        "kind": "CustomResourceDefinition",
        "spec": {"group": "queue.example", "scope": "Cluster", "names": {"kind": "Queue"}, "versions": [old, new]},
    }


@pytest.mark.parametrize(
    ("schema", "node"),
    [
        ({"type": "string", "description": "long"}, "string"),
        ({"type": "string", "enum": ["A", "B"]}, ["A", "B"]),
        ({"x-kubernetes-int-or-string": True}, "integer or string"),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, "any"),
        ({"type": "array", "items": {"type": "integer"}}, {"[]": "integer"}),
        ({"type": "object", "additionalProperties": {"type": "boolean"}}, {"*": "boolean"}),
        (
            {"properties": {"b": {"type": "string"}, "a": {"type": "number"}}, "required": ["b"]},
            {"a": "number", "b!": "string"},
        ),
        (POD, "PodSpec"),
        ({"properties": {"metadata": {"type": "object"}, "spec": POD}}, "PodTemplateSpec"),
    ],
)
def test_a_schema_becomes_its_keys_and_types(schema: dict[str, Any], node: Any) -> None:
    assert refresh_shapes.reduce(schema) == node


def test_the_stored_version_is_kept_without_what_the_server_adds() -> None:
    facts = refresh_shapes.facts_of(definition(properties={"x": {"type": "string"}}), "queue", "v2", "crds")
    assert facts["api"] == "queue.example/v1"
    assert facts["is_namespaced"] is False
    assert facts["fields"] == {"spec": {"x": "string"}}


@pytest.mark.parametrize("text", ["kind: Deployment\n", "a: [", "- 1\n", "kind: CustomResourceDefinition\n"])
def test_what_is_no_definition_is_named_and_nothing_is_written(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(refresh_shapes, "FOLDER", tmp_path / "shapes")
    (tmp_path / "x.yaml").write_text(text)
    assert refresh_shapes.main(["queue", "v1", "crds", str(tmp_path / "x.yaml"), "--write"]) == 2
    assert "x.yaml" in capsys.readouterr().err
    assert not (tmp_path / "shapes").exists()


def test_a_key_that_is_no_longer_there_is_told_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(refresh_shapes, "FOLDER", tmp_path / "shapes")
    path = tmp_path / "x.yaml"
    words = ["queue", "v1", "crds", str(path)]
    path.write_text(yaml.safe_dump(definition(properties={"x": {"type": "string"}, "y": {"type": "string"}})))
    assert refresh_shapes.main(words) == 0
    assert not (tmp_path / "shapes").exists()
    refresh_shapes.main([*words, "--write"])
    written = (tmp_path / "shapes" / "queue.json").read_text()
    assert json.loads(written)["fields"] == {"spec": {"x": "string", "y": "string"}}
    path.write_text(yaml.safe_dump(definition(properties={"x": {"type": "string"}})))
    capsys.readouterr()
    refresh_shapes.main(words)
    assert "no longer there: .spec.y" in capsys.readouterr().out
    assert (tmp_path / "shapes" / "queue.json").read_text() == written
