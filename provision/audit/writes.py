"""What a command does to files that installers read: which it writes or may change, and with what."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from provision.audit.shell import ShellCommand, Text

_READ_BY_INSTALLERS = (".txt", ".in", ".toml", ".lock", ".yml", ".yaml", ".cfg")
_READER_WORDS = """
[ [[ awk cat cd chmod chown cmp cut diff echo egrep export file find grep head less ls md5sum mkdir more printf
readlink realpath set sha256sum sort source stat tail tar test touch uniq unzip wc
"""
_READERS = frozenset(_READER_WORDS.split())
"""Programs that leave the files they are told of as they are."""


def written_files(found: ShellCommand) -> Iterator[tuple[str, Text | None]]:
    """Yield the files that a command writes, and what they hold then, ``None`` where only running it tells.

    A file that is named to a program counts as changed, unless the program is known to read only: ``sed -i`` often
    takes a line out of requirements, and a finding about a line that is gone would be false.

    Args:
        found: A command that installs nothing.

    Returns:
        Paths, absolute or relative to where the script began, in order.
    """
    named = [] if found.command.program in _READERS else [field.word.text for field in found.fields[1:]]
    for text in named:
        if text is not None and not text.startswith("-") and text.endswith(_READ_BY_INSTALLERS):
            yield from _placed(found, text, None)
    if found.writes and found.writes != "?":
        yield from _placed(found, found.writes, _document(found))


def _placed(found: ShellCommand, path: str, content: Text | None) -> Iterator[tuple[str, Text | None]]:
    if path.startswith("/"):
        yield path, content
    elif found.folder is not None:
        yield posixpath.join(found.folder, path), content


def _document(found: ShellCommand) -> Text | None:
    """Return what ``cat <<EOF > file`` writes."""
    if len(found.fields) != 1 or found.command.program != "cat" or len(found.heredocs) != 1:
        return None
    heredoc = found.heredocs[0]
    if found.is_appending or not found.command.is_certain or heredoc.body is None:
        return None
    is_plain = heredoc.is_quoted or not any(char in heredoc.body.text for char in "$`\\")
    return heredoc.body if is_plain else None
