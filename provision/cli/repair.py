"""``provision doctor --fix``: a plan, and with consent those of its steps that can be taken back."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from provision.cli.output import Output
from provision.cli.targets import run_on_target
from provision.doctor.engine import Finding, Report
from provision.errors import ActionFailedError
from provision.probe.clean import clean_line

__all__ = ["plan_steps", "repair"]

_STEP_SECONDS = 120


def plan_steps(finding: Finding) -> list[dict[str, str]]:
    """Return the steps of a cause's fix in order; ``run`` and ``undo`` only where a step is one that may be run."""
    steps: list[dict[str, str]] = []
    for text in finding.fix:
        commands = [command for command in text.split("`")[1::2] if command in finding.diagnosis.undo]
        step = {"step": text}
        if len(commands) == 1:
            step |= {"run": commands[0], "undo": finding.diagnosis.undo[commands[0]]}
        steps.append(step)
    return steps


def repair(reports: Mapping[str, Report], options: argparse.Namespace, output: Output) -> int:
    """Print the plan of every target, and with ``--yes`` run its reversible steps.

    A step that a person must do first stops the run of that cause: what follows it was written for after it.

    Raises:
        ActionFailedError: A command failed; what was run before it is named, with what takes it back.
    """
    documents: list[dict[str, Any]] = []
    lines: list[str] = []
    for target, report in reports.items():
        causes: list[dict[str, Any]] = [
            {"diagnosis": finding.diagnosis.id, "steps": plan_steps(finding)} for finding in report.causes
        ]
        documents.append({"target": target, "causes": causes})
        lines.append(f"{target}: {'nothing to fix' if not causes else 'plan'}")
        for cause in causes:
            lines.append(f"  {cause['diagnosis']}")
            for step in cause["steps"]:
                how = f"can be run, taken back by `{step['undo']}`" if "run" in step else "for a person"
                lines.append(f"    - {step['step']} ({how})")
    if options.yes and not output.is_dry_run:
        _run_all(documents, options, output)
        lines = [
            f"{document['target']}: ran `{step['run']}`; `{step['undo']}` takes it back"
            for document in documents
            for cause in document["causes"]
            for step in cause["steps"]
            if step.get("done")
        ] or ["nothing was run: no step of the plan can be taken back, or a person has to do the first one"]
        lines.append("run `provision doctor` again to see what is left")
    output.give({"targets": documents}, "\n".join(lines))
    return 0


def _run_all(documents: list[dict[str, Any]], options: argparse.Namespace, output: Output) -> None:
    done: list[str] = []
    for document in documents:
        for cause in document["causes"]:
            for step in cause["steps"]:
                if "run" not in step:
                    break
                output.note(f"{document['target']}: {step['run']}")
                code, said = run_on_target(options, document["target"], step["run"], _STEP_SECONDS)
                if code != 0:
                    raise ActionFailedError(
                        f"`{step['run']}` failed on {document['target']}",
                        because=(
                            f"it ended with {code}: {clean_line(said)}",
                            *(f"before it ran {run}" for run in done),
                        ),
                        hints=("fix what it says by hand, then run `provision doctor` again",),
                    )
                step["done"] = "yes"
                done.append(f"`{step['run']}` on {document['target']}; `{step['undo']}` takes it back")
