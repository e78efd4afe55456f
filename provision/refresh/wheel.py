"""What is inside a wheel on an index, read from its last bytes and from single members."""

from __future__ import annotations

import io
import json
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email.parser import HeaderParser
from pathlib import Path
from typing import Any, BinaryIO, cast
from zipfile import BadZipFile, ZipFile

from provision.errors import UnreachableError
from provision.files import write_whole
from provision.index.page import IndexFile
from provision.index.remote_zip import RemoteFile, open_archive
from provision.records import fields_of, record
from provision.refresh.client import AbsentError, Client
from provision.refresh.fatbin import FatbinScanner

_MEMBER_BYTES_MAX = 16 * 1024 * 1024
_SOURCE_BYTES_MAX = 64 * 1024 * 1024
_SCAN_BYTES_MAX = 256 * 1024 * 1024
_SCAN_STEP = 1024 * 1024
_SCAN_AHEAD = 8 * 1024 * 1024
_HEAD_BYTES = 2 * 1024 * 1024
_MAJORS = ("1", "2")
"""Majors of the metadata's own version that say requirements in the way read here."""
_BIG_TAIL_BYTES = 2 * 1024 * 1024
_BIG_WHEEL_BYTES = 100 * 1024 * 1024


@record
class WheelContents:
    """What a wheel says of itself; sizes in bytes.

    A source distribution says the same, except how large it is once installed.
    """

    size: int
    installed: int | None = None
    requires_dist: tuple[str, ...] = ()
    requires_python: str | None = None


