"""A layer, written once: a tar whose bytes are decided by its contents, digested and compressed in the same pass."""

from __future__ import annotations

import base64
import hashlib
import posixpath
import tarfile
from collections.abc import Callable
from typing import IO, Any

from provision.build.oci.codec import Codec
from provision.build.oci.refused import Halt
from provision.records import record

CHUNK_BYTES = 1024 * 1024
UNDATED = 315_532_800
"""The first second that a wheel can hold (1980), for layers that must not depend on a stack's date."""

_BLOCK = 512
_END = bytes(2 * _BLOCK)


@record
class Layer:
    """One layer of an image.

    Attributes:
        name: The group of packages it holds (``cuda``), or what it is for.
        diff_id: Digest of the tar.
        digest: Digest of the blob, compressed or not.
        size: Bytes of the blob.
        unpacked: Bytes of the tar.
        notes: What a person should know about its contents.
        is_cached: Taken from the cache, not written now.
    """

    name: str
    diff_id: str
    digest: str
    size: int
    unpacked: int
    media_type: str
    notes: tuple[str, ...] = ()
    is_cached: bool = False


class LayerWriter:
    """Writes one layer into a file.

    Args:
        file: Takes the blob.
        codec: How it is compressed.
        mtime: Date of every entry, in seconds.
        halt: Looked at between two chunks.
        root: This folder and those below it are made as they are needed.
        advance: Told how many bytes were written.
    """

    def __init__(
        self,
        file: IO[bytes],
        codec: Codec,
        *,
        mtime: int,
        halt: Halt,
        root: str | None = None,
        advance: Callable[[int], None] | None = None,
    ) -> None:
        self._file = file
        self._codec = codec
        self._compressor = codec.start()
        self._mtime = mtime
        self._halt = halt
        self._root = root
        self._advance = advance
        self._made: set[str] = set()
        self._tar = hashlib.sha256()
        self._blob = hashlib.sha256()
        self._size = 0
        self.unpacked = 0

    def add(
        self,
        path: str,
        data: bytes,
        *,
        is_executable: bool = False,
        mode: int | None = None,
        owner: tuple[int, int] = (0, 0),
    ) -> None:
        """Add a small file."""
        self._parents(path)
        self._header(path, size=len(data), mode=mode or (0o755 if is_executable else 0o644), owner=owner)
        self._write(data)
        self._pad(len(data))

    def add_stream(
        self, path: str, size: int, stream: Any, *, is_executable: bool = False, is_hashed: bool = False
    ) -> str | None:
        """Add a file of any size in chunks.

        Args:
            path: Where it goes, without a leading slash.
            size: Its bytes; the stream must have exactly as many.
            stream: Read to its end.
            is_executable: Whether it may be run.
            is_hashed: Whether to return its digest.

        Returns:
            The sha256 as RECORD files write it, where asked for.
        """
        self._parents(path)
        self._header(path, size=size, mode=0o755 if is_executable else 0o644)
        digest = hashlib.sha256() if is_hashed else None
        # One byte more than there should be, so that a longer file is noticed.
        while chunk := stream.read(CHUNK_BYTES):
            self._write(chunk)
            if digest is not None:
                digest.update(chunk)
        self._pad(size)
        return base64.urlsafe_b64encode(digest.digest()).decode().rstrip("=") if digest is not None else None

    def add_folder(self, path: str, *, mode: int = 0o755, owner: tuple[int, int] = (0, 0)) -> None:
        """Add a folder, unless it was added before."""
        if path not in self._made:
            self._made.add(path)
            self._header(path + "/", kind=tarfile.DIRTYPE, mode=mode, owner=owner)

    def add_link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._parents(path)
        self._header(path, kind=tarfile.SYMTYPE, mode=0o777, target=target)

    def add_removal(self, path: str) -> None:
        """Take away what a lower layer has."""
        folder, name = posixpath.split(path)
        self._header(posixpath.join(folder, f".wh.{name}"))

    def finish(self, name: str, notes: tuple[str, ...] = ()) -> Layer:
        """End the layer and return what it became."""
        self._write(_END)
        self._emit(self._compressor.flush())
        return Layer(
            name=name,
            diff_id=f"sha256:{self._tar.hexdigest()}",
            digest=f"sha256:{self._blob.hexdigest()}",
            size=self._size,
            unpacked=self.unpacked,
            media_type=self._codec.media_type,
            notes=notes,
        )

    def _parents(self, path: str) -> None:
        if self._root is None:
            return
        folder = posixpath.dirname(path)
        missing = []
        while folder not in self._made and folder.startswith(self._root):
            missing.append(folder)
            folder = posixpath.dirname(folder)
        for item in reversed(missing):
            self.add_folder(item)

    def _header(
        self,
        path: str,
        *,
        kind: bytes = tarfile.REGTYPE,
        size: int = 0,
        mode: int = 0o644,
        owner: tuple[int, int] = (0, 0),
        target: str = "",
    ) -> None:
        info = tarfile.TarInfo(path)
        info.type, info.size, info.mode, info.linkname = kind, size, mode, target
        info.mtime, (info.uid, info.gid) = self._mtime, owner
        self._write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict"))

    def _pad(self, size: int) -> None:
        if rest := size % _BLOCK:
            self._write(bytes(_BLOCK - rest))

    def _write(self, data: bytes) -> None:
        self._halt.check()
        self._tar.update(data)
        self.unpacked += len(data)
        if self._advance is not None:
            self._advance(len(data))
        self._emit(self._compressor.compress(data))

    def _emit(self, data: bytes) -> None:
        if data:
            self._blob.update(data)
            self._file.write(data)
            self._size += len(data)
