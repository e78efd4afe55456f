"""A version that the shell takes for a redirection, because nothing quotes it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from provision.audit.commands import command_of
from provision.audit.model import ERROR, Edit, Environment, Finding, Options, Way
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "C27"

_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[A-Za-z0-9._,-]*\])?(?:[<>]=?[0-9][A-Za-z0-9.*+!]*,?)+")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for requirements in the words of installs that an operator takes apart."""
    for install in environment.own_installs:
        command = command_of(environment, install)
        starts = {requirement.span.start for requirement in install.requirements}
        for word in command.split if command is not None else ():
            text = word.text or ""
            if word.span.start not in starts or not _VERSION.fullmatch(text):
                continue
            name, operator = re.split("([<>])", text)[:2]
            does = "writes what the command says into" if operator == ">" else "reads"
            edit = Edit(span=word.span, text=f'"{text}"')
            yield found(
                matrix,
                ID,
                span=word.span,
                message=f"the shell takes the `{operator}` of {text} for a redirection",
                reasons=(f"{name} is asked for in any version, and the shell {does} the file that follows",),
                ways=(Way(text=f'write `"{text}"`', edits=(edit,)),) if word.is_literal else (),
                # A file to read that is not there ends the command.
                severity=ERROR if "<" in text and command is not None and command.is_certain else "",
            )
