"""A verdict on one screen: what fails first, equal failures together, then what else is worth knowing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from provision.cli.output import Output
from provision.cli.text.paragraph import columns_of, wrap
from provision.cli.text.screen import align
from provision.matrix.model import Check
from provision.probe.clean import clean_line
from provision.signals.signal import FAIL, PASS, SKIP, UNKNOWN
from provision.verify.engine import SEVERITIES, Result, Verdict, way_on
from provision.verify.fleet import Difference, Group, group_failures
from provision.verify.report.document import count_statuses

_NAMES_MAX = 8
_MARKS = {PASS: "pass", FAIL: "FAIL", UNKNOWN: "UNKNOWN", SKIP: "skip"}
_STYLES = {FAIL: "error", UNKNOWN: "warning"}
_SAME_MIN = 3
"""From so many traits on that nothing is known of for the same targets, they share a line."""


def show_checks(checks: Iterable[Check], columns: int | None) -> str:
    """Return the list of checks, one a line where the terminal is wide enough."""
    return "\n".join(align([(row.id, row.level, row.severity, row.title) for row in checks], columns=columns))


def show_verdict(verdict: Verdict, differences: Sequence[Difference], output: Output) -> str:
    """Return the lines of a verdict.

    Failures come first, grouped; then what is unknown and must not be, what does not count, where targets differ, and
    with ``-v`` every answer; the last line counts.
    """
    return "\n".join(_Page(verdict, output).lines(differences))


class _Page:
    """One verdict for one terminal."""

    def __init__(self, verdict: Verdict, output: Output) -> None:
        self.verdict = verdict
        self.output = output
        self.columns = columns_of(output)
        self.targets = tuple(dict.fromkeys(result.target for result in verdict.results))
        self.is_fleet = len(self.targets) > 1
        # What the facts advise is for a wrong answer; for a missing one only what the check itself says.
        self.advice = {
            (row.check, row.outcome.seen): row.outcome.remedy
            for row in verdict.results
            if row.outcome.status == UNKNOWN and row.outcome.remedy
        }

    def lines(self, differences: Sequence[Difference]) -> list[str]:
        groups = group_failures(self.verdict)
        parts = [
            [line for group in groups if group.status != UNKNOWN for line in self._show_failure(group)],
            list(self._show_unknown([group for group in groups if group.status == UNKNOWN])),
            self._show_lesser(),
            list(self._show_differences(differences)),
            self._show_all() if self.output.verbosity > 0 else [],
            [self._conclude()],
        ]
        lines: list[str] = []
        for part in parts:
            lines += ["", *part] if lines and part else part
        return lines

    def _show_failure(self, group: Group) -> Iterator[str]:
        where = f": {len(group.targets)} of {len(self.targets)} targets" if self.is_fleet else ""
        yield f"{self._mark(FAIL)} {group.check} ({group.severity}){where}"
        yield from self._field("seen", group.seen)
        yield from self._field("expected", group.expected)
        if self.is_fleet:
            yield from self._field("targets", _some(group.targets))
        yield from self._field("remedy", group.remedy)
        yield from self._field("more", way_on(group.check))

    def _show_unknown(self, groups: Sequence[Group]) -> Iterator[str]:
        """Yield what has no answer and must have one; checks that lack the same answer stand together."""
        reasons: dict[tuple[str, tuple[str, ...]], list[Group]] = {}
        for group in groups:
            reasons.setdefault((group.seen, group.targets), []).append(group)
        for (seen, targets), rows in reasons.items():
            first, *rest = wrap(clean_line(seen), self.columns, lead=f"{_MARKS[UNKNOWN]} ", hanging=2)
            yield first.replace(_MARKS[UNKNOWN], self._mark(UNKNOWN), 1)
            yield from rest
            for severity in SEVERITIES:
                yield from self._field(severity, ", ".join(row.check for row in rows if row.severity == severity))
            if self.is_fleet:
                yield from self._field("targets", _some(targets))
            advice = dict.fromkeys(self.advice.get((row.check, row.seen), "") for row in rows)
            yield from self._field("remedy", " ".join(filter(None, advice)))
            if len(rows) == 1:
                yield from self._field("more", way_on(rows[0].check))

    def _show_lesser(self) -> list[str]:
        """Return what failed or is unknown and does not count, equal ones together."""
        lesser: dict[tuple[str, str, str], list[Result]] = {}
        for row in self.verdict.results:
            if row.outcome.status in (FAIL, UNKNOWN) and not row.is_failure(self.verdict.fail_on):
                # Checks that lack the same answer share a line.
                name = "" if row.outcome.status == UNKNOWN else row.check
                lesser.setdefault((row.outcome.status, name, row.outcome.seen), []).append(row)
        lines: list[str] = []
        for (status, _, seen), rows in sorted(lesser.items(), key=lambda item: item[0][0] == UNKNOWN):
            names = ", ".join(dict.fromkeys(row.check for row in rows))
            where = f" on {_some(tuple(dict.fromkeys(row.target for row in rows)))}" if self.is_fleet else ""
            said = "below the bar" if status == FAIL else "not known"
            lines += wrap(f"{said}: {names}{where}: {clean_line(seen)}", self.columns, lead="  ", hanging=4)
        return lines

    def _show_differences(self, differences: Sequence[Difference]) -> Iterator[str]:
        """Yield what differs, as targets in the odd places; what nobody could read on the same ones goes together."""
        if not differences:
            return
        yield "differences:"
        silent: dict[tuple[str, ...], list[str]] = {}
        for difference in differences:
            if tuple(difference.targets) == ("",):
                silent.setdefault(difference.targets[""], []).append(difference.trait)
        together = {trait for traits in silent.values() if len(traits) >= _SAME_MIN for trait in traits}
        for difference in differences:
            if difference.trait in together:
                continue
            most = f"{difference.trait}: most ({difference.majority_count}) have {clean_line(difference.majority)}"
            yield from wrap(most, self.columns, lead="  ", hanging=4)
            for value, names in difference.targets.items():
                yield from wrap(f"{clean_line(value) or 'not known'}: {_some(names)}", self.columns, lead="    ")
        for names, traits in silent.items():
            if len(traits) >= _SAME_MIN:
                yield from wrap(f"not known on {_some(names)}: {', '.join(traits)}", self.columns, lead="  ", hanging=4)

    def _show_all(self) -> list[str]:
        return align(
            [
                (
                    *((clean_line(row.target, 80),) if self.is_fleet else ()),
                    _MARKS[row.outcome.status],
                    row.check,
                    clean_line(row.outcome.seen),
                )
                for row in self.verdict.results
            ]
        )

    def _conclude(self) -> str:
        counts = count_statuses(self.verdict.results)
        failing = len({row.target for row in self.verdict.failures})
        said = self.output.paint("passed", "label") if self.verdict.is_ok else self.output.paint("failed", "error")
        count = len(self.targets)
        total = f"{count} target{'' if count == 1 else 's'}"
        if self.is_fleet and failing:
            total = f"{failing} of {total}"
        counted = f"{counts[PASS]} passed, {counts[FAIL]} failed, {counts[UNKNOWN]} unknown, {counts[SKIP]} skipped"
        return f"{said}: {total}; checks: {counted}"

    def _mark(self, status: str) -> str:
        return self.output.paint(_MARKS[status], _STYLES[status])

    def _field(self, label: str, text: str) -> list[str]:
        return wrap(clean_line(text, 4000), self.columns, lead=f"  {label:<9} ") if text else []


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(clean_line(name, 80) for name in names[:_NAMES_MAX])
    return shown if len(names) <= _NAMES_MAX else f"{shown} and {len(names) - _NAMES_MAX} more"
