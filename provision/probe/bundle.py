"""Support bundles: what was collected, in one file that can be sent away and judged elsewhere.

::

    manifest.json               versions, dates, probe by probe: status, code, seconds, digest
    targets/00/PROBE.out|.err   what a probe printed
    extra/NAME                  reports that were added

Secrets are taken out before anything is written. A bundle comes from anybody, so reading one trusts nothing in it:
no member is ever written to disk, and sizes, kinds, names and digests are checked first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from provision import __version__
from provision.errors import ActionFailedError, UsageError
from provision.files import replaced
from provision.probe.clean import clean, clean_line
from provision.probe.output import STATUSES, Output
from provision.probe.redact import Mask, redact
from provision.probe.snapshot import Snapshot
from provision.records import NOTHING

if TYPE_CHECKING:
    from provision.probe.targets import Target

FORMAT = 1
"""Version of the layout."""

_MANIFEST = "manifest.json"
_FILE_BYTES_MAX = 64 * 1024 * 1024
_MEMBER_BYTES_MAX = 64 * 1024 * 1024
_TOTAL_BYTES_MAX = 512 * 1024 * 1024
_MEMBERS_MAX = 100_000
_TARGETS_MAX = 10_000
_PROBE = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_MEMBER = re.compile(r"targets/([0-9]{2,5})/([a-z0-9][a-z0-9-]{0,63})\.(out|err)")
_EXTRA = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def write_bundle(
    path: Path,
    snapshots: Iterable[Snapshot] | Mapping[str, Snapshot],
    extra: Mapping[str, str] = NOTHING,
    *,
    facts_date: str = "",
    unreachable: Mapping[str, str] = NOTHING,
    is_masked: bool = False,
) -> None:
    """Write a bundle: a temporary file first, so that there is never half of one.

    The same snapshots give the same bytes.

    Args:
        path: File to write (``.tar.gz``).
        snapshots: What was collected, with or without their names; written in the order of their targets' names.
        extra: File name → text, such as a report.
        facts_date: Date of the facts in use, ISO.
        unreachable: Target → why nothing came.
        is_masked: Replace what identifies machines by pseudonyms.

    Raises:
        ActionFailedError: The file cannot be written.
        UsageError: A name in ``extra`` is not a file name.
    """
    import os

    taken = snapshots.values() if isinstance(snapshots, Mapping) else snapshots
    members = _members(sorted(taken, key=lambda item: item.target), extra, facts_date, unreachable, is_masked)
    try:
        with replaced(path) as draft:
            # Nobody else may read what a bundle holds: it is what logs hold.
            draft.touch(0o600)
            with draft.open("wb") as file:
                _pack(file, members)
                file.flush()
                os.fsync(file.fileno())
    except OSError as error:
        raise ActionFailedError(f"cannot write {path}", because=(error.strerror or str(error),)) from error


def read_bundle(path: Path) -> tuple[Snapshot, ...]:
    """Read a bundle, or the folder of one that was unpacked.

    Args:
        path: File or folder.

    Returns:
        A snapshot for each target, in the order of the manifest.

    Raises:
        UsageError: It is not a bundle, of a version that is not known, damaged, or holds what no bundle holds.
    """
    import lzma
    import struct
    import tarfile
    import zlib

    try:
        files = _read_folder(path) if path.is_dir() else _unpack(path)
        return _build(path, files)
    except UsageError:
        raise
    except (OSError, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, struct.error) as error:
        reason = (
            (error.strerror if isinstance(error, OSError) else None) or clean_line(str(error)) or "it ends too early"
        )
        raise _refuse(path, reason) from error
    except (ValueError, OverflowError, RecursionError, MemoryError, AttributeError, LookupError, TypeError) as error:
        # tarfile meets headers that were never written by a tar program with any of these.
        raise _refuse(path, clean_line(str(error)) or "it is damaged") from error


def _members(
    snapshots: list[Snapshot],
    extra: Mapping[str, str],
    facts_date: str,
    unreachable: Mapping[str, str],
    is_masked: bool,
) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a bundle; the manifest comes last because it holds the digests of the others."""
    import json

    mask = Mask(_hosts([*(item.target for item in snapshots), *unreachable])) if is_masked else None

    def fit(text: str, probe: str = "") -> bytes:
        fitted = redact(clean(text))
        return (mask(fitted, probe) if mask else fitted).encode("utf-8", "replace")

    def call(name: str) -> str:
        return _pseudonym(mask, name) if mask else name

    entries: list[dict[str, Any]] = []
    for number, snapshot in enumerate(snapshots):
        folder = f"targets/{number:02d}"
        probes = []
        for name in sorted(snapshot.outputs):
            output = snapshot.outputs[name]
            if not _PROBE.fullmatch(name):
                continue
            out, err = fit(output.text, name), fit(output.error, name)
            for kind, content in (("out", out), ("err", err)):
                if content:
                    yield f"{folder}/{name}.{kind}", content
            probes.append(
                {
                    "probe": name,
                    "status": output.status,
                    "code": output.code,
                    "seconds": output.seconds,
                    "digest": _digest(out, err),
                }
            )
        entries.append(
            {
                "folder": folder,
                "target": call(snapshot.target),
                "collected": snapshot.collected,
                "version": snapshot.version,
                "probes": probes,
            }
        )
    for name in sorted(extra):
        if not _EXTRA.fullmatch(name):
            raise UsageError(f"`{clean_line(name, 80)}` is not a name for a file of a bundle")
        yield f"extra/{name}", fit(extra[name])
    manifest = {
        "format": FORMAT,
        "tool": __version__,
        "facts": facts_date,
        "is_masked": is_masked,
        "targets": entries,
        "unreachable": {call(name): fit(reason).decode() for name, reason in sorted(unreachable.items())},
        "extra": sorted(extra),
    }
    yield _MANIFEST, (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode()


def _hosts(names: Iterable[str]) -> list[str]:
    return [host for name in names for host in _parts(name)]


def _parts(name: str) -> tuple[str, ...]:
    """Return what names a machine in a target, without the form around it."""
    from provision.probe.targets import parse_target

    try:
        target: Target = parse_target(name)
    except UsageError:
        return (name,)
    return tuple(filter(None, (target.host, target.container, target.pod)))


def _pseudonym(mask: Mask, name: str) -> str:
    if name in ("local", "localhost") or name.startswith("image://"):
        return name
    parts = _parts(name)
    return mask.host(parts[0]) if parts else name


def _digest(out: bytes, err: bytes) -> str:
    import hashlib

    return hashlib.sha256(b"%d:" % len(out) + out + err).hexdigest()


def _pack(file: IO[bytes], members: Iterable[tuple[str, bytes]]) -> None:
    import gzip
    import io
    import tarfile

    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w|", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, content in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(content))


class _Counted:
    """A stream that ends with an error when it gives more than a bundle can hold."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._bytes = 0

    def read(self, size: int = -1) -> bytes:
        content: bytes = self._file.read(min(size, _TOTAL_BYTES_MAX) if size >= 0 else _TOTAL_BYTES_MAX)
        self._bytes += len(content)
        if self._bytes > _TOTAL_BYTES_MAX:
            raise ValueError(f"it unpacks to more than {_TOTAL_BYTES_MAX >> 20} MiB")
        return content


def _unpack(path: Path) -> dict[str, bytes]:
    import gzip
    import stat
    import tarfile

    state = path.stat()
    if not stat.S_ISREG(state.st_mode):
        raise _refuse(path, "it is neither a file nor a folder")
    if state.st_size > _FILE_BYTES_MAX:
        raise _refuse(path, f"it is larger than {_FILE_BYTES_MAX >> 20} MiB")
    files: dict[str, bytes] = {}
    with path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            raise _refuse(path, "it is not compressed with gzip")
        file.seek(0)
        with gzip.GzipFile(fileobj=file) as zipped:
            counted = _Counted(zipped)
            archive = tarfile.open(fileobj=counted, mode="r|")  # type: ignore[call-overload]  # noqa: SIM115
            for count, entry in enumerate(archive):
                if count >= _MEMBERS_MAX:
                    raise _refuse(path, f"it holds more than {_MEMBERS_MAX} files")
                if entry.isdir():
                    continue
                name = entry.name.removeprefix("./")
                if entry.issparse() or not entry.isreg():
                    raise _refuse(path, f"`{clean_line(name, 80)}` in it is not a plain file")
                _check_name(path, name, files)
                if entry.size > _MEMBER_BYTES_MAX:
                    raise _refuse(path, f"`{name}` in it is larger than {_MEMBER_BYTES_MAX >> 20} MiB")
                taken = archive.extractfile(entry)
                files[name] = taken.read(_MEMBER_BYTES_MAX) if taken else b""
                if len(files[name]) != entry.size:
                    raise _refuse(path, f"`{name}` in it ends too early")
            # The check sum of gzip stands behind the archive and is only looked at when somebody reads that far.
            while counted.read(1024 * 1024):
                pass
    return files


def _read_folder(path: Path) -> dict[str, bytes]:
    import os
    import stat

    files: dict[str, bytes] = {}
    total = 0
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            whole = Path(folder) / name
            short = whole.relative_to(path).as_posix()
            if short != _MANIFEST and not _MEMBER.fullmatch(short):
                continue
            state = whole.lstat()
            if not stat.S_ISREG(state.st_mode):
                raise _refuse(path, f"`{short}` in it is not a plain file")
            total += state.st_size
            if total > _TOTAL_BYTES_MAX or len(files) >= _MEMBERS_MAX:
                raise _refuse(path, "it is larger than any bundle")
            files[short] = whole.read_bytes()
    return files


def _check_name(path: Path, name: str, files: Mapping[str, bytes]) -> None:
    is_extra = name.startswith("extra/") and _EXTRA.fullmatch(name[6:])
    if name != _MANIFEST and not is_extra and not _MEMBER.fullmatch(name):
        raise _refuse(path, f"`{clean_line(name, 80)}` is not a file of a bundle")
    if name in files:
        raise _refuse(path, f"`{name}` stands twice in it")


def _build(path: Path, files: Mapping[str, bytes]) -> tuple[Snapshot, ...]:
    import json

    if _MANIFEST not in files:
        raise _refuse(path, f"it holds no {_MANIFEST}")
    manifest = json.loads(files[_MANIFEST].decode("utf-8"))
    if not isinstance(manifest, dict) or not isinstance(manifest.get("format"), int):
        raise _refuse(path, "its manifest names no version")
    if manifest["format"] != FORMAT:
        raise UsageError(
            f"{path} is a bundle of format {manifest['format']}, and this program reads format {FORMAT}",
            hints=("read it with the version of `provision` that wrote it",),
        )
    entries = manifest.get("targets")
    if not isinstance(entries, list) or len(entries) > _TARGETS_MAX:
        raise _refuse(path, "its manifest lists no targets")
    snapshots: dict[str, Snapshot] = {}
    for entry in entries:
        snapshot = _snapshot(path, entry, files)
        if snapshot.target in snapshots:
            raise _refuse(path, f"target `{snapshot.target}` stands twice in it")
        snapshots[snapshot.target] = snapshot
    return tuple(snapshots.values())


def _snapshot(path: Path, entry: Any, files: Mapping[str, bytes]) -> Snapshot:
    folder, target, probes = (entry.get(key) for key in ("folder", "target", "probes"))
    if not isinstance(folder, str) or not isinstance(target, str) or not isinstance(probes, list):
        raise _refuse(path, "its manifest is incomplete")
    outputs: dict[str, Output] = {}
    for item in probes:
        name, status, code, seconds = (item.get(key) for key in ("probe", "status", "code", "seconds"))
        is_code = code is None or (isinstance(code, int) and not isinstance(code, bool))
        is_time = isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 <= seconds < 1e9
        if (
            not isinstance(name, str)
            or not _PROBE.fullmatch(name)
            or status not in STATUSES
            or not is_code
            or not is_time
        ):
            raise _refuse(path, f"its manifest describes a probe of `{clean_line(target, 80)}` in an unknown way")
        out, err = (files.get(f"{folder}/{name}.{kind}", b"") for kind in ("out", "err"))
        if item.get("digest") != _digest(out, err):
            raise _refuse(
                path, f"what `{name}` brought from `{clean_line(target, 80)}` was changed after it was written"
            )
        outputs[name] = Output(
            probe=name,
            status=status,
            code=code,
            seconds=float(seconds),
            text=redact(clean(out.decode("utf-8", "replace"))),
            error=redact(clean(err.decode("utf-8", "replace"))),
        )
    version, collected = entry.get("version"), entry.get("collected")
    return Snapshot(
        clean_line(target),
        outputs,
        collected=clean_line(collected, 40) if isinstance(collected, str) else "",
        version=version if isinstance(version, int) else 0,
    )


def _refuse(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} is not a bundle that can be read",
        because=(why,),
        hints=("`provision probe --bundle FILE` writes one",),
    )
