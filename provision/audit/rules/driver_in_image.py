"""A display driver among the packages of an image."""

from __future__ import annotations

import re
from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix

ID = "D03"

_MANAGERS = ("apt", "apt-get", "aptitude", "dnf", "microdnf", "yum", "zypper")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for the packages of drivers behind install."""
    names = matrix.setting("audit_rules.toml", "driver_packages").values
    for command in environment.own_commands:
        words = [word.text for word in command.words]
        if command.program not in _MANAGERS or "install" not in words:
            continue
        for word in command.words[words.index("install") + 1 :]:
            if word.text is not None and word.text.startswith(names) and _is_driver(word.text, names):
                yield found(
                    matrix,
                    ID,
                    span=word.span,
                    message=f"{word.text} installs a driver into the image",
                    reasons=("the container toolkit mounts the host's own driver when the container starts",),
                    facts=("knowledge/cuda-meta",) if word.text.startswith("cuda") else (),
                )


def _is_driver(text: str, names: Iterable[str]) -> bool:
    """Tell whether a word is the name of a driver's package, with branch, flavour and version."""
    names = "|".join(map(re.escape, names))
    return re.fullmatch(rf"(?:{names})(?:-[0-9]+)*(?:-(?:server|open|dkms))*(?:=.*)?", text) is not None
