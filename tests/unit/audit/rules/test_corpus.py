"""Files as people write them: nothing is found in the clean ones, and one finding for each fault that is put in."""

from __future__ import annotations

import shutil
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from provision.audit.engine import audit
from provision.audit.model import Finding, Options, Source
from provision.audit.rules import rule_ids
from provision.matrix.load import Matrix

CORPUS = Path(__file__).resolve().parents[3] / "corpus"
CASES: dict[str, dict[str, Any]] = tomllib.loads((CORPUS / "cases.toml").read_text(encoding="utf-8"))
MATRIX = Matrix()
DOCKERFILES_MIN = 60


def read(name: str) -> dict[str, str]:
    folder = CORPUS / name
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    # read_text would turn the line ends of other systems into ours.
    return {str(path.relative_to(folder)): path.read_bytes().decode() for path in paths}


def find(case: dict[str, Any], texts: dict[str, str]) -> list[Finding]:
    sources = {name: Source(name, text) for name, text in texts.items()}
    options = Options(
        gpus=tuple(case.get("gpu", ())), driver=case.get("driver"), platforms=tuple(case.get("platform", ()))
    )
    return audit([sources[name] for name in case["check"]], sources.get, MATRIX, options).findings


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_found_in_a_clean_file(name: str) -> None:
    findings = find(CASES[name], read(name))
    assert sorted(finding.rule for finding in findings) == sorted(CASES[name].get("notes", ())), findings
    assert all(finding.severity == "info" for finding in findings)


@pytest.mark.parametrize("name", CASES)
def test_one_fault_gives_one_new_finding(name: str) -> None:
    case = CASES[name]
    before = read(name)
    text = before[case["file"]]
    assert text.count(case["find"]) == 1
    after = {**before, case["file"]: text.replace(case["find"], case["put"])}
    clean = Counter(finding.rule for finding in find(case, before))
    faulty = find(case, after)
    new = Counter(finding.rule for finding in faulty) - clean
    assert new == {case["rule"]: 1}, [(finding.rule, finding.message) for finding in faulty]


def test_every_rule_has_a_fault_in_the_corpus() -> None:
    assert {case["rule"] for case in CASES.values()} | {"B02"} == set(rule_ids(MATRIX))
    assert any("B02" in case.get("notes", ()) for case in CASES.values())


def test_every_folder_is_a_case_and_most_are_dockerfiles() -> None:
    folders = {path.name for path in CORPUS.iterdir() if path.is_dir() and path.name not in ("articles", "rules")}
    assert folders == set(CASES)
    assert sum("Dockerfile" in read(name) for name in CASES) >= DOCKERFILES_MIN


ARTICLES = {
    "cuda-11.6": {"B01": 1, "B02": 1, "B03": 1, "S01": 1, "C04": 1, "G03": 1},
    "cuda-11.8": {"B02": 1, "B03": 1, "S01": 1, "D02": 1, "C06": 1},
}


@pytest.mark.parametrize("name", ARTICLES)
def test_article_is_told_what_is_wrong_with_it(name: str) -> None:
    findings = find({"check": ["Dockerfile"]}, read(f"articles/{name}"))
    assert Counter(finding.rule for finding in findings) == ARTICLES[name]


def test_article_for_cuda_11_6_asks_for_a_wheel_that_no_index_has() -> None:
    (missing,) = (item for item in find({"check": ["Dockerfile"]}, read("articles/cuda-11.6")) if item.rule == "C04")
    assert (missing.span.file, missing.span.start, missing.severity) == ("requirements.txt", 0, "error")
    assert "download.pytorch.org/whl/cu116" in missing.hint


def test_article_for_cuda_11_8_lets_drivers_in_that_cannot_run_it() -> None:
    (gate,) = (item for item in find({"check": ["Dockerfile"]}, read("articles/cuda-11.8")) if item.rule == "D02")
    floors = MATRIX.setting("cuda.toml", "minor_compatibility_floors").entries
    assert f"driver {floors['11']} or newer" in gate.reasons[0]
    assert f"driver {floors['13']} or newer" in gate.reasons[1]


def test_facts_decide(tmp_path: Path) -> None:
    data = tmp_path / "compat"
    shutil.copytree(MATRIX.data_dir, data)
    rules = data / "audit_rules.toml"
    text = rules.read_text(encoding="utf-8")
    head, found, tail = text.partition('id = "N01"\n')
    rules.write_text(head + found + tail.replace('severity = "error"', 'severity = "warn"', 1), encoding="utf-8")
    source = Source("requirements.txt", "torch==2.2.2\nnumpy==2.0.2\n")
    (milder,) = audit([source], {}.get, Matrix(data), Options()).findings
    assert (milder.rule, milder.severity) == ("N01", "warn")
    constraints = data / "constraints.toml"
    head, *rows = constraints.read_text(encoding="utf-8").split("\n[[constraint]]\n")
    kept = [row for row in rows if 'id = "torch-numpy-1"' not in row]
    assert len(kept) == len(rows) - 1
    constraints.write_text("\n[[constraint]]\n".join([head, *kept]), encoding="utf-8")
    assert audit([source], {}.get, Matrix(data), Options()).findings == []
