"""Which files are checked, and their texts."""

from __future__ import annotations

import argparse
import codecs
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from provision.audit.model import Source
from provision.cli.parser import parse_path
from provision.errors import ProvisionError, UsageError

BYTES_MAX = 16 * 1024 * 1024
_FILES_MAX = 2000
_HEAD_BYTES = 4096
_SKIPPED_FOLDERS = frozenset(("node_modules", "site-packages", "dist-packages", "__pycache__", "venv"))
_HIDDEN_FOLDERS = frozenset((".devcontainer", ".docker", ".binder"))
_MADE_HERE = ("pyvenv.cfg", "conda-meta")
"""What a virtual environment, or one of conda, has at its top, whatever it is called."""
_LOCK, _WRITTEN = "provision.lock", "Written by `provision image`"
"""What a folder holds that this program wrote, and what its Dockerfile says at the top."""
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def read_sources(
    options: argparse.Namespace, is_excluded: Callable[[Path], bool]
) -> tuple[list[Source], list[ProvisionError]]:
    """Read what is to be checked, each file once, and tell which files cannot be read.

    Args:
        options: The flags.
        is_excluded: Tells what is not looked for in a folder; a file that is named is read all the same.
    """
    names: dict[str, None] = {}
    for word in options.files or ([] if options.image else ["."]):
        if word == "-":
            names["-"] = None
            continue
        path = parse_path(word)
        if path.is_dir():
            names.update(dict.fromkeys(_search(path, is_excluded)))
        else:
            names[shown_name(path)] = None
    if options.stdin_filename is not None and "-" not in names:
        raise UsageError(
            "--stdin-filename names the standard input, and that is not checked", hints=("give - as a file",)
        )
    found: list[Source] = []
    unread: list[ProvisionError] = []
    for name in names:
        try:
            found.append(_read_one(name, options))
        except UsageError as error:
            if len(names) == 1 and not options.image:
                raise
            unread.append(error)
    return found, unread


def shown_name(path: Path) -> str:
    """Return a path as findings show it: as it was typed, without needless parts."""
    return path.as_posix()


def _read_one(name: str, options: argparse.Namespace) -> Source:
    from provision.audit.documents import begins_dockerfile

    text = _read_text(Path(name))
    if name == "-":
        called = options.stdin_filename or ("Dockerfile" if begins_dockerfile(text) else "")
        if not called:
            raise UsageError(
                "what the standard input is called is not known",
                because=("its name says what kind of file it is, and it does not begin like a Dockerfile",),
                hints=("`--stdin-filename requirements.txt` says it",),
            )
        return Source(shown_name(parse_path(called)), text)
    if "\0" in text:
        raise UsageError(f"{name} is not text", because=("it holds a zero byte",))
    return Source(name, text)


def decode(content: bytes) -> tuple[str, str]:
    """Return the text of a file and how it is encoded; a mark of the byte order stays its first character.

    Raises:
        UnicodeDecodeError: It is not text in UTF-8, nor one of UTF-16 or UTF-32 that begins with such a mark.
    """
    encoding = _encoding(content)
    return content.decode(encoding), encoding


def _encoding(content: bytes) -> str:
    return next((name for mark, name in _MARKS if content.startswith(mark)), "utf-8")


def find_file(name: str) -> Source | None:
    """Return a file that another one names; ``None`` where it is none, is too large or is not text."""
    path = Path(name)
    try:
        if not path.is_file() or path.stat().st_size > BYTES_MAX:
            return None
        return Source(name, decode(path.read_bytes())[0])
    except (OSError, UnicodeDecodeError, ValueError):
        return None


def _read_text(path: Path) -> str:
    from provision.files import read_bytes

    flag = "FILE"
    try:
        content = read_bytes(path, flag, BYTES_MAX)
    except UsageError as error:
        # Nobody typed the name that the usage line gives the argument.
        message = error.message.removeprefix(f"{flag}: ")
        raise UsageError(message, because=error.because, hints=error.hints) from error
    try:
        return decode(content)[0]
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 text",
            because=(f"byte {error.start} is {content[error.start]:#04x}",),
            hints=("save it as UTF-8, and make sure that it is the file you mean",),
        ) from error


def _search(folder: Path, is_excluded: Callable[[Path], bool]) -> list[str]:
    """Return the files below a folder that can be checked: by their names, or where such files lie by their beginning.

    Links to folders are not followed, and what is not a plain file is left alone: reading a pipe would wait for ever.
    """
    from provision.audit.documents import begins_known, is_known_name

    found = []
    for root, folders, files in os.walk(folder):
        here = Path(root)
        is_written = here != folder and _LOCK in files and _WRITTEN in _head(here / "Dockerfile")
        if is_written or any(mark in files or mark in folders for mark in _MADE_HERE):
            folders[:] = []
            continue
        folders[:] = sorted(
            name
            for name in folders
            if (not name.startswith(".") or name in _HIDDEN_FOLDERS)
            and name not in _SKIPPED_FOLDERS
            and not is_excluded(here / name)
        )
        for name in sorted(files):
            path = here / name
            shown = shown_name(path)
            is_wanted = is_known_name(shown_name(path.absolute())) or begins_known(shown, partial(_head, path))
            if is_wanted and path.is_file() and not is_excluded(path):
                found.append(shown)
        if len(found) > _FILES_MAX:
            raise UsageError(f"{folder} holds more than {_FILES_MAX} files to check", hints=("name a folder below it",))
    if not found:
        raise UsageError(
            f"{folder} holds no file that can be checked",
            hints=("name a file; its name or its beginning must say what it is",),
        )
    return found


def _head(path: Path) -> str:
    """Return the beginning of a file, empty where it is none that can be read."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            content = file.read(_HEAD_BYTES)
    except OSError:
        return ""
    # A character may be cut in two.
    return content.decode(_encoding(content), errors="replace")
