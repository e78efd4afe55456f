"""Rendered files to disk, all or nothing, and the comparison of what is there with what would be written."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path, PurePosixPath

from provision.errors import ActionFailedError, DriftError, UsageError
from provision.records import record

__all__ = ["Artifact", "Changes", "check_artifacts", "write_artifacts"]

_HEADER = re.compile(rb"^# provision\.lock sha256:[0-9a-f]{64}$", re.MULTILINE)
_HEAD_BYTES = 1000
# Every name beside Dockerfile and .dockerignore that a context can have: only these are ever removed.
_REMOVABLE = re.compile(
    r"requirements\.(?:lock|user|(?:cuda|framework|rest|unverified)(?:\.[0-9]+)?)\.txt|constraints\.txt|tools\.txt"
    r"|verify\.py|compile_bytecode\.py|expect\.json|entrypoint\.sh|provision\.lock|provision-ca\.crt"
)


@record
class Artifact:
    """One file to write.

    Attributes:
        path: Relative to the output folder, with forward slashes.
        text: The whole contents; written as UTF-8.
        mode: Permission bits, set whatever the umask.
    """

    path: str
    text: str
    mode: int = 0o644

    def __post_init__(self) -> None:
        """Refuse a path that leaves the output folder."""
        path = PurePosixPath(self.path)
        if path.is_absolute() or not path.parts or any(part in ("..", ".") for part in path.parts):
            raise ValueError(f"{self.path!r} is no path inside the output folder")


@record
class Changes:
    """What a write changed, or would change: the paths ``written`` in the order given, and those ``removed``."""

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def write_artifacts(
    folder: Path, artifacts: tuple[Artifact, ...], *, force: bool = False, dry_run: bool = False
) -> Changes:
    """Write the artifacts so that a reader sees each file whole.

    All files are first written under temporary names; only when every one is on disk are they renamed. An unchanged
    file is left alone; what an earlier write left that is no longer wanted is removed last.

    Args:
        folder: The output folder; made where it is missing.
        artifacts: What to write.
        force: Write over files that this program did not write.
        dry_run: Change nothing.

    Returns:
        What was, or would be, changed.

    Raises:
        UsageError: The folder is a file, or holds somebody else's files under the names of these.
        ActionFailedError: The disk is full or read-only, or permission is missing; nothing was changed.
    """
    _check_folder(folder, artifacts, force=force)
    changed = tuple(artifact for artifact in artifacts if not _is_current(folder, artifact))
    stale = _stale(folder, artifacts)
    changes = Changes(written=tuple(artifact.path for artifact in changed), removed=tuple(path.name for path in stale))
    if dry_run or not (changed or stale):
        return changes
    made: list[Path] = []
    waiting: list[tuple[Path, Path]] = []
    replaced = 0
    try:
        _make_folder(folder, made)
        for artifact in changed:
            target = folder / artifact.path
            _make_folder(target.parent, made)
            temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
            waiting.append((temporary, target))
            _write_new(temporary, artifact)
        for temporary, target in waiting:
            temporary.replace(target)
            replaced += 1
        for path in stale:
            path.unlink(missing_ok=True)
    except OSError as error:
        state = f"{replaced} of {len(waiting)} files are the new ones" if replaced else "the folder was left as it was"
        raise ActionFailedError(
            f"cannot write to {folder}",
            because=(f"{error.strerror or error}: {error.filename or folder}", state),
            hints=("choose another folder with `-o DIR`",),
        ) from error
    finally:
        # After success none of the temporary files is left; a folder that holds the files cannot be removed.
        _discard([temporary for temporary, _ in waiting[replaced:]], made if replaced == 0 else [])
    return changes


def check_artifacts(folder: Path, artifacts: tuple[Artifact, ...]) -> None:
    """Compare the folder with what would be written.

    Raises:
        DriftError: A file is missing, differs, or has other permission bits.
    """
    reasons = []
    for artifact in artifacts:
        path = folder / artifact.path
        if _is_current(folder, artifact):
            continue
        reasons.append(f"{artifact.path} {'differs' if path.exists() else 'is missing'}")
    reasons += [f"{path.name} would be removed" for path in _stale(folder, artifacts)]
    if reasons:
        raise DriftError(
            f"{folder} is not what this request writes",
            because=reasons,
            hints=("run the same command without `--check` to write it again",),
        )


def _check_folder(folder: Path, artifacts: tuple[Artifact, ...], *, force: bool) -> None:
    try:
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is a file", hints=("choose a folder with `-o DIR`",))
        if folder.is_symlink() and not folder.exists():
            raise UsageError(f"{folder} is a link to nothing", hints=("choose a folder with `-o DIR`",))
        for artifact in artifacts:
            target = folder / artifact.path
            if target.is_symlink():
                raise UsageError(
                    f"{target} is a link",
                    because=("writing through it would change a file elsewhere",),
                    hints=("remove the link, or choose another folder with `-o DIR`",),
                )
            if target.is_dir():
                raise UsageError(f"{target} is a folder", hints=("choose another folder with `-o DIR`",))
        if force or not any(artifact.path == "Dockerfile" for artifact in artifacts) or _is_ours(folder):
            return
        theirs = [artifact.path for artifact in artifacts if _differs(folder / artifact.path, artifact)]
    except OSError as error:
        raise ActionFailedError(
            f"cannot look into {folder}",
            because=(f"{error.strerror or error}",),
            hints=("choose another with `-o DIR`",),
        ) from error
    if theirs:
        raise UsageError(
            f"{folder} holds what was not written by this program: {', '.join(theirs)}",
            because=("these names are those of files to write, and no Dockerfile there is this program's",),
            hints=("choose another folder with `-o DIR`", "write over them with `--force`"),
        )


def _is_ours(folder: Path) -> bool:
    """Tell whether this program wrote the folder: its Dockerfile says so."""
    try:
        with (folder / "Dockerfile").open("rb") as stream:
            return _HEADER.search(stream.read(_HEAD_BYTES)) is not None
    except FileNotFoundError:
        return False


def _differs(path: Path, artifact: Artifact) -> bool:
    return path.exists() and path.read_bytes() != artifact.text.encode()


def _stale(folder: Path, artifacts: tuple[Artifact, ...]) -> list[Path]:
    """Return the files of an earlier write that this one has no more; its ``.dockerignore`` names them.

    A person may have edited that file, so a name counts only where it is one that this program gives.
    """
    wanted = {artifact.path for artifact in artifacts}
    try:
        lines = (folder / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if ".dockerignore" not in wanted or not _is_ours(folder):
            return []
    except (OSError, UnicodeDecodeError):
        return []
    named = dict.fromkeys(line.removeprefix("!") for line in lines if line.startswith("!"))
    return [
        folder / name
        for name in named
        if name not in wanted and _REMOVABLE.fullmatch(name) and (folder / name).is_file()
    ]


def _is_current(folder: Path, artifact: Artifact) -> bool:
    path = folder / artifact.path
    try:
        return path.read_bytes() == artifact.text.encode() and path.stat().st_mode & 0o777 == artifact.mode
    except OSError:
        return False


def _make_folder(folder: Path, made: list[Path]) -> None:
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir()
        made.append(path)


def _write_new(path: Path, artifact: Artifact) -> None:
    with path.open("xb") as stream:
        stream.write(artifact.text.encode())
    path.chmod(artifact.mode)


def _discard(files: list[Path], folders: list[Path]) -> None:
    for path in files:
        with contextlib.suppress(OSError):
            path.unlink()
    for path in reversed(folders):
        with contextlib.suppress(OSError):
            path.rmdir()
