"""What the records of ``make gpu`` say, for the README and docs/gpu.md: what ran on which GPU, and what did not.

A record is a folder of ``docs/proof/`` with a ``report.json`` (tests/gpu/proof_record.py writes it). A record of a
stand-in machine proves nothing about a GPU and is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["PROOFS", "read_records", "show_records", "show_steps"]

PROOFS = Path(__file__).resolve().parents[1] / "docs" / "proof"
_NONE = (
    "None of this ran on a GPU yet: what reads GPUs is tested on captures and on stand-in machines, and figures of\n"
    "healthy GPUs are other people's acceptance values, each with its source.\n"
)
Table = Callable[[Sequence[str], Iterable[Sequence[object]]], str]


def read_records(folder: Path = PROOFS) -> list[tuple[str, dict[str, Any]]]:
    """Return (name of the folder, record) of every run, the newest first.

    Raises:
        SystemExit: A record is of a stand-in machine, or cannot be read.
    """
    found = []
    for path in sorted(folder.glob("*/report.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            is_stand_in = record["is_stand_in"]
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"{path} is no record of `make gpu`: {error}") from error
        if is_stand_in:
            raise SystemExit(f"{path} is of a stand-in machine; a record in docs/proof/ must be of a GPU")
        found.append((path.parent.name, record))
    return sorted(found, key=lambda item: (item[1]["date"], item[0]), reverse=True)


def show_records(table: Table, prefix: str = "docs/proof/", folder: Path = PROOFS) -> str:
    """Return a table of the runs, or that there was none.

    Args:
        table: Renders a table from its heading and rows.
        prefix: What leads from the page to the records.
        folder: Where the records are.
    """
    records = read_records(folder)
    if not records:
        return _NONE
    rows = []
    for name, record in records:
        machine = record["machine"]
        results = [step["result"] for step in record["steps"]]
        counts = [results.count(result) for result in ("passed", "failed", "skipped", "not run")]
        link = f"[{machine['gpu']}]({prefix}{name}/report.md)"
        rows.append((link, record["date"], machine.get("driver") or "", machine.get("torch") or "", *counts))
    heading = ("GPU", "run on", "driver", "torch", "passed", "failed", "skipped", "not run")
    return table(heading, rows) + "\n" + _missing(records)


def _missing(records: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Return what passed on no GPU, in a sentence."""
    titles: dict[str, str] = {}
    done: set[str] = set()
    for _, record in records:
        for step in record["steps"]:
            titles.setdefault(step["id"], step["title"])
            if step["result"] == "passed":
                done.add(step["id"])
    missing = [title for name, title in titles.items() if name not in done]
    if not missing:
        return "Every step passed on one of them.\n"
    return f"What passed on none of them: {'; '.join(missing)}.\n"


def show_steps(table: Table, folder: Path = PROOFS) -> str:
    """Return a table of every step with its result on each GPU, or that there was no run.

    Args:
        table: Renders a table from its heading and rows.
        folder: Where the records are.
    """
    records = read_records(folder)
    if not records:
        return _NONE
    titles: dict[str, str] = {}
    for _, record in records:
        titles |= {step["id"]: step["title"] for step in record["steps"] if step["id"] not in titles}
    rows = []
    for name, title in titles.items():
        cells = []
        for _, record in records:
            step = next((step for step in record["steps"] if step["id"] == name), None)
            cells.append(_cell(step))
        rows.append((title, *cells))
    return table(("step", *(f"{record['machine']['gpu']}, {record['date']}" for _, record in records)), rows)


def _cell(step: dict[str, Any] | None) -> str:
    if step is None:
        return "not run"
    reason = "" if step["result"] == "passed" else f": {step['said']}"
    return f"{step['result']}{reason}".replace("|", "/").replace("\n", " ")
