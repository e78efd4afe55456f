"""The files of an archive or a folder, one after the other: bounded, never written to disk, names never followed.

An archive comes from anybody. Links and devices in it are passed over, a name in it is only ever a label, and what
unpacks to far more than an archive of logs does is refused before it takes memory or time.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from provision.errors import UsageError
from provision.probe.clean import clean_line
from provision.records import record

MEMBER_BYTES_MAX: Final = 64 * 1024 * 1024
"""More than this of one file is not read."""

_TOTAL_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
_FILES_MAX: Final = 200_000
_RATIO_MAX: Final = 400
_RATIO_FREE_BYTES: Final = 128 * 1024 * 1024
"""A small log of one repeated line packs well; only what is large and packs better than any log is refused."""

_GZIP: Final = b"\x1f\x8b"
_XZ: Final = b"\xfd7zXZ\x00"
_BZIP2: Final = b"BZh"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZIP: Final = b"PK\x03\x04"
_TAR_MARK: Final = slice(257, 262)
_HEAD: Final = 512

_TREE: Final = re.compile(
    r"(?:^|/)(?:sos_commands|sos_logs|sos_reports|proc|sys|etc|var|usr|run|boot|lib|cluster-scoped-resources|namespaces"
    r"|host_service_logs|audit_logs|network_logs|monitoring|static-pods|insights-operator)/"
)
_WANTED: Final = re.compile(
    r"(?:^|/)(?:nvidia-bug-report[^/]{0,200}|sos_commands/(?:nvidia|pci|dkms|infiniband)/[^/]{1,200}"
    r"|sos_commands/kernel/(?:dmesg[^/]{0,40}|lsmod|uname_-a)|sos_commands/boot/mokutil[^/]{0,40}"
    r"|sos_commands/(?:dpkg|rpm)/(?:dpkg_-l|package-data|rpm_-qa|sh_-c_rpm_--nodigest_-qa)[^/]{0,100}"
    r"|sos_commands/logs/journalctl[^/]{0,80}(?:--boot|-k)[^/]{0,20}|sos_commands/filesys/df_-[^/]{0,40}"
    r"|sos_commands/host/hostname[^/]{0,10}|sos_commands/hardware/dmidecode|etc/hostname|etc/os-release|usr/lib/os-release|proc/cmdline|proc/cpuinfo|proc/modules"
    r"|proc/driver/nvidia/(?:version|params)|etc/docker/daemon\.json|etc/containerd/config\.toml"
    r"|etc/nvidia-container-runtime/config\.toml|var/log/(?:dmesg|fabricmanager\.log))$"
)
"""Of the tree of a whole system only these are opened."""


@record
class Member:
    """One file: its path inside, what it holds, and whether that is only its beginning."""

    name: str
    content: bytes
    is_cut: bool = False

    @property
    def is_of_system(self) -> bool:
        """Whether it belongs to the copied tree of a whole system."""
        return _TREE.search(self.name) is not None


def holds_files(path: Path) -> bool:
    """Tell whether this is a folder, or an archive of files in any packing that is read."""
    import bz2
    import gzip
    import lzma
    import zlib

    # What comes through a pipe can be read once.
    if not path.is_file():
        return path.is_dir()
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
            file.seek(0)
            openers: dict[bytes, Any] = {_GZIP: gzip.open, _XZ: lzma.open, _BZIP2: bz2.open}
            unpack = next((opener for mark, opener in openers.items() if head.startswith(mark)), None)
            head = head if unpack is None else unpack(file).read(_HEAD)
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return False
    return head[_TAR_MARK] == b"ustar"


def read_members(path: Path) -> Iterator[Member]:
    """Yield the files of an archive, of a folder, or the one file itself, unpacked.

    Args:
        path: A text, a packed text, a tar archive in any packing, or a folder of these.

    Raises:
        UsageError: It cannot be read, is damaged, or unpacks to more than any archive of logs.
    """
    import lzma
    import struct
    import tarfile
    import zlib

    try:
        if path.is_dir():
            for whole in _walk(path):
                with whole.open("rb") as file:
                    yield from _unpack(file, whole.relative_to(path).as_posix(), path, 0)
            return
        state = path.stat()
        if not stat.S_ISREG(state.st_mode):
            raise _refuse(path, "it is neither a file nor a folder")
        with path.open("rb") as file:
            yield from _unpack(file, path.name, path, state.st_size)
    except (OSError, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, struct.error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or clean_line(str(error))
        raise _refuse(path, reason or "it ends too early") from error
    except (ValueError, OverflowError, RecursionError, AttributeError, LookupError, TypeError) as error:
        # tarfile meets headers that were never written by a tar program with any of these.
        raise _refuse(path, clean_line(str(error)) or "it is damaged") from error


def _walk(path: Path) -> Iterator[Path]:
    count = 0
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            whole = Path(folder) / name
            count += 1
            if count > _FILES_MAX:
                raise _refuse(path, f"it holds more than {_FILES_MAX} files")
            if stat.S_ISREG(whole.lstat().st_mode) and _is_wanted(whole.relative_to(path).as_posix()):
                yield whole


def _is_wanted(name: str) -> bool:
    return _WANTED.search(name) is not None or _TREE.search(name) is None


class _Counted:
    """A stream that ends with an error where it gives more than an archive of logs of its size can hold."""

    def __init__(self, file: Any, packed_bytes: int) -> None:
        self._file = file
        self._bytes_max = min(_TOTAL_BYTES_MAX, max(_RATIO_FREE_BYTES, packed_bytes * _RATIO_MAX))
        self._bytes = 0

    def read(self, size: int = -1) -> bytes:
        content: bytes = self._file.read(min(size, self._bytes_max + 1) if size >= 0 else self._bytes_max + 1)
        self._bytes += len(content)
        if self._bytes > self._bytes_max:
            raise ValueError(f"it unpacks to more than {self._bytes_max >> 20} MiB, which no archive of logs does")
        return content


def _unpack(file: IO[bytes], name: str, path: Path, packed_bytes: int, *, is_inside: bool = False) -> Iterator[Member]:
    """Yield what a stream holds: the files of a tar archive, or itself."""
    import bz2
    import gzip
    import lzma

    head = file.read(_HEAD)
    file.seek(0)
    packed_bytes = packed_bytes or os.fstat(file.fileno()).st_size
    for mark, program in ((_ZSTD, "zstd"), (_ZIP, "zip")):
        if head.startswith(mark):
            raise _refuse(path, f"{_in(name, path)}it is packed with {program}, which is not read", "unpack it first")
    opened: Any = file
    is_packed = True
    if head.startswith(_GZIP):
        opened = gzip.GzipFile(fileobj=file)
    elif head.startswith(_XZ):
        opened = lzma.LZMAFile(file)  # noqa: SIM115
    elif head.startswith(_BZIP2):
        opened = bz2.BZ2File(file)
    else:
        is_packed = False
    stream = _Rewound(_Counted(opened, packed_bytes) if is_packed else opened)
    if stream.head[_TAR_MARK] == b"ustar" and not is_inside:
        yield from _open_tar(stream, path)
        return
    content = stream.read(MEMBER_BYTES_MAX + 1)
    yield Member(name=name, content=content[:MEMBER_BYTES_MAX], is_cut=len(content) > MEMBER_BYTES_MAX)


class _Rewound:
    """A stream whose beginning was looked at, and is given once more."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.head: bytes = file.read(_HEAD)
        self._left: bytes = self.head

    def read(self, size: int = -1) -> bytes:
        begun, self._left = (self._left, b"") if size < 0 else (self._left[:size], self._left[size:])
        if len(begun) == size:
            return begun
        more: bytes = self._file.read(size if size < 0 else size - len(begun))
        return begun + more


