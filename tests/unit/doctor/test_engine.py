"""Causes come first, deepest layer first, each with what it explains, and no broken rule hides another."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from provision.doctor import engine
from provision.doctor.case import Case
from provision.doctor.engine import diagnose
from provision.doctor.hint import hint
from provision.doctor.sign import Sign
from provision.matrix.load import Matrix
from provision.matrix.model import Diagnosis
from provision.probe.output import HUNG, Output, Unreadable
from provision.probe.snapshot import Snapshot
from provision.records import replace


def fact(name: str, *, layer="driver", severity="high", explains=(), message_kind="root", fits=()) -> Diagnosis:
    return Diagnosis(
        id=name,
        layer=layer,
        severity=severity,
        title=f"{name} is so",
        cause="Something.",
        fix=("Do `this`.",),
        explains=explains,
        message_kind=message_kind,
        fits=fits,
        runbook="docs/runbooks.md#x",
        source=("guide",),
        where="table",
        status="stated",
        confidence="high",
    )


def sign(confidence="high", seconds=None) -> Sign:
    return Sign(confidence=confidence, seen=("it was seen",), seconds=seconds)


def line(number: int, where="log", message_kind="", confidence="medium") -> Sign:
    return Sign(confidence=confidence, seen=("it was read",), spot=(where, number), message_kind=message_kind)


@pytest.fixture
def find(monkeypatch):
    """Run rules given as (fact, sign or exception) over an empty case."""
    monkeypatch.delenv("PROVISION_DEBUG", raising=False)

    def run(*rules):
        known = {}
        for row, answer in rules:

            def examine(case, answer=answer):
                if isinstance(answer, Exception):
                    raise answer
                return answer

            known[row.id] = SimpleNamespace(examine=examine)
        monkeypatch.setattr(engine, "load_rule", known.__getitem__)
        return diagnose(Case(SimpleNamespace(diagnoses={row.id: row for row, _ in rules})))

    return run


def names(findings):
    return [finding.diagnosis.id for finding in findings]


def test_nothing_found_is_an_empty_report(find) -> None:
    report = find((fact("a"), None))
    assert (report.causes, report.notes) == ((), ())


def test_deeper_layer_comes_first_then_severity_then_confidence(find) -> None:
    report = find(
        (fact("net", layer="network", severity="critical"), sign()),
        (fact("lib", layer="library"), sign()),
        (fact("hard-medium", layer="hardware", severity="medium"), sign()),
        (fact("hard-unsure", layer="hardware"), sign("medium")),
        (fact("hard", layer="hardware"), sign()),
    )
    assert names(report.causes) == ["hard", "hard-unsure", "hard-medium", "lib", "net"]


def test_cause_takes_what_it_explains(find) -> None:
    report = find(
        (fact("error-804", layer="framework"), sign("medium")),
        (fact("mismatch", explains=("error-804",)), sign()),
    )
    assert names(report.causes) == ["mismatch"]
    assert names(report.causes[0].consequences) == ["error-804"]


def test_chain_reads_from_its_beginning(find) -> None:
    report = find(
        (fact("error-804", layer="framework"), sign()),
        (fact("mismatch", layer="library", explains=("error-804",)), sign()),
        (fact("initramfs", layer="driver", explains=("mismatch",)), sign()),
    )
    (root,) = report.causes
    assert root.diagnosis.id == "initramfs"
    assert names(root.consequences) == ["mismatch"]
    assert names(root.consequences[0].consequences) == ["error-804"]


def test_consequence_of_two_causes_stands_once_below_the_deeper(find) -> None:
    report = find(
        (fact("timeout", layer="network"), sign()),
        (fact("firewall", layer="network", explains=("timeout",)), sign()),
        (fact("lost", layer="hardware", explains=("timeout",)), sign()),
    )
    assert names(report.causes) == ["lost", "firewall"]
    assert names(report.causes[0].consequences) == ["timeout"]
    assert report.causes[1].consequences == ()


def test_what_came_later_explains_nothing_that_came_before(find) -> None:
    report = find(
        (fact("xid-45"), sign(seconds=100.0)),
        (fact("xid-79", layer="hardware", explains=("xid-45",)), sign(seconds=5000.0)),
    )
    assert names(report.causes) == ["xid-79", "xid-45"]


def test_messages_of_one_incident_may_come_in_any_order(find) -> None:
    report = find(
        (fact("xid-45"), sign(seconds=100.0)),
        (fact("xid-79", layer="hardware", explains=("xid-45",)), sign(seconds=160.0)),
    )
    assert names(report.causes) == ["xid-79"]


@pytest.mark.parametrize("confidence", ["high", "medium"])
def test_guess_does_not_explain_what_is_surer(find, confidence) -> None:
    report = find(
        (fact("mismatch"), sign(confidence)),
        (fact("guess", layer="hardware", explains=("mismatch",)), sign("low")),
    )
    assert names(report.causes) == ["mismatch"]
    assert names(report.notes) == ["guess"]


def test_weak_and_harmless_findings_are_notes(find) -> None:
    report = find((fact("harmless", severity="low"), sign()), (fact("guess"), sign("low")), (fact("sure"), sign()))
    assert names(report.causes) == ["sure"]
    assert sorted(names(report.notes)) == ["guess", "harmless"]


def test_broken_rule_is_told_and_hides_no_other(find) -> None:
    report = find((fact("broken"), ZeroDivisionError("by zero")), (fact("sure"), sign()))
    assert names(report.causes) == ["sure"]
    assert report.broken == {"broken": "ZeroDivisionError: by zero"}


def test_fix_of_the_case_comes_before_that_of_the_facts(find) -> None:
    report = find((fact("a"), Sign(confidence="high", seen=("x",), fix=("Do `that`.",))), (fact("b"), sign()))
    assert [finding.fix for finding in report.causes] == [("Do `that`.",), ("Do `this`.",)]


FACTS = SimpleNamespace(diagnoses={})


def test_case_remembers_what_could_not_be_seen() -> None:
    case = Case(FACTS, Snapshot("gpu001", {"uname": Output(probe="uname", status=HUNG)}))
    assert case.look(lambda host: host.uname) is None
    assert case.unseen == {"uname": "uname -srm did not answer in time"}


def test_case_without_a_target_blames_nobody() -> None:
    case = Case(FACTS, None, [("error.log", "x")])
    assert case.look(lambda host: host.uname) is None
    assert case.unseen == {}


def test_case_finds_in_pasted_text_first_then_in_what_probes_said() -> None:
    outputs = {"nvidia-smi-xml": Output(probe="nvidia-smi-xml", status="failed", code=18, error="Driver MISMATCH here")}
    host = Snapshot("gpu001", outputs)
    assert Case(FACTS, host, [("error.log", "x\n a mismatch\n")]).find("mismatch").line == "a mismatch"
    quote = Case(FACTS, host).find("absent", "mismatch")
    assert (quote.where, quote.line) == ("nvidia-smi-xml (errors)", "Driver MISMATCH here")
    assert Case(FACTS, host).find("absent") is None


def test_case_reads_events_from_text_and_numbers() -> None:
    text = "[12.5] NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus."
    case = Case(FACTS, None, [("dmesg", text)], xids=(48,))
    assert [event.code for event in case.xid(79, 48)] == [79, 48]
    assert case.xid(31) == ()


def test_unreadable_reads_as_its_reason() -> None:
    assert str(Unreadable("nvidia-smi hung", probe="x")) == "nvidia-smi hung"


def test_symptom_comes_second_and_unsure_beside_a_cause_of_the_same_failure(find) -> None:
    report = find(
        (fact("timeout", layer="hardware", message_kind="symptom"), line(20)),
        (fact("assert", layer="framework", severity="low"), line(1)),
    )
    assert (names(report.causes), names(report.notes)) == (["assert"], ["timeout"])
    assert report.notes[0].sign.confidence == "low"


@pytest.mark.parametrize(
    ("symptom", "root"),
    [
        (line(20), line(321)),
        (line(20), line(21, where="another log")),
        (line(20), line(21, confidence="low")),
        (line(20, confidence="high"), line(21)),
        (line(20, message_kind="root"), line(21)),
        (sign("medium"), line(21)),
        (line(20), sign("medium")),
    ],
    ids=["far", "other text", "unsure", "proved", "names the cause", "no message", "state"],
)
def test_symptom_stays_what_it_is_where_no_stronger_message_is_near(find, symptom, root) -> None:
    report = find((fact("timeout", layer="hardware", message_kind="symptom"), symptom), (fact("assert"), root))
    assert names(report.causes)[0] == "timeout"
    assert report.causes[0].sign == symptom


def test_warning_yields_to_an_error_that_names_another_cause(find) -> None:
    warned = replace(line(2), is_aside=True)
    report = find((fact("vision", layer="library"), warned), (fact("full", layer="framework"), line(9)))
    assert [finding.diagnosis.id for finding in report.causes] == ["full"]
    assert [finding.diagnosis.id for finding in report.notes] == ["vision"]


def test_warning_that_names_the_cause_comes_before_what_only_follows(find) -> None:
    warned = replace(line(2), is_aside=True)
    report = find(
        (fact("cublas", layer="library", message_kind="generic", fits=("full",)), line(9)),
        (fact("old", layer="network"), warned),
    )
    assert next(finding.diagnosis.id for finding in report.causes) == "old"


@pytest.mark.parametrize(
    ("text", "is_aside"),
    [
        ("UserWarning: Failed to load image Python extension", True),
        ("W: GPG error: the following signatures were invalid: BADSIG", True),
        ("torchvision 0.15.1 requires torch==2.0.0, but you have torch 1.13.1 which is incompatible.", True),
        ("node:1:2 [0] include/shm.h:27 NCCL WARN Call to shm_open failed : Permission denied", False),
        ("RuntimeError: CUDA error: out of memory", False),
    ],
)
def test_a_warning_is_told_by_its_line(text: str, is_aside: bool) -> None:
    quote = next(Case(Matrix(), None, (("log", text),)).find_all(r"\w+"))
    assert hint(quote).is_aside is is_aside


def test_generic_message_stands_below_a_cause_that_it_fits(find) -> None:
    report = find(
        (fact("cublas", layer="library", message_kind="generic", fits=("full", "index")), line(2)),
        (fact("index", layer="framework"), line(1)),
        (fact("other", layer="network"), line(3)),
    )
    assert names(report.causes) == ["index", "other"]
    assert names(report.causes[0].consequences) == ["cublas"]
    assert report.causes[0].consequences[0].fits == ()


def test_generic_message_alone_is_an_open_answer(find) -> None:
    full, index = fact("full"), fact("index")
    report = find(
        (fact("cublas", severity="low", message_kind="generic", fits=("full", "index")), line(2)),
        (full, None),
        (index, None),
        (fact("timeout", layer="hardware", message_kind="symptom"), line(9)),
    )
    (cause,) = report.causes
    assert (cause.diagnosis.id, cause.sign.confidence, cause.fits) == ("cublas", "low", (full, index))
    assert names(report.notes) == ["timeout"]


def test_a_line_that_names_the_cause_is_no_open_answer(find) -> None:
    report = find((fact("cudnn", message_kind="generic", fits=("full", "index")), line(2, message_kind="root")))
    assert (report.causes[0].sign.confidence, report.causes[0].fits) == ("medium", ())


def test_note_of_a_given_text_is_the_answer_where_nothing_else_is_found() -> None:
    matrix = Matrix()
    missing = "ModuleNotFoundError: No module named 'einops'\n"
    report = diagnose(Case(matrix, None, (("log", missing),)))
    assert (names(report.causes), names(report.notes)) == (["python.module-missing"], [])
    report = diagnose(Case(matrix, None, (("log", f"{missing}cudaErrorECCUncorrectable\n"),)))
    assert "python.module-missing" in names(report.notes)


def test_note_of_the_state_stays_one(find) -> None:
    report = find((fact("persistence", severity="low"), sign()), (fact("order", severity="low"), line(2)))
    assert (report.causes, len(report.notes)) == ((), 2)


def test_generic_message_does_not_yield_to_what_it_explains(find) -> None:
    report = find(
        (fact("refused", message_kind="generic", fits=("other",), explains=("installer",)), line(1)),
        (fact("installer"), line(2)),
        (fact("other"), None),
    )
    (cause,) = report.causes
    assert (cause.diagnosis.id, names(cause.consequences), names_of(cause.fits)) == (
        "refused",
        ["installer"],
        ["other"],
    )


def names_of(rows):
    return [row.id for row in rows]
