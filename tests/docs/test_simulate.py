"""The figures of docs/simulate.md and the table of docs/spot.md are what the program and the facts say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from provision.cli.policy_file import load_policy
from provision.fleet.simulate.engine import simulate, size_for_peak
from provision.fleet.simulate.model import Machines, Outcome
from provision.fleet.simulate.trace import read_trace
from provision.generate.spot import notices_of, providers_with_notices
from provision.matrix.load import Matrix

DOCS = Path(__file__).resolve().parents[2] / "docs"
MATRIX = Matrix()
PAGE = (DOCS / "simulate.md").read_text(encoding="utf-8")
# As the examples of the page have them.
NODES = Machines(gpus=4, usd_per_hour=5.67, boot_seconds=300.0, billing_minimum_seconds=60.0, step_seconds=60.0)
ROWS = {"stages.csv": ("two stages", 4), "day-night.csv": ("day and night", 5), "steady.csv": ("steady", 4)}


def replay(name: str, nodes: int | None) -> Outcome:
    trace = read_trace((DOCS / "traces" / name).read_text(encoding="utf-8"), name)
    if nodes is None:
        policy = load_policy(DOCS / "traces" / "queue.toml", {}, MATRIX)
        return simulate(trace, NODES, name="queue", policy=policy)
    return simulate(trace, NODES, name="fixed", fixed=nodes or size_for_peak(trace, NODES))


def span(seconds: float) -> str:
    if seconds == 0:
        return "none"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


@pytest.mark.parametrize("name", ROWS)
def test_table_says_what_the_simulator_says(name: str) -> None:
    title, nodes = ROWS[name]
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {title}")]
    queue, peak, fixed = replay(name, None), replay(name, 0), replay(name, nodes)
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1] == f"{100 * (1 - queue.usd / peak.usd):.1f} %"
    assert cells[2] == (
        f"{100 * (1 - queue.usd / fixed.usd):.1f} % of {nodes} nodes, "
        f"{span(queue.queue_mean_seconds)} instead of {span(fixed.queue_mean_seconds)}"
    )


def test_claim_of_the_articles_is_the_bound_of_its_load_and_nearly_reached() -> None:
    queue, peak = replay("stages.csv", None), replay("stages.csv", 0)
    # Half of the time 4 of 16 GPUs: 1 - (4 + 16) / 2 / 16.
    assert 1 - peak.utilisation_percent / 100 == pytest.approx(0.375)
    assert 0.36 < 1 - queue.usd / peak.usd < 0.375
    assert peak.nodes_most == 4
    assert peak.queue_max_seconds == 0
    assert span(queue.queue_mean_seconds) == "3.5 min"
    assert queue.queue_max_seconds == 360
    for words in ("37.5 %", "36.7 %", "6 minutes", "3.5 minutes", "at most 63 % of the peak", "49 % of the time"):
        assert words in PAGE
    assert round(0.37 / (1 - 4 / 16), 2) == 0.49


def test_table_of_providers_is_what_the_facts_say() -> None:
    text = (DOCS / "spot.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\w+) \| ([^|]+ \| [^|]+ \| `[^`]+`)", text, re.MULTILINE))
    said = {}
    for provider in providers_with_notices(MATRIX):
        row = notices_of(MATRIX, provider)[0]
        warning = "not stated" if row.warning_seconds is None else f"{row.warning_seconds} s"
        asked = "at once" if row.wait_query else f"every {row.poll_seconds} s"
        said[provider] = f"{warning} | {asked} | `{row.path.partition('?')[0]}`"
    assert {name: rows.get(name) for name in said} == said
