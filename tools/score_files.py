"""Score `provision check` on public install files that were judged by hand: `python -m tools.score_files --part dev`.

`tests/files/files.jsonl` holds one case a line: its address with the commit, the file that is checked, the lines of it
and of files beside it that decide, and its problems. A problem has a gravity, a family, words that stand in the lines
where it may be named, and how it is known: by a thread, by a later commit, by what pip and uv say, or by facts. The
parts are told by a hash of the repository, as in `score_threads`: `dev` is what rules are mended from, `held` is for
scoring alone. A set that was scored once without having been seen is learnt from afterwards: it says `dev` itself.

An error is true when a problem of its family stands on its line or in its message, and false otherwise. A problem is
found when a rule of its family speaks there. Problems that were overlooked, and seen when check had named them, are
marked `late`: they make an error true, and do not count as found.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from provision.audit.engine import audit
from provision.audit.model import Options, Source
from provision.errors import UsageError
from provision.matrix.load import Matrix

FOLDER = Path(__file__).parents[1] / "tests" / "files"
PARTS = ("dev", "held")
_HELD_OF_FIVE = 2
UNREAD = "unread"
"""What stands for a rule where a file is refused as malformed."""
FAMILIES: Mapping[str, frozenset[str]] = {
    family: frozenset(rules.split())
    for family, rules in {
        "abi": "C23",
        "absent": "B14 B18 C02 C04 C18 C19 C25 C26",
        "apt": "B14 B15 B18 B19",
        "base": "B01 B04 B15",
        "conda": "B07 B16 B17 C02 C13 C18",
        "conda-terms": "B11",
        "cuda": "C01 C02 C04 C07 C09 C11 C12 G03 N05",
        "cudnn": "C01 C07 C09 C12 N05",
        "deps": "C03 C09 C11 C17 C18 C22 C24 C27 N01 N02 N05",
        "get-pip": "B10",
        "sdist": "C17 C18 L01 X01 X02",
        "shell": "B16 B17",
        "system": "B09 B12 B14",
        "glibc": "B07",
        "gpu": "C01 C12 D01 G01 G02 G03",
        "index": "C02 C04 C05 C08 C18 C20 C30",
        "isolation": "N02 X01 X02",
        "key": "S04",
        "moved": "B06 B08 C06 C10 C16 C22 C26 N05",
        "name": "C04 C15 C17 C18 C25 C27 C28 C29 unread",
        "numpy": "C09 C17 N01",
        "nvcc": "B05 B12 X01",
        "pair": "C02 C03 C09 C10 C11 C13 C16 C17 C23 N05",
        "platform": "C17 C18",
        "python": "B06 B13 C02 C17 C18 L01",
        "same": "C21",
        "tag": "B01 B04",
    }.items()
}
"""The rules that may name a problem of a family."""


class Said:
    """One finding, with the line it is about."""

    def __init__(self, rule: str, severity: str, line: str, message: str) -> None:
        self.rule = rule
        self.severity = severity
        self.line = line
        self.message = message

    def names(self, problem: Mapping[str, Any]) -> bool:
        """Tell whether this is about a problem."""
        is_there = any(words in self.line or words in self.message for words in problem["where"])
        return is_there and self.rule in FAMILIES[problem["family"]]


Answers = tuple[tuple[Mapping[str, Any], tuple[Said, ...]], ...]
"""Cases, each with what check says of it."""


def read_rows() -> tuple[dict[str, Any], ...]:
    """Return the cases, in order."""
    return tuple(json.loads(line) for line in (FOLDER / "files.jsonl").read_text(encoding="utf-8").splitlines())


def part_of(row: Mapping[str, Any]) -> str:
    """Return the part of a case: the one that it names, else by its repository."""
    if "part" in row:
        return str(row["part"])
    place = "/".join(row["address"].split("/")[3:5])
    digest = int(hashlib.sha256(place.lower().encode()).hexdigest(), 16)
    return "held" if digest % 5 < _HELD_OF_FIVE else "dev"


def answer(row: Mapping[str, Any], matrix: Matrix) -> tuple[Said, ...]:
    """Return what check says of a case, in order; a file that it refuses to read is said as an error too."""
    sources = {name: Source(name, "\n".join(lines) + "\n") for name, lines in row["files"].items()}
    first = sources[row["check"]]
    folder = row["check"].rpartition("/")[0]
    # A file beside it that lies in no folder of its own is reached from where the repository begins.
    context = None if all(name.startswith(folder) for name in sources) else ""
    try:
        report = audit([first], sources.get, matrix, Options(), context=context)
    except UsageError as error:
        if error.message.endswith("is not a file that can be checked"):
            return ()
        said = "; ".join((error.message, *error.because))
        return (Said(UNREAD, "error", said, said),)
    return tuple(
        Said(item.rule, item.severity, _line(report.sources[item.span.file], item.span.start), item.message)
        for item in report.findings
    )


def _line(source: Source, offset: int) -> str:
    begin = source.text.rfind("\n", 0, offset) + 1
    return source.text[begin : (source.text + "\n").index("\n", offset)]


def false_errors(row: Mapping[str, Any], said: Iterable[Said]) -> tuple[Said, ...]:
    """Return the errors that no problem of a case bears out."""
    return tuple(
        item for item in said if item.severity == "error" and not any(item.names(problem) for problem in row["truth"])
    )


def _judged(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the problems that were seen before check was run: of the others nobody can tell how many are missed."""
    return tuple(problem for problem in row["truth"] if "late" not in problem)


