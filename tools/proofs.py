"""What the records of ``make gpu`` say, for docs/gpu.md: what ran on which GPU, and what did not.

A record is a folder of ``docs/proof/`` with a ``report.json`` (tests/gpu/proof_record.py writes it). A record of a
stand-in machine proves nothing about a GPU and is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

PROOFS = Path(__file__).resolve().parents[1] / "docs" / "proof"
_NONE = (
    "None of this has run on a GPU yet. Parsers of GPU tools are tested on captures and stand-in machines; the\n"
    "figures of healthy GPUs are published acceptance values and measurements, each with its source.\n"
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
            raise SystemExit(f"{path} is not a record of `make gpu`: {error}") from error
        if is_stand_in:
            raise SystemExit(f"{path} is of a stand-in machine; a record in docs/proof/ must be of a GPU")
        found.append((path.parent.name, record))
    return sorted(found, key=lambda item: (item[1]["date"], item[0]), reverse=True)


def show_records(table: Table, prefix: str = "proof/", folder: Path = PROOFS) -> str:
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
        counts = [results.count(result) for result in ("passed", "failed", "skipped")]
        counts.append(len(record["planned"]) - sum(counts))
        link = f"[{machine['gpu']}]({prefix}{name}/report.md)"
        rows.append((link, record["date"], machine.get("driver") or "", machine.get("torch") or "", *counts))
    heading = ("GPU", "run on", "driver", "torch", "passed", "failed", "skipped", "not run")
    return table(heading, rows) + "\n" + _missing(records)


def _missing(records: Sequence[tuple[str, dict[str, Any]]]) -> str:
    """Return what passed on no GPU, in a sentence."""
    titles = _titles(records)
    done = {step["id"] for _, record in records for step in record["steps"] if step["result"] == "passed"}
    missing = [title for name, title in titles.items() if name not in done]
    if not missing:
        return "Every step passed on one of them.\n"
    return f"What passed on none of them: {'; '.join(missing)}.\n"


def _titles(records: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, str]:
    """Return id → title of every step there is, also of those that no run reached."""
    titles: dict[str, str] = {}
    for _, record in records:
        titles |= {name: title for name, title in record["planned"].items() if name not in titles}
    return titles


def show_steps(table: Table, folder: Path = PROOFS) -> str:
    """Return a table of every step with its result on each GPU, or nothing.

    Args:
        table: Renders a table from its heading and rows.
        folder: Where the records are.
    """
    records = read_records(folder)
    if not records:
        return ""
    rows = []
    for name, title in _titles(records).items():
        cells = []
        for _, record in records:
            step = next((step for step in record["steps"] if step["id"] == name), None)
            cells.append(_cell(step))
        rows.append((title, *cells))
    return table(("step", *(f"{record['machine']['gpu']}, {record['date']}" for _, record in records)), rows)


def _cell(step: dict[str, Any] | None) -> str:
    if step is None:
        return "not run"
    return f"{step['result']}: {step['said']}".replace("|", "/").replace("\n", " ")
