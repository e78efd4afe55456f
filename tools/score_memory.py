"""Score the memory estimates of `provision plan` on published runs: `python -m tools.score_memory [--runs]`.

A row of `tests/memory/runs.csv` is one run: what was trained or served and how (fields of the planner's records, those
that are left out have their defaults), the peak of its fullest GPU in GiB, and what read it. `sources.toml` beside it
says where the runs were published and whether constants may be learnt from them; the others score alone.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from provision.assets import facts_dir
from provision.matrix.load import Matrix
from provision.planner.memory import (
    Estimate,
    Layout,
    Serving,
    Training,
    estimate_network,
    estimate_serving,
    estimate_training,
    read_constants,
)
from provision.planner.shape import Shape, find_shape, make_shape
from provision.predict.networks import Networks
from provision.records import fields_of, record

FOLDER = Path(__file__).parents[1] / "tests" / "memory"
PARTS = ("learning", "held out")

_UNSEEN = {"allocated": ("context", "nccl", "engine"), "reserved": ("context", "nccl", "engine"), "device": ()}
"""What read the peak → parts of an estimate it does not see: PyTorch counts what it allocated, or reserved, alone, and
such runs had no serving engine around the model."""


@record
class Run:
    """One published run; ``gib`` is the peak of its fullest GPU, ``reads`` a key of what read it."""

    source: str
    part: str
    task: str
    model: str
    settings: dict[str, Any]
    gib: float
    reads: str
    where: str


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isdigit() else text


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads((FOLDER / "sources.toml").read_text(encoding="utf-8"))


def read_runs() -> tuple[Run, ...]:
    """Return all runs, in the order of the file."""
    parts = {row["id"]: row["part"] for row in _document()["source"]}
    with (FOLDER / "runs.csv").open(encoding="utf-8", newline="") as file:
        return tuple(
            Run(
                source=row["source"],
                part=parts[row["source"]],
                task=row["task"],
                model=row["model"],
                settings={
                    key: _value(text) for key, _, text in (item.partition("=") for item in row["settings"].split())
                },
                gib=float(row["gib"]),
                reads=row["reads"],
                where=row["where"],
            )
            for row in csv.DictReader(file)
        )


@cache
def _facts() -> tuple[Matrix, Networks]:
    return Matrix(), Networks(facts_dir())


@cache
def _shape(name: str) -> Shape:
    matrix, _ = _facts()
    own = {row["id"]: row["sizes"] for row in _document()["model"]}
    return make_shape(matrix, name, parameters=None, sizes=own[name]) if name in own else find_shape(matrix, name)


def estimate_of(run: Run) -> Estimate:
    """Return what the planner estimates for a run."""
    matrix, networks = _facts()
    constants = read_constants(matrix)
    settings = dict(run.settings)
    if run.task == "images":
        network = networks.find(run.model)
        assert network is not None, run.model  # noqa: S101 - rows name networks that the facts have
        defaults = {"gpus": 1, "optimizer": "adam"}
        return estimate_network(network, **{**defaults, **settings}, constants=constants)
    layout = Layout(**{key: settings.pop(key) for key in fields_of(Layout) if key in settings})
    if run.task == "serve":
        return estimate_serving(_shape(run.model), layout, Serving(**settings), constants)
    return estimate_training(_shape(run.model), layout, Training(**settings), constants)


def seen_gib(run: Run, estimate: Estimate) -> float:
    """Return the part of an estimate that whatever read the peak of a run could see, in GiB."""
    return sum(part.gib for part in estimate.parts if part.name not in _UNSEEN[run.reads])


def error_of(run: Run) -> float:
    """Return by which share the estimate of a run is above its peak."""
    return seen_gib(run, estimate_of(run)) / run.gib - 1


def is_within(run: Run) -> bool:
    """Tell whether the peak of a run lies in the range that is printed beside its estimate."""
    estimate = estimate_of(run)
    seen = seen_gib(run, estimate) / estimate.total_gib
    return estimate.low_gib * seen <= run.gib <= estimate.high_gib * seen


def _figures(name: str, runs: Sequence[Run]) -> str:
    errors = [error_of(run) for run in runs]
    misses = sorted(abs(error) for error in errors)
    nine = misses[min(int(0.9 * len(misses)), len(misses) - 1)]
    within = sum(map(is_within, runs)) / len(runs)
    return (
        f"| {name} | {runs[0].part} | {len(runs)} | {statistics.median(misses):.1%} | {nine:.1%} | "
        f"{statistics.median(errors):+.1%} | {within:.0%} |"
    )


def table(runs: Iterable[Run]) -> str:
    """Return figures by source and by part, as a table of Markdown."""
    rows = list(runs)
    lines = [
        "| runs of | part | runs | MdAPE | P90 | median error | within the range |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for part in PARTS:
        own = [run for run in rows if run.part == part]
        by_source = ([run for run in own if run.source == source] for source in sorted({run.source for run in own}))
        lines.extend(_figures(group[0].source, group) for group in by_source)
        lines.append(_figures(f"all {part}", own))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the scores; ``--runs`` with every run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--runs", action="store_true", help="print every run too")
    chosen = parser.parse_args(arguments)
    runs = read_runs()
    if chosen.runs:
        for run in runs:
            estimate = estimate_of(run)
            parts = " ".join(f"{part.name} {part.gib:.1f}" for part in estimate.parts if part.gib > 0.05)
            sys.stdout.write(f"{error_of(run):+7.1%} {run.gib:7.2f} {run.source} {run.model} {run.settings}: {parts}\n")
    sys.stdout.write(table(runs) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
