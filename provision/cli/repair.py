"""``provision doctor --fix``: a plan, and with consent those of its steps that can be taken back."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from provision.cli.output import Output
from provision.cli.targets import run_on_target
from provision.cli.text.paragraph import columns_of, wrap
from provision.doctor.engine import Finding, Report
from provision.errors import ActionFailedError, MissingDependencyError, ProvisionError, VerificationFailedError
from provision.probe.clean import clean_line

_STEP_SECONDS = 120


def plan_steps(finding: Finding) -> list[dict[str, Any]]:
    """Return the steps of a cause's fix in order.

    Each has ``step`` and ``kind``: ``run`` can be run and taken back (``run`` and ``undo`` are its commands), ``look``
    only looks, which the diagnosis has done, and ``person`` is left to one, as is everything about a cause that the
    target's own state does not prove or that something unseen could still refute.
    """
    steps: list[dict[str, Any]] = []
    is_sure = _is_sure(finding)
    for text in finding.fix:
        commands = text.split("`")[1::2]
        known = [command for command in commands if command in finding.diagnosis.undo]
        if is_sure and len(commands) == len(known) == 1:
            steps.append({"step": text, "kind": "run", "run": known[0], "undo": finding.diagnosis.undo[known[0]]})
        elif commands and all(command in finding.diagnosis.looks for command in commands):
            steps.append({"step": text, "kind": "look"})
        else:
            steps.append({"step": text, "kind": "person"})
    return steps


def _is_sure(finding: Finding) -> bool:
    return finding.sign.confidence == "high" and not finding.sign.unseen


def repair(
    reports: Mapping[str, Report],
    unreachable: Mapping[str, str],
    options: argparse.Namespace,
    output: Output,
    look_again: Callable[[], Mapping[str, Report]] | None = None,
) -> int:
    """Print the plan of every target, or with ``--yes`` run its reversible steps and print what was done.

    A step that a person must do ends the run of that cause: what follows was written for after it. Whether what was run
    helped is looked up on the target, not taken from the command's word.

    Args:
        reports: Target → what was found there.
        unreachable: Target → why nothing could be looked at.
        options: The flags; ``yes`` is consent.
        output: Where to print.
        look_again: Collects anew and returns what is found on each target that answers. Without it the commands are
            taken at their word.

    Returns:
        The exit code: 6 while something is left to do or did not help, 7 when a target could not be reached.

    Raises:
        ActionFailedError: A command failed; what was run before it is named, with what takes it back.
    """
    documents: list[dict[str, Any]] = [
        {
            "target": target,
            "causes": [
                {"diagnosis": finding.diagnosis.id, "title": finding.diagnosis.title, "steps": plan_steps(finding)}
                for finding in _fixable(report)
            ],
        }
        for target, report in reports.items()
    ]
    if options.yes and not output.is_dry_run:
        _run_all(documents, options, output)
        if look_again is not None:
            _check_all(documents, reports, output, look_again)
    columns = columns_of(output)
    lines = list(_show(documents, columns))
    for name, why in unreachable.items():
        lines += wrap(clean_line(f"{name}: {why}", 2000), columns, hanging=3)
    was_run = any("done" in step for _, step in _steps(documents))
    if was_run:
        lines += ["", "run `provision doctor` again to see what is left"]
    elif any(step["kind"] == "run" for _, step in _steps(documents)) and not options.yes:
        lines += ["", "`--fix --yes` runs what can be taken back, up to the first step for a person"]
    left = any(_is_left(cause) for document in documents for cause in document["causes"])
    is_ok = not (left or unreachable)
    listed = [{"target": name, "reason": why} for name, why in unreachable.items()]
    output.give({"targets": documents, "unreachable": listed, "ok": is_ok}, "\n".join(lines), is_ok=is_ok)
    if left:
        return VerificationFailedError.exit_code
    return MissingDependencyError.exit_code if unreachable else 0


def _fixable(report: Report) -> Iterator[Finding]:
    """Yield causes, then notes that are sure: they are notes because they are harmless."""
    yield from report.causes
    yield from (finding for finding in report.notes if finding.sign.confidence != "low")


def _is_run(cause: Mapping[str, Any]) -> bool:
    """Tell whether a step of a cause was run."""
    return any("done" in step for step in cause["steps"])


def _is_left(cause: Mapping[str, Any]) -> bool:
    """Tell whether something of a cause is left to do, or what was run has not been seen to help."""
    has_open = any(step["kind"] != "look" and "done" not in step for step in cause["steps"])
    return has_open or (_is_run(cause) and cause.get("found_again", False) is not False)


def _check_all(
    documents: list[dict[str, Any]],
    before: Mapping[str, Report],
    output: Output,
    look_again: Callable[[], Mapping[str, Report]],
) -> None:
    """Write into each cause of which a step was run whether it is still there, ``None`` where nobody can tell."""
    causes = [(document["target"], cause) for document in documents for cause in document["causes"] if _is_run(cause)]
    reports: Mapping[str, Report] = {}
    try:
        reports = look_again() if causes else {}
    except ProvisionError as error:
        output.warn(f"whether that helped could not be looked up: {error.message}")
    for target, cause in causes:
        cause["found_again"] = None
        if target in reports:
            found = [finding for finding in _findings(reports[target]) if finding.diagnosis.id == cause["diagnosis"]]
            is_there = any(finding.sign.confidence == "high" for finding in found)
            # What answered before and does not now leaves open whether the cause is gone.
            is_blind = bool(reports[target].unseen.keys() - before[target].unseen.keys()) or any(
                finding.sign.unseen for finding in found
            )
            cause["found_again"] = True if is_there else None if is_blind else False


def _findings(report: Report) -> Iterator[Finding]:
    """Yield what was found, with what it explains."""
    waiting = [*report.causes, *report.notes]
    while waiting:
        finding = waiting.pop()
        waiting += finding.consequences
        yield finding


def _steps(documents: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for document in documents:
        for cause in document["causes"]:
            for step in cause["steps"]:
                yield document["target"], step


def _show(documents: list[dict[str, Any]], columns: int) -> Iterator[str]:
    for position, document in enumerate(documents):
        if position:
            yield ""
        yield f"{clean_line(document['target'])}:{'' if document['causes'] else ' nothing to fix'}"
        for cause in document["causes"]:
            yield from wrap(f"{cause['title']} ({cause['diagnosis']})", columns, lead="  ", hanging=4)
            for number, step in enumerate(cause["steps"], 1):
                lead = f"    {'done' if 'done' in step else step['kind']:<6}  {number}. "
                yield from wrap(clean_line(step["step"], 2000), columns, lead=lead)
                if "run" in step:
                    yield from wrap(f"`{step['undo']}` takes it back", columns, lead=" " * len(lead))
            if "found_again" in cause:
                said = {
                    True: "it is still there",
                    False: "it is gone now",
                    None: "whether it is gone could not be read",
                }
                yield from wrap(said[cause["found_again"]], columns, lead="    ", hanging=4)


def _run_all(documents: list[dict[str, Any]], options: argparse.Namespace, output: Output) -> None:
    done: dict[str, str] = {}
    for document in documents:
        target = document["target"]
        for cause in document["causes"]:
            for step in cause["steps"]:
                if step["kind"] == "person":
                    break
                if step["kind"] == "look":
                    continue
                command = step["run"]
                output.note(f"{clean_line(target)}: {command}")
                before = tuple(f"`{run}` was run before, and `{undo}` takes it back" for run, undo in done.items())
                try:
                    code, said = run_on_target(options, target, command, _STEP_SECONDS)
                except ProvisionError as error:
                    raise type(error)(error.message, because=(*error.because, *before), hints=error.hints) from error
                if code != 0:
                    words = f": {clean_line(said)}" if said else ""
                    raise ActionFailedError(
                        f"`{command}` failed on {clean_line(target)}",
                        because=(f"it ended with {code}{words}", *before),
                        hints=("do what it asks for by hand, then run `provision doctor` again",),
                    )
                step["done"] = True
                done[f"{command}` on `{clean_line(target)}"] = step["undo"]
