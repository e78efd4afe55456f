"""Every rule over every environment, and what of it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from provision.audit.documents import Document, parse_document
from provision.audit.ignores import NEEDLESS, NO_REASON, UNKNOWN_RULE, Ignore, find_ignores, judge_ignores
from provision.audit.model import SEVERITIES, Environment, Finding, Options, Source
from provision.audit.requirements_file import Reader
from provision.audit.rules import aspects_of, is_in_scope, load_rule, rule_ids
from provision.audit.surroundings import complete
from provision.errors import MissingDependencyError, ProvisionError, UsageError
from provision.matrix.load import Matrix
from provision.records import record, replace

COMMENT_RULES = (NO_REASON, UNKNOWN_RULE, NEEDLESS)
"""Rules that judge the ignores, after all others."""


@record
class Scope:
    """How one file is judged.

    Attributes:
        options: What is told beside it.
        rules: Ids of the rules that may speak of it.
    """

    options: Options
    rules: frozenset[str]


class Report:
    """What an audit found.

    Attributes:
        findings: Those that stand, by file, place and rule.
        suppressed: Those that a comment covers, likewise.
        known: Those that a baseline covers, likewise.
        sources: Every file that a finding may point into, by name.
        documents: The files that were asked for, as they were read.
        environments: What was judged, with what follows from it by the facts.
        rules: Ids of the rules that ran.
        unread: Why files could not be judged, the same reason once.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.suppressed: list[Finding] = []
        self.known: list[Finding] = []
        self.sources: dict[str, Source] = {}
        self.documents: list[Document] = []
        self.environments: tuple[Environment, ...] = ()
        self.rules: tuple[str, ...] = ()
        self.unread: list[ProvisionError] = []


def audit(
    sources: Sequence[Source],
    read: Reader,
    matrix: Matrix,
    options: Options,
    *,
    rules: Iterable[str] | None = None,
    context: str | None = None,
    environments: Sequence[tuple[Source, Environment]] = (),
    scope_of: Callable[[str], Scope] | None = None,
) -> Report:
    """Hold files against every rule.

    Args:
        sources: The files to check.
        read: Finds files that they refer to.
        matrix: The facts.
        options: What the person told beside the files.
        rules: Ids of the rules to run, all when absent.
        context: Folder of the build context of Dockerfiles.
        environments: Environments that were not read from a file, such as a built image, with a text to point into.
        scope_of: Gives each file options and rules of its own; all have the same when absent.

    Raises:
        MissingDependencyError: What reads the only file is not installed.
        UsageError: The only file is malformed; of several, the others are judged.
    """
    report = Report()
    wanted = None if rules is None else set(rules)
    report.rules = tuple(name for name in rule_ids(matrix) if wanted is None or name in wanted)
    everywhere = Scope(options=options, rules=frozenset(report.rules))

    def scope(file: str) -> Scope:
        return everywhere if scope_of is None else scope_of(file)

    def options_of(file: str) -> Options:
        return options if scope_of is None else scope_of(file).options

    def remember(path: str) -> Source | None:
        if path not in report.sources:
            found = read(path)
            if found is None:
                return None
            report.sources[path] = found
        return report.sources[path]

    for source in sources:
        report.sources[source.file] = source
    failed: set[str] = set()
    for source in sources:
        try:
            report.documents.append(parse_document(source, remember, scope(source.file).options, context=context))
        except (MissingDependencyError, UsageError) as error:
            if len(sources) + len(environments) == 1:
                raise
            failed.add(source.file)
            if error.message not in [other.message for other in report.unread]:
                report.unread.append(error)
    # A comment in a file that was not judged covers nothing, and is not needless either.
    for name in failed.difference(*(document.reads for document in report.documents)):
        del report.sources[name]
    for document in report.documents:
        for other in document.others:
            report.sources[other.file] = other
    judged = [*_judged(report.documents)]
    for source, environment in environments:
        report.sources[source.file] = source
        judged.append(environment)
    report.environments = tuple(complete(item, matrix, scope(item.file).options) for item in judged)
    names = [name for name in report.rules if name not in COMMENT_RULES]
    # To look for ways out costs more than to judge: what is judged again to try one needs none.
    found = _run(report.environments, matrix, options_of, names, scope_of)
    found = [replace(finding, ways=tuple(finding.ways)) for finding in found]
    if any(finding.ways for finding in found):
        from provision.audit.ways import settle_hints

        def judge(file: str, texts: dict[str, str]) -> list[Finding]:
            """Run the rules over the documents that a file belongs to, with other texts for some files."""

            def reread(path: str) -> Source | None:
                return Source(path, texts[path]) if path in texts else remember(path)

            asking = [item.source for item in report.documents if file == item.source.file or file in item.reads]
            try:
                read_again = [
                    parse_document(reread(source.file) or source, reread, scope(source.file).options, context=context)
                    for source in asking
                ]
            except UsageError:
                return found
            wholes = [complete(item, matrix, scope(item.file).options) for item in _judged(read_again)]
            return _run(wholes, matrix, options_of, names, scope_of)

        found = settle_hints(found, report.sources, judge)
    _settle(report, found, matrix, scope)
    return report


