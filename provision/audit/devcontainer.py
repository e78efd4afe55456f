"""Development containers: the image or Dockerfile of a ``devcontainer.json``, and what its commands install."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from provision.audit.dockerfile import parse_dockerfile
from provision.audit.model import Environment, Options, Source
from provision.audit.places import Placed, read_yaml
from provision.audit.requirements_file import Reader
from provision.audit.script import read_joined, run_of, words
from provision.audit.shell import Text
from provision.errors import UsageError
from provision.records import replace

_COMMANDS = ("onCreateCommand", "updateContentCommand", "postCreateCommand")
"""What runs once, in this order, when a container is made."""
_PIECE = r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|,(?=(?:\s|//[^\n]*+|/\*.*?\*/)*[\]}])|\t'
"""A string, which stays, or what YAML does not know: a comment, a comma before an end, a tab."""


def parse_devcontainer(source: Source, read: Reader, options: Options) -> tuple[list[Environment], list[Source]]:
    """Return the stages of the image of a development container, with what its commands install on it.

    A compose file that it names instead is judged where it stands.

    Args:
        source: Its text: JSON with comments.
        read: Finds the Dockerfile it names and what that copies.
        options: ``--build-arg`` stands before the arguments of the file.

    Returns:
        The environments, and the Dockerfiles that were read.

    Raises:
        UsageError: It is not JSON, or a Dockerfile is malformed.
    """
    # JSON without what was blanked is YAML, whose reader tells where each value stands.
    blank = re.sub(
        _PIECE, lambda match: match[0] if match[0][0] == '"' else _blanked(match[0]), source.text, flags=re.DOTALL
    )
    placed = read_yaml(Source(source.file, blank))
    data = placed.data
    if not isinstance(data, dict):
        raise UsageError(f"{source.file} is not a development container", because=("it is not a JSON object",))
    folder = source.file.rpartition("/")[0]
    given = data.get("build")
    build: dict[str, object] = given if isinstance(given, dict) else {}
    named = build.get("dockerfile") or data.get("dockerFile")
    if isinstance(named, str):
        found = read(posixpath.normpath(posixpath.join(folder, named)))
        context = str(build.get("context") or data.get("context") or ".")
        if found is None:
            return [], []
        listed = build.get("args")
        # `${localEnv:NAME}` is known on the machine of whoever opens it.
        arguments = {
            str(key): value if isinstance(value, str) and "${" not in value else None
            for key, value in (listed.items() if isinstance(listed, dict) else ())
        }
        target = build.get("target")
        parsed = parse_dockerfile(
            found,
            read,
            build_args={**arguments, **options.build_args},
            target=options.target or (target if isinstance(target, str) else ""),
            context=posixpath.normpath(posixpath.join(folder, context)).removeprefix("."),
        )
        return list(parsed.stages), [found]
    if not isinstance(data.get("image"), str):
        return [], []
    parts = [words("FROM "), placed.text("image"), words("\n")]
    if data.get("features"):
        # Each runs a script of its own, which may install anything.
        parts.append(words("RUN $FEATURES\n"))
    for text in _commands(placed):
        parts += run_of(text)
    stages = read_joined(source, parts, read).stages
    # It is made on a machine for one person, by a tool that hands GPUs in.
    return [replace(stage, is_target=False) for stage in stages], []


def _commands(placed: Placed) -> Iterator[Text]:
    """Yield the commands that are lines for a shell; one that is a list of words is left out."""
    for name in _COMMANDS:
        command = placed.data.get(name)
        values = command if isinstance(command, dict) else {"": command}
        for key, value in values.items():
            if isinstance(value, str):
                yield placed.text(name, key) if key else placed.text(name)


def _blanked(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
