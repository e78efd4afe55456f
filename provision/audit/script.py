"""Shell scripts: what their lines install, in the folder that they lie in."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.dockerfile import Dockerfile, parse_dockerfile
from provision.audit.model import Environment, Source
from provision.audit.requirements_file import Reader
from provision.audit.shell import Part, Text, content_of
from provision.records import replace

_END = "END_OF_COMMAND"


def parse_script(source: Source, read: Reader) -> tuple[list[Environment], tuple[str, ...]]:
    """Return what a script makes of the machine it runs on, and the names of the files that it reads.

    Args:
        source: Its text.
        read: Finds files that its installs name, beside it.
    """
    head = words("FROM scratch\nWORKDIR /script\nCOPY . .\n")
    parsed = read_joined(source, (head, *run_of(content_of(source))), read)
    # Nothing is known of that machine.
    made = [
        replace(stage, kind="script", span=source.span(0, 0), base=None, own_base=False, is_target=False, copied=())
        for stage in parsed.stages
    ]
    return made, parsed.reads


def read_joined(source: Source, parts: Iterable[Text], read: Reader) -> Dockerfile:
    """Read the Dockerfile that pieces of a file and words between them come to."""
    parts = tuple(parts)
    whole = Text("".join(part.text for part in parts), [offset for part in parts for offset in part.at])
    return parse_dockerfile(Part(source, whole), read)


def run_of(script: Text) -> tuple[Text, ...]:
    """Return the instruction that runs lines for a shell; none for lines that hold its own end."""
    if _END in script.text:
        return ()
    return words(f"RUN <<'{_END}'\n"), script, words(f"\n{_END}\n")


def words(text: str) -> Text:
    """Return characters that stand in no file."""
    return Text(text, [-1] * len(text))
