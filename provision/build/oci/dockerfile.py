"""Read the last stage of our own Dockerfile, so that both ways to an image share one description of it.

This is no parser for Dockerfiles of others: it knows the forms that the template writes, and says of every instruction
that it does not know that it needs an engine.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

from provision.errors import ProvisionError
from provision.records import record

__all__ = ["Instruction", "apply", "read_stage", "removed_patterns", "unknown_work"]

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# What the layers written here stand for: the user and the environment, the installations, the proof, the files.
_KNOWN = (
    re.compile(r"RUN printf 'provision:x:[0-9]+:\\n' >> /etc/group && .* -m venv --without-pip /opt/venv"),
    re.compile(r"RUN --mount=.* /opt/tools/bin/uv pip install .* python /build/compile_bytecode\.py"),
    re.compile(
        r"RUN --mount=.* python /build/verify\.py --(?:static|packages) --lock /build/expect\.json"
        r"(?: --import [a-z0-9. -]+)?"
    ),
    re.compile(r"COPY (?:--link )?--from=tools /opt/tools/bin/dumb-init /usr/local/bin/"),
    re.compile(r"COPY --chown=[0-9]+:[0-9]+ code/\S+ \S+"),
    re.compile(r"COPY (?:--link )?entrypoint\.sh /usr/local/bin/provision-entrypoint"),
    re.compile(r"COPY (?:--link )?verify\.py constraints\.txt provision\.lock /opt/provision/"),
)


@record
class Instruction:
    """One instruction: its word and the rest of it on one line."""

    word: str
    rest: str


def read_stage(dockerfile: str) -> tuple[Instruction, ...]:
    """Return the instructions of the last stage, ``FROM`` left out."""
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    stage: list[Instruction] = []
    for text in re.split(r"(?<!\\)\n", "\n".join(lines)):
        word, _, rest = re.sub(r"\s*\\\n\s*", " ", text).strip().partition(" ")
        if word == "FROM":
            stage = []
        else:
            stage.append(Instruction(word=word, rest=rest))
    return tuple(stage)


def unknown_work(stage: tuple[Instruction, ...]) -> list[str]:
    """Return the instructions that change files in a way only an engine can."""
    texts = [f"{item.word} {item.rest}" for item in stage if item.word in ("RUN", "COPY", "ADD")]
    return [text for text in texts if not any(form.fullmatch(text) for form in _KNOWN)]


def removed_patterns(stage: tuple[Instruction, ...]) -> list[str]:
    """Return the paths and patterns that the stage takes out of its base."""
    found = []
    for item in stage:
        if item.word == "RUN":
            for words in re.findall(r"rm -rf ((?:/\S+ ?)+)&&", item.rest):
                found += words.split()
    return found


def apply(stage: tuple[Instruction, ...], config: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Apply the instructions that describe an image to a base's configuration.

    Args:
        stage: The stage.
        config: The ``config`` part of the base.

    Returns:
        The new ``config`` part, and ``(word, line of the history)`` for every instruction, in order; those of files
        have their text as it stands.
    """
    made = dict(config)
    environment = dict(item.partition("=")[::2] for item in config.get("Env") or ())
    labels = dict(config.get("Labels") or {})
    ports = dict(config.get("ExposedPorts") or {})
    history = []
    for item in stage:
        said = item.rest
        if item.word in ("ENV", "LABEL"):
            target = environment if item.word == "ENV" else labels
            # Every value is expanded with what held before the instruction.
            pairs = [_pair(text, environment) for text in shlex.split(item.rest)]
            target.update(pairs)
            said = " ".join(f"{name}={value}" for name, value in pairs)
        elif item.word == "EXPOSE":
            ports[f"{item.rest}/tcp"] = {}
            said = f"map[{item.rest}/tcp:{{}}]"
        elif item.word in ("ENTRYPOINT", "CMD"):
            made["Entrypoint" if item.word == "ENTRYPOINT" else "Cmd"] = json.loads(item.rest)
            # The history of engines has no commas there.
            said = f"[{' '.join(json.dumps(word) for word in json.loads(item.rest))}]"
        elif item.word in ("WORKDIR", "USER"):
            made["WorkingDir" if item.word == "WORKDIR" else "User"] = item.rest
        elif item.word not in ("RUN", "COPY"):
            raise ProvisionError(f"the template has an instruction {item.word}, which is not known here")
        history.append((item.word, f"{item.word} {said}"))
    made["Env"] = [f"{name}={value}" for name, value in environment.items()]
    made |= {"Labels": labels} if labels else {}
    made |= {"ExposedPorts": ports} if ports else {}
    return made, history


def _pair(text: str, environment: Mapping[str, str]) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, _VARIABLE.sub(lambda found: environment.get(found[1], ""), value)
