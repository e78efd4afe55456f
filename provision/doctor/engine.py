"""Run every rule over a case, and put what they found in order: causes first, each with what it explains."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib import import_module
from types import ModuleType

from provision.doctor.case import Case
from provision.doctor.claim import guess
from provision.doctor.message import Message
from provision.doctor.sign import CONFIDENCES, Sign
from provision.doctor.status import read_status
from provision.matrix.model import Diagnosis
from provision.records import NOTHING, record, replace

MESSAGE_KINDS = ("root", "aside", "generic", "symptom")
"""What a message is worth as evidence, the strongest first; an aside is a root that only a warning speaks of."""

LAYERS = ("hardware", "driver", "library", "container", "framework", "network")
"""From the metal up: what is lower breaks what is higher."""

SEVERITIES = ("critical", "high", "medium", "low")

_NEAR_LINES = 300
"""Messages so near to each other in one text are of one failure: the tracebacks of eight ranks are."""

_TOLERANCE_SECONDS = 180.0
"""A consequence may be logged a little before its cause: messages of one incident come in no fixed order."""


@record
class Finding:
    """A diagnosis that holds, and the findings it explains, themselves in order.

    Attributes:
        fits: The causes that its message fits, itself left out, where only a generic message speaks for it.
    """

    diagnosis: Diagnosis
    sign: Sign
    consequences: tuple[Finding, ...] = ()
    fits: tuple[Diagnosis, ...] = ()

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

    A finding that another one explains stands below it, unless the kernel's clock says that it came first. One that
    rests on a symptom's message, or on a generic one, yields to stronger evidence near it: it is unsure, and comes
    second. What the text itself proves comes before messages near it that only suggest a cause. The rest is ordered by
    layer, then severity, then confidence.
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
    if case.texts and all(case.matrix.diagnoses[name].is_last_resort for name in signs):
        # What only tells that something failed yields to whatever else can be read in the text.
        guessed = read_status(case) or guess(case)
        if guessed is not None and all(
            _narrows(*guessed, sign, case.matrix.diagnoses[name]) for name, sign in signs.items()
        ):
            signs = dict([guessed])
    facts = case.matrix.diagnoses
    reasons = {name: _causes_of(name, signs, facts) for name in signs}
    roots = [name for name in signs if not reasons[name]]
    children: dict[str, list[str]] = {name: [] for name in signs}
    for name, causes in reasons.items():
        if causes:
            # The deepest of several causes takes it, so that a chain reads from its beginning.
            children[min(causes, key=lambda cause: _rank(facts[cause], signs[cause]))].append(name)
    stronger = {name: _stronger_than(name, signs, facts) for name in roots}
    answers = {other for others in stronger.values() for other in others}
    open_ones = {name for name in roots if not stronger[name] and _kind(name, signs, facts) == "generic"}
    signs |= {name: replace(signs[name], confidence="low") for name in roots if stronger[name]}
    findings = [_assemble(name, signs, children, facts) for name in roots]
    outdone = {name for name in roots if _is_outdone(name, roots, signs)}
    findings.sort(key=lambda finding: (finding.diagnosis.id in outdone, *_rank(finding.diagnosis, finding.sign)))
    findings = [_leave_open(finding, facts) if finding.diagnosis.id in open_ones else finding for finding in findings]
    notes = {name for finding in findings if _is_note(finding) and (name := finding.diagnosis.id) not in answers}
    if len(notes) == len(findings):
        # Somebody gave the text because something failed: what alone can be read there is the answer.
        given = {name for name, _ in case.texts}
        notes = {name for name in notes if (spot := signs[name].spot) is None or spot[0] not in given}
    return Report(
        causes=tuple(finding for finding in findings if finding.diagnosis.id not in notes),
        notes=tuple(finding for finding in findings if finding.diagnosis.id in notes),
        unseen=dict(sorted(case.unseen.items())),
        broken=broken,
    )


def _narrows(name: str, guessed: Sign, sign: Sign, row: Diagnosis) -> bool:
    """Tell whether a guess says more than a row: of the very line that the row knows only what the row names."""
    return guessed.spot != sign.spot or name in row.fits


def _kind(name: str, signs: Mapping[str, Sign], diagnoses: Mapping[str, Diagnosis]) -> str:
    """Return what a finding rests on: what the target's state shows is always the thing itself."""
    sign = signs[name]
    is_seen = sign.spot is None or sign.confidence == "high"
    kind = "root" if is_seen else sign.message_kind or diagnoses[name].message_kind
    return "aside" if kind == "root" and sign.is_aside and not is_seen else kind


def _stronger_than(name: str, signs: Mapping[str, Sign], diagnoses: Mapping[str, Diagnosis]) -> list[str]:
    """Return the findings near a message that say more of the same failure than it does."""
    own = MESSAGE_KINDS.index(_kind(name, signs, diagnoses))
    return [
        other
        for other, sign in signs.items()
        if MESSAGE_KINDS.index(_kind(other, signs, diagnoses)) < own
        and other not in diagnoses[name].explains
        and sign.confidence != "low"
        and _is_near(sign, signs[name])
    ]


def _is_outdone(name: str, roots: Iterable[str], signs: Mapping[str, Sign]) -> bool:
    """Tell whether near a message that only suggests a cause another one stands that the text itself proves."""
    return signs[name].confidence == "medium" and any(
        signs[other].confidence == "high" and _is_near(signs[other], signs[name]) for other in roots
    )


def _is_near(one: Sign, other: Sign) -> bool:
    return (
        one.spot is not None
        and other.spot is not None
        and one.spot[0] == other.spot[0]
        and abs(one.spot[1] - other.spot[1]) <= _NEAR_LINES
    )


def _leave_open(finding: Finding, diagnoses: Mapping[str, Diagnosis]) -> Finding:
    return replace(
        finding,
        sign=replace(finding.sign, confidence="low"),
        fits=tuple(diagnoses[name] for name in finding.diagnosis.fits if name in diagnoses),
    )


def _causes_of(name: str, signs: Mapping[str, Sign], diagnoses: Mapping[str, Diagnosis]) -> list[str]:
    is_generic = _kind(name, signs, diagnoses) == "generic"
    return [
        other
        for other, sign in signs.items()
        if other != name
        and (
            name in diagnoses[other].explains
            or (is_generic and other in diagnoses[name].fits and (sign.spot is None or _is_near(sign, signs[name])))
        )
        and _can_cause(sign, signs[name])
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
    return is_weak and not finding.consequences and not finding.fits


def _rank(diagnosis: Diagnosis, sign: Sign) -> tuple[bool, int, int, int, float, str]:
    return (
        sign.confidence == "low",
        LAYERS.index(diagnosis.layer),
        SEVERITIES.index(diagnosis.severity),
        CONFIDENCES.index(sign.confidence),
        sign.seconds if sign.seconds is not None else float("inf"),
        diagnosis.id,
    )
