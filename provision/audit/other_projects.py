"""Projects that say what they need in ``Pipfile``, ``pixi.toml``, ``setup.cfg`` or ``setup.py``, as environments."""

from __future__ import annotations

from posixpath import join, normpath

from provision.audit.manifests import read_pipfile, read_pixi
from provision.audit.model import Environment, Install, Requirement, Source
from provision.audit.project import Project, environment_of
from provision.audit.requirement import parse_requirement
from provision.audit.requirements_file import Reader, read_listing
from provision.audit.setup_script import Needs, Setup, read_setup_cfg, read_setup_py
from provision.audit.shell import Text, content_of
from provision.errors import UsageError
from provision.versions import spec_of

_MAIN = "dependencies"


def parse_pipfile(source: Source) -> list[Environment]:
    """Return the environment that a ``Pipfile`` describes.

    Raises:
        UsageError: It is not TOML.
    """
    project = read_pipfile(source)
    return [environment_of("pyproject", source, project, [project])]


def parse_pixi(source: Source) -> list[Environment]:
    """Return the default environment of a ``pixi.toml``, on Linux.

    Raises:
        UsageError: It is not TOML.
    """
    from provision.audit.requirement import pinned_python

    found = read_pixi(source)
    python = next((pinned_python(item.specifier) for item in found.packages if item.name == "python"), None)
    head = source.span(0, 0)
    lists = (("conda", "pixi", found.packages), ("uv", "pypi-dependencies of pixi", found.pypi))
    installs = tuple(
        Install(
            installer=installer,
            command=command,
            requirements=requirements,
            indexes=found.channels if installer == "conda" else (),
            is_complete=not found.left,
            python=python,
            span=requirements[0].span,
            is_file=True,
        )
        for installer, command, requirements in lists
        if requirements
    )
    return [
        Environment(
            kind="conda",
            file=source.file,
            name="default",
            span=head,
            installs=installs,
            own_installs=installs,
            python=python,
        )
    ]


def parse_setup(source: Source, read: Reader) -> list[Environment]:
    """Return what a setup script asks for, as far as it stands in it and in the files that it takes lists from.

    An extra is judged with the requirements of the project, which come with it.

    Raises:
        UsageError: It is malformed.
    """
    setup = read_setup_cfg(source) if source.file.endswith(".cfg") else read_setup_py(source)
    main = _project(source, _MAIN, setup.needs or Needs(), setup, read)
    extras = [
        _project(source, f"extra {name}", needs, setup, read)
        for name, needs in setup.extras.items()
        if needs.lines or needs.files
    ]
    groups = [*([main] if main.requirements or not main.is_complete else []), *extras]
    return [environment_of("pyproject", source, group, [group] if group is main else [main, group]) for group in groups]


def _project(source: Source, name: str, needs: Needs, setup: Setup, read: Reader) -> Project:
    found: list[Requirement] = []
    is_complete = needs.unread is None
    position = 0
    for text, line in needs.lines:
        start = _start_of(source.text, line) if line else position
        start = source.text.find(text, start)
        content = Text(text, [-1] * len(text)) if start < 0 else Text.of(source.text, start, start + len(text))
        position = max(start, position)
        made = parse_requirement(content, source.file)
        if made is None:
            is_complete = False
        else:
            found.append(made)
    for file in needs.files:
        named = read(normpath(join(source.file.rpartition("/")[0], file)))
        if named is None:
            is_complete = False
            continue
        listing = read_listing(content_of(named), named, read, is_strict=False)
        found += listing.requirements
        is_complete = is_complete and listing.is_complete
    return Project(
        name=name,
        requirements=tuple(found),
        pythons=_specifier(setup.python),
        is_complete=is_complete,
    )


def _start_of(text: str, line: int) -> int:
    """Return the offset of a line, counted from 1."""
    position = 0
    for _ in range(line - 1):
        position = text.find("\n", position) + 1
    return position


def _specifier(python: str | None) -> str:
    if not python:
        return ""
    try:
        spec_of(python)
    except (UsageError, ValueError):
        return ""
    return python.strip()
