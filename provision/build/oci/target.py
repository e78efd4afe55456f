"""Write an image down: an OCI layout as a folder, or as an archive that ``docker load`` reads too."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from provision.build.archive import written_beside
from provision.build.oci.base import Base
from provision.build.oci.layer import CHUNK_BYTES, Layer
from provision.build.oci.refused import Halt, refuse_base
from provision.build.oci.store import Store
from provision.errors import ActionFailedError, UsageError
from provision.records import record

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@record
class Formats:
    """Facts about formats.

    Attributes:
        layout: Version of OCI layouts.
        hub: The registry that short names of images leave out.
    """

    layout: str
    hub: str


@record
class Document:
    """A JSON document and what refers to it."""

    media_type: str
    content: bytes
    digest: str

    @classmethod
    def of(cls, media_type: str, value: dict[str, Any]) -> Document:
        """Write a document down, the same bytes for the same value."""
        content = _json(value)
        return cls(media_type=media_type, content=content, digest=f"sha256:{hashlib.sha256(content).hexdigest()}")

    def descriptor(self) -> dict[str, Any]:
        """Return what refers to it."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": len(self.content)}


def manifest_of(config: Document, layers: tuple[Layer, ...], annotations: dict[str, str]) -> Document:
    """Return the manifest of an image."""
    rows = [{"mediaType": item.media_type, "digest": item.digest, "size": item.size} for item in layers]
    return Document.of(
        _MANIFEST,
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": config.descriptor(),
            "layers": rows,
            **({"annotations": annotations} if annotations else {}),
        },
    )


def check_target(path: Path, *, is_folder: bool) -> None:
    """Refuse a target that cannot be written or that is not ours to replace.

    Raises:
        UsageError: It is.
    """
    if not path.parent.is_dir():
        raise UsageError(f"{path} cannot be written", because=(f"{path.parent} is not a folder",))
    if is_folder and path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file", hints=("name a folder, or an archive that ends in `.tar`",))
    if is_folder and path.is_dir() and any(path.iterdir()) and not (path / "oci-layout").is_file():
        raise UsageError(f"{path} is a folder with something else in it", hints=("name one that is not there yet",))
    if not is_folder and path.is_dir():
        raise UsageError(f"{path} is a folder", hints=("name another archive",))


class Target:
    """Where an image goes.

    Args:
        path: The folder or archive.
        is_folder: Which of the two.
        mtime: Date of every entry of an archive, in seconds.
        halt: Looked at between two chunks.
    """

    def __init__(self, path: Path, *, is_folder: bool, mtime: int, halt: Halt) -> None:
        self._path = path
        self._is_folder = is_folder
        self._mtime = mtime
        self._halt = halt

    def write(
        self,
        tags: tuple[str, ...],
        platform: str,
        config: Document,
        manifest: Document,
        layers: tuple[Layer, ...],
        base: Base,
        store: Store,
        formats: Formats,
    ) -> None:
        """Write the image, whole or not at all."""
        check_target(self._path, is_folder=self._is_folder)
        documents = {_name(item.digest): item.content for item in (config, manifest)}
        documents |= {
            "index.json": _json(_index(tags, platform, manifest, formats)),
            "oci-layout": _json({"imageLayoutVersion": formats.layout}),
            "manifest.json": _json(_saved(tags, config, layers)),
        }
        sources: dict[str, tuple[str, Path | None]] = {}
        below = {layer.digest: layer.name for layer in base.layers}
        for layer in layers:
            kept = None if layer.digest in below else store.blob(layer.digest)
            sources[_name(layer.digest)] = (below.get(layer.digest, ""), kept)
        sizes = {_name(layer.digest): layer.size for layer in layers}
        if self._is_folder:
            self._write_folder(documents, sources, sizes, base)
        else:
            self._write_archive(documents, sources, sizes, base)

    def _write_archive(
        self,
        documents: dict[str, bytes],
        sources: dict[str, tuple[str, Path | None]],
        sizes: dict[str, int],
        base: Base,
    ) -> None:
        with written_beside(self._path) as unfinished, unfinished.open("wb") as file:
            for folder in ("blobs/", "blobs/sha256/"):
                file.write(self._header(folder, kind=tarfile.DIRTYPE))
            for name in sorted({*documents, *sources}):
                if name in documents:
                    size = len(documents[name])
                    file.write(self._header(name, size=size) + documents[name])
                else:
                    size = sizes[name]
                    file.write(self._header(name, size=size))
                    self._copy(name, size, sources[name], base, file)
                file.write(bytes(-size % 512))
            file.write(bytes(1024))

    def _write_folder(
        self,
        documents: dict[str, bytes],
        sources: dict[str, tuple[str, Path | None]],
        sizes: dict[str, int],
        base: Base,
    ) -> None:
        draft = Path(tempfile.mkdtemp(prefix=f".{self._path.name}.", dir=self._path.parent))
        try:
            draft.chmod(0o755)
            (draft / "blobs" / "sha256").mkdir(parents=True)
            for name, content in documents.items():
                (draft / name).write_bytes(content)
            for name, source in sources.items():
                if source[1] is None or not _link(source[1], draft / name):
                    with (draft / name).open("wb") as file:
                        self._copy(name, sizes[name], source, base, file)
            _put_in_place(draft, self._path)
        except OSError as error:
            raise ActionFailedError(f"{self._path} cannot be written", because=(str(error),)) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _header(self, name: str, *, size: int = 0, kind: bytes = tarfile.REGTYPE) -> bytes:
        info = tarfile.TarInfo(name)
        info.type, info.size, info.mtime = kind, size, self._mtime
        info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
        return info.tobuf(tarfile.PAX_FORMAT)

    def _copy(self, name: str, size: int, source: tuple[str, Path | None], base: Base, target: IO[bytes]) -> None:
        """Copy a blob, and refuse one that is no longer what its descriptor says."""
        digest = hashlib.sha256()
        with closing(_open(source, base)) as blob:
            for chunk in _chunks(blob):
                self._halt.check()
                size -= len(chunk)
                if size < 0:
                    break
                digest.update(chunk)
                target.write(chunk)
        if size or digest.hexdigest() != name.rsplit("/", 1)[-1]:
            if source[1] is None:
                raise refuse_base(base.where, f"{source[0]} was changed while the image was written")
            raise ActionFailedError(f"{source[1]} was changed while the image was written", hints=("try again",))


