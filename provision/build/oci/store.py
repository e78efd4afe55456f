"""Layers and wheels kept between runs, each under what decides its bytes.

A layer is found by the key of its wheels, so that two stacks that differ by a torch patch make their CUDA libraries
once. Wheels are kept only until the layer they belong to is there. When a run ends, what was not used for longest goes
until the rest is within the bound; what the run itself used stays. The folder may be removed at any time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from provision.build.oci.layer import CHUNK_BYTES, Layer
from provision.build.oci.overlap import Files
from provision.build.oci.watch import Watch
from provision.errors import ActionFailedError
from provision.files import try_lock
from provision.records import plain, record, replace

BYTES_MAX = 20 * 2**30
"""Most bytes that are kept from run to run, unless told otherwise: some nine torch stacks that share nothing."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DRAFT = ".draft-"
_DRAFT_SECONDS_MAX = 24 * 3600
_POLL_SECONDS = 0.2


@record
class _Item:
    """Something that can go: what it is called, when it was last used, its bytes, and its files in order of removal."""

    name: str
    used: float
    size: int
    paths: tuple[Path, ...]


class Store:
    """A folder with finished layers and verified wheels.

    Args:
        folder: Made when something is put there.
        bytes_max: What may be left there when a run ends; what that run used stays even so.
    """

    def __init__(self, folder: Path, *, bytes_max: int = BYTES_MAX) -> None:
        self.folder = folder
        self.bytes_max = bytes_max
        self._used: set[str] = set()

    @contextlib.contextmanager
    def held(self, watch: Watch) -> Iterator[None]:
        """Keep every other run out, which would take away what this one needs; and clear what dead runs left.

        Args:
            watch: Told when there is another run to wait for.
        """
        with self._worded():
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        part = "another run with the same cache"
        is_waiting = is_alone = False
        try:
            # On a disk without locks, runs side by side are the person's own matter.
            with contextlib.suppress(OSError):
                while not (is_alone := try_lock(descriptor)):
                    if not is_waiting:
                        is_waiting = True
                        watch.begin(part, None)
                    time.sleep(_POLL_SECONDS)
            if is_waiting:
                watch.end(part, "ended")
            self._sweep()
            yield
        finally:
            if is_alone:
                # Without a lock another run may be about to use what looks old from here.
                self._prune(watch)
            os.close(descriptor)

    def _sweep(self) -> None:
        """Remove drafts of runs that were killed; young ones stay, for disks without locks."""
        oldest = time.time() - _DRAFT_SECONDS_MAX
        for path in self.folder.glob(f"{_DRAFT}*"):
            with contextlib.suppress(OSError):
                if path.lstat().st_mtime < oldest:
                    path.unlink()

    def _prune(self, watch: Watch) -> None:
        """Take away what was not used for longest, until the rest is within the bound, and what nothing refers to."""
        part = "layers kept from earlier runs"
        removed = freed = 0
        with contextlib.suppress(OSError):
            items = sorted(self._items(), key=lambda item: (item.name not in self._used, -item.used, item.name))
            kept: set[Path] = set()
            left = self.bytes_max
            for item in items:
                left -= item.size
                if (left >= 0 and item.used) or item.name in self._used:
                    kept.update(item.paths)
                    continue
                removed, freed = removed + 1, freed + item.size
                # The description goes first: none ever leads to a blob that is not there.
                for path in item.paths:
                    if path not in kept:
                        path.unlink(missing_ok=True)
            for blob in (self.folder / "blobs" / "sha256").glob("*"):
                if blob not in kept:
                    blob.unlink(missing_ok=True)
        if removed:
            watch.begin(part, None)
            watch.end(part, f"{removed} not used for longest removed, {freed / 1e6:.0f} MB")

    def _items(self) -> Iterator[_Item]:
        """Yield every layer and every wheel that is kept; a description that cannot be read was never used."""
        for index in (self.folder / "layers").glob("*.json"):
            key, paths = index.stem, (index, self._files(index.stem))
            try:
                blob = self.blob(json.loads(index.read_bytes())["digest"])
                yield _Item(name=key, used=index.stat().st_mtime, size=blob.stat().st_size, paths=(*paths, blob))
            except (OSError, ValueError, TypeError, KeyError):
                yield _Item(name=key, used=0, size=0, paths=paths)
        for wheel in (self.folder / "wheels").glob("*.whl"):
            with contextlib.suppress(FileNotFoundError):
                found = wheel.stat()
                yield _Item(name=wheel.name, used=found.st_mtime, size=found.st_size, paths=(wheel,))

    def find_layer(self, key: str) -> tuple[Layer, Files] | None:
        """Return the layer of a key and its files, the blob read again and found whole, or nothing."""
        index = self._index(key)
        try:
            layer = Layer(**{**(document := json.loads(index.read_bytes())), "notes": tuple(document["notes"])})
            files = {path: (str(row[0]), *map(int, row[1:3])) for path, row in self._read_files(key).items()}
            blob = self.blob(layer.digest)
            if blob.stat().st_size == layer.size and digest_of(blob) == layer.digest:
                self._used.add(key)
                os.utime(index)
                return replace(layer, is_cached=True), files  # type: ignore[return-value]
            blob.unlink(missing_ok=True)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            pass
        return None

    def _read_files(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._files(key).read_bytes())
        return found

    def keep_layer(self, key: str, layer: Layer, files: Files, file: Path) -> Layer:
        """Take a finished blob in with the list of its files, and return its layer."""
        with self._worded():
            target = self.blob(layer.digest)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.chmod(0o644)
            file.replace(target)
            index = self._index(key)
            index.parent.mkdir(parents=True, exist_ok=True)
            document: dict[str, Any] = plain(layer)
            for path, value in ((self._files(key), dict(files)), (index, document)):
                with self.draft() as (draft, stream):
                    stream.write(json.dumps(value, sort_keys=True).encode())
                    stream.flush()
                    draft.replace(path)
        self._used.add(key)
        return layer

    def blob(self, digest: str) -> Path:
        """Return where the blob of a digest lies, if it does.

        Raises:
            ValueError: It is not a digest, and would name a file that is none of the cache's.
        """
        if not _DIGEST.fullmatch(digest):
            raise ValueError(f"{digest[:80]!r} is not a digest")
        return self.folder / "blobs" / "sha256" / digest.removeprefix("sha256:")

    def wheel(self, sha256: str) -> Path:
        """Return where a verified wheel lies, if it does."""
        return self.folder / "wheels" / f"{sha256}.whl"

    def use_wheel(self, sha256: str) -> None:
        """Note that this run needs a wheel, which stays until its layer is there: a run that fails goes on later."""
        self._used.add(self.wheel(sha256).name)

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

    def _files(self, key: str) -> Path:
        return self.folder / "layers" / f"{key}.files"

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
