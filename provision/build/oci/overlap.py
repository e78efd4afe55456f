"""What two layers of wheels do to each other: a layer lies on those below it, and hides what has the same path."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence

from provision.errors import ActionFailedError

Files = Mapping[str, tuple[str, int, int]]
"""The files of a layer: path without a leading slash → the wheel that brings it, its checksum, its bytes."""


def find_overlaps(layers: Sequence[tuple[str, Files]]) -> tuple[str, ...]:
    """Return a sentence for each file that two layers have with other contents; the upper layer's is what counts.

    Args:
        layers: Name and files of each, lowest first.

    Raises:
        ActionFailedError: A path is a file in one layer and a folder in another, whose files would be hidden.
    """
    files: dict[str, tuple[str, tuple[str, int, int]]] = {}
    folders: dict[str, str] = {}
    notes = []
    for name, found in layers:
        for path, row in sorted(found.items()):
            before = files.get(path)
            if before is not None and before[1][1:] != row[1:]:
                notes.append(
                    f"/{path} is in {before[1][0]} and, with other contents, in {row[0]}; "
                    f"the layer {name} lies above, so the latter counts"
                )
            files[path] = (name, row)
            folder = posixpath.dirname(path)
            while folder and folder not in folders:
                folders[folder] = row[0]
                folder = posixpath.dirname(folder)
    for path in sorted(files.keys() & folders.keys()):
        wheel = files[path][1][0]
        raise ActionFailedError(
            f"the wheels {wheel} and {folders[path]} cannot lie in one image",
            because=(f"/{path} is a file in the first and a folder in the second", "one layer would hide the other's"),
            hints=("choose another version of one of them", "nothing was written; finished layers are kept"),
        )
    return tuple(notes)