def _put_in_place(draft: Path, path: Path) -> None:
    if not path.exists():
        draft.rename(path)
        return
    # A folder cannot be replaced in one step, so the old one goes aside, and comes back if the new one cannot.
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
    try:
        old = path.rename(aside / "layout")
        try:
            draft.rename(path)
        except OSError:
            old.rename(path)
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _link(source: Path, target: Path) -> bool:
    """Share a blob with the cache, which never writes into one again; tell whether the disk can."""
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def _open(source: tuple[str, Path | None], base: Base) -> IO[bytes]:
    name, path = source
    return base.shelf.open(name) if path is None else path.open("rb")


def _chunks(source: IO[bytes]) -> Iterator[bytes]:
    while chunk := source.read(CHUNK_BYTES):
        yield chunk


def _index(tags: tuple[str, ...], platform: str, manifest: Document, formats: Formats) -> dict[str, Any]:
    system, _, machine = platform.partition("/")
    row = {**manifest.descriptor(), "platform": {"architecture": machine, "os": system}}
    rows = [
        {
            **row,
            "annotations": {
                "io.containerd.image.name": _full(tag, formats.hub),
                "org.opencontainers.image.ref.name": _label(tag),
            },
        }
        for tag in tags
    ]
    return {"schemaVersion": 2, "mediaType": _INDEX, "manifests": rows or [row]}


def _saved(tags: tuple[str, ...], config: Document, layers: tuple[Layer, ...]) -> list[dict[str, Any]]:
    """Return the list that engines without a store for OCI images load from."""
    names = [_name(layer.digest) for layer in layers]
    return [{"Config": _name(config.digest), "RepoTags": [_tagged(tag) for tag in tags], "Layers": names}]


def _name(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _tagged(tag: str) -> str:
    return tag if ":" in tag.rsplit("/", 1)[-1] else f"{tag}:latest"


def _label(tag: str) -> str:
    return _tagged(tag).rsplit(":", 1)[-1]


def _full(tag: str, hub: str) -> str:
    """Return a name as containerd's stores write it, with the registry that engines take for granted."""
    name = _tagged(tag)
    host, slash, _ = name.partition("/")
    if slash and ("." in host or ":" in host or host == "localhost"):
        return name
    return f"{hub}/{name if slash else f'library/{name}'}"


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
