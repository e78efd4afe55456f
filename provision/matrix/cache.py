"""Parsed TOML, kept between runs.

Parsing the fact files takes longer than answering most requests. What the parser gave is therefore kept as JSON in
the user's cache folder, under the digest of the file it came from: an edited file has another digest, so nothing
can go stale, and a cache that is missing, unwritable or damaged only costs time.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from functools import lru_cache
from importlib.util import source_hash
from pathlib import Path
from typing import Any

from provision.errors import DataError
from provision.files import write_whole

_HEAD = b"[\n"


class ParsedFile:
    """One TOML file, its top-level values read one by one.

    Args:
        path: The file.
        name: How messages call it.

    Raises:
        DataError: The file is missing, unreadable or no TOML (the last when a value is asked for).
    """

    def __init__(self, path: Path, name: str) -> None:
        self._name = name
        try:
            self._content = path.read_bytes()
        except FileNotFoundError as error:
            raise DataError(
                f"the fact file {name} is missing",
                because=(f"{path} does not exist",),
                hints=("point `--data-dir` at a folder laid out like compat/",),
            ) from error
        except OSError as error:
            raise DataError(f"the fact file {name} cannot be read", because=(str(error),)) from error
        # As compiled Python files know their sources; hashlib takes longer to import than most commands to run.
        digest = source_hash(self._content).hex()
        self._stem = f"{name.replace('/', '-').removesuffix('.toml')}-{digest}"
        self._document: dict[str, Any] | None = None
        self._folder = cache_folder()

    def part(self, key: str) -> Any:
        """Return a top-level value as plain data, dates as ISO strings; an empty list when it is absent."""
        if self._document is None:
            folder = self._folder
            if folder is not None:
                with suppress(OSError, ValueError):
                    return json.loads((folder / f"{self._stem}.{key}.json").read_bytes())
            self._document = parse_toml(self._content, self._name)
            if folder is not None:
                for name in {*self._document, key}:
                    _keep(folder / f"{self._stem}.{name}.json", self._document.get(name, []))
        return self._document.get(key, [])

    def rows_with(self, key: str, field: str, value: str) -> list[tuple[int, dict[str, Any]]] | None:
        """Return the rows of an array whose field is a text, each with its place; ``None`` where nothing is kept.

        The others are not even read: most commands want one row of hundreds.
        """
        if self._folder is None:
            return None
        found = []
        with suppress(OSError, ValueError):
            content = (self._folder / f"{self._stem}.{key}.json").read_bytes()
            if not content.startswith(_HEAD):
                return None
            words = f"{json.dumps(field)}:{json.dumps(value)}".encode()
            at, start, place = content.find(words), 0, -1
            while at >= 0:
                before, start, end = start, content.rfind(b"\n", 0, at) + 1, content.find(b"\n", at)
                place += content.count(b"\n", before, start)
                row = json.loads(content[start:end].removesuffix(b","))
                if row.get(field) == value:
                    found.append((place, row))
                at = content.find(words, end)
            return found
        return None


def cache_folder() -> Path | None:
    """Return the cache folder, or ``None`` where there is no home to keep it in."""
    named = os.environ.get("PROVISION_CACHE_DIR")
    if named:
        return Path(named)
    shared = os.environ.get("XDG_CACHE_HOME")
    if shared:
        return Path(shared) / "provision"
    with suppress(RuntimeError):
        return Path.home() / ".cache" / "provision"
    return None


def _keep(path: Path, value: Any) -> None:
    with suppress(OSError):
        write_whole(path, _text(value).encode())


def _text(value: Any) -> str:
    """Return JSON, the rows of an array one a line."""
    if isinstance(value, list) and value:
        rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in value)
        return f"[\n{rows}\n]"
    return json.dumps(value, separators=(",", ":"))


@lru_cache(maxsize=128)
def parse_toml(content: bytes, name: str) -> dict[str, Any]:
    """Parse TOML into plain data, dates as ISO strings; the same bytes give the same data, which nobody may change.

    Args:
        content: The file's bytes.
        name: How messages call it.

    Raises:
        DataError: No UTF-8 or no TOML.
    """
    plain: dict[str, Any] = plain_toml(load_toml(content, name))
    return plain


def load_toml(content: bytes, name: str) -> dict[str, Any]:
    """Parse TOML as it is written, dates as dates.

    Args:
        content: The file's bytes.
        name: How messages call it.

    Raises:
        DataError: No UTF-8 or no TOML.
    """
    import tomllib

    try:
        return tomllib.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"the fact file {name} cannot be read", because=(str(error),)) from error


def plain_toml(value: Any) -> Any:
    """Return parsed TOML with dates as ISO strings."""
    if isinstance(value, dict):
        return {key: plain_toml(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_toml(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else value
