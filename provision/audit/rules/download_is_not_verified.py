"""A download that goes straight into a shell or an archive tool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.model import Command, Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "S02"

_FETCHERS = ("curl", "wget")
_RUNNERS = ("bash", "dash", "perl", "sh", "tar", "zsh")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look at pipelines, substitutions and ADD."""
    for command in _piped(environment.own_commands):
        yield found(
            matrix,
            ID,
            span=command.span,
            message=f"what {command.program} downloads is used unverified",
            reasons=("nothing compares it with a known checksum before it runs or is unpacked",),
        )
    for word in environment.downloads if environment.own_base or environment.kind == "stage" else ():
        yield found(
            matrix,
            ID,
            span=word.span,
            message="ADD fetches a file without a checksum",
            reasons=("nothing compares it with a known checksum",),
            hint="give `ADD --checksum=sha256:…`",
        )


def _piped(commands: tuple[Command, ...]) -> Iterator[Command]:
    for place, command in enumerate(commands):
        if command.program in _FETCHERS:
            # Elevation and assignments may stand between the pipe and the shell.
            for later in commands[place + 1 :]:
                if later.before != "|" or later.pipeline != command.pipeline:
                    break
                if _runner(later):
                    yield command
                    break
        if _runner(command):
            yield from (inner for inner in command.substitutes if inner.program in _FETCHERS)


def _runner(command: Command) -> bool:
    programs = [(word.text or "").rpartition("/")[2] for word in command.words]
    if programs[:1] == ["sudo"]:
        programs = [name for name in programs[1:] if not name.startswith("-")]
    return bool(programs) and (programs[0] in _RUNNERS or programs[0].startswith("python"))
