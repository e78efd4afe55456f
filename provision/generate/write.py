"""Rendered files to disk, all or nothing, and the comparison of what is there with what would be written."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from provision.errors import ActionFailedError, DriftError, UsageError, shown
from provision.records import record

OPTIONS = "provision.options.json"
"""The file beside a lock that says how it was written down, where that is not as usual."""

_HEADER = rb"(?m)^# provision\.(?:lock|matrix|shared) sha256:[0-9a-f]{64}$"
_HEAD_BYTES = 1000
# Files that begin by saying whose they are; a folder with one of them is this program's.
_MARKED = ("Dockerfile", "docker-bake.hcl", "provision.def", "requirements.lock.txt", "pylock.toml")
# Files that people are tempted to edit.
_STEPS = ("Dockerfile", "provision.def")
_CONTEXT = r'(?m)^  context = "([A-Za-z0-9][A-Za-z0-9._/-]*)"$'
# Every name beside Dockerfile and .dockerignore that a context can have: only these are ever removed.
_REMOVABLE = (
    r"requirements\.(?:lock|source|(?:cuda|framework|rest|user|unverified|build|git|backend)(?:\.[0-9]+)?)\.txt"
    r"|(?:build-)?constraints\.txt"
    r"|sbom\.cdx\.json|provision\.options\.json|apt_snapshot\.sh|tools\.txt|verify\.py|compile_bytecode\.py|expect\.json|entrypoint\.sh|provision\.lock|provision-ca\.crt"
)


@record
class Artifact:
    """One file to write.

    Attributes:
        path: Relative to the output folder, with forward slashes.
        text: The whole contents.
        mode: Permission bits, set whatever the umask.
        encoding: How it is written.
    """

    path: str
    text: str
    mode: int = 0o644
    encoding: str = "utf-8"

    @property
    def content(self) -> bytes:
        """The bytes of the file."""
        return self.text.encode(self.encoding)

    def __post_init__(self) -> None:
        """Refuse a path that leaves the output folder."""
        path = PurePosixPath(self.path)
        if path.is_absolute() or not path.parts or any(part in ("..", ".") for part in path.parts):
            raise ValueError(f"{self.path!r} is not a path inside the output folder")


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
    removed = tuple(path.relative_to(folder).as_posix() for path in stale)
    changes = Changes(written=tuple(artifact.path for artifact in changed), removed=removed)
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
            with contextlib.suppress(OSError):
                # A folder that still holds anything stays.
                if path.parent != folder:
                    path.parent.rmdir()
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


def find_leftovers(folder: Path, artifacts: tuple[Artifact, ...], pattern: str, mark: str) -> tuple[str, ...]:
    """Return the files that match, begin by saying that they were written by us, and are none of the artifacts."""
    wanted = {artifact.path for artifact in artifacts}
    found = []
    for path in sorted(folder.glob(pattern)):
        name = path.relative_to(folder).as_posix()
        with contextlib.suppress(OSError), path.open("rb") as stream:
            if name not in wanted and mark.encode() in stream.read(_HEAD_BYTES):
                found.append(shown(name))
    return tuple(found)


def check_artifacts(folder: Path, artifacts: tuple[Artifact, ...], leftovers: tuple[str, ...] = ()) -> None:
    """Compare the folder with what would be written.

    Args:
        folder: The output folder.
        artifacts: What would be written.
        leftovers: What an earlier request wrote there (:func:`find_leftovers`), which no write removes.

    Raises:
        DriftError: A file is missing, differs, or has other permission bits; or one is left over.
    """
    reasons = []
    for artifact in artifacts:
        path = folder / artifact.path
        if _is_current(folder, artifact):
            continue
        reasons.append(f"{artifact.path} {'differs' if path.exists() else 'is missing'}")
    reasons += [f"{path.relative_to(folder).as_posix()} would be removed" for path in _stale(folder, artifacts)]
    again = ("run the same command without `--check` to write it again",) if reasons else ()
    left = ("delete what is left over of another request",) if leftovers else ()
    reasons += [f"{path} is left over of another request" for path in leftovers]
    if reasons:
        raise DriftError(
            f"{folder} is not what this request writes",
            because=reasons,
            hints=(*again, *left, *own_steps(folder, reasons)),
        )


def own_steps(folder: Path, reasons: Iterable[str]) -> tuple[str, ...]:
    """Return how steps of one's own outlive a write, where a Dockerfile or a definition was edited."""
    edited = {f"{name} differs" for name in _STEPS}.intersection(reasons)
    if not edited:
        return ()
    place = folder / "hooks"
    return (f"steps of your own go into {place}/before-packages.sh and after-packages.sh, which no write touches",)


