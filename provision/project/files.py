"""The files of a project, each read once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from provision.errors import UsageError
from provision.files import read_text

if TYPE_CHECKING:
    from provision.audit.model import Source

BYTES_MAX = 1024 * 1024
"""No list of requirements and no manifest is longer."""
_FILES_MAX = 64


class Files:
    """Reads files for the parsers, each once, and not without end."""

    def __init__(self, flag: str) -> None:
        self.flag = flag
        self.sources: dict[str, Source] = {}

    def __call__(self, name: str) -> Source | None:
        """Return a file, if it is there."""
        return self.take(Path(name)) if Path(name).is_file() else None

    def take(self, path: Path, bytes_max: int = BYTES_MAX) -> Source:
        """Return a file.

        Raises:
            UsageError: It cannot be read, or too many are named.
        """
        from provision.audit.model import Source

        if str(path) not in self.sources:
            if len(self.sources) >= _FILES_MAX:
                raise UsageError(f"{self.flag}: more than {_FILES_MAX} files are named, one by the other")
            self.sources[str(path)] = Source(str(path), read_text(path, self.flag, bytes_max=bytes_max))
        return self.sources[str(path)]
