from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from provision.build.engine import BuildResult, ImageInfo
from provision.build.export import choose_export
from provision.build.progress import Step
from provision.build.record import BuildRecord, record_path, write_record
from provision.build.verify import Finding
from provision.errors import ActionFailedError


@dataclass(frozen=True)
class FakeEngine:
    name: str = "docker buildx"
    version: str = "26"
    frontend: str = "modern"
    image_store: str = "overlay2"


def record(seconds: float = 1.25, **values: object) -> BuildRecord:
    result = BuildResult(
        image=ImageInfo(id="sha256:1", size_bytes=10, repo_digests=("a@sha256:2",), layers=("sha256:3",)),
        archive=None,
        export=choose_export("overlay2", "local"),
        steps=(Step(name="[internal] load"), Step(name="[1/1] RUN x", status="done", seconds=seconds)),
        seconds=seconds,
    )
    defaults: dict[str, object] = {
        "lock_digest": "sha256:0",
        "tags": ("b:1", "a:1"),
        "engine": FakeEngine(),
        "frontend": "modern",
        "result": result,
    }
    return BuildRecord(**(defaults | values))  # type: ignore[arg-type]


def test_the_record_lies_beside_the_context(tmp_path, monkeypatch):
    assert record_path(tmp_path / "torch") == tmp_path / "torch.build.json"
    monkeypatch.chdir(tmp_path)
    assert record_path(Path()) == tmp_path.with_name(f"{tmp_path.name}.build.json")


def test_everything_asked_of_a_record_is_in_it(tmp_path):
    path = tmp_path / "torch.build.json"
    findings = (Finding(check="torch", status="pass", detail="2"),)
    write_record(path, record(findings=findings, pushed=(("a:1", "sha256:2"),)))
    document = json.loads(path.read_text())
    assert document["lock_digest"] == "sha256:0"
    assert document["image"] == {
        "id": "sha256:1", "layers": ["sha256:3"], "repo_digests": ["a@sha256:2"], "size_bytes": 10,
    }  # fmt: skip
    assert document["tags"] == ["a:1", "b:1"]
    assert document["engine"] == {"name": "docker buildx", "version": "26", "image_store": "overlay2"}
    assert document["frontend"] == "modern"
    assert document["export"]["output"] == "type=docker"
    assert "overlay2" in document["export"]["why"]
    assert document["steps"] == ["[1/1] RUN x"]
    assert document["verification"] == [{"check": "torch", "status": "pass", "detail": "2"}]
    assert document["pushed"] == {"a:1": "sha256:2"}
    assert document["measured"]["seconds"] == 1.2


def test_a_verification_that_did_not_run_is_not_an_empty_one():
    assert record().to_json()["verification"] is None


def test_only_the_measured_part_depends_on_the_clock():
    one, two = record(1.0).to_json(), record(2.0).to_json()
    assert one.pop("measured") != two.pop("measured")
    assert one == two


def test_an_archive_is_named_without_its_folder():
    only_archive = replace(record().result, image=None, archive=Path("somewhere/image.tar"))
    document = record(result=only_archive).to_json()
    assert document["archive"] == "image.tar"
    assert document["image"] is None


def test_a_record_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "torch.build.json"
    path.write_text("old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(ActionFailedError, match=r"torch\.build\.json"):
        write_record(path, record())
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert [item.name for item in tmp_path.iterdir()] == ["torch.build.json"]


def test_a_record_needs_its_folder(tmp_path):
    with pytest.raises(ActionFailedError):
        write_record(tmp_path / "absent" / "torch.build.json", record())
