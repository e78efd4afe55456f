"""Layers and wheels kept between runs, each under what decides its bytes.

A layer is found by the key of its wheels, so that two stacks that differ by a torch patch make their CUDA libraries
once. Wheels are kept only until the layer they belong to is there. The folder may be removed at any time.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from provision.build.oci.layer import CHUNK_BYTES, Layer
from provision.build.oci.watch import Watch
from provision.errors import ActionFailedError
from provision.records import plain, replace

__all__ = ["Store", "digest_of"]

_DRAFT = ".draft-"
_DRAFT_SECONDS_MAX = 24 * 3600
_POLL_SECONDS = 0.2


class Store:
    """A folder with finished layers and verified wheels.

    Args:
        folder: Made when something is put there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def held(self, watch: Watch) -> Iterator[None]:
        """Keep every other run out, which would take away what this one needs; and clear what dead runs left.

        Args:
            watch: Told when there is another run to wait for.
        """
        import fcntl

        with self._worded():
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        part = "another run with the same cache"
        is_waiting = False
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError as error:
                    if error.errno not in (errno.EWOULDBLOCK, errno.EINTR):
                        # A disk without locks: runs side by side are then the person's own matter.
                        break
                    if not is_waiting:
                        is_waiting = True
                        watch.begin(part, None)
                    time.sleep(_POLL_SECONDS)
                else:
                    break
            if is_waiting:
                watch.end(part, "ended")
            self._sweep()
            yield
        finally:
            os.close(descriptor)

    def _sweep(self) -> None:
        """Remove drafts of runs that were killed; young ones stay, for disks without locks."""
        oldest = time.time() - _DRAFT_SECONDS_MAX
        for path in self.folder.glob(f"{_DRAFT}*"):
            with contextlib.suppress(OSError):
                if path.lstat().st_mtime < oldest:
                    path.unlink()

    def find_layer(self, key: str) -> Layer | None:
        """Return the layer of a key, its blob read again and found whole, or nothing."""
        index = self._index(key)
        try:
            layer = Layer(**{**(document := json.loads(index.read_bytes())), "notes": tuple(document["notes"])})
            blob = self.blob(layer.digest)
            if blob.stat().st_size == layer.size and digest_of(blob) == layer.digest:
                return replace(layer, is_cached=True)
            blob.unlink(missing_ok=True)
        except (OSError, ValueError, TypeError, KeyError):
            pass
        return None

    def keep_layer(self, key: str, layer: Layer, file: Path) -> Layer:
        """Take a finished blob in, and return its layer."""
        with self._worded():
            target = self.blob(layer.digest)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.chmod(0o644)
            file.replace(target)
            index = self._index(key)
            index.parent.mkdir(parents=True, exist_ok=True)
            with self.draft() as (draft, stream):
                document: dict[str, Any] = plain(layer)
                stream.write(json.dumps(document, sort_keys=True).encode())
                stream.flush()
                draft.replace(index)
        return layer

    def blob(self, digest: str) -> Path:
        """Return where the blob of a digest lies, if it does."""
        return self.folder / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def wheel(self, sha256: str) -> Path:
        """Return where a verified wheel lies, if it does."""
        return self.folder / "wheels" / f"{sha256}.whl"

    @contextlib.contextmanager
    def draft(self) -> Iterator[tuple[Path, IO[bytes]]]:
        """Yield a new file that is gone afterwards, unless it was renamed."""
        with self._worded():
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=_DRAFT, dir=self.folder)
        path = Path(name)
        try:
            with os.fdopen(descriptor, "w+b") as stream, self._worded():
                yield path, stream
        finally:
            path.unlink(missing_ok=True)

    def _index(self, key: str) -> Path:
        return self.folder / "layers" / f"{key}.json"

    @contextlib.contextmanager
    def _worded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ActionFailedError(
                f"{self.folder} cannot be written",
                because=(error.strerror or str(error),),
                hints=("name another folder with PROVISION_CACHE_DIR", "or make room: it may be removed at any time"),
            ) from error


def digest_of(path: Path) -> str:
    """Return the ``sha256:…`` of a file, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return f"sha256:{digest.hexdigest()}"
