"""A built image: its configuration, history and distributions, as other programs brought them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from provision.audit.model import Base, Environment, Install, Requirement, Source, Variable, Word
from provision.matrix.query import split_reference
from provision.resolve.requirements import normalise_name

_MARKER = "@provision-payload "
_FROM_LABELS = ("org.opencontainers.image.base.name",)


class _Page:
    """A text made for an image, so that findings have something to point at."""

    def __init__(self, name: str) -> None:
        self.file = f"image:{name}"
        self.lines: list[str] = []
        self.size = 0

    def add(self, line: str) -> tuple[int, int]:
        """Append a line and return its offsets."""
        start = self.size
        self.lines.append(line)
        self.size += len(line) + 1
        return start, start + len(line)


def parse_image(
    name: str,
    document: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]],
    python: str,
) -> tuple[Source, Environment]:
    """Return what an image holds, and a text with a line for everything in it.

    Args:
        name: As it was asked for.
        document: The engine's description: ``Config``, ``Architecture``, ``RepoDigests``.
        history: Its layers, newest first, each with ``CreatedBy``.
        python: What the image's Python printed about itself; empty where it has none.
    """
    page = _Page(name)
    config = document.get("Config") or {}
    labels = {str(key): str(value) for key, value in (config.get("Labels") or {}).items()}
    digests = [str(item) for item in document.get("RepoDigests") or ()]
    head = page.add(f"IMAGE {name}{'' if not digests else ' ' + digests[0].rpartition('@')[2]}")
    entries: dict[str, tuple[str, tuple[int, int]]] = {}
    for item in config.get("Env") or ():
        key, _, value = str(item).partition("=")
        entries[key] = (value, page.add(f"ENV {key}={_one_line(value)}"))
    user = str(config.get("User") or "")
    user_at = page.add(f"USER {user or 'root'}")
    for layer in reversed(history):
        page.add(f"LAYER {_one_line(str(layer.get('CreatedBy') or ''))}")
    interpreter = _interpreter(python)
    pins: list[tuple[str, str, tuple[int, int]]] = []
    if interpreter is not None:
        page.add(f"PYTHON {interpreter['version']}")
        packages = interpreter.get("packages")
        for package, version in sorted(packages.items()) if isinstance(packages, dict) else ():
            if isinstance(version, str) and re.fullmatch(r"[A-Za-z0-9._-]+", str(package)):
                pins.append((str(package), version, page.add(f"{package}=={version}")))
    source = Source(page.file, "\n".join([*page.lines, ""]))
    variables = {}
    for key, (value, (start, end)) in entries.items():
        where = source.span(start + len("ENV ") + len(key) + 1, end)
        name_at = source.span(start + len("ENV "), start + len("ENV ") + len(key))
        variables[key] = Variable(name=key, value=value, kind="base", span=where, name_span=name_at)
    minor = _minor(interpreter)
    install = Install(
        installer="pip",
        command="installed",
        requirements=tuple(_requirement(source, package, version, at) for package, version, at in pins),
        has_default_index=False,
        # Where it came from is not kept in an image.
        is_complete=False,
        python=minor,
        environment=variables,
        span=source.span(*head),
    )
    installs = (install,) if pins else ()
    base = _base(source, labels, variables, head)
    return source, Environment(
        kind="image",
        file=source.file,
        name=name,
        span=source.span(*head),
        base=base,
        own_base=True,
        installs=installs,
        own_installs=installs,
        variables=variables,
        own_variables=tuple(variables.values()),
        labels={
            key: Variable(name=key, value=value, kind="label", span=source.span(*head), name_span=source.span(*head))
            for key, value in labels.items()
        },
        user=Word(text=user or "root", span=source.span(user_at[0] + len("USER "), user_at[1])),
        platform=_platform(document),
        python=minor,
    )


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _interpreter(said: str) -> dict[str, Any] | None:
    for line in reversed(said.splitlines()):
        if line.startswith(_MARKER):
            try:
                found = json.loads(line.removeprefix(_MARKER))
            except ValueError:
                return None
            return found if isinstance(found, dict) and isinstance(found.get("version"), str) else None
    return None


def _minor(interpreter: dict[str, Any] | None) -> str | None:
    parts = str(interpreter["version"]).split(".") if interpreter is not None else []
    return ".".join(parts[:2]) if len(parts) >= 2 and all(part.isdigit() for part in parts[:2]) else None


def _requirement(source: Source, package: str, version: str, at: tuple[int, int]) -> Requirement:
    start, end = at
    return Requirement(
        name=normalise_name(package),
        specifier=f"=={version}",
        version=version.lower(),
        is_literal=False,
        is_locked=True,
        text=f"{package}=={version}",
        span=source.span(start, end),
        name_span=source.span(start, start + len(package)),
        specifier_span=source.span(start + len(package), end),
    )


def _base(
    source: Source, labels: Mapping[str, str], variables: Mapping[str, Variable], head: tuple[int, int]
) -> Base | None:
    """Return what an image was built on, as far as its labels and variables tell."""
    reference = next((labels[key] for key in _FROM_LABELS if labels.get(key)), None)
    cuda = variables["CUDA_VERSION"].value if "CUDA_VERSION" in variables else None
    if reference is None and cuda is None:
        return None
    repository, tag, digest = split_reference(reference or "")
    return Base(
        reference=reference,
        repository=repository or None,
        tag=tag,
        # What was built stays what it is, whatever becomes of the tag.
        digest=digest or labels.get("org.opencontainers.image.base.digest", ""),
        span=source.span(*head),
        is_literal=False,
        cuda=cuda,
    )


def _platform(document: Mapping[str, Any]) -> str | None:
    system, machine = document.get("Os"), document.get("Architecture")
    return f"{system}/{machine}" if system and machine else None
