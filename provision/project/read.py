"""Read requirements files and a project, for the commands that take them.

The readers are those of ``provision check``. Here is what a request makes of what they found: each line is one that a
request can hold, or is refused with its file, its line and the way out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from provision.errors import UsageError
from provision.index.account import Accounts
from provision.matrix.load import Matrix
from provision.project.collector import Collector
from provision.project.conda import is_environment, read_environment
from provision.project.files import Files
from provision.project.inputs import Inputs
from provision.project.listing import read_list
from provision.project.pins import LOCKS
from provision.resolve.request import PLATFORMS

_KINDS = {
    "pyproject.toml": "a project of Python",
    "pixi.toml": "a manifest of pixi",
    "setup.py": "a setup script",
    "setup.cfg": "the settings of a project of Python",
    "Pipfile": "a manifest of pipenv",
} | dict.fromkeys(LOCKS, "a lock")


def read_inputs(
    files: Sequence[Path],
    project: Path | None = None,
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    *,
    matrix: Matrix | None = None,
    platform: str | None = None,
    accounts: Accounts | None = None,
) -> Inputs:
    """Read requirements files and a project.

    Args:
        files: Requirements files; ``-`` is the standard input.
        project: Folder of a project.
        extras: Names of its optional dependencies, and
        groups: of its dependency groups, to take too.
        matrix: The facts; the shipped ones, unless given.
        platform: What the image is for, where sources differ by it; linux/amd64, unless given.
        accounts: Where users and passwords go that stand in addresses.

    Raises:
        UsageError: A file is missing or malformed, or asks for what a request cannot hold.
        UnknownError: It asks for builds that the facts do not cover.
        IncompatibleError: Two places ask for different CUDA.
    """
    found = Collector(matrix or Matrix(), platform or PLATFORMS[0], accounts or Accounts(), _read_member)
    for path in files:
        _read_file(found, path)
    if project is not None:
        from provision.project.folder import Folder

        Folder(found, project, extras, groups).read()
    elif extras or groups:
        flag = "--extra" if extras else "--group"
        raise UsageError(f"{flag} chooses a part of a project", hints=("name its folder with `--project DIR`",))
    return found.result(project)


def _read_member(found: Collector, folder: Path, extras: Sequence[str]) -> None:
    from provision.project.folder import Folder

    Folder(found, folder, extras, (), is_member=True).read()


def _read_file(found: Collector, path: Path) -> None:
    _refuse_other(path)
    files = Files("-r")
    source = files.take(path)
    if path.suffix in (".yml", ".yaml") or is_environment(source):
        from provision.project.folder import Folder

        read_environment(Folder(found, path.parent, (), (), files=files), path)
        return
    read_list(found, source, files)


def _refuse_other(path: Path) -> None:
    """Refuse what is not a list of requirements by its name, with the flag that reads it."""
    if path.is_dir():
        raise UsageError(
            f"-r: {path} is a folder", hints=(f"`--project {path}` reads what the project in it asks for",)
        )
    kind = _KINDS.get(path.name)
    if kind is not None and path.exists():
        raise _other_kind(path, kind)


def _other_kind(path: Path, kind: str) -> UsageError:
    return UsageError(
        f"-r: {path} is {kind}, not a list of requirements",
        hints=(f"`--project {path.parent}` reads what the project in its folder asks for",),
    )
