"""What lines of the user need, for every stack of ``provision image --matrix``: resolved, or taken from its locks."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provision.cli.image.lock import LOCK, read_lock, read_written
from provision.cli.image.matrix import Entry
from provision.cli.image.whole import ask_uv, find_trials, has_lines, is_offline, lock_lines
from provision.cli.output import Output
from provision.errors import DriftError
from provision.generate.image import ImageOptions
from provision.matrix.load import Matrix
from provision.records import NOTHING
from provision.resolve.request import Request, plain_request
from provision.resolve.stack import Stack

if TYPE_CHECKING:
    from provision.build.uv import Uv
    from provision.build.ways import Trials
    from provision.project.inputs import Inputs


class LinesOfMany:
    """Locks the lines of many stacks as those of one are locked, with one uv for all that ask one index.

    Args:
        matrix: The facts.
        options: The flags, which count for every stack.
        output: Where notes go.
    """

    def __init__(self, matrix: Matrix, options: argparse.Namespace, output: Output) -> None:
        self._matrix = matrix
        self._options = options
        self._output = output
        self._uvs: dict[tuple[str | None, str | None], Uv] = {}

    def trials(self, entry: Entry, request: Request, options: ImageOptions, inputs: Inputs | None) -> Trials | None:
        """Return who tries ways out of a refusal with an index too."""
        return find_trials(
            request, self._matrix, self._of(entry), options, inputs, words=entry.words, uv=self._uv(request, options)
        )

    def lock(
        self, entry: Entry, stack: Stack, options: ImageOptions, inputs: Inputs | None, trials: Trials | None
    ) -> Stack:
        """Return the stack with what its lines need, by hash."""
        pins = inputs.pins if inputs is not None else ()
        uv = self._uv(stack.request, options)
        given = self._of(entry, hashes=inputs.hashes if inputs is not None else NOTHING)
        return lock_lines(stack, self._matrix, given, options, self._output, pins=pins, trials=trials, uv=uv)

    def _uv(self, request: Request, options: ImageOptions) -> Uv | None:
        if is_offline(self._options) or not (request.requirements or request.extras):
            return None
        key = (options.index_url, options.ca_cert)
        if key not in self._uvs:
            self._uvs[key] = ask_uv(options, self._options)
        return self._uvs[key]

    def _of(self, entry: Entry, **more: Any) -> argparse.Namespace:
        return argparse.Namespace(**{**vars(self._options), "exclude_newer": entry.day, **more})


class LocksOfMany:
    """Takes what lines need from the locks that a folder of many stacks holds, and asks no index.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        found = [read_lock(path.parent, "--locked") for path in sorted(folder.glob(f"*/{LOCK}"))]
        self._known = {repr(plain_request(stack.request)): stack for stack in found}
        self._folder = folder

    def trials(self, *_: object) -> None:
        """Return nobody: nothing is resolved."""

    def lock(self, entry: Entry, stack: Stack, *_: object) -> Stack:
        """Return the lock of an entry.

        Raises:
            DriftError: The folder holds none.
        """
        if not has_lines(stack):
            return stack
        known = self._known.get(repr(plain_request(stack.request)))
        if known is None:
            raise DriftError(
                f"{entry.where}: no {LOCK} below {self._folder} is the answer to it",
                hints=("run the same command without `--locked` to write it",),
            )
        return known


def kept_day(folder: Path) -> str | None:
    """Return the ``--exclude-newer`` that a folder of many stacks was written with, where it is one for all."""
    days = {read_written(path.parent).exclude_newer for path in sorted(folder.glob(f"*/{LOCK}"))}
    return days.pop() if len(days) == 1 else None
