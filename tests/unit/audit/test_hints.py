"""A law: whatever a finding says to write was tried, and whatever `--fix` writes takes its finding away."""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from provision.audit.engine import audit
from provision.audit.fix import apply_edits
from provision.audit.model import ERROR, INFO, Finding, Options, Source
from provision.audit.rules import rule_ids
from provision.audit.ways import place
from provision.errors import UsageError
from provision.matrix.load import Matrix
from provision.records import replace

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tools"))

from rule_examples import read_examples  # noqa: E402

from tools import score_files  # noqa: E402

MATRIX = Matrix()
CORPUS = ROOT / "tests" / "corpus"
CASES = tomllib.loads((CORPUS / "cases.toml").read_text(encoding="utf-8"))


def find(texts: dict[str, str], checked: list[str], options: Options, context: str | None = None) -> list[Finding]:
    sources = {name: Source(name, text) for name, text in texts.items()}
    return audit([sources[name] for name in checked], sources.get, MATRIX, options, context=context).findings


_BOUND = re.compile(r"bound it in (the same|each) install: (`[^`]+`(?: `[^`]+`)*)")
_COMMAND = re.compile(r"pip[0-9.]*(?: --?[a-z-]+)* install(?! -r| --requirement)")


def bounded(texts: dict[str, str], finding: Finding) -> dict[str, str] | None:
    """Return the files with the bound that a hint names, as a line of the file or a word of the command."""
    match = _BOUND.fullmatch(finding.hint)
    file, end = finding.span.file, finding.span.end
    if match is None:
        return None
    text, words = texts[file], match[2].strip("`").split("` `")
    begin = text.rfind("\n", 0, finding.span.start) + 1
    is_pinned = "==" in text[finding.span.start : end] and words[0].startswith(re.split("[<>=!~ ]", text[begin:])[0])
    if file.endswith(".txt") and not is_pinned:
        added = "".join(f"{word}\n" for word in words)
        return {**texts, file: f"{text[:begin]}{added}{text[begin:]}"}
    if "ockerfile" in file:
        added = "".join(f' "{word}"' for word in words)
        if match[1] == "each":
            return {
                **texts,
                file: _COMMAND.sub(lambda found: f"{found[0]}{added}", text),
            }
        return {**texts, file: f"{text[:end]}{added}{text[end:]}"}
    return None


def keep_the_law(texts: dict[str, str], checked: list[str], options: Options, context: str | None = None) -> int:
    """Try every hint and every fix; return how many there were."""
    tried = 0
    before = find(texts, checked, options, context)
    sources = {name: Source(name, text) for name, text in texts.items()}
    for finding in before:
        said = [way for way in finding.ways if way.text in finding.hint.split("; or ")]
        # A hint of a finding with ways out is either one of these or the general word of its rule.
        assert not finding.ways or said or finding.hint == MATRIX.audit_rules[finding.rule].remedy, finding.hint
        changes = [tuple(place(edit, sources) for edit in way.edits) for way in said]
        trials = []
        for edits in (*changes, *((finding.edits,) if finding.edits else ())):
            after_texts, applied = apply_edits([replace(finding, edits=edits)], sources)
            assert applied
            trials.append({**texts, **after_texts})
        with_bound = bounded(texts, finding) if finding.rule in ("N01", "N02", "N05") else None
        for changed in (*trials, *((with_bound,) if with_bound is not None else ())):
            after = find(changed, checked, options, context)
            rules = Counter(item.rule for item in after)
            assert rules[finding.rule] < Counter(item.rule for item in before)[finding.rule], finding.message
            grave = Counter(item.rule for item in after if item.severity == ERROR)
            # What stops an install makes what else is wrong with it unsure.
            grave.subtract(item.rule for item in before if item.severity != INFO)
            assert not +grave, (finding.message, [item.message for item in after])
            tried += 1
    return tried


@pytest.mark.parametrize("name", CASES)
def test_hints_and_fixes_of_the_corpus_help(name: str) -> None:
    case = CASES[name]
    folder = CORPUS / name
    texts = {str(path.relative_to(folder)): path.read_bytes().decode() for path in folder.rglob("*") if path.is_file()}
    faulty = {**texts, case["file"]: texts[case["file"]].replace(case["find"], case["put"])}
    options = Options(
        gpus=tuple(case.get("gpu", ())), driver=case.get("driver"), platforms=tuple(case.get("platform", ()))
    )
    keep_the_law(texts, case["check"], options)
    keep_the_law(faulty, case["check"], options)


@pytest.mark.parametrize("rule", rule_ids(MATRIX))
def test_hints_and_fixes_of_the_examples_help(rule: str) -> None:
    for example in read_examples(rule):
        keep_the_law(dict(example.files), [next(iter(example.files))], example.options)


@pytest.mark.parametrize("slice_", range(8))
def test_hints_and_fixes_of_public_files_help(slice_: int) -> None:
    tried = 0
    for row in score_files.read_rows()[slice_::8]:
        texts = {name: "\n".join(lines) + "\n" for name, lines in row["files"].items()}
        folder = row["check"].rpartition("/")[0]
        context = None if all(name.startswith(folder) for name in texts) else ""
        try:
            tried += keep_the_law(texts, [row["check"]], Options(), context=context)
        except UsageError:
            # What is no file to check is judged elsewhere.
            continue
    assert tried


def test_the_law_has_something_to_say() -> None:
    assert (
        keep_the_law(
            {"requirements.txt": "transformers==4.30.0\nhuggingface-hub==0.10.0\n"}, ["requirements.txt"], Options()
        )
        == 2
    )
