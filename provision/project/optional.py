"""What a project names and does not ask for by itself: the packages of its extras and groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from provision.errors import UsageError
from provision.project.files import Files
from provision.resolve.requirements import normalise_name, requirement_of


def optional_packages(folder: Path) -> dict[str, tuple[str, ...]]:
    """Return which flags would add a package: distribution → ``--extra NAME`` or ``--group NAME``, in order.

    A file that cannot be read names none.
    """
    found: dict[str, list[str]] = {}
    for reader in (_of_pyproject, _of_setup):
        try:
            for name, flag in reader(folder):
                found.setdefault(name, []).append(flag)
        except UsageError:
            continue
    return {name: tuple(dict.fromkeys(flags)) for name, flags in found.items()}


def _of_pyproject(folder: Path) -> Iterator[tuple[str, str]]:
    from provision.audit.places import read_toml
    from provision.audit.project import read_groups

    path = folder / "pyproject.toml"
    if not path.is_file():
        return
    source = Files("--project").take(path)
    for group in read_groups(source):
        kind, _, name = group.name.partition(" ")
        if kind in ("extra", "group"):
            yield from ((requirement.name, f"--{kind} {name}") for requirement in group.requirements)
    tool = read_toml(source).data.get("tool")
    poetry = tool.get("poetry") if isinstance(tool, dict) else None
    extras = poetry.get("extras") if isinstance(poetry, dict) else None
    for name, items in extras.items() if isinstance(extras, dict) else ():
        yield from ((normalise_name(str(item)), f"--extra {name}") for item in items if isinstance(items, list))


def _of_setup(folder: Path) -> Iterator[tuple[str, str]]:
    from provision.audit.setup_script import read_setup_cfg, read_setup_py

    for file, reader in (("setup.cfg", read_setup_cfg), ("setup.py", read_setup_py)):
        if (folder / file).is_file():
            extras = reader(Files("--project").take(folder / file)).extras
            for name, needs in extras.items():
                for text, _ in needs.lines:
                    yield normalise_name(requirement_of(text).name), f"--extra {name}"
