"""A project, read from the one of its files that says the most."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from provision.errors import UsageError
from provision.files import read_text
from provision.project.collector import Collector
from provision.project.conda import take_conda, take_exported, take_pixi_file
from provision.project.files import BYTES_MAX, Files
from provision.project.listing import SHOWN, CondaListError, read_list
from provision.project.pins import LOCKS, read_pins
from provision.project.pipfile import take_pipfile
from provision.project.pyproject import take_pyproject
from provision.project.setup_files import take_setup
from provision.resolve.requirements import normalise_name

if TYPE_CHECKING:
    from provision.audit.conda import CondaFile
    from provision.audit.model import Requirement

PROJECT_FILES = ("pyproject.toml", "pixi.toml", "environment.yml", "setup.cfg", "setup.py", "Pipfile")
"""Files that make a project of a folder, beside lists of requirements."""


class Folder:
    """A project, read from the one of its files that says the most."""

    def __init__(
        self,
        found: Collector,
        folder: Path,
        extras: Sequence[str],
        groups: Sequence[str],
        *,
        is_member: bool = False,
        files: Files | None = None,
    ) -> None:
        self.found = found
        self.folder = folder
        self.extras = tuple(dict.fromkeys(normalise_name(name) for name in extras))
        self.groups = tuple(dict.fromkeys(normalise_name(name) for name in groups))
        self.files = files or Files("--project")
        self.taken: list[str] = []
        # Files that are not what their name promises, and environments that are a picture of one machine.
        self.unlike: list[UsageError] = []
        self.exports: list[tuple[Path, CondaFile]] = []
        self.empty: list[str] = []
        self.unread: list[str] = []
        # A part of another project, whose settings count.
        self.is_member = is_member
        found.folders.add(folder.resolve())

    def read(self) -> None:
        """Read it.

        Raises:
            UsageError: The folder holds nothing that says what the project needs.
        """
        if not self.folder.is_dir():
            hint = "name the folder of the project"
            if self.folder.is_file():
                hint = f"name its folder, as in `--project {self.folder.parent}`, or give a list to `-r`"
            raise UsageError(f"--project: {self.folder} is not a folder", hints=(hint,))
        self.found.projects.append(self.folder)
        # What is installed by its path is so by what it says of itself, whatever lists lie beside that.
        readers: list[Callable[[Folder], bool]] = [take_pyproject, take_setup]
        if not self.is_member:
            readers = [
                take_pyproject,
                take_pixi_file,
                take_conda,
                take_setup,
                Folder._lists,
                take_pipfile,
                take_exported,
            ]
        if not any(reader(self) for reader in readers):
            if self.unlike:
                raise self.unlike[0]
            if not (self.empty or self.is_member):
                raise self._nothing()
            self.found.read += self.empty[:1]
            self.found.empty = self.empty[0] if self.empty and not self.is_member else self.found.empty
        self.found.warnings += [f"{error.message}; that file is not read" for error in self.unlike]
        self.found.warnings += [
            f"{path} lists what one machine had, to the build of each package, and is not read; `-r {path}` reads it"
            for path, _ in self.exports
            if path.name not in self.taken
        ]
        if not self.is_member:
            self._python_version()
            self._tell_ignored()

    def file(self, name: str) -> Path | None:
        """Return the path of a file of the project, if it is there."""
        path = self.folder / name
        return path if path.is_file() else None

    def all_of(self, pattern: str) -> list[Path]:
        """Return the files of a pattern, sorted."""
        return sorted(path for path in self.folder.glob(pattern) if path.is_file())

    def _nothing(self) -> UsageError:
        lists = self.all_of("requirements*/**/*.txt") or self.all_of("*/*requirements*.txt")
        hints = [f"give one of its lists to `-r`, as in `-r {lists[0]}`"] if lists else []
        if self.extras or self.groups or any(self.file(name) for name in PROJECT_FILES):
            hints.append("where its files name no package, write a requirements.txt, and give that to `-r`")
        return UsageError(
            f"--project: nothing in {self.folder} says what the project needs",
            because=(
                f"looked for {', '.join(PROJECT_FILES)} and requirements.txt with packages in them",
                *self.unread,
            ),
            hints=hints or ("name the folder that holds one of these files",),
        )

    def tell(self, path: Path, count: int) -> None:
        """Tell of a file how many requirements were read from it."""
        self.taken.append(path.name)
        if self.is_member:
            return
        chosen = [f"extra {name}" for name in self.extras] + [f"group {name}" for name in self.groups]
        behind = f" ({', '.join(chosen)})" if chosen else ""
        self.found.read.append(f"read {count} requirement{'s'[: count != 1]} from {path}{behind}")

    def _tell_ignored(self) -> None:
        names = (*PROJECT_FILES, "environment.yaml")
        others = [name for name in names if name not in self.taken and self.file(name)]
        others += [path.name for path in self.all_of("*requirements*.txt") if path.name not in self.taken]
        if others:
            self.found.warnings.append(f"{self.folder}: not read: {', '.join(others)}")
        locks = [path for name in LOCKS if (path := self.file(name)) is not None]
        for path in locks[: not self.found.pins]:
            try:
                pins = read_pins(path, self.found.platform, self.found.matrix)
                self.found.pins = self.found.pins or pins
                self.found.read.append(f"{path} holds {len({pin.name for pin in pins})} versions, kept where they fit")
            except UsageError as error:
                self.found.warnings.append(f"{error.message}: {''.join(error.because[:1])}; its versions do not count")
        if locks[1:]:
            spare = ", ".join(path.name for path in locks[1:])
            self.found.warnings.append(f"of several locks {locks[0]} counts, and not {spare}")

    def add(self, requirement: Requirement) -> None:
        """Take a requirement of one of the files."""
        self.found.add(requirement.text, self.found.where(requirement.span, self.files))

    def take_member(self, requirement: Requirement) -> bool:
        """Tell whether a requirement is a folder of the project; what that needs is read in its place."""
        path = requirement.text.partition(" @ ")[2].partition(" ;")[0].strip()
        if not path or "://" in path:
            return False
        return self.found.take_folder(self.folder / path, requirement.extras, requirement.name)

    def refuse_left(self, left: Iterable[str], path: Path) -> None:
        """Refuse what has no form that a request can hold."""
        for text in left:
            raise UsageError(
                f"{path}: `{text[:SHOWN]}` has no form that pip and uv know",
                hints=("write it as one range, such as `>=1.2,<3`",),
            )

    def refuse_choices(self, path: Path) -> None:
        """Refuse extras and groups where a file has none."""
        for flag, names in (("--extra", self.extras), ("--group", self.groups)):
            if names:
                raise UsageError(f"{flag} {names[0]}: {path} has none", hints=(f"leave `{flag}` out",))

    def take_list(self, path: Path, named_by: Path) -> None:
        """Take a list of requirements that another file, or the project itself, names."""
        if not path.is_file():
            raise UsageError(f"{named_by}: {path}, from which it takes its requirements, is not there")
        source = self.files.take(path)
        self.taken.append(path.name)
        read_list(self.found, source, self.files, root=self.folder)

    def _lists(self) -> bool:
        paths = self.all_of("requirements.txt")
        others = [path for path in self.all_of("*requirements*.txt") if path not in paths]
        if not paths:
            if len(others) > 1:
                raise UsageError(
                    f"--project: {self.folder} has several lists of requirements and no requirements.txt",
                    because=("they are " + ", ".join(path.name for path in others),),
                    hints=tuple(f"give one to `-r`, as in `-r {path}`" for path in others[:1]),
                )
            paths = others
        if not paths:
            return False
        self.refuse_choices(paths[0])
        before = len(self.found.lines)
        try:
            self.take_list(paths[0], paths[0])
        except CondaListError as error:
            self.unlike.append(error)
            return False
        self.tell(paths[0], len(self.found.lines) - before)
        return len(self.found.lines) > before

    def _python_version(self) -> None:
        path = self.file(".python-version")
        if path is None:
            return
        text = read_text(path, "--project", bytes_max=BYTES_MAX).split("\n")[0].strip()
        if re.fullmatch(r"(?:cpython-?|python-?)?3\.[0-9]+(?:\.[0-9]+)?", text):
            version = re.sub(r"^[a-z-]+", "", text)
            self.found.pythons.append((f"=={version}", f"`{text}` in {path}"))
