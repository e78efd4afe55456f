"""Which files are checked, and their texts."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

from provision.audit.model import Source
from provision.cli.parser import parse_path
from provision.errors import ProvisionError, UsageError

__all__ = ["BYTES_MAX", "read_sources", "shown_name"]

BYTES_MAX = 16 * 1024 * 1024
_FILES_MAX = 2000
_SKIPPED_FOLDERS = frozenset(("node_modules", "site-packages", "__pycache__", "venv"))


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
        raise UsageError(f"{name} is no text", because=("it holds a zero byte",))
    return Source(name, text)


def _read_text(path: Path) -> str:
    from provision.cli.files import read_text

    flag = "FILE"
    try:
        return read_text(path, flag, bytes_max=BYTES_MAX)
    except UsageError as error:
        # Nobody typed the name that the usage line gives the argument.
        message = error.message.removeprefix(f"{flag}: ")
        raise UsageError(message, because=error.because, hints=error.hints) from error


def _search(folder: Path, is_excluded: Callable[[Path], bool]) -> list[str]:
    """Return the files below a folder whose names say that they can be checked."""
    from provision.audit.documents import is_known_name

    found = []
    for root, folders, files in os.walk(folder):
        here = Path(root)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith(".") and name not in _SKIPPED_FOLDERS and not is_excluded(here / name)
        )
        found += [
            shown_name(here / name) for name in sorted(files) if is_known_name(name) and not is_excluded(here / name)
        ]
        if len(found) > _FILES_MAX:
            raise UsageError(f"{folder} holds more than {_FILES_MAX} files to check", hints=("name a folder below it",))
    if not found:
        raise UsageError(
            f"{folder} holds no file that can be checked",
            hints=("name a file; its name or its beginning must say what it is",),
        )
    return found
