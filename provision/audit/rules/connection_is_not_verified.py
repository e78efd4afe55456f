"""Packages over an unverified connection."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.model import Environment, Finding, Install, Options, Span
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "S03"

_FLAGS = ("--trusted-host", "--allow-insecure-host")
_VARIABLES = ("PIP_TRUSTED_HOST", "UV_INSECURE_HOST")
_LOCAL = ("localhost", "127.0.0.1", "::1", "host.docker.internal")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look at addresses of indexes, flags and variables."""
    for span, message, reason in _faults(environment):
        yield found(matrix, ID, span=span, message=message, reasons=(reason,))


def _faults(environment: Environment) -> Iterator[tuple[Span, str, str]]:
    unchecked = "anybody on the way can answer in its place"
    for install in environment.installs:
        yield from ((span, f"{url} is used without TLS", unchecked) for span, url in _plain(install))
    for command in environment.own_commands:
        for word in command.words:
            if word.text is not None and word.text.partition("=")[0] in _FLAGS:
                yield word.span, f"{word.text.partition('=')[0]} turns the check of the connection off", unchecked
    for variable in environment.own_variables:
        if variable.name in _VARIABLES and variable.value:
            yield variable.span, f"{variable.name} turns the check of the connection off", unchecked


def _plain(install: Install) -> Iterator[tuple[Span, str]]:
    for index in install.indexes:
        if not (index.url or "").lower().startswith("http://"):
            continue
        from urllib.parse import urlsplit

        parts = urlsplit(index.url or "")
        if parts.hostname not in _LOCAL:
            yield index.span, f"http://{parts.hostname}"
