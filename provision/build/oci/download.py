"""Bring wheels here: several at once, each compared with its hash while it arrives, whole or not at all."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from provision.build.hashes import read_page
from provision.build.oci.layer import CHUNK_BYTES
from provision.build.oci.refused import Halt, refuse_wheel
from provision.build.oci.store import Store, digest_of
from provision.build.oci.watch import Watch
from provision.build.reader import Reader, Response, describe
from provision.errors import ActionFailedError, MissingDependencyError, without_secrets
from provision.index.page import IndexFile
from provision.records import record
from provision.resolve.requirements import LOCAL
from provision.resolve.stack import LockedPackage

_ATTEMPTS = 4
_PAUSE_SECONDS = 1.0
_PAGES_AT_ONCE = 8


@record
class Wanted:
    """A wheel to bring here; ``size`` and ``installed`` are bytes, where the lock knows them."""

    package: str
    file: str
    url: str
    sha256: str
    size: int | None = None
    installed: int | None = None


def locate(
    packages: Iterable[LockedPackage],
    reader: Reader,
    *,
    index_url: str | None = None,
) -> tuple[Wanted, ...]:
    """Find out where each locked wheel lies.

    Args:
        packages: All with a file and a sha256.
        reader: Who asks; a package without an address and an index of its own is looked up in the indexes it knows.
        index_url: Index where every package is looked up instead.

    Returns:
        The wheels in the order given.

    Raises:
        MissingDependencyError: The index does not answer, or does not have the file.
        ActionFailedError: The index has the file under another hash.
    """

    def find(package: LockedPackage) -> Wanted:
        if package.url is not None and (index_url is None or package.is_local):
            return _wanted(package, package.url)
        own = index_url or package.index_url
        indexes = (own,) if own is not None else reader.indexes()
        if not indexes:
            raise MissingDependencyError(
                f"no index is known that has {package.file}",
                because=("no variable and no configuration of pip or uv names one",),
                hints=("name one with `--index-url URL`",),
            )
        reasons = []
        for index in indexes:
            try:
                files = read_page(reader, index, package.name).files
            except MissingDependencyError as error:
                raise MissingDependencyError(
                    f"the index did not say where {package.name} {package.version} is",
                    because=(error.message, *error.because),
                    hints=(*error.hints, "try again, or name another index with `--index-url URL`"),
                ) from error
            page = f"{without_secrets(index).rstrip('/')}/{package.name}/"
            url = _choose(files, package, page)
            if url is not None:
                return _wanted(package, url)
            reasons.append(f"{page} lists {len(files)} files, and not this one")
        raise MissingDependencyError(
            f"the index does not have {package.file}",
            because=reasons,
            hints=("name an index that has it with `--index-url URL`",),
        )

    with ThreadPoolExecutor(_PAGES_AT_ONCE) as pool:
        return tuple(pool.map(find, packages))


def _choose(files: tuple[IndexFile, ...], package: LockedPackage, page: str) -> str | None:
    named = [item for item in files if item.file == package.file]
    if not named:
        return None
    for item in named:
        if item.sha256 in (None, package.sha256):
            return item.url
    raise _wrong_hash(package.file or package.name, package.sha256 or "", named[0].sha256 or "", page)


def _wanted(package: LockedPackage, url: str) -> Wanted:
    return Wanted(
        package=package.name,
        file=package.file or url.rsplit("/", 1)[-1],
        url=url,
        sha256=package.sha256 or "",
        size=package.size,
        installed=package.installed,
    )


def _wrong_hash(file: str, wanted: str, found: str, where: str) -> ActionFailedError:
    return ActionFailedError(
        f"the wheel {file} is not the one in the lock",
        because=(f"the lock says sha256 {wanted}, {where} has {found}",),
        hints=("nothing of it was kept; take another index with `--index-url URL`, and find out who changed the file",),
    )


class Wheels:
    """Brings wheels into a store; called from several threads.

    Args:
        store: Where they are kept until their layer is there.
        reader: Who asks.
        halt: Looked at between two chunks.
        watch: Told how far it is.
        local: The folder of the files that the build context holds.
    """

    def __init__(self, store: Store, reader: Reader, *, halt: Halt, watch: Watch, local: Path | None = None) -> None:
        self._local = local
        self._store = store
        self._reader = reader
        self._halt = halt
        self._watch = watch
        self.pause_seconds = _PAUSE_SECONDS

    def fetch(self, wanted: Wanted) -> Path:
        """Return a wheel's path, after it was brought here and found to be the locked one.

        Raises:
            ActionFailedError: It is another file than the lock says, or the disk takes no more.
            MissingDependencyError: It could not be had.
        """
        if wanted.url.startswith(LOCAL):
            path = (self._local or Path()) / wanted.file
            found = digest_of(path).removeprefix("sha256:") if path.is_file() else "no such file"
            if found != wanted.sha256:
                raise _wrong_hash(wanted.file, wanted.sha256, found, str(path))
            return path
        target = self._store.wheel(wanted.sha256)
        self._store.use_wheel(wanted.sha256)
        if target.is_file() and digest_of(target) == f"sha256:{wanted.sha256}":
            return target
        self._watch.begin(wanted.file, wanted.size)
        with self._store.draft() as (draft, stream):
            self._load(wanted, stream)
            stream.flush()
            target.parent.mkdir(parents=True, exist_ok=True)
            draft.replace(target)
        self._watch.end(wanted.file, "loaded")
        return target

    def _load(self, wanted: Wanted, stream: IO[bytes]) -> None:
        """Write a wheel, going on where a broken connection stopped."""
        digest = hashlib.sha256()
        why = ""
        for attempt in range(_ATTEMPTS):
            self._halt.wait(self.pause_seconds * attempt)
            try:
                is_whole = self._continue(wanted, stream, digest)
            except OSError as error:
                if _is_ours(error):
                    raise
                why = describe(error, wanted.url)
                continue
            if not is_whole:
                why = f"the connection ended after {stream.tell()} bytes"
                continue
            if digest.hexdigest() != wanted.sha256:
                raise _wrong_hash(wanted.file, wanted.sha256, digest.hexdigest(), _name_address(wanted.url))
            return
        raise MissingDependencyError(
            f"the wheel {wanted.file} could not be loaded",
            because=(f"{_name_address(wanted.url)}: {why}", f"tried {_ATTEMPTS} times"),
            hints=("try again, or take another index with `--index-url URL`", "nothing of it was kept"),
        )

    def _continue(self, wanted: Wanted, stream: IO[bytes], digest: hashlib._Hash) -> bool:
        """Read on from where the file ends; tell whether all of it is here."""
        from http.client import HTTPException
        from urllib.error import HTTPError

        have = stream.tell()
        headers = {"User-Agent": "provision", "Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        if not wanted.url.startswith(("https://", "http://")):
            raise refuse_wheel(wanted.file, f"{_name_address(wanted.url)} is not an http address")
        try:
            with self._reader.open(wanted.url, headers) as response:
                if have and response.status != 206:
                    # It starts again from the first byte, and so does the digest.
                    for _ in _chunks(response, have):
                        self._halt.check()
                left = _length(response.headers)
                if left is not None and have and response.status != 206:
                    left -= have
                for chunk in _chunks(response, None):
                    self._halt.check()
                    _write(stream, chunk)
                    digest.update(chunk)
                    self._watch.advance(wanted.file, len(chunk))
                    left = None if left is None else left - len(chunk)
                    if wanted.size is not None and stream.tell() > wanted.size:
                        raise refuse_wheel(wanted.file, f"more arrives than the {wanted.size} bytes of the lock")
        except HTTPError as error:
            error.close()
            raise OSError(describe(error, wanted.url)) from error
        except (HTTPException, ValueError) as error:
            raise OSError(str(error) or type(error).__name__) from error
        if wanted.size is not None:
            return stream.tell() == wanted.size
        return not left or left < 0


class _DiskError(OSError):
    """The disk, and not the network, failed."""


def _is_ours(error: OSError) -> bool:
    return isinstance(error, _DiskError)


def _write(stream: IO[bytes], chunk: bytes) -> None:
    try:
        stream.write(chunk)
    except OSError as error:
        raise _DiskError(error.errno, error.strerror) from error


def _chunks(response: Response, limit: int | None) -> Iterable[bytes]:
    left = limit
    while left is None or left > 0:
        chunk = response.read(CHUNK_BYTES if left is None else min(left, CHUNK_BYTES))
        if not chunk:
            return
        yield chunk
        left = None if left is None else left - len(chunk)


def _length(headers: Mapping[str, str]) -> int | None:
    text = headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() else None


def _name_address(url: str) -> str:
    """Return an address as a message shows it: neither its user nor its query, which may sign it."""
    return without_secrets(url).partition("?")[0]
