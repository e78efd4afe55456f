"""Run every rule over a case, and put what they found in order: causes first, each with what it explains."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

from provision.doctor.case import Case
from provision.doctor.message import Message
from provision.doctor.sign import CONFIDENCES, Sign
from provision.matrix.model import Diagnosis
from provision.records import NOTHING, record

__all__ = ["LAYERS", "SEVERITIES", "Finding", "Report", "diagnose", "load_rule", "rule_of"]

LAYERS = ("hardware", "driver", "library", "container", "framework", "network")
"""From the metal up: what is lower breaks what is higher."""

SEVERITIES = ("critical", "high", "medium", "low")

_TOLERANCE_SECONDS = 180.0
"""A consequence may be logged a little before its cause: messages of one incident come in no fixed order."""


@record
class Finding:
    """A diagnosis that holds, and the findings it explains, themselves in order."""

    diagnosis: Diagnosis
    sign: Sign
    consequences: tuple[Finding, ...] = ()

    @property
    def fix(self) -> tuple[str, ...]:
        """The steps for this case."""
        return self.sign.fix or self.diagnosis.fix


@record
class Report:
    """What doctor says.

    Attributes:
        causes: What explains the rest, the likeliest and deepest first.
        notes: Findings of low severity or low confidence, which explain nothing on their own.
        unseen: Probe → why it brought nothing, for probes a rule asked for.
        broken: Rule → what went wrong inside it; a bug of this program.
    """

    causes: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    unseen: Mapping[str, str] = NOTHING
    broken: Mapping[str, str] = NOTHING


def load_rule(diagnosis: str) -> ModuleType:
    """Import the module of a rule."""
    return import_module(f"provision.doctor.rules.{diagnosis.replace('.', '_').replace('-', '_')}")


def rule_of(row: Diagnosis) -> ModuleType | Message:
    """Return the rule of a diagnosis: its row's own messages, or the module that weighs state."""
    return Message(row) if row.patterns else load_rule(row.id)


def diagnose(case: Case) -> Report:
    """Run all rules and rank what they find.

    A finding that another one explains stands below it, unless the kernel's clock says that it came first. The rest
    is ordered by layer, then severity, then confidence.
    """
    signs: dict[str, Sign] = {}
    broken: dict[str, str] = {}
    for name, row in case.matrix.diagnoses.items():
        try:
            sign: Sign | None = rule_of(row).examine(case)
        except Exception as error:  # one broken rule must not take the answers of the others with it
            if os.environ.get("PROVISION_DEBUG"):
                raise
            broken[name] = f"{type(error).__name__}: {error}"
            continue
        if sign is not None:
            signs[name] = sign
    reasons = {name: _causes_of(name, signs, case.matrix.diagnoses) for name in signs}
    roots = [name for name in signs if not reasons[name]]
    children: dict[str, list[str]] = {name: [] for name in signs}
    for name, causes in reasons.items():
        if causes:
            # The deepest of several causes takes it, so that a chain reads from its beginning.
            children[min(causes, key=lambda cause: _rank(case.matrix.diagnoses[cause], signs[cause]))].append(name)
    findings = [_assemble(name, signs, children, case.matrix.diagnoses) for name in roots]
    findings.sort(key=lambda finding: _rank(finding.diagnosis, finding.sign))
    return Report(
        causes=tuple(finding for finding in findings if not _is_note(finding)),
        notes=tuple(finding for finding in findings if _is_note(finding)),
        unseen=dict(sorted(case.unseen.items())),
        broken=broken,
    )


def _causes_of(name: str, signs: Mapping[str, Sign], diagnoses: Mapping[str, Diagnosis]) -> list[str]:
    return [
        other
        for other, sign in signs.items()
        if other != name and name in diagnoses[other].explains and _can_cause(sign, signs[name])
    ]


def _can_cause(cause: Sign, consequence: Sign) -> bool:
    if cause.confidence == "low" and consequence.confidence != "low":
        return False
    if cause.seconds is None or consequence.seconds is None:
        return True
    return cause.seconds <= consequence.seconds + _TOLERANCE_SECONDS


def _assemble(
    name: str, signs: Mapping[str, Sign], children: Mapping[str, list[str]], diagnoses: Mapping[str, Diagnosis]
) -> Finding:
    below = [_assemble(child, signs, children, diagnoses) for child in children[name]]
    below.sort(key=lambda finding: _rank(finding.diagnosis, finding.sign))
    return Finding(diagnosis=diagnoses[name], sign=signs[name], consequences=tuple(below))


def _is_note(finding: Finding) -> bool:
    is_weak = finding.sign.confidence == "low" or finding.diagnosis.severity == "low"
    return is_weak and not finding.consequences


def _rank(diagnosis: Diagnosis, sign: Sign) -> tuple[bool, int, int, int, float, str]:
    return (
        sign.confidence == "low",
        LAYERS.index(diagnosis.layer),
        SEVERITIES.index(diagnosis.severity),
        CONFIDENCES.index(sign.confidence),
        sign.seconds if sign.seconds is not None else float("inf"),
        diagnosis.id,
    )
