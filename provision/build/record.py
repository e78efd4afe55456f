"""The build record: what was built from which lock, written beside the context.

Two builds of one lock by one engine give equal records except for ``measured``, which holds all that a clock decides,
and the image's id and digests, where the engine cannot make them equal.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from provision.build.archive import written_beside
from provision.build.engine import BuildResult
from provision.build.verify import Finding

_RECORD_VERSION = 1


class Maker(Protocol):
    """Who made an image: an engine, or this program itself."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def version(self) -> str:
        """Its version."""

    @property
    def image_store(self) -> str:
        """Where it keeps images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRecord:
    """All that is worth knowing about one build.

    Attributes:
        lock_digest: Of the lock that the context was written from.
        tags: Names of the image.
        frontend: The form of Dockerfile that was built.
        findings: Of the verification inside the image; absent where it did not run.
        pushed: Tag → digest in its registry.
    """

    lock_digest: str
    tags: tuple[str, ...]
    engine: Maker
    frontend: str
    result: BuildResult
    findings: tuple[Finding, ...] | None = None
    pushed: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain data."""
        result = self.result
        image = None
        if result.image is not None:
            image = {
                "id": result.image.id,
                "layers": list(result.image.layers),
                "repo_digests": list(result.image.repo_digests),
                "size_bytes": result.image.size_bytes,
            }
        verification = None
        if self.findings is not None:
            verification = [
                {"check": item.check, "detail": item.detail, "status": item.status} for item in self.findings
            ]
        return {
            "record_version": _RECORD_VERSION,
            "lock_digest": self.lock_digest,
            "tags": sorted(self.tags),
            "image": image,
            "archive": result.archive.name if result.archive else None,
            "engine": {
                "name": self.engine.name,
                "version": self.engine.version,
                "image_store": self.engine.image_store,
            },
            "frontend": self.frontend,
            "export": {
                "purpose": result.export.purpose,
                "output": result.export.output(),
                "why": result.export.why,
            },
            "steps": [step.name for step in result.steps if not step.is_internal],
            "verification": verification,
            "pushed": dict(self.pushed),
            "measured": {
                "seconds": round(result.seconds, 1),
                "steps": [
                    {"name": step.name, "status": step.status, "seconds": step.seconds}
                    for step in result.steps
                    if not step.is_internal
                ],
            },
        }


def record_path(context: Path) -> Path:
    """Return where the record of a context lies: beside it, so that the context stays what was rendered."""
    whole = context.resolve()
    return whole.with_name(f"{whole.name}.build.json")


def write_record(path: Path, record: BuildRecord) -> None:
    """Write the record, whole or not at all.

    Args:
        path: The file to write.
        record: What to write.

    Raises:
        ActionFailedError: The file cannot be written.
    """
    text = json.dumps(record.to_json(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    with written_beside(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