def _open_tar(stream: _Rewound, path: Path) -> Iterator[Member]:
    import io
    import tarfile

    archive = tarfile.open(fileobj=stream, mode="r|")  # type: ignore[call-overload]  # noqa: SIM115
    for count, entry in enumerate(archive):
        if count >= _FILES_MAX:
            raise _refuse(path, f"it holds more than {_FILES_MAX} files")
        name = clean_line(entry.name.removeprefix("./"), 400)
        if not entry.isreg() or entry.issparse() or not _is_wanted(name):
            continue
        taken = archive.extractfile(entry)
        content = taken.read(MEMBER_BYTES_MAX + 1) if taken else b""
        if content.startswith((_GZIP, _XZ, _BZIP2)):
            yield from _unpack_inside(io.BytesIO(content), name, path, len(content))
        elif not content.startswith((_ZSTD, _ZIP)) and b"\x00" not in content[:_HEAD]:
            yield Member(name=name, content=content[:MEMBER_BYTES_MAX], is_cut=len(content) > MEMBER_BYTES_MAX)


def _unpack_inside(file: IO[bytes], name: str, path: Path, packed_bytes: int) -> Iterator[Member]:
    """Yield a packed file of an archive; one that is damaged is passed over, as the others can still tell."""
    import lzma
    import zlib

    try:
        yield from _unpack(file, name, path, packed_bytes, is_inside=True)
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return


def _in(name: str, path: Path) -> str:
    return "" if name == path.name else f"`{clean_line(name, 80)}` in it: "


def _refuse(path: Path, why: str, *hints: str) -> UsageError:
    return UsageError(f"{path} cannot be read", because=(why,), hints=hints)
