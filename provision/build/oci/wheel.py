"""One wheel to the entries of a layer, through the ``installer`` library, or a refusal.

The wheel's own digest was compared with the lock before; what is checked here is that it stays inside the environment
and says what it is: no path leads out, no name comes twice, no link, and no file is larger or smaller than it claims.
A file is read once, in chunks, straight into the layer.

What is written is what an installer writes: scripts with the environment's own interpreter, ``INSTALLER``, and a
``RECORD`` of all of it. No bytecode is written: it depends on the interpreter that compiles, the layer on its wheels.
"""

from __future__ import annotations

import configparser
import csv
import io
import posixpath
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from provision.build.oci.refused import refuse_wheel
from provision.errors import ActionFailedError, MissingDependencyError, install_command

if TYPE_CHECKING:
    from provision.build.oci.layer import LayerWriter

ENVIRONMENT = "opt/venv"
"""Where the Dockerfile puts the Python environment, without the leading slash."""

_INSTALLER = b"provision\n"
_SMALL_BYTES_MAX = 16 * 1024 * 1024
_ENTRIES_MAX = 500_000
_NAME_MAX = 1024
# What the environment itself is made of: no wheel may put its own in its place, nor anything below it.
_RESERVED = re.compile(r"(?:bin/python(?:3(?:\.\d+)?)?|pyvenv\.cfg|lib64)(?:/.*)?")
# Layers of images say by such a name that a file of a lower layer is gone.
_REMOVAL = ".wh."
# A wheel unpacks to two or three times its size, libraries full of kernels to ten; nobody publishes a thousand.
_GROWTH_MAX = 200
_GROWTH_FREE_BYTES = 64 * 1024 * 1024


class WheelWriter:
    """Puts wheels into one layer, and remembers which files it has.

    Args:
        layer: The layer.
        python: ``python3.11``; the name of the folder below ``lib``.
    """

    def __init__(self, layer: LayerWriter, python: str) -> None:
        self.layer = layer
        self.python = python
        self.conflicts: list[str] = []
        self._seen: dict[str, tuple[str, tuple[int, int]]] = {}
        site = f"{ENVIRONMENT}/lib/{python}/site-packages"
        own = (ENVIRONMENT, f"{ENVIRONMENT}/bin", f"{ENVIRONMENT}/include", f"{ENVIRONMENT}/lib", site)
        self._folders: dict[str, str | None] = dict.fromkeys((*own, posixpath.dirname(site)))

    @property
    def files(self) -> dict[str, tuple[str, int, int]]:
        """Every file of the layer: path → the wheel that brings it, its checksum, its bytes."""
        return {path: (wheel, *identity) for path, (wheel, identity) in self._seen.items()}

    def folder(self, scheme: str, distribution: str) -> str:
        """Return where a scheme of a distribution lies, without the leading slash."""
        return {
            "purelib": f"{ENVIRONMENT}/lib/{self.python}/site-packages",
            "platlib": f"{ENVIRONMENT}/lib/{self.python}/site-packages",
            "scripts": f"{ENVIRONMENT}/bin",
            "data": ENVIRONMENT,
            "headers": f"{ENVIRONMENT}/include/site/{self.python}/{distribution}",
        }[scheme]

    def take(self, path: str, wheel: str, identity: tuple[int, int]) -> bool:
        """Tell whether a file is new in this layer; the first wheel that brings one keeps it.

        Args:
            path: Where it goes.
            wheel: Who brings it.
            identity: Checksum and size, to tell a harmless repetition from a conflict.

        Raises:
            ActionFailedError: The path belongs to the environment, or is a file here and a folder there.
        """
        self._keep_apart(path, wheel)
        before = self._seen.setdefault(path, (wheel, identity))
        if before[0] == wheel:
            if before[1] is not identity:
                raise refuse_wheel(wheel, f"two of its files would be written to /{path}")
            return True
        if before[1] != identity:
            self.conflicts.append(f"/{path} is in {before[0]} and, with other contents, in {wheel}; the first was kept")
        return False

    def _keep_apart(self, path: str, wheel: str) -> None:
        """Refuse a file where a folder is, and a file below one: the upper entry of a tar would undo the other."""
        inside = path.removeprefix(f"{ENVIRONMENT}/")
        if _RESERVED.fullmatch(inside):
            raise refuse_wheel(wheel, f"it would replace /{path}, which belongs to the environment")
        if any(part.startswith(_REMOVAL) for part in path.split("/")):
            raise refuse_wheel(wheel, f"it would write /{path[:160]}, which takes a file of a lower layer away")
        if path in self._folders:
            owner = self._folders[path]
            if owner is None:
                raise refuse_wheel(wheel, f"it would replace /{path}, which belongs to the environment")
            raise refuse_wheel(wheel, f"it has /{path} as a file, which is a folder in {owner}")
        folder = posixpath.dirname(path)
        while folder and folder not in self._folders:
            if folder in self._seen:
                raise refuse_wheel(wheel, f"it has /{folder} as a folder, which is a file in {self._seen[folder][0]}")
            self._folders[folder] = wheel
            folder = posixpath.dirname(folder)


