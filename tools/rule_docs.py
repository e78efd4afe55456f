"""Write the pages of the rules of ``provision check``: one a rule, and an index with the Dockerfiles of two articles.

What a page shows is what the program says: the examples are audited, and their findings printed below them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rule_examples import read_examples

from provision.audit.engine import audit
from provision.audit.model import Options, Source
from provision.audit.rules import rule_ids
from provision.cli.output import Output
from provision.cli.text.check import show_findings
from provision.matrix.load import Matrix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rule_examples import Example

    from provision.matrix.model import AuditRule

FOLDER = "docs/rules"
ARTICLES = Path(__file__).resolve().parents[1] / "tests" / "corpus" / "articles"
GROUPS = {
    "B": "the base image",
    "C": "versions and builds that must fit each other",
    "D": "the driver",
    "E": "the environment of a container",
    "G": "GPUs",
    "I": "comments that ignore a rule",
    "L": "wheels and Pythons",
    "N": "needs that no metadata declares",
    "P": "platforms",
    "R": "running it",
    "S": "safety",
    "X": "building extensions",
}
_LANGUAGES = {".yml": "yaml", ".yaml": "yaml", ".toml": "toml", ".lock": "toml", ".txt": "text"}


def rule_pages() -> dict[str, str]:
    """Return every page, by its path below the root."""
    matrix = Matrix()
    pages = {f"{FOLDER}/README.md": _index(matrix)}
    for name in rule_ids(matrix):
        pages[f"{FOLDER}/{name}.md"] = _page(matrix, name)
    return pages


def _index(matrix: Matrix) -> str:
    rows = matrix.audit_rules
    lines = [
        "# Rules of provision check",
        "",
        "Written by `make docs` from `compat/audit_rules.toml` and the rules themselves. An *error* does not work,",
        "a *warn* may not, or not tomorrow, and an *info* is worth knowing. `# provision: ignore=B03 why` above a line",
        "keeps a known finding out. A rule speaks only where the facts prove it: what nobody knows gives no finding.",
        "",
    ]
    for letter, title in GROUPS.items():
        own = [row for row in rows.values() if row.id.startswith(letter)]
        if not own:
            continue
        lines += [f"## {letter}: {title}", "", "| rule | severity | finds |", "| --- | --- | --- |"]
        lines += [f"| [{row.id}]({row.id}.md) | {row.severity} | {row.title} |" for row in own]
        lines.append("")
    lines += ["## Two Dockerfiles from articles", ""]
    lines += [
        "Both are what guides print, and both fail: the first is not built at all, the second starts on hosts on which",
        "it cannot work.",
        "",
    ]
    for folder in sorted(path for path in ARTICLES.iterdir() if path.is_dir()):
        paths = sorted(path for path in folder.iterdir() if path.is_file())
        files = {path.name: path.read_text(encoding="utf-8") for path in paths}
        lines += [f"### {folder.name}", ""]
        lines += _shown(matrix, files, Options(), None)
    return "\n".join(lines).rstrip("\n") + "\n"


def _page(matrix: Matrix, name: str) -> str:
    row = matrix.audit_rules[name]
    examples = read_examples(name)
    lines = [f"# {row.id}: {row.title}", "", f"*Severity: {row.severity}.* {row.why}", "", f"{row.remedy}", ""]
    lines += ["## What it finds", ""]
    for example in (item for item in examples if item.findings):
        lines += [f"### {_capital(example.name)}", ""]
        lines += _shown(matrix, example.files, example.options, name)
        lines += _fixed(example)
    lines += ["## What it leaves alone", ""]
    for example in (item for item in examples if not item.findings):
        lines += [f"### {_capital(example.name)}", ""]
        lines += _files(example.files)
        lines += _options(example.options)
    lines += ["## Sources", "", *_sources(matrix, row), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _shown(matrix: Matrix, files: Mapping[str, str], options: Options, rule: str | None) -> Iterator[str]:
    """Yield files and what is found in the first of them, of one rule or of all."""
    sources = {name: Source(name, text) for name, text in files.items()}
    first = next(iter(sources.values()))
    report = audit([first], sources.get, matrix, options)
    yield from _files(files)
    yield from _options(options)
    said = [finding for finding in report.findings if rule in (None, finding.rule)]
    output = Output()
    output.color = "never"
    yield from ("```text", show_findings(said, {**sources, **report.sources}, output), "```", "")


def _files(files: Mapping[str, str]) -> Iterator[str]:
    for name, text in files.items():
        if len(files) > 1:
            yield from (f"`{name}`:", "")
        yield f"```{_LANGUAGES.get(Path(name).suffix, 'dockerfile')}"
        yield text.rstrip("\n")
        yield from ("```", "")


def _options(options: Options) -> Iterator[str]:
    words = [f"--gpu {name}" for name in options.gpus]
    words += [f"--driver {options.driver}"] if options.driver else []
    words += [f"--platform {name}" for name in options.platforms]
    words += [f"--python {options.python}"] if options.python else []
    if words:
        yield from (f"Asked with `{' '.join(words)}`.", "")


def _fixed(example: Example) -> Iterator[str]:
    if example.fixed:
        name = next(iter(example.files))
        yield from ("After `--fix`:", "")
        yield from _files({name: example.fixed})


def _sources(matrix: Matrix, row: AuditRule) -> Iterator[str]:
    for source in _known(matrix, row.source):
        yield f"- {source}"
    yield f"- Where: {row.where}. *{row.status.capitalize()}*, confidence {row.confidence}."
    yield from (f"- {_capital(reason)}." for reason in row.because)


def _known(matrix: Matrix, ids: Iterable[str]) -> Iterator[str]:
    for name in ids:
        source = matrix.sources[name]
        yield f"[{source.title}]({source.url})" if source.url else source.title


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
