"""A zip archive on a server, of which only the wanted bytes are fetched."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Protocol
from zipfile import BadZipFile, ZipFile

from provision.errors import UnreachableError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_BLOCK_BYTES = 256 * 1024
_TAIL_BYTES = 128 * 1024
_BLOCKS_KEPT = 64


class Ranges(Protocol):
    """Who reads parts of files on servers."""

    def get_range(self, url: str, start: int, end: int) -> tuple[bytes, int]:
        """Return the bytes from ``start`` to before ``end``, and the size of the whole.

        A negative ``start`` counts from the end, and ``end`` is ignored.

        Raises:
            UnreachableError: No answer, or a server that sends no parts.
        """


class RemoteFile(io.RawIOBase):
    """A file on a server as a file that can be read and sought.

    The end of an archive holds its directory, so opening fetches the end; how large the file is comes with it.

    Args:
        client: Who asks.
        url: Where the file is.
        tail_bytes: How much of the end to fetch at once; a directory that is longer costs one more request.
    """

    def __init__(self, client: Ranges, url: str, *, tail_bytes: int = _TAIL_BYTES) -> None:
        super().__init__()
        self._client = client
        self._url = url
        self._position = 0
        self._blocks: dict[int, bytes] = {}
        self._tail, self.size = client.get_range(url, -tail_bytes, 0)
        self._tail_start = self.size - len(self._tail)

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def seekable(self) -> bool:
        """Tell that it can be sought."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; nothing is fetched."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Buffer) -> int:
        """Fill a buffer."""
        view = memoryview(buffer).cast("B")
        data = self._read_at(self._position, len(view))
        view[: len(data)] = data
        self._position += len(data)
        return len(data)

    def prefetch(self, start: int, end: int) -> None:
        """Fetch a stretch in one request, where it is not here yet."""
        start, end = max(0, start), min(end, self._tail_start)
        first, last = start // _BLOCK_BYTES, -(-end // _BLOCK_BYTES)
        wanted = [number for number in range(first, last) if number not in self._blocks]
        if not wanted:
            return
        begin, stop = wanted[0] * _BLOCK_BYTES, min((wanted[-1] + 1) * _BLOCK_BYTES, self.size)
        content = self._fetch(begin, stop)
        for number in range(wanted[0], wanted[-1] + 1):
            place = number * _BLOCK_BYTES - begin
            self._store(number, content[place : place + _BLOCK_BYTES])

    def _read_at(self, position: int, length: int) -> bytes:
        end = min(position + length, self.size)
        if end <= position:
            return b""
        if position >= self._tail_start:
            return self._tail[position - self._tail_start : end - self._tail_start]
        self.prefetch(position, end)
        parts = []
        while position < end:
            if position >= self._tail_start:
                parts.append(self._tail[position - self._tail_start : end - self._tail_start])
                break
            number = position // _BLOCK_BYTES
            block = self._blocks.get(number)
            if block is None:
                begin = number * _BLOCK_BYTES
                block = self._fetch(begin, min(begin + _BLOCK_BYTES, self.size))
                self._store(number, block)
            inside = position - number * _BLOCK_BYTES
            stop = min(len(block), inside + end - position, inside + self._tail_start - position)
            parts.append(block[inside:stop])
            position += stop - inside
        return b"".join(parts)

    def _fetch(self, begin: int, end: int) -> bytes:
        content, size = self._client.get_range(self._url, begin, end)
        if size != self.size or len(content) != end - begin:
            raise UnreachableError(
                f"{self._url} changed while it was read", because=(f"{len(content)} of {end - begin} bytes came",)
            )
        return content

    def _store(self, number: int, block: bytes) -> None:
        while len(self._blocks) >= _BLOCKS_KEPT:
            del self._blocks[next(iter(self._blocks))]
        self._blocks[number] = block


def open_archive(client: Ranges, url: str, *, tail_bytes: int = _TAIL_BYTES) -> tuple[ZipFile, RemoteFile]:
    """Open a zip archive by its end.

    Raises:
        UnreachableError: It cannot be read in parts, or is not a zip archive.
    """
    remote = RemoteFile(client, url, tail_bytes=tail_bytes)
    try:
        return ZipFile(remote), remote
    except (BadZipFile, OSError, ValueError) as error:
        raise UnreachableError(f"{url} is not a zip archive", because=(str(error),)) from error