class OpenWheel:
    """A wheel whose directory was read.

    Args:
        archive: The zip archive.
        remote: The file behind it.
        url: Where it is, for messages.
    """

    def __init__(self, archive: ZipFile, remote: RemoteFile, url: str) -> None:
        self._archive = archive
        self._remote = remote
        self._url = url
        self._names = set(archive.namelist())

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._remote.size

    @property
    def installed(self) -> int:
        """Bytes of all members, unpacked."""
        return sum(member.file_size for member in self._archive.infolist())

    def names(self, pattern: str) -> list[str]:
        """Return the members whose whole name matches."""
        return sorted(name for name in self._names if re.fullmatch(pattern, name))

    def read(self, name: str) -> bytes | None:
        """Return a member, or ``None`` where the wheel has none of that name.

        Raises:
            UnreachableError: The member is broken or unreasonably large.
        """
        if name not in self._names:
            return None
        member = self._archive.getinfo(name)
        if member.file_size > _MEMBER_BYTES_MAX:
            raise self._broken(name, f"it claims to have {member.file_size} bytes")
        self._remote.prefetch(member.header_offset, member.header_offset + member.compress_size + 1024)
        with self._reading(name), self._archive.open(member) as stream:
            return stream.read(_MEMBER_BYTES_MAX)

    def scan(self, name: str, pattern: re.Pattern[bytes], *, overlap: int = 4096) -> bytes | None:
        """Return the first match in a member, which is unpacked piece by piece and only as far as needed.

        Args:
            name: The member.
            pattern: What to find; a match longer than ``overlap`` may be missed.
            overlap: Bytes of the piece before that are looked at again.
        """
        if name not in self._names:
            return None
        member = self._archive.getinfo(name)
        ratio = member.compress_size / max(member.file_size, 1)
        kept, done = b"", 0
        with self._reading(name), self._archive.open(member) as stream:
            while done < min(member.file_size, _SCAN_BYTES_MAX):
                ahead = member.header_offset + int(done * ratio)
                self._remote.prefetch(ahead, min(ahead + _SCAN_STEP, member.header_offset + member.compress_size))
                piece = stream.read(_SCAN_STEP)
                if not piece:
                    break
                window = kept + piece
                found = pattern.search(window)
                if found is not None:
                    return found[0]
                kept, done = window[-overlap:], done + len(piece)
        return None

    def targets(self, name: str) -> tuple[set[str], bool]:
        """Return what the code for GPUs in a member is compiled for, and whether all of it was seen.

        The member is unpacked to its end, piece by piece: its headers stand between its code.
        """
        scanner = FatbinScanner()
        done = 0
        for piece in self._pieces(name):
            scanner.feed(piece)
            done += len(piece)
        return scanner.targets, scanner.is_whole and done == self._archive.getinfo(name).file_size

    @contextmanager
    def unpacked(self, name: str) -> Iterator[BinaryIO]:
        """Unpack a member into a file that is gone afterwards; a large one lies on disk meanwhile."""
        with tempfile.SpooledTemporaryFile(max_size=_SOURCE_BYTES_MAX) as file:
            for piece in self._pieces(name):
                file.write(piece)
            yield cast("BinaryIO", file)

    def _pieces(self, name: str) -> Iterator[bytes]:
        """Yield a member to its end, fetched as it is unpacked."""
        member = self._archive.getinfo(name)
        done = 0
        ratio = member.compress_size / max(member.file_size, 1)
        with self._reading(name), self._archive.open(member) as stream:
            while True:
                ahead = member.header_offset + int(done * ratio)
                self._remote.prefetch(
                    ahead, min(ahead + _SCAN_AHEAD, member.header_offset + member.compress_size + 1024)
                )
                piece = stream.read(_SCAN_STEP)
                if not piece:
                    return
                yield piece
                done += len(piece)

    def head(self, name: str, wanted: re.Pattern[bytes]) -> bytes:
        """Return the start of a member, or all of one that is not too large, where the start lacks what is wanted."""
        member = self._archive.getinfo(name)
        packed = int(_HEAD_BYTES * member.compress_size / max(member.file_size, 1))
        end = min(packed + _HEAD_BYTES // 4, member.compress_size + 1024)
        self._remote.prefetch(member.header_offset, member.header_offset + end)
        with self._reading(name), self._archive.open(member) as stream:
            start = stream.read(_HEAD_BYTES)
        is_enough = wanted.search(start) is not None or member.file_size > _MEMBER_BYTES_MAX
        return start if is_enough or len(start) == member.file_size else self.read(name) or b""

    def contents(self) -> WheelContents:
        """Return sizes and metadata."""
        inside = self.names(r"[^/]+\.dist-info/METADATA")
        if len(inside) != 1:
            raise UnreachableError(f"{self._url} is not a wheel", because=(f"it holds {len(inside)} METADATA files",))
        requires, bound = parse_metadata(self.read(inside[0]) or b"", self._url)
        return WheelContents(size=self.size, installed=self.installed, requires_dist=requires, requires_python=bound)

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
            raise self._broken(name, f"{type(error).__name__}: {error}") from error

    def _broken(self, name: str, why: str) -> UnreachableError:
        return UnreachableError(f"{name} in {self._url} cannot be read", because=(why,))


class WheelReader:
    """Reads wheels of an index; what one with a hash said is kept, since it cannot say anything else.

    Args:
        client: Who asks.
        cache: Folder to keep answers in; ``None`` keeps none.
    """

    def __init__(self, client: Client, cache: Path | None = None) -> None:
        self._client = client
        self._cache = cache / "wheels" if cache is not None else None

    @contextmanager
    def open(self, row: IndexFile, tail_bytes: int | None = None) -> Iterator[OpenWheel]:
        """Open a wheel by its end, of which more is read where its directory is longer."""
        is_big = row.size is not None and row.size > _BIG_WHEEL_BYTES
        tail = tail_bytes or (_BIG_TAIL_BYTES if is_big else 128 * 1024)
        archive, remote = open_archive(self._client, row.url, tail_bytes=min(tail, row.size) if row.size else tail)
        with archive:
            yield OpenWheel(archive, remote, row.url)

    def contents(self, row: IndexFile) -> WheelContents:
        """Return sizes and metadata of a wheel or a source distribution.

        Raises:
            UnreachableError: The file is absent, broken, or not of the size that its index gives.
        """
        kept = self.keep(row, "contents")
        if kept is not None:
            return _thaw(kept)
        if row.file.endswith(".whl"):
            with self.open(row) as wheel:
                found = wheel.contents()
        else:
            found = self._read_source(row)
        if row.size is not None and row.size != found.size:
            raise UnreachableError(
                f"{row.url} is not the file of its index",
                because=(f"it has {found.size} bytes, the page says {row.size}",),
            )
        self.keep(row, "contents", {name: _plain(getattr(found, name)) for name in fields_of(WheelContents)})
        return found

    def metadata(self, row: IndexFile) -> tuple[tuple[str, ...], str | None]:
        """Return ``Requires-Dist`` and ``Requires-Python``, from beside the wheel where the index puts them there."""
        if row.has_metadata:
            import hashlib

            with suppress(AbsentError):
                answer = self._client.get(f"{row.url}.metadata", bytes_max=_MEMBER_BYTES_MAX)
                if row.metadata_sha256 and hashlib.sha256(answer.content).hexdigest() != row.metadata_sha256:
                    raise UnreachableError(
                        f"{row.url}.metadata is not the file of its index", because=("its hash is another",)
                    )
                return parse_metadata(answer.content, row.url)
        contents = self.contents(row)
        return contents.requires_dist, contents.requires_python

    def keep(self, row: IndexFile, kind: str, value: Any = None) -> Any:
        """Return what was kept of a file, or keep a value; a file without a hash is never kept."""
        if self._cache is None or row.sha256 is None:
            return value
        path = self._cache / f"{row.sha256}.{kind}.json"
        if value is None:
            with suppress(OSError, ValueError, RecursionError):
                return json.loads(path.read_bytes())
            return None
        with suppress(OSError):
            write_whole(path, json.dumps(value).encode(), mode=0o600)
        return value

    def _read_source(self, row: IndexFile) -> WheelContents:
        content = self._client.get(row.url, bytes_max=_SOURCE_BYTES_MAX).content
        try:
            texts = _metadata_of(row.file, content)
        except (tarfile.TarError, BadZipFile, OSError, EOFError, zlib.error) as error:
            raise UnreachableError(f"{row.url} is not a source distribution", because=(str(error),)) from error
        requires, bound = parse_metadata(texts.get("PKG-INFO", "").encode(), row.url)
        return WheelContents(
            size=len(content),
            requires_dist=requires or requires_of_egg(texts.get("requires.txt", "")),
            requires_python=bound,
        )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _thaw(value: dict[str, Any]) -> WheelContents:
    return WheelContents(
        size=value["size"],
        installed=value["installed"],
        requires_dist=tuple(value["requires_dist"]),
        requires_python=value["requires_python"],
    )


def parse_metadata(content: bytes, where: str) -> tuple[tuple[str, ...], str | None]:
    """Return ``Requires-Dist`` and ``Requires-Python`` of a METADATA file.

    Args:
        content: The file.
        where: The wheel, for the message.

    Raises:
        UnreachableError: It is no metadata, or of a kind that nobody here has read.
    """
    message = HeaderParser().parsestr(content.decode("utf-8", "replace"))
    version = str(message["Metadata-Version"] or "")
    if not message["Name"] or not version:
        raise UnreachableError(f"{where} has no metadata", because=("there is no name or no metadata version in it",))
    if version.partition(".")[0] not in _MAJORS:
        raise UnreachableError(
            f"{where} has metadata of version {version[:20]}", because=("this version cannot read such metadata",)
        )
    bound = message["Requires-Python"]
    return tuple(str(value) for value in message.get_all("Requires-Dist", [])), str(bound) if bound else None


def _metadata_of(file: str, content: bytes) -> dict[str, str]:
    """Return the text of ``PKG-INFO`` and, of what setuptools wrote beside it, ``requires.txt``."""
    wanted = re.compile(r"[^/]+/(PKG-INFO|(?:.+/)?[^/]+\.egg-info/requires\.txt)")
    if file.endswith(".zip"):
        with ZipFile(io.BytesIO(content)) as archive:
            found = {
                member.filename: archive.read(member)
                for member in archive.infolist()
                if wanted.fullmatch(member.filename) and member.file_size <= _MEMBER_BYTES_MAX
            }
    else:
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            members = [item for item in tar if item.isfile() and wanted.fullmatch(item.name)]
            found = {item.name: stream.read(_MEMBER_BYTES_MAX) for item in members if (stream := tar.extractfile(item))}
    return {name.rsplit("/", 1)[-1]: text.decode("utf-8", "replace") for name, text in found.items()}


def requires_of_egg(text: str) -> tuple[str, ...]:
    """Turn setuptools' ``requires.txt`` into lines of ``Requires-Dist``.

    Args:
        text: Requirements, below headings ``[extra]``, ``[extra:marker]`` or ``[:marker]``.
    """
    lines: list[str] = []
    extra = marker = ""
    for line in filter(None, (line.strip() for line in text.splitlines())):
        if line.startswith("["):
            extra, _, marker = line[1:-1].partition(":")
            continue
        conditions = [f"({marker})"] if marker else []
        conditions += [f'extra == "{extra}"'] if extra else []
        lines.append(f"{line} ; {' and '.join(conditions)}" if conditions else line)
    return tuple(lines)
