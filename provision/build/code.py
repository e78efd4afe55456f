"""The user's own code in a build context: which files of a folder are meant, and a copy of them beside the Dockerfile.

The copy has the same bytes for the same files: rights are 644 or 755, dates are the stack's. What nobody wants in an
image is left out: what version control and tools keep for themselves, environments, caches, files that hold secrets,
and what this program wrote into folders of its own. The folder's own ``.dockerignore``, or else its ``.gitignore``
files, leave out more; a line that begins with ``!`` takes in again what any line before it, and the list here, leaves
out.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from provision.errors import ActionFailedError, UsageError
from provision.generate.image import CODE
from provision.generate.write import written_names
from provision.records import record

_WORKSPACE = "/workspace"
_ALWAYS: tuple[str, ...] = (
    *(".git", ".hg", ".svn", "__pycache__", "*.py[co]", "*.egg-info", ".venv", ".tox", ".nox", "node_modules"),
    *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints", ".DS_Store", ".cache", ".pixi", ".eggs"),
)
_SECRET: tuple[str, ...] = (
    *(".env", ".env.*", ".netrc", ".pypirc", ".git-credentials", ".aws", ".ssh", "id_rsa", "id_ed25519"),
    *("*.pem", "*.key", "*.p12"),
)
_EXAMPLES = ("!.env.example", "!.env.sample", "!.env.template")
_IGNORE_BYTES_MAX = 1024 * 1024
_MADE_HERE = ("pyvenv.cfg", "conda-meta", "CACHEDIR.TAG")
"""What lies in environments of venv and conda, and in caches by their convention (https://bford.info/cachedir/)."""


@record
class Copy:
    """Something of the user's to be put into the image.

    Attributes:
        source: A file or a folder.
        name: What it is called below the context's ``code``; a folder ends in a slash.
        target: Its place in the image; a folder ends in a slash.
    """

    source: Path
    name: str
    target: str


@record
class _Rule:
    """A line of an ignore file: what it leaves out, or takes in again.

    ``is_ours`` are those of the list here, ``is_secret`` those of them that hide secrets.
    """

    pattern: re.Pattern[str]
    is_kept: bool
    is_folder: bool
    is_ours: bool = False
    is_secret: bool = False


def parse_copy(text: str, taken: Iterable[str] = ()) -> Copy:
    """Read ``SOURCE`` or ``SOURCE:DEST``.

    Args:
        text: As it was typed. Without a place, and for one that does not begin with a slash, ``/workspace`` is meant.
        taken: Names that other copies have already.

    Raises:
        UsageError: There is no such file or folder, or it has a name that cannot stand in a Dockerfile.
    """
    source, place = Path(text), ""
    if not source.exists() and ":" in text:
        head, _, place = text.rpartition(":")
        source = Path(head)
        if not place:
            raise UsageError(f"--copy `{text}` has nothing after the colon", hints=("write it as in `src:/app`",))
    if not source.exists():
        raise UsageError(
            f"--copy: {source} does not exist", hints=("write it as in `--copy src` or `--copy src:/app`",)
        )
    label = source.resolve().name
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", label):
        raise UsageError(f"--copy: {source} has a name that cannot be copied as it is", hints=("rename it",))
    slash = "/" if source.is_dir() else ""
    target = f"{_WORKSPACE}/{place or label}" if not place.startswith("/") else place
    if target.endswith("/") and not slash:
        target += label
    name, number = label, 2
    while f"{name}{slash}" in taken:
        name, number = f"{number}-{label}", number + 1
    return Copy(source=source, name=f"{name}{slash}", target=target.rstrip("/") + slash)


def find_files(source: Path, *, without: Path | None = None) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Return the files that are meant by a folder or a file.

    Args:
        source: The folder or file.
        without: What is left out where it lies inside the source: the context, and what builds write beside it.

    Returns:
        Path below the source → file, sorted, and the secrets that were left out; a file alone has the empty path.

    Raises:
        UsageError: A link leads out of the source, or an ignore file cannot be read.
    """
    if source.is_file():
        return {"": source}, ()
    own = source / ".dockerignore"
    rules = [_rule(line, is_ours=True, is_secret=line in _SECRET) for line in (*_ALWAYS, *_SECRET, *_EXAMPLES)]
    if own.is_file():
        rules += [_rule(line, base="", is_docker=True) for line in _read(own)]
    walk = _Walk(is_git=not own.is_file(), without=without.resolve() if without is not None else None)
    try:
        walk.enter(source, "", rules)
    except OSError as error:
        raise UsageError(
            f"--copy: {error.filename or source} cannot be read", because=(error.strerror or str(error),)
        ) from error
    for path in walk.found.values():
        if path.is_symlink() and not path.resolve().is_relative_to(source.resolve()):
            raise UsageError(
                f"--copy: {path} is a link that leads out of {source}",
                because=("what it names would not be there in the image",),
                hints=("copy what it names instead, or leave the link out with a line in `.dockerignore`",),
            )
        if path.is_symlink() and path.readlink().is_absolute():
            raise UsageError(
                f"--copy: {path} is a link with an absolute path",
                because=("it would lead nowhere in the image, where the code lies elsewhere",),
                hints=("make it a relative link (`ln -sr`), or leave it out with a line in `.dockerignore`",),
            )
    return dict(sorted(walk.found.items())), tuple(sorted(walk.secrets))


class _Walk:
    """One walk over a folder: the files it found, and the secrets it left out."""

    def __init__(self, *, is_git: bool, without: Path | None) -> None:
        self.found: dict[str, Path] = {}
        self.secrets: list[str] = []
        self._is_git = is_git
        self._without = without

    def enter(self, folder: Path, below: str, rules: list[_Rule], above: int = -1) -> None:
        """Walk a folder, of which the rule with an index decides; none does at -1."""
        ignore = folder / ".gitignore"
        if self._is_git and ignore.is_file():
            rules = [*rules, *(_rule(line, base=below) for line in _read(ignore))]
        written = written_names(folder) if below else frozenset()
        paths = [path for path in sorted(folder.iterdir()) if path.name not in written]
        outputs = tuple(f"{path.name}." for path in paths if path.is_dir() and written_names(path))
        if self._without is not None and folder.resolve() == self._without.parent:
            # The context, and the records, logs and images named after it.
            paths = [path for path in paths if path.name != self._without.name]
            outputs += (f"{self._without.name}.",)
        for path in paths:
            name = f"{below}{path.name}"
            is_folder = path.is_dir() and not path.is_symlink()
            if outputs and path.name.startswith(outputs):
                continue
            index = _last(rules, name, is_folder=is_folder, above=above)
            rule = rules[index] if index >= 0 else None
            is_left_out = rule is not None and not rule.is_kept
            if rule is not None and rule.is_secret and is_left_out:
                self.secrets.append(name)
            if not is_folder:
                if not is_left_out and (path.is_file() or path.is_symlink()):
                    self.found[name] = path
            elif any((path / mark).exists() for mark in _MADE_HERE):
                continue
            elif not is_left_out or not (self._is_git or rule is None or rule.is_ours):
                # Docker takes single files in again below a folder that is left out, git does not.
                self.enter(path, f"{name}/", rules, index)


def _read(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            text = file.read(_IGNORE_BYTES_MAX).decode("utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path} cannot be read", because=(error.strerror or str(error),)) from error
    return [line for item in text.splitlines() if (line := item.rstrip()) and not line.startswith("#")]


def _rule(
    line: str, *, base: str | None = None, is_docker: bool = False, is_ours: bool = False, is_secret: bool = False
) -> _Rule:
    """Read a line; docker's are about the whole path, git's without a slash inside about any folder below theirs."""
    is_kept, text = line.startswith("!"), line.removeprefix("!")
    is_folder, text = text.endswith("/"), text.rstrip("/").removeprefix("./")
    is_anchored = is_docker or "/" in text
    middle = _expression(text.removeprefix("/"))
    start = re.escape(base or "") + ("" if is_anchored else "(?:.*/)?")
    return _Rule(
        pattern=re.compile(start + middle, re.DOTALL),
        is_kept=is_kept,
        is_folder=is_folder and not is_docker,
        is_ours=is_ours,
        is_secret=is_secret,
    )


def _expression(text: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|\\.)", text)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    made = []
    for part in parts:
        if part.startswith("[") and part.endswith("]") and len(part) > 2:
            inside = part[1:-1].replace("\\", "\\\\").replace("[", "\\[")
            made.append(f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]")
        elif part.startswith("\\") and len(part) == 2:
            made.append(re.escape(part[1]))
        else:
            made.append(known.get(part) or re.escape(part))
    return "".join(made)


def _last(rules: list[_Rule], name: str, *, is_folder: bool, above: int) -> int:
    """Return the index of the last line that is about a path or, as one is known to be, about a folder above it."""
    for index in range(len(rules) - 1, above, -1):
        if (is_folder or not rules[index].is_folder) and rules[index].pattern.fullmatch(name):
            return index
    return above


def write_code(
    folder: Path, copies: tuple[Copy, ...], *, mtime: int, is_dry_run: bool = False
) -> tuple[int, tuple[str, ...]]:
    """Make the context's copy of the code anew, whole or not at all.

    Args:
        folder: The context.
        copies: What to copy.
        mtime: Date of every file, in seconds.
        is_dry_run: Write nothing.

    Returns:
        How many files were, or would be, copied, and the secrets that were left out.

    Raises:
        UsageError: A link leads out of a source, or nothing is left to copy.
        ActionFailedError: A file cannot be read or written.
    """
    import shutil

    place, draft = folder / CODE, folder / f".{CODE}.{os.getpid()}.tmp"
    count, secrets = 0, []
    try:
        for copy in copies:
            files, left_out = find_files(copy.source, without=folder)
            if not files:
                raise UsageError(
                    f"--copy: nothing of {copy.source} is left to copy", hints=("look at its ignore file",)
                )
            count += len(files)
            secrets += [str(copy.source / name) for name in left_out]
            if not is_dry_run:
                _copy(files, draft / copy.name.rstrip("/"), mtime)
        if not is_dry_run:
            if place.exists():
                shutil.rmtree(place)
            draft.rename(place)
    except OSError as error:
        raise ActionFailedError(
            f"the code cannot be copied into {folder}",
            because=(f"{error.strerror or error}: {error.filename or folder}",),
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return count, tuple(secrets)


def _copy(files: dict[str, Path], target: Path, mtime: int) -> None:
    import shutil

    for name, source in files.items():
        path = target / name if name else target
        path.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink() and name:
            path.symlink_to(source.readlink())
        else:
            shutil.copyfile(source, path)
            path.chmod(_mode(source))
        date_file(path, mtime)
    for path in sorted((item for item in _folders(target)), reverse=True):
        path.chmod(0o755)
        os.utime(path, (mtime, mtime))


def date_file(path: Path, seconds: int) -> None:
    """Give a file of a context a date: whole seconds are what an image keeps, what is below them follows its content.

    BuildKit takes a file of the same size and date for the one that it has from an earlier build, whatever it holds.
    """
    below = 0
    if not path.is_symlink():
        with path.open("rb") as file:
            below = int(hashlib.file_digest(file, "sha256").hexdigest()[:7], 16)
    moment = seconds * 10**9 + below
    os.utime(path, ns=(moment, moment), follow_symlinks=False)


def _folders(target: Path) -> Iterator[Path]:
    if target.is_dir():
        yield target
        yield from (path for path in target.rglob("*") if path.is_dir() and not path.is_symlink())


def _mode(source: Path) -> int:
    return 0o755 if source.stat().st_mode & 0o100 else 0o644


def is_current(folder: Path, copies: tuple[Copy, ...]) -> bool:
    """Tell whether the context's copy of the code is what its sources hold now."""
    wanted: dict[str, Path] = {}
    for copy in copies:
        files, _ = find_files(copy.source, without=folder)
        wanted |= {f"{copy.name}{name}": path for name, path in files.items()}
    place = folder / CODE
    have = {
        path.relative_to(place).as_posix(): path for path in place.rglob("*") if path.is_symlink() or not path.is_dir()
    }
    return sorted(have) == sorted(wanted) and all(_is_same(have[name], path) for name, path in wanted.items())


def _is_same(copy: Path, source: Path) -> bool:
    if copy.is_symlink() or source.is_symlink():
        return copy.is_symlink() and source.is_symlink() and copy.readlink() == source.readlink()
    return copy.read_bytes() == source.read_bytes() and _mode(copy) == _mode(source)