def write_wheel(writer: WheelWriter, path: Path, file: str, *, installed: int | None = None) -> None:
    """Unpack a wheel into a layer.

    Args:
        writer: The layer.
        path: The wheel on disk; its digest was verified.
        file: Its proper file name.
        installed: Bytes that it should unpack to, where the lock knows.

    Raises:
        ActionFailedError: The wheel is damaged or would reach out of the environment.
        MissingDependencyError: The ``installer`` library is absent.
    """
    install, source_type, destination_type, library_errors = _types()
    metadata_errors: tuple[type[Exception], ...] = (
        *library_errors,
        AssertionError,
        ValueError,
        configparser.Error,
        csv.Error,
    )
    try:
        with zipfile.ZipFile(path) as archive:
            members = _check_members(archive, path, file, installed)
            source = source_type(archive, file, members)
            destination = destination_type(writer, file, source)
            install(source, destination, {"INSTALLER": _INSTALLER})
    except ActionFailedError:
        raise
    except KeyError as error:
        raise refuse_wheel(file, f"it lacks a file that every wheel has: {error.args[0]}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise refuse_wheel(file, f"its archive is damaged: {error}") from error
    except metadata_errors as error:
        raise refuse_wheel(
            file, f"its metadata is not that of a wheel: {str(error) or type(error).__name__}"
        ) from error


def _check_members(archive: zipfile.ZipFile, path: Path, file: str, installed: int | None) -> list[zipfile.ZipInfo]:
    """Return the files of a wheel, sorted, after every one was found harmless."""
    entries = archive.infolist()
    if len(entries) > _ENTRIES_MAX:
        raise refuse_wheel(file, f"it has {len(entries)} entries, more than {_ENTRIES_MAX}")
    names: dict[str, str] = {}
    members = []
    for entry in entries:
        name = entry.filename
        why = _why_unsafe(entry)
        if why:
            raise refuse_wheel(file, f"the entry {name[:120]!r} {why}")
        folded = name.rstrip("/").casefold()
        other = names.setdefault(folded, name)
        if other is not name:
            raise refuse_wheel(
                file,
                f"it has the entry {name[:120]!r} twice"
                if other == name
                else f"its entries {other[:120]!r} and {name[:120]!r} differ by case alone",
            )
        # Bytecode that a wheel brings along is not what its sources say, and is left out.
        if not entry.is_dir() and "__pycache__" not in name.split("/"):
            members.append(entry)
    claimed = sum(entry.file_size for entry in members)
    limit = path.stat().st_size * _GROWTH_MAX + _GROWTH_FREE_BYTES
    if installed is not None:
        limit = min(limit, installed * 2 + _GROWTH_FREE_BYTES)
    if claimed > limit:
        raise refuse_wheel(file, f"it would unpack to {claimed} bytes, and at most {limit} are plausible")
    return sorted(members, key=lambda entry: entry.filename)


def _why_unsafe(entry: zipfile.ZipInfo) -> str | None:
    name = entry.filename
    kind = stat.S_IFMT(entry.external_attr >> 16)
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or "\\" in name or ":" in parts[0]:
        return "is an absolute path, or one of another system"
    if any(part in ("", ".", "..") for part in parts):
        return "leads out of the environment"
    if any(part.startswith(_REMOVAL) for part in parts):
        return "would take a file of a lower layer away"
    if not name.isprintable() or len(name) > _NAME_MAX:
        return "is not a name for a file"
    if entry.orig_filename != name:
        return "has a second name behind a zero byte"
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is not a plain file but a link or a device"
    if entry.flag_bits & 0x1:
        return "is encrypted"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is compressed in a way that wheels do not use"
    return None


class _Measured(io.RawIOBase):
    """A file of a wheel that says how long it is, and is refused where it is longer or shorter."""

    def __init__(self, stream: IO[bytes], entry: zipfile.ZipInfo, file: str) -> None:
        self.size = entry.file_size
        self.identity = (entry.CRC, entry.file_size)
        self._left = entry.file_size
        self._stream = stream
        self._what = (file, entry.filename)

    def read(self, size: int = -1, /) -> bytes:
        if size < 0:
            if self.size > _SMALL_BYTES_MAX:
                raise refuse_wheel(self._what[0], f"{self._what[1]!r} is too large for what it is")
            size = self.size + 1
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0 or (not data and self._left):
            raise refuse_wheel(self._what[0], f"{self._what[1]!r} is not as long as it claims to be")
        return data


def _types() -> tuple[Any, Any, Any, tuple[type[Exception], ...]]:
    """Return the library's entry point, our source and destination for it, and its errors."""
    try:
        from installer import install
        from installer.destinations import WheelDestination
        from installer.exceptions import InstallerError
        from installer.records import Hash, InvalidRecordEntry, RecordEntry, parse_record_file
        from installer.scripts import InvalidScript, Script
        from installer.sources import WheelFile, WheelSource
        from installer.utils import construct_record_file
    except ImportError as error:
        raise MissingDependencyError(
            "unpacking wheels needs a library that is not installed",
            because=(str(error),),
            hints=(install_command("oci"), "or `--engine docker`"),
        ) from error

    class Source(WheelFile):
        def __init__(self, archive: zipfile.ZipFile, file: str, members: list[zipfile.ZipInfo]) -> None:
            from installer.utils import parse_wheel_filename

            name = parse_wheel_filename(file)
            WheelSource.__init__(self, distribution=name.distribution, version=name.version)
            self._zipfile = archive
            self._file = file
            self._members = members

        @property
        def data_dir(self) -> str:
            # Named as the metadata is, which need not be spelled as the file is.
            return f"{self.dist_info_dir.removesuffix('.dist-info')}.data"

        def read_dist_info(self, filename: str) -> str:
            entry = self._zipfile.getinfo(posixpath.join(self.dist_info_dir, filename))
            with self._zipfile.open(entry) as stream:
                return _Measured(stream, entry, self._file).read().decode("utf-8")

        def get_contents(self) -> Iterator[tuple[tuple[str, str, str], BinaryIO, bool]]:
            listed = {row[0]: row for row in parse_record_file(self.read_dist_info("RECORD").splitlines())}
            for entry in self._members:
                mode = entry.external_attr >> 16
                row = listed.get(entry.filename, (entry.filename, "", ""))
                with self._zipfile.open(entry) as stream:
                    measured = _Measured(stream, entry, self._file)
                    self.row = RecordEntry.from_elements(*row)
                    yield row, cast("BinaryIO", measured), bool(mode & 0o111)

    class Destination(WheelDestination):
        def __init__(self, writer: WheelWriter, file: str, source: Source) -> None:
            self._writer = writer
            self._file = file
            self._source = source

        def write_script(self, name: str, module: str, attr: str, section: str) -> RecordEntry:
            script = Script(name, module, attr, section)  # type: ignore[arg-type]
            if posixpath.basename(name) != name or not name.isprintable() or name in (".", ".."):
                raise refuse_wheel(self._file, f"its script {name[:120]!r} has a name that leads elsewhere")
            name, data = script.generate(f"/{ENVIRONMENT}/bin/python", "posix")
            return self._write("scripts", name, data, is_executable=True)

        def write_file(self, scheme: Any, path: Any, stream: BinaryIO, is_executable: bool) -> RecordEntry:
            path = str(path)
            if scheme == "scripts" or not isinstance(stream, _Measured):
                data = stream.read()
                if scheme == "scripts" and data.startswith(b"#!python"):
                    data = f"#!/{ENVIRONMENT}/bin/python".encode() + data[data.index(b"\n") :]
                return self._write(scheme, path, data, is_executable=is_executable or scheme == "scripts")
            target = self._target(scheme, path)
            row = self._source.row
            digest = row.hash_ if row.hash_ is not None and row.size == stream.size else None
            if self._writer.take(target, self._file, stream.identity):
                found = self._writer.layer.add_stream(
                    target, stream.size, stream, is_executable=is_executable, is_hashed=digest is None
                )
                digest = digest or Hash("sha256", found or "")
            return RecordEntry(path, digest, stream.size)

        def _target(self, scheme: str, path: str) -> str:
            return posixpath.join(self._writer.folder(scheme, self._source.distribution), path)

        def _write(self, scheme: str, path: str, data: bytes, *, is_executable: bool) -> RecordEntry:
            target = self._target(scheme, path)
            if self._writer.take(target, self._file, (zlib.crc32(data), len(data))):
                self._writer.layer.add(target, data, is_executable=is_executable)
            return RecordEntry(path, Hash("sha256", _record_digest(data)), len(data))

        def finalize_installation(self, scheme: Any, record_file_path: str, records: Iterable[Any]) -> None:
            root = self._writer.folder(scheme, self._source.distribution)

            def prefix(other: Any) -> str | None:
                folder = self._writer.folder(other, self._source.distribution)
                return None if folder == root else posixpath.relpath(folder, root) + "/"

            with construct_record_file(records, prefix) as stream:
                data = stream.read()
                target = posixpath.join(root, record_file_path)
                if self._writer.take(target, self._file, (zlib.crc32(data), len(data))):
                    self._writer.layer.add(target, data)

    return install, Source, Destination, (InstallerError, InvalidRecordEntry, InvalidScript)


def _record_digest(data: bytes) -> str:
    import base64
    import hashlib

    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
