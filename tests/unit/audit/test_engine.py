"""The engine with its comments and fixes, by rules that are stable: a base without digest, an index that lacks."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from provision.audit.engine import Report, audit, worst
from provision.audit.fix import apply_edits
from provision.audit.model import Edit, Finding, Options, Source, Span
from provision.matrix.load import Matrix

MATRIX = Matrix()
FROM = "FROM nvidia/cuda:12.6.3-base-ubuntu24.04\n"


def run(files: Mapping[str, str], *names: str, rules: tuple[str, ...] = ("B03", "I01", "I02", "I03")) -> Report:
    wanted = names or tuple(files)
    return audit(
        [Source(name, files[name]) for name in wanted],
        lambda name: Source(name, files[name]) if name in files else None,
        MATRIX,
        Options(),
        rules=rules,
    )


def ids(report: Report) -> list[str]:
    return [finding.rule for finding in report.findings]


def test_a_comment_with_a_reason_covers_the_instruction_below_it() -> None:
    report = run({"Dockerfile": f"# provision: ignore=B03 mirrored by digest\n{FROM}"})
    assert ids(report) == []
    assert [finding.rule for finding in report.suppressed] == ["B03"]


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("# provision: ignore=B03", ["I01", "B03"]),
        ("# provision: ignore because", ["I01", "B03"]),
        ("# provision: ignore=B99 because", ["I02", "B03"]),
        ("# provision: ignore=I03,B03 because", ["I03"]),
        ("# provision:ignore=b03 because", []),
        ("# provision is good", ["B03"]),
    ],
)
def test_a_comment_that_is_wrong_is_a_finding_itself(comment: str, expected: list[str]) -> None:
    assert ids(run({"Dockerfile": f"{comment}\n{FROM}"})) == expected


def test_a_comment_that_suppresses_nothing_is_a_finding() -> None:
    text = f"{FROM.strip()}@sha256:{'0' * 64}\n"
    assert ids(run({"Dockerfile": f"# provision: ignore=B03 because\n{text}"})) == ["I03"]


def test_a_comment_for_a_rule_that_did_not_run_is_left_alone() -> None:
    report = run({"Dockerfile": f"# provision: ignore=B03 because\n{FROM}"}, rules=("B04", "I03"))
    assert ids(report) == []


def test_a_comment_counts_for_its_own_instruction_only() -> None:
    text = f"# provision: ignore=B03 because\nARG X\n{FROM}"
    assert ids(run({"Dockerfile": text})) == ["I03", "B03"]


def test_what_looks_like_a_comment_inside_a_command_is_none() -> None:
    text = f"{FROM}RUN echo a # provision: ignore=B03\n"
    assert ids(run({"Dockerfile": text})) == ["B03"]


@pytest.mark.parametrize(
    "text",
    [
        "torch==1.13.1+cu116  # provision: ignore=C04 our mirror has it\n",
        "# provision: ignore=C04 our mirror\n\ntorch==1.13.1+cu116\n",
    ],
)
def test_in_other_files_a_comment_counts_for_its_line_or_the_next(text: str) -> None:
    report = run({"requirements.txt": text}, rules=("C04", "I03"))
    assert ids(report) == []
    assert len(report.suppressed) == 1


def test_a_file_that_another_one_reads_is_judged_there() -> None:
    files = {
        "Dockerfile": f"{FROM}COPY r.txt .\nRUN pip install -r r.txt --index-url https://download.pytorch.org/whl/cu118\n",
        "r.txt": "torch==2.1.2+cu118\n",
    }
    assert ids(run(files, rules=("C04",))) == []
    assert ids(run(files, "r.txt", rules=("C04",))) == ["C04"]


def test_findings_are_in_order_and_told_once() -> None:
    files = {"Dockerfile": f"{FROM[:-1]} AS a\nFROM a AS b\nFROM b\n"}
    assert ids(run(files)) == ["B03"]


def test_a_fix_goes_away_by_being_made_and_a_second_run_makes_none() -> None:
    files = {"requirements.txt": "torch==1.13.1+cu116\n"}
    report = run(files, rules=("C04",))
    texts, applied = apply_edits(report.findings, report.sources)
    assert [finding.rule for finding in applied] == ["C04"]
    again = run(texts, rules=("C04",))
    assert apply_edits(again.findings, again.sources) == ({}, [])
    assert ids(again) == []


def test_edits_of_one_place_are_made_one_at_a_time() -> None:
    source = Source("f", "abc")
    span = Span(file="f", start=1, end=2)
    findings = [
        Finding(rule=rule, severity="warn", span=span, message=rule, edits=(Edit(span=span, text=text),))
        for rule, text in (("A", "X"), ("B", "Y"))
    ]
    texts, applied = apply_edits(findings, {"f": source})
    assert texts == {"f": "aXc"}
    assert [finding.rule for finding in applied] == ["A"]


def test_an_edit_outside_the_files_is_not_made() -> None:
    span = Span(file="elsewhere", start=0, end=0)
    finding = Finding(rule="A", severity="warn", span=span, message="m", edits=(Edit(span=span, text="x"),))
    assert apply_edits([finding], {"f": Source("f", "")}) == ({}, [])


def test_the_gravest_severity_is_told() -> None:
    span = Span(file="f", start=0, end=0)
    found = [Finding(rule="A", severity=name, span=span, message="m") for name in ("info", "error", "warn")]
    assert worst(found) == "error"
    assert worst([]) is None
