"""A repository of GitHub by a protocol that it does not speak any more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.model import Environment, Finding, Options, Span
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "C29"

_PROTOCOL = "git://"
_REWRITES = ".insteadof"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for addresses that nobody answers, where git is not told to ask another one."""
    hosts = matrix.setting("audit_rules.toml", "hosts_without_git_protocol").values
    if any(_REWRITES in (word.text or "").lower() for command in environment.commands for word in command.words):
        return
    told: set[Span] = set()
    for span, text in _addresses(environment):
        host = text.partition(_PROTOCOL)[2].partition("/")[0].rpartition("@")[2].lower()
        if host in hosts and not any(_overlap(span, other) for other in told):
            told.add(span)
            yield found(
                matrix,
                ID,
                span=span,
                message=f"{host} does not answer {_PROTOCOL} any more",
                reasons=("the protocol without encryption was switched off on 15 March 2022",),
                hint=f"write `https://{text.partition(_PROTOCOL)[2]}` in place of `{_PROTOCOL}…`",
            )


def _addresses(environment: Environment) -> Iterator[tuple[Span, str]]:
    """Yield what is fetched by this protocol: packages, and repositories that a command clones."""
    for install, requirement in environment.requirements():
        address = requirement.url or ""
        if address.startswith(f"git+{_PROTOCOL}") and install.is_certain and requirement.applies is True:
            yield requirement.span, address
    for command in environment.own_commands:
        if command.program != "git" or not command.is_certain:
            continue
        for word in command.words:
            if (word.text or "").startswith(_PROTOCOL):
                yield word.span, word.text or ""


def _overlap(one: Span, other: Span) -> bool:
    return one.file == other.file and one.start < other.end and other.start < one.end
