"""Score `provision doctor --text` on public threads with a settled cause: `python -m tools.score_threads --part dev`.

A file of `tests/threads` holds one thread a line: its address, the lines of the message, the causes that count as
right, none where no diagnosis fits, and what fixed it. The set `known` was collected by who wrote the messages, the
set `blind` by somebody who had not seen them. So was the set `third`, but messages were then mended from all of it.
The sets `fourth` and `fifth` were split at random, and a row says its part; the set `sixth` was scored once as a whole
before it became one to write from, as were `seventh`, `eighth`, `thirteenth` to `fifteenth` and `breadth`; `ninth` to
`twelfth` were split by repository. The parts of the others are told by a hash of the repository, so that threads of
one project never stand in both. `dev` is what messages are written from, and so is the `held` of all sets before
`twelfth` since they were opened, on 2026-11-28 and 2026-11-29. A thread is right when the first finding is one of its
causes, open when that finding names several causes of one message and one of them is the thread's, wrong when it is
another one, silent when there is none. Every finding is wrong in the healthy logs of a set, of runs that succeeded or
failed for reasons outside of the GPU's software.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from provision.doctor.case import Case
from provision.doctor.engine import Finding, diagnose
from provision.matrix.load import Matrix

FOLDER = Path(__file__).parents[1] / "tests" / "threads"
PARTS = ("dev", "held")
SETS = {
    "known": ("threads.jsonl", "healthy.jsonl"),
    "blind": ("blind-threads.jsonl", "blind-healthy.jsonl"),
    "third": ("third-threads.jsonl",),
    "fourth": ("fourth-threads.jsonl", "fourth-healthy.jsonl"),
    "fifth": ("fifth-threads.jsonl",),
    "sixth": ("sixth-threads.jsonl", "sixth-healthy.jsonl"),
    "seventh": ("seventh-threads.jsonl",),
    "eighth": ("eighth-threads.jsonl", "eighth-healthy.jsonl"),
    "ninth": ("ninth-threads.jsonl", "ninth-healthy.jsonl"),
    "tenth": ("tenth-threads.jsonl", "tenth-healthy.jsonl"),
    "eleventh": ("eleventh-threads.jsonl", "eleventh-healthy.jsonl"),
    "twelfth": ("twelfth-threads.jsonl", "twelfth-healthy.jsonl"),
    "thirteenth": ("thirteenth-threads.jsonl", "thirteenth-healthy.jsonl"),
    "fourteenth": ("fourteenth-threads.jsonl",),
    "fifteenth": ("fifteenth-threads.jsonl",),
    "breadth": ("breadth-threads.jsonl",),
}
_HELD_OF_FIVE = 2


def read_rows(name: str) -> tuple[dict[str, Any], ...]:
    """Return the rows of a file of the corpus, in order."""
    return tuple(json.loads(line) for line in (FOLDER / name).read_text(encoding="utf-8").splitlines())


def part_of(row: Mapping[str, Any]) -> str:
    """Return the part of a thread: what its row says, else by its repository or site."""
    if "part" in row:
        return str(row["part"])
    address = row["address"]
    place = "/".join(address.split("/")[3:5]) if address.startswith("https://github.com/") else address.split("/")[2]
    digest = int(hashlib.sha256(place.lower().encode()).hexdigest(), 16)
    return "held" if digest % 5 < _HELD_OF_FIVE else "dev"


def _findings(lines: Iterable[str], matrix: Matrix) -> tuple[Finding, ...]:
    report = diagnose(Case(matrix, None, (("thread", "\n".join(lines) + "\n"),)))
    return (*report.causes, *report.notes)


def answer(lines: Iterable[str], matrix: Matrix) -> tuple[str, ...]:
    """Return the diagnoses for some lines, the first one first; none where doctor is silent."""
    return tuple(finding.diagnosis.id for finding in _findings(lines, matrix))


def score(rows: Iterable[dict[str, Any]], matrix: Matrix) -> Iterator[tuple[dict[str, Any], str, tuple[str, ...]]]:
    """Yield each thread, ``right``, ``open``, ``wrong`` or ``silent``, and what doctor said."""
    for row in rows:
        found = _findings(row["lines"], matrix)
        said = tuple(finding.diagnosis.id for finding in found)
        fits = {diagnosis.id for diagnosis in found[0].fits} if found else set()
        named = {*said[:1], *fits} & {*row["cause"]}
        yield row, "silent" if not said else "wrong" if not named else "open" if fits else "right", said


def _rows_of(name: str, part: str) -> Iterator[dict[str, Any]]:
    return (row for row in read_rows(SETS[name][0]) if part_of(row) == part)


def summary(name: str, part: str, matrix: Matrix) -> Counter[str]:
    """Return how many threads of a part of a set are right, open, wrong and silent."""
    return Counter(verdict for _, verdict, _ in score(_rows_of(name, part), matrix))


def main() -> int:
    """Print the score of each part by family; with ``--misses`` each thread of the part that is not right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--set", choices=tuple(SETS), default="known", dest="name")
    parser.add_argument("--part", choices=(*PARTS, "both"), default="both")
    parser.add_argument("--misses", action="store_true", help="name the threads that are not right; not for `held`")
    options = parser.parse_args()
    if options.misses and options.part != "dev":
        parser.error("--misses is for --part dev: the other part stays unread while messages are written")
    matrix = Matrix()
    for part in PARTS if options.part == "both" else (options.part,):
        table: dict[str, Counter[str]] = {}
        for row, verdict, said in score(_rows_of(options.name, part), matrix):
            table.setdefault(row["family"], Counter())[verdict] += 1
            if options.misses and verdict != "right":
                wanted = row["cause"][0] if row["cause"] else "what no diagnosis tells"
                print(f"{verdict}: {row['address']}: wants {wanted}, says {', '.join(said) or 'nothing'}")
                for line in row["lines"][:3]:
                    print(f"    {line[:150]}")
        for family, counts in sorted(table.items()):
            print(f"{part} {family:10} " + ", ".join(f"{counts[verdict]} {verdict}" for verdict in counts))
        whole = sum(table.values(), Counter[str]())
        share = ", ".join(f"{whole[name]} {name} ({whole[name] / whole.total():.0%})" for name in sorted(whole))
        print(f"{part}: {whole.total()} threads: {share}")
    healthy = [row for file in SETS[options.name][1:] for row in read_rows(file)]
    loud = [(row["name"], said) for row in healthy if (said := answer(row["lines"], matrix))]
    print(f"healthy logs: {len(healthy)}, with a finding: {loud or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
