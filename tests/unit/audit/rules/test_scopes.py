"""A rule that is left out by its scope would have found nothing."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from provision.audit import engine
from provision.audit.engine import COMMENT_RULES, audit
from provision.audit.model import Options, Source
from provision.audit.rules import SCOPES, rule_ids
from provision.matrix.load import Matrix

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "tools"))

from rule_examples import read_examples  # noqa: E402

MATRIX = Matrix()
CORPUS = ROOT / "tests" / "corpus"
CASES = tomllib.loads((CORPUS / "cases.toml").read_text(encoding="utf-8"))


def is_equal_without_scopes(
    monkeypatch: pytest.MonkeyPatch, texts: dict[str, str], checked: list[str], options: Options
) -> None:
    sources = {name: Source(name, text) for name, text in texts.items()}
    chosen = [sources[name] for name in checked]
    scoped = audit(chosen, sources.get, MATRIX, options)
    with monkeypatch.context() as patch:
        patch.setattr(engine, "is_in_scope", lambda rule, aspects: True)
        whole = audit(chosen, sources.get, MATRIX, options)
    assert (scoped.findings, scoped.suppressed) == (whole.findings, whole.suppressed)


@pytest.mark.parametrize("rule", rule_ids(MATRIX))
def test_no_finding_in_an_example_is_lost(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for example in read_examples(rule):
        is_equal_without_scopes(monkeypatch, dict(example.files), [next(iter(example.files))], example.options)


@pytest.mark.parametrize("name", CASES)
def test_no_finding_in_the_corpus_is_lost(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    folder = CORPUS / name
    texts = {str(path.relative_to(folder)): path.read_bytes().decode() for path in folder.rglob("*") if path.is_file()}
    faulty = {**texts, case["file"]: texts[case["file"]].replace(case["find"], case["put"])}
    options = Options(
        gpus=tuple(case.get("gpu", ())), driver=case.get("driver"), platforms=tuple(case.get("platform", ()))
    )
    is_equal_without_scopes(monkeypatch, faulty, case["check"], options)


def test_every_rule_says_what_it_needs() -> None:
    assert set(SCOPES) == set(rule_ids(MATRIX)) - set(COMMENT_RULES)


def test_little_is_imported_for_a_file_without_frameworks() -> None:
    aspects = engine.aspects_of(engine.complete(_plain_stage(), MATRIX, Options()), Options())
    asked = {rule for rule in SCOPES if engine.is_in_scope(rule, aspects)}
    assert {"B01", "B03", "S01", "D03"} <= asked
    assert not {rule for rule in asked if re.match(r"[DEGP]0[12]|C0[1-8]|N|S0[2-4]|X", rule)}


def _plain_stage():
    from provision.audit.documents import parse_document

    source = Source("Dockerfile", "FROM debian:12\nRUN apt-get install -y curl\nUSER 1000\n")
    return parse_document(source, {}.get, Options()).environments[0]
