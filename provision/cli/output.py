"""What the program prints: results to the standard output, everything meant for a person to the standard error.

Every command answers through one :class:`Output`, so that ``--json``, ``-o``, ``-q`` and colour mean the same
everywhere, and so that ``--json`` prints one document whatever happens.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from provision.errors import ActionFailedError, ProvisionError, UsageError
from provision.records import NOTHING

SCHEMA_VERSION = 1
"""Version of the envelope and of the documents in it."""

COLOR_MODES = ("auto", "always", "never")
_STYLES = {"error": "1;31", "warning": "1;33", "hint": "1;36", "label": "1"}


def to_document(
    command: str | None, outcome: object, *, is_ok: bool = True, head: Mapping[str, object] = NOTHING
) -> dict[str, Any]:
    """Return the envelope of a result or of an error.

    Args:
        command: The subcommand; absent where none was recognised.
        outcome: Plain data, or the error that came instead.
        is_ok: False for a result that is bad news, such as a verification that failed.
        head: Parts of the result that stand beside it too.
    """
    envelope: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "command": command}
    if isinstance(outcome, ProvisionError):
        return {**envelope, "ok": False, "error": outcome.to_json()}
    return {**envelope, "ok": is_ok, **head, "result": outcome}


class Output:
    """Where a command's words go.

    Args:
        is_json: Print documents instead of text.

    Attributes:
        command: The subcommand, once it is known.
        target: File that takes the result in place of the standard output.
        is_dry_run: Write no file.
        verbosity: Below 0 only errors, above 0 more than usual.
        color: ``auto``, ``always`` or ``never``.
    """

    def __init__(self, *, is_json: bool = False) -> None:
        self.is_json = is_json
        self.command: str | None = None
        self.target: Path | None = None
        self.is_dry_run = False
        self.verbosity = 0
        self.color = "auto"

    def give(self, document: object, text: str, *, is_ok: bool = True, head: Mapping[str, object] = NOTHING) -> None:
        """Print the result of a command, once.

        Args:
            document: Plain data for ``--json``.
            text: The same for people, without a line end.
            is_ok: Whether the command ends with 0; a result that is bad news does not.
            head: Parts of the document that ``--json`` shows beside it too.

        Raises:
            ActionFailedError: The standard output or the file of ``-o`` takes no more.
            UsageError: The file of ``-o`` is a folder.
        """
        if self.is_json:
            text = json.dumps(to_document(self.command, document, is_ok=is_ok, head=head), indent=1)
        if self.target is None:
            self._print(text)
        elif self.is_dry_run:
            self.note(f"would write {self.target}")
        else:
            _write_file(self.target, text + "\n", flag="-o ")

    def save(self, path: Path, text: str) -> None:
        """Write a file beside the result, whole or not at all; a dry run only says so.

        Raises:
            ActionFailedError: The disk is full or read-only, or permission is missing.
            UsageError: The path is a folder.
        """
        if self.is_dry_run:
            self.note(f"would write {path}")
            return
        _write_file(path, text)
        self.note(f"wrote {path}")

    def stream(self, outcome: object) -> None:
        """Print one document of several, each on a line of its own."""
        self._print(json.dumps(to_document(self.command, outcome)))

    def note(self, text: str) -> None:
        """Tell a person something on the standard error, unless they asked for quiet."""
        if self.verbosity >= 0:
            _tell(text)

    def warn(self, text: str) -> None:
        """Warn on the standard error, unless a person asked for quiet."""
        self.note(f"{self.paint('warning:', 'warning', sys.stderr)} {text}")

    def fail(self, error: ProvisionError) -> None:
        """Word an error for a terminal, and as a document where one was asked for."""
        if self.is_json:
            text = json.dumps(to_document(self.command, error), indent=1)
            if self.target is not None and not self.is_dry_run:
                # Where that fails the standard output still tells.
                with suppress(ProvisionError):
                    _write_file(self.target, text + "\n")
            self._print(text)
            return
        lines = [f"{self.paint('error:', 'error', sys.stderr)} {error.message}"]
        lines += [f"  {'because' if not number else '    and'} {why}" for number, why in enumerate(error.because)]
        if error.hints:
            lines += ["", *(f"{self.paint('hint:', 'hint', sys.stderr)} {hint}" for hint in error.hints)]
        _tell("\n".join(lines))

    def paint(self, text: str, style: str, stream: TextIO | None = None) -> str:
        """Colour a word where the stream shows colours; its meaning never depends on it."""
        return f"\033[{_STYLES[style]}m{text}\033[0m" if self._has_color(stream or sys.stdout) else text

    def terminal_columns(self, stream: TextIO | None = None) -> int | None:
        """Return how wide the terminal is that shows the result or, where it is named, a stream; absent without one."""
        if stream is None:
            stream = sys.stdout if self.target is None and not self.is_json else None
        try:
            return os.get_terminal_size(stream.fileno()).columns or None if stream and stream.isatty() else None
        except (OSError, ValueError):
            return None

    def _print(self, text: str) -> None:
        try:
            _write(sys.stdout, text + "\n")
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            silence(sys.stdout)
            # Nobody reads documents any more, but a person may still see why.
            self.is_json = False
            because = error.strerror or str(error)
            raise ActionFailedError(
                "the result cannot be written to the standard output", because=(because,)
            ) from error

    def _has_color(self, stream: TextIO | None) -> bool:
        if self.color != "auto":
            return self.color == "always" and self.target is None
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR"):
            return self.target is None
        return stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb" and self.target is None


def silence(stream: TextIO | None) -> None:
    """Send what a broken stream still holds nowhere, so that the interpreter does not trip over it at its end."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]
        os.close(nowhere)


def _write(stream: TextIO | None, text: str) -> None:
    """Write and flush at once, so that a full disk or a closed pipe is noticed here and not when the program ends."""
    if stream is None:
        raise OSError("it is closed")
    stream.write(text)
    stream.flush()


def _tell(text: str) -> None:
    """Write to the standard error; where that is full or gone there is nobody left to tell."""
    try:
        _write(sys.stderr, text + "\n")
    except OSError:
        silence(sys.stderr)


def _write_file(path: Path, text: str, *, flag: str = "") -> None:
    from provision.generate.write import Artifact, write_artifacts

    if path.exists() and not path.is_file() and not path.is_dir():
        # A device or a pipe is written to; renaming a file over it would take it away.
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ActionFailedError(f"cannot write to {path}", because=(error.strerror or str(error),)) from error
        return
    whole = path.resolve()
    try:
        write_artifacts(whole.parent, (Artifact(path=whole.name, text=text),), force=True)
    except (UsageError, ActionFailedError) as error:
        # The hints there are about folders.
        hint = f"name another file with `{flag}FILE`" if flag else "name another file"
        raise type(error)(error.message, because=error.because, hints=(hint,)) from error
