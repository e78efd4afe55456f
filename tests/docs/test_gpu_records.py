"""What docs/gpu.md says of runs on real GPUs comes from the records, and from nothing else."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("proofs", ROOT / "tools" / "proofs.py")
proofs = importlib.util.module_from_spec(spec)
sys.modules["proofs"] = proofs
spec.loader.exec_module(proofs)


def table(heading, rows) -> str:
    return "".join(" | ".join(map(str, row)) + "\n" for row in (heading, *rows))


PLANNED = {"one": "title of one", "two": "title of two", "three": "title of three"}


def write(folder: Path, name: str, date: str, results: dict[str, str], *, is_stand_in: bool = False) -> None:
    steps = [
        {"id": step, "title": f"title of {step}", "result": result, "said": f"why {step}"}
        for step, result in results.items()
    ]
    machine = {"gpu": "NVIDIA H100", "driver": "580.1", "torch": "2.11.0"}
    (folder / name).mkdir(parents=True)
    document = {"is_stand_in": is_stand_in, "date": date, "machine": machine, "steps": steps, "planned": PLANNED}
    (folder / name / "report.json").write_text(json.dumps(document), encoding="utf-8")


def test_without_a_record_it_is_said_that_nothing_ran(tmp_path: Path) -> None:
    assert proofs.show_records(table, folder=tmp_path).startswith("None of this has run on a GPU yet")
    assert proofs.show_steps(table, folder=tmp_path) == ""


def test_records_say_what_ran_and_what_never_passed(tmp_path: Path) -> None:
    write(tmp_path, "a", "2026-11-20", {"one": "passed", "two": "failed", "three": "skipped"})
    write(tmp_path, "b", "2026-11-23", {"one": "passed", "two": "passed"})
    lines = proofs.show_records(table, folder=tmp_path).splitlines()
    assert lines[1] == "[NVIDIA H100](proof/b/report.md) | 2026-11-23 | 580.1 | 2.11.0 | 2 | 0 | 0 | 1"
    assert lines[2].endswith("| 1 | 1 | 1 | 0")
    assert lines[-1] == "What passed on none of them: title of three."
    steps = proofs.show_steps(table, folder=tmp_path)
    assert "title of two | passed: why two | failed: why two" in steps
    assert "title of three | not run | skipped: why three" in steps


def test_a_record_of_a_stand_in_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a", "2026-11-20", {"one": "passed"}, is_stand_in=True)
    with pytest.raises(SystemExit, match="stand-in"):
        proofs.read_records(tmp_path)


def test_no_stand_in_is_among_the_records_of_the_project() -> None:
    proofs.read_records()