def find_losses(folder: Path, artifacts: tuple[Artifact, ...]) -> tuple[str, ...]:
    """Return what a write would take away, a line for each file: what is there, but says something else or is extra."""
    differing = []
    for artifact in artifacts:
        try:
            if not _differs(folder / artifact.path, artifact):
                continue
        except OSError:
            pass  # a folder, or not readable: nothing that this program wrote
        differing.append(artifact.path)
    extra = [path.relative_to(folder).as_posix() for path in _stale(folder, artifacts)]
    return (*(f"{path} differs" for path in differing), *(f"{path} would be removed" for path in extra))


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
        if force or not any(artifact.path in _MARKED for artifact in artifacts):
            return
        theirs = [
            artifact.path
            for artifact in artifacts
            if _differs(folder / artifact.path, artifact) and not _is_ours((folder / artifact.path).parent)
        ]
    except OSError as error:
        raise ActionFailedError(
            f"cannot look into {folder}",
            because=(f"{error.strerror or error}",),
            hints=("choose another with `-o DIR`",),
        ) from error
    if theirs:
        raise UsageError(
            f"{folder} holds what was not written by this program: {', '.join(theirs)}",
            because=("these names are those of files to write, and no file there says that this program wrote it",),
            hints=("choose another folder with `-o DIR`", "write over them with `--force`"),
        )


def _is_ours(folder: Path) -> bool:
    """Tell whether this program wrote the folder: its Dockerfile, or what stands in its place, says so."""
    for name in _MARKED:
        with contextlib.suppress(FileNotFoundError), (folder / name).open("rb") as stream:
            if re.search(_HEADER, stream.read(_HEAD_BYTES)) is not None:
                return True
    return False


def written_names(folder: Path) -> frozenset[str]:
    """Return the names of files and folders that this program wrote into a folder with a lock of its own.

    What else lies there is its owner's. A context's ``.dockerignore`` names what belongs to it.
    """
    if not (folder / "provision.lock").is_file() or not _is_ours(folder):
        return frozenset()
    names = {*_MARKED, "provision.lock", "sbom.cdx.json", OPTIONS}
    with contextlib.suppress(OSError, UnicodeDecodeError):
        lines = (folder / ".dockerignore").read_text(encoding="utf-8").splitlines()
        names |= {".dockerignore", *(line[1:].partition("/")[0] for line in lines if line.startswith("!"))}
    return frozenset(names)


def _differs(path: Path, artifact: Artifact) -> bool:
    return path.exists() and path.read_bytes() != artifact.content


def _stale(folder: Path, artifacts: tuple[Artifact, ...]) -> list[Path]:
    """Return the files of an earlier write that this one has no more; the ``.dockerignore`` of a context names them.

    A person may have edited that file, so a name counts only where it is one that this program gives.
    """
    wanted = {artifact.path for artifact in artifacts}
    contexts = [PurePosixPath(path).parent for path in sorted(wanted) if PurePosixPath(path).name == ".dockerignore"]
    if "docker-bake.hcl" in wanted:
        contexts += [context for context in _baked_before(folder) if context not in contexts]
    found = []
    for context in contexts:
        place = folder / context
        try:
            lines = (place / ".dockerignore").read_text(encoding="utf-8").splitlines()
            if not _is_ours(place):
                continue
        except (OSError, UnicodeDecodeError):
            continue
        named = dict.fromkeys(line.removeprefix("!") for line in lines if line.startswith("!"))
        # The builder gets neither a bill of materials nor the record of options, so the file does not name them.
        named |= {"sbom.cdx.json": None, OPTIONS: None}
        if context not in map(PurePosixPath, _parents(wanted)):
            # The whole context is wanted no more; what says whose it is goes last.
            named = {name: None for name in named if name != "Dockerfile"} | {".dockerignore": None, "Dockerfile": None}
        found += [
            place / name
            for name in named
            if (context / name).as_posix() not in wanted
            and (re.fullmatch(_REMOVABLE, name) or name in (".dockerignore", "Dockerfile"))
            and (place / name).is_file()
        ]
    return [*found, *(path for path in _stale_options(folder, wanted) if path not in found)]


def _stale_options(folder: Path, wanted: set[str]) -> list[Path]:
    """Return the records of options that count no more, beside locks in whatever form."""
    places = [PurePosixPath(path).parent for path in sorted(wanted) if PurePosixPath(path).name == "provision.lock"]
    paths = [folder / place / OPTIONS for place in places if (place / OPTIONS).as_posix() not in wanted]
    return [path for path in paths if path.is_file() and _is_ours(path.parent)]


def _parents(paths: Iterable[str]) -> set[str]:
    return {PurePosixPath(path).parent.as_posix() for path in paths}


def _baked_before(folder: Path) -> list[PurePosixPath]:
    """Return the contexts that an earlier bake file of this program names."""
    try:
        text = (folder / "docker-bake.hcl").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    if re.search(_HEADER, text[:_HEAD_BYTES].encode()) is None:
        return []
    paths = [PurePosixPath(name) for name in dict.fromkeys(re.findall(_CONTEXT, text))]
    return [path for path in paths if ".." not in path.parts]


def _is_current(folder: Path, artifact: Artifact) -> bool:
    path = folder / artifact.path
    try:
        return path.read_bytes() == artifact.content and path.stat().st_mode & 0o777 == artifact.mode
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
        stream.write(artifact.content)
    path.chmod(artifact.mode)


def _discard(files: list[Path], folders: list[Path]) -> None:
    for path in files:
        with contextlib.suppress(OSError):
            path.unlink()
    for path in reversed(folders):
        with contextlib.suppress(OSError):
            path.rmdir()
