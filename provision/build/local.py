"""Wheels and archives of this machine in a build context: each a copy, fixed by its hash in the lock."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from provision.errors import ActionFailedError, DriftError, UsageError
from provision.files import replaced
from provision.generate.recipe import LOCAL_FOLDER
from provision.records import NOTHING, record


@record
class Local:
    """Where files of this machine lie.

    Attributes:
        files: Name → path, of files that a line names.
        folders: Folders that are looked into for more.
    """

    files: Mapping[str, Path] = NOTHING
    folders: tuple[Path, ...] = ()

    def find(self, name: str) -> Path | None:
        """Return the file of a name."""
        places = [self.files[name]] if name in self.files else [folder / name for folder in self.folders]
        return next((path for path in places if path.is_file()), None)

    def inside(self, folder: Path) -> Local:
        """Return the same, and what a context holds from before."""
        return Local(files=self.files, folders=(*self.folders, folder / LOCAL_FOLDER))


def find_local(folder: Path, wanted: Mapping[str, str], local: Local) -> dict[str, Path]:
    """Return the files that a context is to hold, by name.

    Args:
        folder: The context.
        wanted: Name → sha256 of what it is to hold.
        local: Where the files are.

    Raises:
        UsageError: A file is not there, or is another one by now.
    """
    return {name: _find(name, sha256, local.inside(folder)) for name, sha256 in wanted.items()}


def refuse_foreign(folder: Path, wanted: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Refuse to write over files that no lock of the context names.

    Args:
        folder: The context.
        wanted: Name → sha256 of what it is to hold.
        before: The same of what it held.

    Raises:
        UsageError: There is one.
    """
    place = folder / LOCAL_FOLDER
    targets = [place / name for name in wanted if name not in before]
    found = [path for path in targets if path.is_file() and _digest(path) != wanted[path.name]]
    if wanted and place.exists() and not place.is_dir():
        found = [place]
    if found:
        raise UsageError(
            f"{found[0]} was not written by this program, and a wheel or archive would be written over it",
            hints=("choose another folder with `-o DIR`", "or take the file away"),
        )


def write_local(folder: Path, found: Mapping[str, Path], before: Mapping[str, str], *, mtime: int) -> None:
    """Copy files into a context, and take away those that an earlier lock named and this one does not.

    Args:
        folder: The context.
        found: Name → file, of what it is to hold.
        before: Name → sha256 of what it held.
        mtime: Date of every file, in seconds.

    Raises:
        ActionFailedError: It cannot be written.
    """
    place = folder / LOCAL_FOLDER
    try:
        for name, source in found.items():
            place.mkdir(parents=True, exist_ok=True)
            target = place / name
            if not target.exists() or not target.samefile(source):
                import shutil

                with replaced(target) as draft:
                    shutil.copyfile(source, draft)
            target.chmod(0o644)
            from provision.build.code import date_file

            date_file(target, mtime)
        for name in before.keys() - found.keys():
            (place / name).unlink(missing_ok=True)
        if place.is_dir() and not any(place.iterdir()):
            place.rmdir()
    except OSError as error:
        raise ActionFailedError(
            f"the wheels and archives cannot be copied into {place}", because=(error.strerror or str(error),)
        ) from error


def _find(name: str, sha256: str, local: Local) -> Path:
    path = local.find(name)
    if path is None:
        raise UsageError(
            f"{name} is not here any more, and the image is to hold it",
            hints=("restore it, or name its folder with `--find-links` in a requirements file",),
        )
    if _digest(path) != sha256:
        raise UsageError(
            f"{path} is another file than the one that was locked",
            because=(f"the lock says sha256 {sha256}",),
            hints=("write the folder anew, without `--locked`",),
        )
    return path


def check_local(folder: Path, wanted: Mapping[str, str]) -> None:
    """Hold the copies in a context against the lock.

    Raises:
        DriftError: One is missing or is another file.
    """
    reasons = []
    for name, sha256 in sorted(wanted.items()):
        path = folder / LOCAL_FOLDER / name
        if not path.is_file():
            reasons.append(f"{LOCAL_FOLDER}/{name} is missing")
        elif _digest(path) != sha256:
            reasons.append(f"{LOCAL_FOLDER}/{name} is another file")
    if reasons:
        raise DriftError(
            f"{folder} is not what its lock says", because=reasons, hints=("run the same command without `--check`",)
        )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
