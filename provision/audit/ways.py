"""Ways out of a finding: what could be written in its place, and which of them the rules themselves accept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from provision.audit.fix import apply_edits
from provision.audit.model import ERROR, Edit, Environment, Finding, Options, Requirement, Source, Way
from provision.audit.wanted import CPU, Wanted, index_variant, python_of
from provision.matrix.load import Matrix
from provision.records import replace
from provision.versions import parse

_NEAR = 2
_SHOWN = 2


def ways_of(environment: Environment, matrix: Matrix, options: Options, wanted: Wanted) -> Iterator[Way]:
    """Yield what could stand in place of a wish: its release in another build, or its build in another release.

    None of them is proved to help; :func:`settle_hints` tries them.
    """
    requirement = wanted.requirement
    if wanted.version is None or requirement.ecosystem != "pypi" or not requirement.specifier.startswith("=="):
        return
    if not requirement.is_literal or requirement.is_locked or "," in requirement.specifier:
        return
    python = python_of(environment, wanted, options)
    if wanted.framework == "torch":
        yield from _of_torch(matrix, wanted, python)
    elif wanted.framework == "tensorflow":
        rows = [row.version for row in matrix.tensorflow if python is None or python in row.pythons]
        yield from (write_pins((requirement, version)) for version in _nearest(rows, wanted.version))


def _of_torch(matrix: Matrix, wanted: Wanted, python: str | None) -> Iterator[Way]:
    builds = [row for row in matrix.torch_builds if python is None or python in row.pythons]
    version, variant = wanted.version or "", wanted.variant
    if variant is not None and variant != CPU:
        others = sorted({row.variant for row in builds if row.torch == version}, key=_number)
        for other in sorted(others, key=lambda item: abs(_number(item) - _number(variant)))[:_NEAR]:
            yield from _build(matrix, wanted, other)
    same = [row.torch for row in builds if variant in (None, row.variant) or wanted.is_default]
    for near in _nearest(same, version):
        local = f"+{wanted.requirement.local}" if wanted.requirement.local else ""
        yield write_pins((wanted.requirement, f"{near}{local}"))


def _number(variant: str) -> int:
    digits = variant.removeprefix("cu")
    return int(digits) if digits.isdigit() else 0


def _nearest(versions: Iterable[str], version: str) -> list[str]:
    """Return the releases around one: the next that fits, and the last before it."""
    known = sorted(set(versions) - {version}, key=parse)
    above = [item for item in known if parse(item) > parse(version)]
    below = [item for item in known if parse(item) < parse(version)]
    return above[:1] + below[-1:]


def write_pins(*pins: tuple[Requirement, str]) -> Way:
    """Return the way out that writes these versions in place of what the requirements ask for."""
    words = [f"`{requirement.name}=={version}`" for requirement, version in pins]
    text = f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]
    edits = tuple(Edit(span=requirement.specifier_span, text=f"=={version}") for requirement, version in pins)
    return Way(text=f"write {text}", edits=edits)


def _build(matrix: Matrix, wanted: Wanted, variant: str) -> Iterator[Way]:
    """Yield the same release in another build: its local version, and the one index in force, where they name one."""
    edits, words = [], []
    if wanted.requirement.local:
        text = f"=={wanted.version}+{variant}"
        edits.append(Edit(span=wanted.requirement.specifier_span, text=text))
        words.append(f"write `{wanted.requirement.name}{text}`")
    for index in wanted.install.indexes:
        named = index_variant(matrix, index.url)
        own = wanted.requirement.index
        if index.url is None or named is None or (index.url != own if own is not None else index.is_explicit):
            continue
        address = index.url.rstrip("/").removesuffix(named) + variant
        edits.append(Edit(span=index.span, text=address))
        words.append(f"take `{address}`")
    if edits:
        yield Way(text=" and ".join(words), edits=tuple(edits))


def settle_hints(
    findings: Sequence[Finding],
    sources: dict[str, Source],
    judge: Callable[[str, dict[str, str]], list[Finding]],
) -> list[Finding]:
    """Return the findings, those with ways out with a hint of the ways that the rules accept.

    Args:
        findings: In any order.
        sources: Files by name.
        judge: Runs the rules over the documents that a file belongs to, with other texts for some files.
    """
    settled = []
    before: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.ways:
            file = finding.span.file
            if file not in before:
                before[file] = judge(file, {})
            helping = [way.text for way in finding.ways if _helps(finding, way, sources, before[file], judge)]
            settled.append(replace(finding, hint="; or ".join(helping[:_SHOWN])) if helping else finding)
        else:
            settled.append(finding)
    return settled


def _helps(
    finding: Finding,
    way: Way,
    sources: dict[str, Source],
    before: list[Finding],
    judge: Callable[[str, dict[str, str]], list[Finding]],
) -> bool:
    """Tell whether a way takes a finding away and brings no error of another kind."""
    trial = replace(finding, edits=tuple(place(edit, sources) for edit in way.edits))
    texts, applied = apply_edits([trial], sources)
    if not applied:
        return False
    after = judge(finding.span.file, texts)
    old, new = Counter(item.rule for item in before), Counter(item.rule for item in after)
    grave = Counter(item.rule for item in after if item.severity == ERROR)
    grave.subtract(item.rule for item in before if item.severity == ERROR)
    return new[finding.rule] < old[finding.rule] and not +grave


def place(edit: Edit, sources: dict[str, Source]) -> Edit:
    """Return an edit of an address, moved to where it stands: the span may hold its flag and quotes too."""
    source = sources.get(edit.span.file)
    if source is None or "://" not in edit.text:
        return edit
    words = source.cut(edit.span)
    start = words.find(edit.text.partition("://")[0] + "://")
    if start < 0:
        return edit
    tail = words[start:]
    end = next((at for at, char in enumerate(tail) if char in "\"' \t\n"), len(tail))
    begin = edit.span.start + start
    return Edit(span=source.span(begin, begin + end), text=edit.text)
