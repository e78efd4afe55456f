"""What a run has finished, on disk, so that one that broke off goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from provision.errors import UsageError
from provision.files import write_whole
from provision.records import record

_VERSION = 1
_BYTES_MAX = 64 * 1024 * 1024


@record
class Identity:
    """What two runs must share for one to continue the other.

    Attributes:
        lock: Digest of the lock.
        playbook: Digest of the playbook and its roles.
        tags: What was asked for with ``--tags``.
        variables: Digest of the variables of the command line; they may be secret.
    """

    lock: str
    playbook: str
    tags: tuple[str, ...] = ()
    variables: str = ""


_WORDS = {
    "lock": "the lock is another one",
    "playbook": "the playbooks were changed since",
    "tags": "other --tags were given",
    "variables": "other variables were given with -e",
}


class StateFile:
    """The file of one kind of run.

    Args:
        folder: Where such files are kept.
        kind: What is run and on which hosts: the same words find the same file.
        identity: What this run is.
    """

    def __init__(self, folder: Path, kind: Iterable[str], identity: Identity) -> None:
        key = hashlib.sha256(json.dumps(list(kind)).encode()).hexdigest()[:16]
        self.path = folder / f"node-{key}.json"
        self._identity = identity
        self._done: dict[str, str] = {}

    def resume(self) -> tuple[str, ...] | None:
        """Return the hosts that an earlier run has finished, or nothing where there was none.

        Raises:
            UsageError: That run was a different one, or its file is damaged.
        """
        try:
            with self.path.open("rb") as file:
                content = file.read(_BYTES_MAX)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(
                f"{self.path} cannot be read", because=(error.strerror or str(error),), hints=(_ANEW,)
            ) from error
        try:
            document = json.loads(content)
            found = {name: document["identity"][name] for name in _WORDS}
            done = {str(name): str(status) for name, status in document["done"].items()}
            version = document["schema_version"]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"{self.path} is damaged", hints=(_ANEW,)) from error
        if version != _VERSION:
            raise UsageError(f"{self.path} was written by another version of this program", hints=(_ANEW,))
        ours = self._identity_document()
        because = [text for name, text in _WORDS.items() if found[name] != ours[name]]
        if because:
            raise UsageError("the run that broke off was a different one", because=because, hints=(_ANEW,))
        self._done = done
        return tuple(done)

    def save(self, done: Mapping[str, str]) -> None:
        """Add hosts that are finished, and write the file whole.

        Args:
            done: Host → how it ended.

        Raises:
            OSError: The file cannot be written.
        """
        self._done |= done
        document: dict[str, Any] = {
            "schema_version": _VERSION,
            "identity": self._identity_document(),
            "done": self._done,
        }
        # A machine that loses its power is one of the breaks this is for.
        write_whole(self.path, (json.dumps(document, indent=1) + "\n").encode(), is_synced=True)

    def remove(self) -> None:
        """Forget the run: it has come to its end."""
        with suppress(OSError):
            self.path.unlink()
            # Only where nothing else is kept there.
            self.path.parent.rmdir()

    def _identity_document(self) -> dict[str, Any]:
        row = self._identity
        return {"lock": row.lock, "playbook": row.playbook, "tags": list(row.tags), "variables": row.variables}


_ANEW = "leave `--resume` out to begin anew"
