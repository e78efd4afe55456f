"""Compress and decompress layers as streams."""

from __future__ import annotations

import sys
import zlib
from typing import IO, Any, Literal, Protocol

from provision.errors import MissingDependencyError, install_command

Compression = Literal["zstd", "gzip"]

_ZSTD_LEVEL = 3
_GZIP_LEVEL = 6
_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_CHUNK = 1024 * 1024


class Compressor(Protocol):
    """What every compressor of the standard library looks like."""

    def compress(self, data: bytes, /) -> bytes:
        """Take bytes and return what is ready."""

    def flush(self) -> bytes:
        """Return the rest."""


class Codec:
    """One way to compress layers.

    Args:
        compression: ``zstd`` or ``gzip``.
    """

    def __init__(self, compression: Compression) -> None:
        self.compression = compression
        self._zstd = _zstd() if compression == "zstd" else None

    @property
    def media_type(self) -> str:
        """Media type of such a layer."""
        return f"application/vnd.oci.image.layer.v1.tar+{self.compression}"

    @property
    def identity(self) -> str:
        """What decides the compressed bytes beside the input."""
        if self._zstd is not None:
            return f"zstd {self._zstd.zstd_version} level {_ZSTD_LEVEL}"
        return f"gzip {zlib.ZLIB_RUNTIME_VERSION} level {_GZIP_LEVEL}"

    def start(self) -> Compressor:
        """Return a compressor for one layer."""
        if self._zstd is not None:
            parameter = self._zstd.CompressionParameter
            # A worker beside this thread; the bytes are the same with one worker or many, but not with none.
            options = {parameter.compression_level: _ZSTD_LEVEL, parameter.nb_workers: 1}
            compressor: Compressor = self._zstd.ZstdCompressor(options=options)
            return compressor
        return zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)


def find_codec(compression: Compression | None) -> Codec:
    """Return the way asked for; zstd unless told otherwise.

    Raises:
        MissingDependencyError: It needs a library that is not installed.
    """
    return Codec(compression or "zstd")


def _zstd() -> Any:
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError as error:
        raise MissingDependencyError(
            "zstd layers need a library that is not installed",
            because=(str(error),),
            hints=(install_command("oci"), "or `--compression gzip`, which takes several times as long"),
        ) from error
    return zstd


def open_layer(file: IO[bytes]) -> IO[bytes]:
    """Return a layer's tar as a stream, whatever it is compressed with.

    Args:
        file: The blob, at its beginning; must be seekable.
    """
    import gzip
    import io

    magic = file.read(4)
    file.seek(0)
    if magic.startswith(_GZIP_MAGIC):
        return io.BufferedReader(gzip.GzipFile(fileobj=file, mode="rb"), _CHUNK)
    if magic == _ZSTD_MAGIC:
        stream: IO[bytes] = _zstd().ZstdFile(file)
        return stream
    return file