def _judged(documents: Sequence[Document]) -> Iterable[Environment]:
    """Yield what is to be judged: a file that another one reads is judged there, with all that is around it."""
    read_elsewhere = {name for document in documents for name in document.reads}
    for document in documents:
        if document.source.file in read_elsewhere and document.kind in ("requirements", "constraints", "dockerfile"):
            continue
        yield from document.environments


def _run(
    environments: Iterable[Environment],
    matrix: Matrix,
    options_of: Callable[[str], Options],
    names: Sequence[str],
    scope_of: Callable[[str], Scope] | None,
) -> list[Finding]:
    found: dict[tuple[object, ...], Finding] = {}
    for whole in environments:
        options = options_of(whole.file)
        aspects = aspects_of(whole, options)
        for name in names:
            if not is_in_scope(name, aspects):
                continue
            for finding in load_rule(name, matrix).check(whole, matrix, options):
                if scope_of is not None and name not in scope_of(finding.span.file).rules:
                    continue
                found.setdefault((finding.rule, finding.span, finding.message), finding)
    return list(found.values())


def _settle(report: Report, found: list[Finding], matrix: Matrix, scope: Callable[[str], Scope]) -> None:
    """Take out what comments cover, judge the comments, and put everything in order."""
    by_name = {document.source.file: document for document in report.documents}
    ignores: list[Ignore] = []
    for name, source in report.sources.items():
        ignores += find_ignores(source, _document_of(by_name.get(name), source))
    for finding in found:
        covering = [ignore for ignore in ignores if ignore.suppresses(finding)]
        (report.suppressed if covering else report.findings).append(finding)
    faults = judge_ignores(
        ignores, matrix.audit_rules, lambda file: scope(file).rules.intersection(report.rules).difference(COMMENT_RULES)
    )
    report.findings += [item for item in faults if item.rule in scope(item.span.file).rules.intersection(report.rules)]
    order = {name: number for number, name in enumerate(report.sources)}

    def key(finding: Finding) -> tuple[int, int, int, str, str]:
        gravity = -SEVERITIES.index(finding.severity)
        return order.get(finding.span.file, len(order)), finding.span.start, gravity, finding.rule, finding.message

    report.findings.sort(key=key)
    report.suppressed.sort(key=key)


def _document_of(document: Document | None, source: Source) -> Document | None:
    """Return what is known of comments in a Dockerfile, also of one that another file led to."""
    if document is not None:
        return document if document.comments is not None else None
    if "provision:" not in source.text:
        return None
    from provision.audit.dockerfile import split_instructions
    from provision.audit.documents import find_kind

    try:
        if find_kind(source) != "dockerfile":
            return None
        instructions, comments, _ = split_instructions(source)
    except UsageError:
        return None
    made = Document(source, "dockerfile", [])
    made.comments, made.ends = tuple(comments), tuple((item.start, item.end) for item in instructions)
    return made


def worst(findings: Iterable[Finding]) -> str | None:
    """Return the gravest severity among findings, ``None`` for none."""
    return max((finding.severity for finding in findings), key=SEVERITIES.index, default=None)
