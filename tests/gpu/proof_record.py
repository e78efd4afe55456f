"""The record of one run: what each step found, written after every step, so that a run that is ended leaves one.

A record is a folder::

    report.json       everything, for programs
    report.md         one page, for people
    captures.tar.gz   what the probes printed on the healthy machine and under each fault; `--from` reads it
    bench-*.json      the results of `provision bench`

Secrets, serial numbers, addresses and names are taken out by the project's own redaction before anything is written.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from provision import __version__
from provision.probe.redact import Mask, redact

__all__ = ["FAILED", "NOT_RUN", "PASSED", "SKIPPED", "Outcome", "Record", "Step", "failed", "passed", "skipped"]

SCHEMA_VERSION = 1
PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not run"
_SIGNS = {PASSED: "passed", FAILED: "**failed**", SKIPPED: "skipped", NOT_RUN: "not run"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one step found: the result, one sentence, and figures or reasons for programs."""

    result: str
    said: str
    details: Mapping[str, Any] = field(default_factory=dict)


def passed(said: str, **details: Any) -> Outcome:
    """Return that a step proved what it is for."""
    return Outcome(result=PASSED, said=said, details=details)


def failed(said: str, **details: Any) -> Outcome:
    """Return that a step found a fault, of the machine or of this project."""
    return Outcome(result=FAILED, said=said, details=details)


def skipped(said: str, **details: Any) -> Outcome:
    """Return that a step needs what is not here; the sentence says what."""
    return Outcome(result=SKIPPED, said=said, details=details)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One row of the record; ``seconds`` is how long it took."""

    id: str
    title: str
    result: str
    said: str
    seconds: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)


class Record:
    """A record that grows.

    Args:
        folder: Where it is written; created when the first step ends.
        machine: What it holds for: GPU, driver, framework, system.
        facts: Date of the facts in use, ISO.
        is_stand_in: No GPU was there, and the record proves the suite and nothing else.
        planned: Id → title of every step there is, run or not.
    """

    def __init__(
        self,
        folder: Path,
        machine: Mapping[str, Any],
        facts: str,
        *,
        is_stand_in: bool,
        planned: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.folder = folder
        self.machine = dict(machine)
        self.steps: list[Step] = []
        self._planned = dict(planned)
        self._facts = facts
        self._is_stand_in = is_stand_in
        self._mask = Mask([platform.node()])
        self._date = datetime.now(UTC).date().isoformat()

    @property
    def is_green(self) -> bool:
        """Tell whether something passed and nothing failed."""
        results = {step.result for step in self.steps}
        return PASSED in results and FAILED not in results

    @property
    def is_complete(self) -> bool:
        """Tell whether every step that there is was run, or could not be for a reason that it names."""
        done = {step.id for step in self.steps if step.result != NOT_RUN}
        return done >= self._planned.keys()

    def add(self, step: Step) -> None:
        """Take what a step found in place of what it found before, and write."""
        self.steps = [row for row in self.steps if row.id != step.id]
        self.steps.append(step)
        order = list(self._planned)
        self.steps.sort(key=lambda row: order.index(row.id) if row.id in order else len(order))
        self.write()

    def resume(self) -> None:
        """Take over the steps of the record in the folder that were run, where there is one.

        Raises:
            ValueError: It is of another machine, or no record.
        """
        path = self.folder / "report.json"
        if not path.exists():
            return
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            before = document["machine"]
            steps = [Step(**row) for row in document["steps"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a record: {error}") from error
        changed = [name for name, value in self.document()["machine"].items() if before.get(name) != value]
        if changed:
            raise ValueError(f"{path} is of another machine: its {', '.join(changed)} differ")
        self.steps = [step for step in steps if step.result != NOT_RUN]

    def summary(self) -> str:
        """Return how many steps ended in which way, in words."""
        counts = {result: sum(step.result == result for step in self.steps) for result in _SIGNS}
        return ", ".join(f"{count} {result}" for result, count in counts.items() if count) or "nothing ran"

    def document(self) -> dict[str, Any]:
        """Return the record as plain data, without what identifies the machine."""
        document = {
            "schema_version": SCHEMA_VERSION,
            "program": __version__,
            "facts": self._facts,
            "date": self._date,
            "is_stand_in": self._is_stand_in,
            "is_complete": self.is_complete,
            "is_green": self.is_green,
            "seconds": round(sum(step.seconds for step in self.steps), 1),
            "planned": self._planned,
            "machine": self.machine,
            "steps": [{**asdict(step), "seconds": round(step.seconds, 1)} for step in self.steps],
        }
        document["steps"] = [self._hide(step) for step in document["steps"]]
        document["machine"] = self._hide(document["machine"])
        return document

    def _hide(self, part: Mapping[str, Any]) -> dict[str, Any]:
        """Return a part without secrets and identifiers.

        What verify says may hold an address; elsewhere four numbers with dots are a version.
        """
        probe = "" if str(part.get("id", "")).startswith("verify") else "packages"
        hidden: dict[str, Any] = json.loads(self._mask(redact(json.dumps(part)), probe=probe))
        return hidden

    def write(self) -> None:
        """Write report.json and report.md, each whole or not at all."""
        document = self.document()
        self.folder.mkdir(parents=True, exist_ok=True)
        replace(self.folder / "report.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        replace(self.folder / "report.md", "\n".join(page(document)) + "\n")


def replace(path: Path, text: str) -> None:
    """Write a file under another name first, so that there is never half of one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def page(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of report.md."""
    machine = document["machine"]
    yield f"# {machine.get('gpu') or 'an unknown GPU'}, {document['date']}"
    yield ""
    if document["is_stand_in"]:
        yield "**Stand-in: no GPU was there. This proves the suite, and nothing about a GPU.**"
        yield ""
    yield f"Written by `make gpu`, provision {document['program']}, facts of {document['facts']}."
    if not document["is_complete"]:
        yield "Not every step was run: those that are missing here were left out, or not reached."
    yield ""
    yield from rows(("machine", ""), ((name.replace("_", " "), value) for name, value in machine.items() if value))
    steps = document["steps"]
    counts = {result: sum(step["result"] == result for step in steps) for result in _SIGNS}
    yield ", ".join(f"{count} {result}" for result, count in counts.items() if count) or "nothing ran"
    yield ""
    yield from rows(
        ("step", "result", "seconds", "found"),
        ((step["title"], _SIGNS[step["result"]], f"{step['seconds']:.0f}", step["said"]) for step in steps),
    )
    for step in steps:
        for title, table in step["details"].get("tables", {}).items():
            yield f"## {title}"
            yield ""
            yield from rows(table[0], table[1:])


def rows(heading: Any, body: Any) -> Iterator[str]:
    """Yield a table of Markdown and an empty line behind it."""
    for number, row in enumerate((heading, *body)):
        yield f"| {' | '.join(str(cell).replace('|', '/').replace(chr(10), ' ') for cell in row)} |"
        if number == 0:
            yield f"| {' | '.join('---' for _ in row)} |"
    yield ""