def found(problem: Mapping[str, Any], said: Iterable[Said]) -> str:
    """Say how a problem was found: as an ``error``, as a ``warning``, or ``missed``."""
    severities = {item.severity for item in said if item.names(problem)}
    return "error" if "error" in severities else "warning" if "warn" in severities else "missed"


def answers(parts: Collection[str], matrix: Matrix) -> Answers:
    """Return each case of some parts with what check says of it."""
    return tuple((row, answer(row, matrix)) for row in read_rows() if part_of(row) in parts)


def summary(part: str, answered: Answers) -> Counter[str]:
    """Return the counts of a part: cases, errors that are true and false, warnings, problems by how they were found."""
    counts: Counter[str] = Counter()
    for row, said in answered:
        if part_of(row) != part:
            continue
        wrong = false_errors(row, said)
        counts["cases"] += 1
        counts["files"] += len(row["files"])
        counts["errors"] += sum(item.severity == "error" for item in said)
        counts["false errors"] += len(wrong)
        counts["warnings"] += sum(item.severity == "warn" for item in said)
        counts["late"] += sum("late" in problem for problem in row["truth"])
        for problem in _judged(row):
            how = found(problem, said)
            counts.update((how, f"known {how}") if "known" in problem else (how,))
    return counts


def main() -> int:
    """Print the score of each part; with ``--misses`` what is false and what is missed in it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=(*PARTS, "both"), default="both")
    parser.add_argument("--misses", action="store_true", help="name what is false or missed; not for `held`")
    options = parser.parse_args()
    if options.misses and options.part != "dev":
        parser.error("--misses is for --part dev: the other part stays unread while rules are mended")
    parts = PARTS if options.part == "both" else (options.part,)
    answered = answers(parts, Matrix())
    for part in parts:
        counts = summary(part, answered)
        errors, false = counts["errors"], counts["false errors"]
        print(f"{part}: {counts['cases']} cases, {counts['files']} files, {counts['warnings']} warnings")
        print(f"{part}: {errors} errors, {errors - false} of them true ({(errors - false) / max(errors, 1):.0%})")
        print(f"{part}: {counts['late']} true errors were overlooked by the judge, and seen afterwards")
        for title, mark in (("problems", ""), ("problems of a thread or a commit", "known ")):
            numbers = {how: counts[mark + how] for how in ("error", "warning", "missed")}
            total = max(sum(numbers.values()), 1)
            share = (total - numbers["missed"]) / total
            print(
                f"{part}: {total} {title}, {share:.0%} found: " + ", ".join(f"{n} {how}" for how, n in numbers.items())
            )
        if options.misses:
            _tell_misses(answered)
    return 0


def _tell_misses(answered: Answers) -> None:
    for row, said in answered:
        for item in false_errors(row, said):
            print(f"false: {row['address']}\n    {item.rule} {item.message}\n    {item.line[:150]}")
        for problem in _judged(row):
            if found(problem, said) == "missed":
                print(f"missed: {row['address']}\n    {problem['family']}: {problem['what']}: {problem['where'][0]}")


if __name__ == "__main__":
    sys.exit(main())
