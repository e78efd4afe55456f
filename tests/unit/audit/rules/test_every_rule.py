"""Every example of every rule gives what it says; the examples are the documentation too."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from provision.audit.engine import audit
from provision.audit.fix import apply_edits
from provision.audit.model import SEVERITIES, Finding, Source
from provision.audit.rules import load_rule, rule_ids
from provision.cli.facts import find_fact
from provision.matrix.load import Matrix

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "tools"))

from rule_examples import FOLDER, Example, read_examples  # noqa: E402

MATRIX = Matrix()
IDS = rule_ids(MATRIX)
EXAMPLES = [(name, example) for name in IDS for example in read_examples(name)]
NAMES = [f"{name}-{example.name}" for name, example in EXAMPLES]
RULES = ROOT / "provision" / "audit" / "rules"


RUNS: dict[str, tuple[list[Finding], dict[str, Source]]] = {}


def run(example: Example) -> tuple[list[Finding], dict[str, Source]]:
    """Audit an example; what was asked before is not asked again."""
    key = repr((example.files, example.options))
    if key not in RUNS:
        sources = {name: Source(name, text) for name, text in example.files.items()}
        report = audit([next(iter(sources.values()))], sources.get, MATRIX, example.options)
        RUNS[key] = report.findings, {**sources, **report.sources}
    return RUNS[key]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES, ids=NAMES)
def test_example_gives_as_many_findings_as_it_says(rule: str, example: Example) -> None:
    findings = [finding for finding in run(example)[0] if finding.rule == rule]
    assert len(findings) == example.findings, [finding.message for finding in findings]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES, ids=NAMES)
def test_finding_is_fit_to_print(rule: str, example: Example) -> None:
    findings, sources = run(example)
    for finding in findings:
        if finding.rule != rule:
            continue
        usual = MATRIX.audit_rules[rule].severity
        # What the person named and the facts exclude is graver than the rule's row says, and so are a deleted tag
        # and the extra of a framework, which is its CUDA build, and a pip that was upgraded before.
        graver = rule in ("B01", "B12", "C20", "C24", "C27", "D01", "G01", "L01", "X02") and finding.severity == "error"
        # A list that nothing here installs, and an image that is not for GPUs, are another matter.
        milder = rule in ("B06", "C06") and finding.severity == "info"
        # Of a file alone nobody knows the command that it is installed by.
        milder = milder or (rule == "X01" and finding.severity == "warn")
        # The pip of an old image takes versions of any form, a base that nobody knows may set another shell, and
        # a later command may put another torch in the place of the first.
        milder = milder or (rule in ("B16", "C11", "C28") and finding.severity == "warn")
        # Wheels without CUDA still work on the CPU.
        milder = milder or (rule == "C23" and finding.severity == "warn")
        # TensorFlow that brings no CUDA may do without, and a package of which nothing is known may bound another one.
        milder = milder or (rule in ("C03", "C07", "C09", "N01", "N05") and finding.severity == "warn")
        assert finding.severity == usual or graver or milder
        assert finding.message
        assert not finding.message.endswith(".")
        assert "None" not in finding.message
        assert finding.hint
        assert all(reason and "None" not in reason for reason in finding.reasons)
        for fact in finding.facts:
            assert find_fact(MATRIX, fact)
        position = sources[finding.span.file].position(finding.span)
        assert position.length > 0


@pytest.mark.parametrize(
    ("rule", "example"), [pair for pair in EXAMPLES if pair[1].fixed], ids=lambda value: getattr(value, "name", value)
)
def test_fix_gives_what_the_example_says_and_is_final(rule: str, example: Example) -> None:
    findings, sources = run(example)
    name = next(iter(example.files))
    mine = [finding for finding in findings if finding.rule == rule]
    texts, applied = apply_edits(mine, sources)
    assert applied
    assert texts == {name: example.fixed}
    after, _ = run(
        Example(name="fixed", files={**example.files, name: texts[name]}, findings=0, options=example.options)
    )
    assert [finding for finding in after if finding.rule == rule] == []


@pytest.mark.parametrize(("rule", "example"), EXAMPLES, ids=NAMES)
def test_a_fix_takes_its_finding_away(rule: str, example: Example) -> None:
    findings, sources = run(example)
    mine = [finding for finding in findings if finding.rule == rule and finding.edits]
    texts, applied = apply_edits(mine, sources)
    if not applied:
        return
    files = {name: texts.get(name, text) for name, text in example.files.items()}
    after, _ = run(Example(name="after", files=files, findings=0, options=example.options))
    assert len([item for item in after if item.rule == rule]) == len(mine) - len(applied)


@pytest.mark.parametrize("rule", IDS)
def test_rule_has_examples_on_both_sides(rule: str) -> None:
    examples = read_examples(rule)
    assert rule == load_rule(rule, MATRIX).ID
    assert any(example.findings for example in examples)
    assert any(not example.findings for example in examples)
    assert MATRIX.audit_rules[rule].severity in SEVERITIES


def test_every_module_has_a_row_and_every_row_a_module() -> None:
    modules = {path.stem for path in RULES.glob("*.py")} - {"__init__"}
    assert modules == {row.module for row in MATRIX.audit_rules.values()}
    assert {path.stem for path in FOLDER.iterdir()} == set(IDS)


def test_a_module_is_named_after_what_it_finds_and_no_two_rules_share_one() -> None:
    modules = [row.module for row in MATRIX.audit_rules.values()]
    assert len(set(modules)) == len(modules)
    assert [name for name in modules if not re.fullmatch(r"[a-z]+(_[a-z]+)+", name)] == []
