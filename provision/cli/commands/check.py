"""Hold Dockerfiles, requirements, environments, projects and compose files against the facts.

Give files, or folders to look through for files with the usual names: the one here unless named, - for the standard
input. Each finding names its
rule, the words it is about, why, and the way out. --fix makes the changes that cannot do harm. A comment
`# provision: ignore=RULE reason` above a line keeps a known finding out. Nothing is run, and no network is asked. A
finding at or above --fail-on ends with exit code 6.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.audit.engine import Report, audit, worst
from provision.audit.fix import apply_edits
from provision.audit.model import SEVERITIES, Environment, Finding, Options, Source
from provision.cli.check_text import count_text, show_findings, show_judged, show_rule
from provision.cli.output import Output
from provision.cli.parser import Once, add_choice, did_you_mean, parse_path, shown
from provision.cli.request import read_matrix
from provision.errors import ActionFailedError, ProvisionError, UsageError
from provision.matrix.load import Matrix
from provision.records import record
from provision.resolve.request import PLATFORMS

if TYPE_CHECKING:
    from provision.audit.judged import Judged

__all__ = ["configure", "run"]

_FORMATS = ("text", "json", "sarif", "github")
_THRESHOLDS = ("error", "warn", "info", "never")
_BYTES_MAX = 16 * 1024 * 1024
_FILES_MAX = 2000
_ROUNDS_MAX = 8
_SKIPPED_FOLDERS = frozenset(("node_modules", "site-packages", "__pycache__", "venv"))
_EXIT_FINDINGS = 6
_ALL = "ALL"


@record
class _Run:
    """What one run is told.

    Attributes:
        rules: Ids of the rules to run.
        context: Folder of the build context, ``None`` for that of each file.
    """

    matrix: Matrix
    options: Options
    rules: tuple[str, ...]
    context: str | None
    images: tuple[tuple[Source, Environment], ...] = ()


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    what = parser.add_argument_group("what is checked")
    # An argument of the parser itself is tried on a formatter of help at once, which brings half of shutil along.
    what.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="file or folder, the one here unless given; - is the standard input",
    )
    what.add_argument(
        "--image", action="append", metavar="NAME", help="a built image in the engine here; may be repeated"
    )
    what.add_argument("--stdin-filename", action=Once, metavar="NAME", help="what the standard input is called")
    what.add_argument("--build-arg", action="append", metavar="NAME=VALUE", help="value of an ARG; may be repeated")
    what.add_argument("--target", action=Once, metavar="STAGE", help="stage of the Dockerfile that is built")
    what.add_argument(
        "--context", action=Once, type=parse_path, metavar="DIR", help="build context, unless it is the file's folder"
    )
    where = parser.add_argument_group("where it is to run")
    where.add_argument("--gpu", action="append", metavar="NAME", help="GPU it must serve; may be repeated")
    where.add_argument("--driver", action=Once, metavar="VERSION", help="driver there; `host` reads this machine's")
    add_choice(where, "--platform", PLATFORMS, action="append", help="platform it is built for; may be repeated")
    where.add_argument("--python", action=Once, metavar="X.Y", help="Python in force, where the files do not tell")
    how = parser.add_argument_group("how it is judged")
    how.add_argument(
        "--select",
        action="append",
        metavar="RULE,…",
        help="run only these rules; C means all of C, ALL those of hygiene too",
    )
    how.add_argument("--ignore", action="append", metavar="RULE,…", help="leave these rules out")
    add_choice(
        how, "--fail-on", _THRESHOLDS, default="error", help="mildest finding that fails the run (error unless given)"
    )
    how.add_argument(
        "--explain", action="append", metavar="RULE,…", help="say what a rule looks for, and why, and check nothing"
    )
    how.add_argument("--list-rules", action="store_true", help="list the rules and check nothing")
    shape = parser.add_argument_group("what comes out")
    add_choice(
        shape,
        "--format",
        _FORMATS,
        default="text",
        help="text, the document of --json, SARIF, or annotations for GitHub",
    )
    shape.add_argument(
        "--fix", action="store_true", help="make the safe changes and show them; with --dry-run only show them"
    )


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
    sources, unread = _read_sources(options)
    told = _Run(
        matrix=matrix,
        options=_read_options(options, matrix),
        rules=_choose_rules(options, matrix),
        context=None if options.context is None else _name(options.context),
        images=images,
    )
    for error in unread:
        _warn(error, output)
    report = _audit(told, sources, {})
    for error in report.unread:
        _warn(error, output)
    unread += report.unread
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
    findings = report.findings
    is_failed = options.fail_on != "never" and any(
        SEVERITIES.index(finding.severity) >= SEVERITIES.index(options.fail_on) for finding in findings
    )
    output.note(f"facts of {matrix.dated}")
    report.unread = unread
    _give(
        report, changed, fixed, diff, options.format, matrix, told.options, output, is_ok=not is_failed and not unread
    )
    if unread:
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
    chosen = _named_rules("--explain", words, known)
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


def _read_options(options: argparse.Namespace, matrix: Matrix) -> Options:
    from provision.resolve.request import parse_request

    gpus = tuple(options.gpu or ())
    if gpus:
        from provision.matrix.query import find_gpus

        for name in gpus:
            find_gpus(matrix, name)
    driver = options.driver
    if driver == "host":
        from provision.cli.host import read_host_driver

        driver = read_host_driver()
    asked = parse_request({"driver": driver, "python": options.python})
    if asked.python is not None and not all(part.isdigit() for part in asked.python.removesuffix("t").split(".")):
        raise UsageError(f"--python `{shown(options.python)}` is no version", hints=("write it as in `--python 3.11`",))
    python = ".".join(asked.python.split(".")[:2]) if asked.python else None
    arguments: dict[str, str] = {}
    for pair in options.build_arg or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(
                f"--build-arg `{shown(pair)}` is no NAME=VALUE", hints=("write it as in `--build-arg CUDA=…`",)
            )
        arguments[name] = value
    return Options(
        gpus=gpus,
        driver=asked.driver,
        platforms=tuple(dict.fromkeys(options.platform or ())),
        python=python,
        build_args=arguments,
        target=options.target or "",
    )


def _choose_rules(options: argparse.Namespace, matrix: Matrix) -> tuple[str, ...]:
    """Return the rules to run by --select and --ignore: those of hygiene, which others own, only where one asks."""
    known = tuple(matrix.audit_rules)
    if options.select:
        wanted = _named_rules("--select", options.select, known)
    else:
        wanted = set(known).difference(matrix.setting("audit_rules.toml", "hygiene_rules").values)
    wanted -= _named_rules("--ignore", options.ignore or (), known)
    return tuple(name for name in known if name in wanted)


def _named_rules(flag: str, texts: Iterable[str], known: Sequence[str]) -> set[str]:
    """Return the rules that lists of ids and of their letters name.

    Raises:
        UsageError: A word is no rule, and no letter of any.
    """
    found: set[str] = set()
    for text in texts:
        for word in (part.strip().upper() for part in text.split(",")):
            is_group = word.isalpha()
            fitting = {name for name in known if name == word or (is_group and (word == _ALL or name.startswith(word)))}
            if not fitting:
                hints = (*did_you_mean(word, known), "`provision check --list-rules` lists them")
                raise UsageError(f"{flag} `{shown(word)}` is no rule", hints=hints)
            found |= fitting
    return found


def _read_sources(options: argparse.Namespace) -> tuple[list[Source], list[ProvisionError]]:
    """Read what is to be checked, each file once, and tell which files cannot be read."""
    names: dict[str, None] = {}
    for word in options.files or ([] if options.image else ["."]):
        if word == "-":
            names["-"] = None
            continue
        path = parse_path(word)
        if path.is_dir():
            names.update(dict.fromkeys(_search(path)))
        else:
            names[_name(path)] = None
    if options.stdin_filename is not None and "-" not in names:
        raise UsageError(
            "--stdin-filename names the standard input, and that is not checked", hints=("give - as a file",)
        )
    found: list[Source] = []
    unread: list[ProvisionError] = []
    for name in names:
        try:
            found.append(_read_one(name, options))
        except UsageError as error:
            if len(names) == 1 and not options.image:
                raise
            unread.append(error)
    return found, unread


def _name(path: Path) -> str:
    """Return a path as findings show it: as it was typed, without needless parts."""
    return path.as_posix()


def _read_one(name: str, options: argparse.Namespace) -> Source:
    from provision.audit.documents import begins_dockerfile

    text = _read_text(Path(name))
    if name == "-":
        called = options.stdin_filename or ("Dockerfile" if begins_dockerfile(text) else "")
        if not called:
            raise UsageError(
                "what the standard input is called is not known",
                because=("its name says what kind of file it is, and it does not begin like a Dockerfile",),
                hints=("`--stdin-filename requirements.txt` says it",),
            )
        return Source(_name(parse_path(called)), text)
    if "\0" in text:
        raise UsageError(f"{name} is no text", because=("it holds a zero byte",))
    return Source(name, text)


def _read_text(path: Path) -> str:
    from provision.cli.files import read_text

    flag = "FILE"
    try:
        return read_text(path, flag, bytes_max=_BYTES_MAX)
    except UsageError as error:
        # Nobody typed the name that the usage line gives the argument.
        message = error.message.removeprefix(f"{flag}: ")
        raise UsageError(message, because=error.because, hints=error.hints) from error


def _search(folder: Path) -> list[str]:
    """Return the files below a folder whose names say that they can be checked."""
    import os

    from provision.audit.documents import is_known_name

    found = []
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        found += [_name(Path(root) / name) for name in sorted(files) if is_known_name(name)]
        if len(found) > _FILES_MAX:
            raise UsageError(f"{folder} holds more than {_FILES_MAX} files to check", hints=("name a folder below it",))
    if not found:
        raise UsageError(
            f"{folder} holds no file that can be checked",
            hints=("name a file; its name or its beginning must say what it is",),
        )
    return found


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
        path = Path(name)
        try:
            if not path.is_file() or path.stat().st_size > _BYTES_MAX:
                return None
            return Source(name, path.read_bytes().decode())
        except (OSError, UnicodeDecodeError, ValueError):
            return None

    texts = [Source(source.file, changed.get(source.file, source.text)) for source in sources]
    return audit(
        texts, read, told.matrix, told.options, rules=told.rules, context=told.context, environments=told.images
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
        before = given[name] if name in given else Path(name).read_bytes().decode()
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
            write_artifacts(whole.parent, (Artifact(path=whole.name, text=changed[name], mode=mode),), force=True)
        except OSError as error:
            raise ActionFailedError(f"cannot change {name}", because=(error.strerror or str(error),)) from error
        except ActionFailedError as error:
            # The hints there are about folders.
            raise ActionFailedError(f"cannot change {name}", because=error.because) from error
        output.note(f"changed {name}")


def _give(
    report: Report,
    changed: dict[str, str],
    fixed: Sequence[Finding],
    diff: str,
    form: str,
    matrix: Matrix,
    told: Options,
    output: Output,
    *,
    is_ok: bool,
) -> None:
    if output.is_json:
        output.give(_document(report, changed, fixed, diff, matrix, told), "", is_ok=is_ok)
    elif form == "sarif":
        output.give(None, _sarif(report, matrix), is_ok=is_ok)
    elif form == "github":
        from provision.audit.report.github import to_annotations

        text = to_annotations(report.findings, report.sources)
        if text or output.target is not None:
            output.give(None, text, is_ok=is_ok)
    else:
        from provision.audit.judged import of_releases

        files, judged = len(report.sources), _judged(report, matrix, told)
        releases = of_releases(judged, report.findings)
        parts = [
            diff,
            show_findings(report.findings, report.sources, output),
            show_judged(judged, releases, output),
            count_text(report.findings, len(report.suppressed), files, len(report.unread), len(releases)),
        ]
        output.give(None, "\n\n".join(part for part in parts if part), is_ok=is_ok)


def _document(
    report: Report, changed: dict[str, str], fixed: Sequence[Finding], diff: str, matrix: Matrix, told: Options
) -> dict[str, Any]:
    from provision.audit.report.plain import finding_document, judged_document

    counts = {name: sum(item.severity == name for item in report.findings) for name in reversed(SEVERITIES)}
    return {
        "facts_date": matrix.dated,
        "files": [{"file": document.source.file, "kind": document.kind} for document in report.documents],
        "unread": [error.to_json() for error in report.unread],
        "environments": len(report.environments),
        "judged": [judged_document(item) for item in _judged(report, matrix, told)],
        "rules": list(report.rules),
        "worst": worst(report.findings),
        "summary": {**counts, "ignored": len(report.suppressed), "fixed": len(fixed)},
        "findings": [finding_document(item, report.sources) for item in report.findings],
        "ignored": [finding_document(item, report.sources) for item in report.suppressed],
        "changed": sorted(changed),
        "fixed": [{"rule": item.rule, "message": item.message, "file": item.span.file} for item in fixed],
        "diff": diff,
    }


def _judged(report: Report, matrix: Matrix, told: Options) -> list[Judged]:
    """Return what was understood of each environment, and what was not judged."""
    from provision.audit.judged import describe, left_of

    left = {document.source.file: left_of(document) for document in report.documents if document.left}
    return [describe(item, matrix, told, left.get(item.file, ())) for item in report.environments]


def _sarif(report: Report, matrix: Matrix) -> str:
    import json

    from provision import __version__
    from provision.audit.report.sarif import to_sarif

    rules = {name: matrix.audit_rules[name] for name in report.rules}
    log = to_sarif(
        report.findings,
        report.suppressed,
        report.sources,
        rules,
        version=__version__,
        facts_date=matrix.dated,
        schema=matrix.setting("audit_rules.toml", "sarif_schema").value or "",
    )
    return json.dumps(log, indent=1)
