"""The JSON form of a verdict, which several controllers' reports can be merged from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from provision.errors import UsageError
from provision.probe.clean import clean, clean_line
from provision.records import NOTHING, plain
from provision.signals.signal import FAIL, PASS, SKIP, UNKNOWN, Signal
from provision.verify.engine import SEVERITIES, Result, Verdict
from provision.verify.fleet import Difference, group_failures

_STATUSES = (PASS, FAIL, UNKNOWN, SKIP)


class Written(NamedTuple):
    """A report that was read back: the answers, target → when it was asked, and the day of the facts."""

    verdict: Verdict
    collected: Mapping[str, str]
    facts_date: str


def count_statuses(results: Iterable[Result]) -> dict[str, int]:
    """Return status → how many, all four of them."""
    counts = dict.fromkeys(_STATUSES, 0)
    for result in results:
        counts[result.outcome.status] += 1
    return counts


def write_document(
    verdict: Verdict,
    *,
    facts_date: str,
    collected: Mapping[str, str] = NOTHING,
    differences: Iterable[Difference] = (),
) -> dict[str, Any]:
    """Return a verdict as plain data.

    Args:
        verdict: The answers.
        facts_date: Day of the facts (ISO).
        collected: Target → when it was asked (ISO).
        differences: Where hosts differ from most, if that was asked.
    """
    targets: dict[str, list[Result]] = {}
    for result in verdict.results:
        targets.setdefault(result.target, []).append(result)
    return {
        "ok": verdict.is_ok,
        "fail_on": verdict.fail_on,
        "facts_date": facts_date,
        "counts": {"targets": len(targets), **count_statuses(verdict.results), "failures": len(verdict.failures)},
        "targets": [
            {
                "target": name,
                "collected": collected.get(name, ""),
                "ok": not any(row.is_failure(verdict.fail_on) for row in rows),
                "counts": count_statuses(rows),
                "checks": [_check(row) for row in rows],
            }
            for name, rows in targets.items()
        ],
        "groups": [plain(group) for group in group_failures(verdict)],
        "differences": [plain(difference) for difference in differences],
    }


def _check(result: Result) -> dict[str, Any]:
    outcome = result.outcome
    document: dict[str, Any] = {
        "id": result.check,
        "status": outcome.status,
        "level": result.level,
        "severity": result.severity,
        "title": result.title,
        "seen": outcome.seen,
    }
    if outcome.expected:
        document["expected"] = outcome.expected
    if outcome.subjects:
        document["subjects"] = list(outcome.subjects)
    if outcome.figures:
        document["figures"] = dict(outcome.figures)
    if outcome.status in (FAIL, UNKNOWN):
        document |= {"remedy": result.remedy, "runbook": result.runbook, "source": list(result.source)}
    return document


def read_report(text: str, where: str) -> Written:
    """Read what ``provision verify --json`` wrote.

    Args:
        text: The document, with or without its envelope.
        where: Name of the file, for the message.

    Raises:
        UsageError: It is something else.
    """
    try:
        document = json.loads(text)
        if "result" in document or "error" in document:
            document = document["result"]
        results = tuple(
            _result(target["target"], check) for target in document["targets"] for check in target["checks"]
        )
        fail_on = SEVERITIES[SEVERITIES.index(document["fail_on"])]
        collected = {clean_line(row["target"]): clean_line(row.get("collected", "")) for row in document["targets"]}
        facts_date = clean_line(document["facts_date"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        said = f"it lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise UsageError(
            f"{where} is not a report of `provision verify --json`",
            because=(clean_line(said, 200),),
            hints=("write one with `provision verify TARGET --json -o report.json`",),
        ) from error
    return Written(Verdict(results=results, fail_on=fail_on), collected, facts_date)


def _result(target: str, check: Mapping[str, Any]) -> Result:
    if check["status"] not in _STATUSES or check["severity"] not in SEVERITIES:
        raise ValueError(f"`{check['id']}` has an unknown status or severity")
    given = {name: check.get(name, "") for name in ("expected", "remedy", "runbook")}
    texts = {"target": target, **{name: check[name] for name in ("id", "level", "title", "seen")}, **given}
    lists = {name: list(check.get(name, ())) for name in ("subjects", "source")}
    if not all(isinstance(value, str) for value in (*texts.values(), *lists["subjects"], *lists["source"])):
        raise ValueError("a name or a finding is not text")
    # A report may come from anywhere, and its text reaches the terminal.
    plain = {name: clean(text) for name, text in texts.items()}
    return Result(
        check=clean_line(plain["id"]),
        target=clean_line(plain["target"]),
        level=plain["level"],
        severity=check["severity"],
        title=plain["title"],
        outcome=Signal(
            status=check["status"],
            seen=plain["seen"],
            expected=plain["expected"],
            subjects=tuple(map(clean, lists["subjects"])),
            figures={clean(name): float(value) for name, value in check.get("figures", {}).items()},
        ),
        remedy=plain["remedy"],
        runbook=plain["runbook"],
        source=tuple(map(clean, lists["source"])),
    )
