"""Write what a build leaves behind: archives whole or not at all, logs line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from provision.errors import ActionFailedError
from provision.files import replaced


@contextmanager
def written_beside(target: Path) -> Iterator[Path]:
    """Yield a path on the target's own disk; it becomes the target unless the block fails.

    Args:
        target: The file to be written.

    Raises:
        ActionFailedError: The file cannot be written, or the block failed to.
    """
    try:
        with replaced(target) as unfinished:
            # A folder that takes no file is told before the work, not after it.
            unfinished.touch()
            yield unfinished
            unfinished.chmod(0o644)
    except OSError as error:
        raise ActionFailedError(f"{target} cannot be written", because=(str(error),)) from error


@contextmanager
def copied_to(path: Path | None, feed: Callable[[str], None]) -> Iterator[Callable[[str], None]]:
    """Yield a reader of lines that also writes each of them to a file.

    Args:
        path: The file, made anew; nothing is written when absent.
        feed: The reader that takes every line.

    Raises:
        ActionFailedError: The file cannot be written.
    """
    if path is None:
        yield feed
        return
    try:
        # Line by line, so that the log can be followed and is complete when the machine dies.
        file = path.open("w", buffering=1, encoding="utf-8")
    except OSError as error:
        raise _log_error(path, error) from error

    def feed_and_copy(line: str) -> None:
        try:
            file.write(line + "\n")
        except OSError as error:
            raise _log_error(path, error) from error
        feed(line)

    try:
        yield feed_and_copy
    finally:
        # What could not be written was said when it happened.
        with suppress(OSError):
            file.close()


def _log_error(path: Path, error: OSError) -> ActionFailedError:
    return ActionFailedError(f"the log {path} cannot be written", because=(str(error),))
