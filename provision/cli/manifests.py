"""Manifests and Helm values of a folder, read as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from provision.errors import UsageError
from provision.files import read_text

_BYTES_MAX = 4 * 1024 * 1024
_FILES_MAX = 500
_ENDINGS = (".yaml", ".yml")


def read_manifests(folder: Path) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return every document of a folder's YAML files: the file's name and the document.

    Raises:
        UsageError: It is not a folder, has no such file, or one cannot be read.
    """
    import yaml

    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", hints=("name the one that `provision cluster -o` wrote",))
    paths = sorted(path for path in folder.iterdir() if path.suffix in _ENDINGS)
    if not 0 < len(paths) <= _FILES_MAX:
        raise UsageError(
            f"{folder} has {len(paths)} files that end in {' or '.join(_ENDINGS)}",
            because=(f"from 1 to {_FILES_MAX} are read",),
        )
    found: list[tuple[str, dict[str, Any]]] = []
    for path in paths:
        try:
            documents = list(yaml.safe_load_all(read_text(path, "--judge", bytes_max=_BYTES_MAX)))
        except (yaml.YAMLError, RecursionError, ValueError) as error:
            why = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UsageError(f"{path} is not YAML", because=(why,), hints=("correct it, or take it out",)) from error
        for document in documents:
            if isinstance(document, dict):
                found.append((path.name, document))
            elif document is not None:
                raise UsageError(f"{path} has a document that is not an object", hints=("correct it, or take it out",))
    return tuple(found)
