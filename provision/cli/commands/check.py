"""Check Dockerfiles, requirements, environments, projects and compose files for GPU incompatibilities.

Takes files, or folders to search for files with the usual names. The default is the current folder; - reads the
standard input. Each finding shows its rule, the text it is about, the reason and the fix; -v also lists what was not
checked. --fix applies the safe fixes. A comment `# provision: ignore=RULE reason` above a line suppresses a finding;
--baseline suppresses the findings recorded in a file. Settings are read from [tool.provision.check] in pyproject.toml.
Nothing is executed and no network is used. A finding at or above --fail-on ends with exit code 6.

Examples:
  provision check
  provision check Dockerfile requirements.txt --gpu h100 --driver 550
  provision check --fix --dry-run
  provision check --format sarif -o provision.sarif
  provision check --explain N01
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.audit.engine import Report, audit, worst
from provision.audit.fix import apply_edits
from provision.audit.model import SEVERITIES, Environment, Finding, NotJudgedError, Source
from provision.cli.check.config import THRESHOLDS, named_rules
from provision.cli.check.files import decode, find_file, read_sources, shown_name
from provision.cli.check.known import tell_known, write_known
from provision.cli.check.scope import Scopes
from provision.cli.output import Output
from provision.cli.parser import add_choice, add_switch, add_value, parse_path
from provision.cli.request import read_matrix
from provision.cli.text.check import count_text, show_findings, show_judged, show_rule
from provision.errors import ActionFailedError, ProvisionError, UsageError
from provision.matrix.load import Matrix
from provision.records import record
from provision.resolve.request import PLATFORMS

if TYPE_CHECKING:
    from provision.audit.baseline import Known
    from provision.audit.judged import Judged

_FORMATS = ("text", "json", "sarif", "github")
_ROUNDS_MAX = 8
_EXIT_FINDINGS = 6


@record
class _Run:
    """What one run is told.

    Attributes:
        scopes: Options and rules of each file.
        rules: Ids of the rules that run over some file.
        context: Folder of the build context, ``None`` for that of each file.
        images: Built images.
    """

    matrix: Matrix
    scopes: Scopes
    rules: tuple[str, ...]
    context: str | None
    images: tuple[tuple[Source, Environment], ...] = ()


@record
class _Result:
    """What one run came to.

    Attributes:
        changed: Texts of files that ``--fix`` changes.
        fixed: Findings whose edits are in them.
        diff: The change, as a unified diff.
        gone: Entries of the baseline that no finding is left for.
    """

    report: Report
    changed: Mapping[str, str]
    fixed: Sequence[Finding]
    diff: str
    gone: Sequence[Known]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    what = parser.add_argument_group("what is checked")
    # An argument of the parser itself is tried on a formatter of help at once, which brings half of shutil along.
    what.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="file or folder (default: the current folder); - reads the standard input",
    )
    add_value(what, "--image", "NAME", "built image in the local container engine; may be repeated", action="append")
    add_value(what, "--stdin-filename", "NAME", "file name for the standard input")
    add_value(what, "--build-arg", "NAME=VALUE", "value of an ARG in a Dockerfile; may be repeated", action="append")
    add_value(what, "--target", "STAGE", "stage of the Dockerfile to check")
    add_value(what, "--context", "DIR", "build context (default: the folder of the file)", parse_path)
    where = parser.add_argument_group("where it will run")
    add_value(where, "--gpu", "NAME", "GPU it must support; may be repeated", action="append")
    add_value(where, "--driver", "VERSION", "installed driver; `host` reads it from this machine")
    add_choice(where, "--platform", PLATFORMS, action="append", help="platform to build for; may be repeated")
    add_value(where, "--python", "X.Y", "Python version, if the files do not state it")
    how = parser.add_argument_group("rules")
    add_value(
        how,
        "--select",
        "RULE,…",
        "run only these rules; C selects all C rules, ALL also the hygiene rules",
        action="append",
    )
    add_value(how, "--ignore", "RULE,…", "skip these rules", action="append")
    add_choice(how, "--fail-on", THRESHOLDS, help="lowest severity that fails the run (default: error)")
    add_value(how, "--config", "FILE", "settings file to use instead of the nearest one", parse_path)
    add_switch(how, "--isolated", "ignore settings files", short="--no-config")
    add_value(how, "--baseline", "FILE", "file of known findings, which are not reported", parse_path)
    add_value(how, "--write-baseline", "FILE", "write the current findings to a baseline file and exit", parse_path)
    add_value(how, "--explain", "RULE,…", "explain a rule and exit", action="append")
    add_switch(how, "--list-rules", "list the rules and exit")
    shape = parser.add_argument_group("output")
    add_choice(
        shape,
        "--format",
        _FORMATS,
        default="text",
        help="text, the document of --json, SARIF, or GitHub annotations",
    )
    add_value(shape, "--rules-url", "URL", "URL of the published docs/rules/, for links in SARIF")
    add_switch(shape, "--fix", "apply the safe fixes and show them; with --dry-run only show them")


def run(options: argparse.Namespace, output: Output) -> int:
    """Check files."""
    if options.format == "json":
        output.is_json = True
    elif output.is_json and options.format != "text":
        raise UsageError(f"--json and --format {options.format} are two forms", hints=("choose one of the two",))
    matrix = read_matrix(options)
    if options.list_rules:
        return _list_rules(matrix, output)
    if options.explain:
        return _explain_rules(options.explain, matrix, output)
    images = _read_images(options.image or ())
    scopes = Scopes(options, matrix)
    sources, unread = read_sources(options, scopes.is_excluded)
    files = [source.file for source in (*sources, *(source for source, _ in images))]
    told = _Run(
        matrix=matrix,
        scopes=scopes,
        rules=tuple(frozenset[str]().union(*(scopes.of(file).rules for file in files))),
        context=None if options.context is None else shown_name(options.context),
        images=images,
    )
    for error in unread:
        _warn(error, output)
    report = _audit(told, sources, {})
    for error in report.unread:
        _warn(error, output)
    unread += report.unread
    is_unread = any(not isinstance(error, NotJudgedError) for error in unread)
    if options.fix and not output.is_dry_run and "-" in options.files:
        raise UsageError(
            "--fix cannot change the standard input",
            hints=("`--fix --dry-run` shows the change", "name the file instead of reading it from a pipe"),
        )
    changed: dict[str, str] = {}
    fixed: list[Finding] = []
    if options.fix:
        changed, fixed, report = _fix(told, sources, report)
    diff = _diff(changed, sources) if changed else ""
    if changed and not output.is_dry_run:
        _write(changed, output)
    if options.write_baseline is not None:
        write_known(options.write_baseline, report, output)
        return UsageError.exit_code if is_unread else 0
    gone = tell_known(options.baseline, report, scopes, output)
    is_failed = any(scopes.is_failing(finding) for finding in report.findings)
    output.note(f"facts of {matrix.dated}")
    report.unread = unread
    result = _Result(report=report, changed=changed, fixed=fixed, diff=diff, gone=gone)
    _give(result, told, options, output, is_ok=not is_failed and not is_unread)
    if is_unread:
        return UsageError.exit_code
    return _EXIT_FINDINGS if is_failed else 0


def _warn(error: ProvisionError, output: Output) -> None:
    """Tell why one of several files could not be judged."""
    output.warn("; ".join((error.message, *error.because, *error.hints)))


def _list_rules(matrix: Matrix, output: Output) -> int:
    rows = list(matrix.audit_rules.values())
    width = max((len(row.severity) for row in rows), default=0)
    output.give(
        {"rules": [{"id": row.id, "severity": row.severity, "title": row.title, "why": row.why} for row in rows]},
        "\n".join(f"{output.paint(row.id, 'label')}  {row.severity:{width}}  {row.title}" for row in rows),
    )
    return 0


def _explain_rules(words: Sequence[str], matrix: Matrix, output: Output) -> int:
    known = tuple(matrix.audit_rules)
    chosen = named_rules("--explain", words, known)
    rows = [matrix.audit_rules[name] for name in known if name in chosen]
    sources = matrix.sources
    documents = [
        {
            **{key: getattr(row, key) for key in ("id", "severity", "title", "why", "remedy", "where", "status")},
            "confidence": row.confidence,
            "because": list(row.because),
            "sources": [{"id": name, "title": sources[name].title, "url": sources[name].url} for name in row.source],
        }
        for row in rows
    ]
    output.give({"rules": documents}, "\n\n".join(show_rule(row, sources, output) for row in rows))
    return 0


def _read_images(names: Sequence[str]) -> tuple[tuple[Source, Environment], ...]:
    if not names:
        return ()
    from provision.audit.image import parse_image
    from provision.build.inspection import inspect_image

    found = []
    for name in names:
        looked = inspect_image(name)
        found.append(parse_image(name, looked.document, looked.history, looked.python))
    return tuple(found)


def _audit(told: _Run, sources: Sequence[Source], changed: dict[str, str]) -> Report:
    """Run the rules, over the changed text of files where there is one."""

    def read(name: str) -> Source | None:
        if name in changed:
            return Source(name, changed[name])
        return find_file(name)

    texts = [Source(source.file, changed.get(source.file, source.text)) for source in sources]
    return audit(
        texts,
        read,
        told.matrix,
        told.scopes.usual.options,
        rules=told.rules,
        context=told.context,
        environments=told.images,
        scope_of=told.scopes.of,
    )


def _fix(told: _Run, sources: Sequence[Source], report: Report) -> tuple[dict[str, str], list[Finding], Report]:
    """Apply the safe edits until none is left; what two findings wanted of one place takes two rounds."""
    changed: dict[str, str] = {}
    fixed: list[Finding] = []
    # A built image has no file to change.
    untouchable = {source.file for source, _ in told.images}
    refused: set[tuple[str, str, str]] = set()
    for _ in range(_ROUNDS_MAX):
        files = {name: source for name, source in report.sources.items() if name not in untouchable}
        wanted = [finding for finding in report.findings if _key(finding) not in refused]
        texts, applied = apply_edits(wanted, files)
        if not texts:
            break
        after = _audit(told, sources, changed | texts)
        worse = []
        if Counter(map(_key, after.findings)) - Counter(map(_key, report.findings)):
            for finding in applied:
                alone, _ = apply_edits([finding], files)
                if _does_harm(finding, report, _audit(told, sources, changed | alone)):
                    worse.append(finding)
        if worse:
            refused.update(map(_key, worse))
            continue
        changed |= texts
        fixed += applied
        report = after
    return changed, fixed, report


def _key(finding: Finding) -> tuple[str, str, str]:
    """Return what stays the same of a finding when the text around it changes."""
    return finding.rule, finding.span.file, finding.message


def _does_harm(finding: Finding, before: Report, after: Report) -> bool:
    """Tell whether the edits of a finding make another one that is as grave.

    A rule may name a second fault only when the first one is gone; what is new where the edit stands is made by it.
    """
    grave = SEVERITIES.index(finding.severity)
    counts = Counter(item.rule for item in before.findings)
    counts.subtract(item.rule for item in after.findings)
    written = [edit.text.strip() for edit in finding.edits if edit.text.strip()]
    known = set(map(_key, before.findings))
    for item in after.findings:
        if _key(item) in known or SEVERITIES.index(item.severity) < grave:
            continue
        source = after.sources.get(item.span.file)
        words = source.cut(item.span) if source is not None else ""
        if counts[item.rule] < 0 or (item.rule == finding.rule and any(text in words for text in written)):
            return True
    return False


def _diff(changed: dict[str, str], sources: Sequence[Source]) -> str:
    """Return what changes as a unified diff."""
    from difflib import unified_diff

    given = {source.file: source.text for source in sources}
    parts = []
    for name in sorted(changed):
        before = given[name] if name in given else decode(Path(name).read_bytes())[0]
        lines = unified_diff(
            before.splitlines(keepends=True), changed[name].splitlines(keepends=True), f"a/{name}", f"b/{name}"
        )
        parts += [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines]
    return "".join(parts).rstrip("\n")


def _write(changed: dict[str, str], output: Output) -> None:
    from provision.generate.write import Artifact, write_artifacts

    for name in sorted(changed):
        whole = Path(name).resolve()
        try:
            mode = whole.stat().st_mode & 0o777
            encoding = decode(whole.read_bytes())[1]
            made = Artifact(path=whole.name, text=changed[name], mode=mode, encoding=encoding)
            write_artifacts(whole.parent, (made,), force=True)
        except OSError as error:
            raise ActionFailedError(f"cannot change {name}", because=(error.strerror or str(error),)) from error
        except ActionFailedError as error:
            # The hints there are about folders.
            raise ActionFailedError(f"cannot change {name}", because=error.because) from error
        output.note(f"changed {name}")


def _give(result: _Result, told: _Run, options: argparse.Namespace, output: Output, *, is_ok: bool) -> None:
    report = result.report
    if output.is_json:
        output.give(_document(result, told), "", is_ok=is_ok)
    elif options.format == "sarif":
        output.give(None, _sarif(report, told.matrix, options.rules_url), is_ok=is_ok)
    elif options.format == "github":
        from provision.audit.report.github import to_annotations

        text = to_annotations(report.findings, report.sources)
        if text or output.target is not None:
            output.give(None, text, is_ok=is_ok)
    else:
        from provision.audit.judged import of_releases

        releases = of_releases(report.environments, told.matrix, report.findings)
        judged = _judged(report, told) if output.verbosity > 0 else ()
        parts = [
            result.diff,
            show_findings(report.findings, report.sources, output),
            show_judged(judged, releases, output),
            count_text(report, len(releases)),
        ]
        output.give(None, "\n\n".join(part for part in parts if part), is_ok=is_ok)


def _document(result: _Result, told: _Run) -> dict[str, Any]:
    from provision.audit.report.plain import finding_document, judged_document

    report, fixed = result.report, result.fixed
    counts = {name: sum(item.severity == name for item in report.findings) for name in reversed(SEVERITIES)}
    return {
        "facts_date": told.matrix.dated,
        "files": [{"file": document.source.file, "kind": document.kind} for document in report.documents],
        "unread": [error.to_json() for error in report.unread],
        "environments": len(report.environments),
        "judged": [judged_document(item) for item in _judged(report, told)],
        "rules": list(report.rules),
        "worst": worst(report.findings),
        "summary": {**counts, "ignored": len(report.suppressed), "known": len(report.known), "fixed": len(fixed)},
        "findings": [finding_document(item, report.sources) for item in report.findings],
        "ignored": [finding_document(item, report.sources) for item in report.suppressed],
        "known": [finding_document(item, report.sources) for item in report.known],
        "gone": [{"rule": item.rule, "file": item.file, "text": item.text} for item in result.gone],
        "changed": sorted(result.changed),
        "fixed": [{"rule": item.rule, "message": item.message, "file": item.span.file} for item in fixed],
        "diff": result.diff,
    }


def _judged(report: Report, told: _Run) -> list[Judged]:
    """Return what was understood of each environment, and what was not judged."""
    from provision.audit.judged import describe, left_of

    left = {document.source.file: left_of(document) for document in report.documents if document.left}
    return [
        describe(item, told.matrix, told.scopes.of(item.file).options, left.get(item.file, ()))
        for item in report.environments
    ]


def _sarif(report: Report, matrix: Matrix, rules_url: str | None) -> str:
    import json

    from provision import __version__
    from provision.audit.report.sarif import to_sarif

    rules = {name: matrix.audit_rules[name] for name in report.rules}
    log = to_sarif(
        report.findings,
        report.suppressed,
        report.known,
        report.sources,
        rules,
        version=__version__,
        facts_date=matrix.dated,
        schema=matrix.setting("audit_rules.toml", "sarif_schema").value or "",
        rules_url=rules_url or "",
    )
    return json.dumps(log, indent=1)
