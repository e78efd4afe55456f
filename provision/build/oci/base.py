"""Read the image to build on: an OCI layout as a folder or an archive, or what ``docker save`` writes."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Protocol, Self

from provision.build.oci.codec import open_layer
from provision.build.oci.layer import CHUNK_BYTES
from provision.build.oci.refused import Halt, refuse_base
from provision.build.oci.tree import Tree
from provision.errors import ActionFailedError, UsageError
from provision.records import record, replace

_DOCUMENT_BYTES_MAX = 4 * 1024 * 1024
_DEPTH_MAX = 4
_HEADER_BYTES_MAX = 1024 * 1024
_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
_MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
_TAR = "application/vnd.oci.image.layer.v1.tar"
_LAYERS = {
    _TAR: _TAR,
    f"{_TAR}+gzip": f"{_TAR}+gzip",
    f"{_TAR}+zstd": f"{_TAR}+zstd",
    "application/vnd.docker.image.rootfs.diff.tar": _TAR,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": f"{_TAR}+gzip",
}


@record
class BaseLayer:
    """A layer of the base, as it lies there; ``digest`` is empty until the blob was read."""

    name: str
    digest: str
    size: int
    media_type: str
    diff_id: str


@record
class Base:
    """An image to build on.

    Attributes:
        where: As the person named it.
        config: Its configuration document.
        layers: Lowest first.
        digests: Of its manifest and of every index above it.
        shelf: What its blobs are read from.
    """

    where: str
    config: Mapping[str, Any]
    layers: tuple[BaseLayer, ...]
    digests: tuple[str, ...]
    shelf: Shelf


class Shelf(Protocol):
    """A place with files in it."""

    def open(self, name: str) -> IO[bytes]:
        """Return a file at its beginning.

        Raises:
            KeyError: There is none of that name.
        """

    def size(self, name: str) -> int:
        """Return a file's bytes.

        Raises:
            KeyError: There is none of that name.
        """


class _Header(tarfile.TarInfo):
    """A header of a tar; the standard library reads one that continues another whole, however long it claims to be."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.type in _HEADERS and not 0 <= found.size <= _HEADER_BYTES_MAX:
            raise tarfile.ReadError(f"a header of {found.size} bytes, more than {_HEADER_BYTES_MAX}")
        if found.type == tarfile.GNUTYPE_SPARSE:
            # Its map goes on for as long as it says, and no tool for images writes one.
            raise tarfile.ReadError("a sparse file")
        return found

    def _proc_gnusparse_10(self, *_: object) -> None:
        # The same map in the newer format, which only shows in a header that was read already.
        raise tarfile.ReadError("a sparse file")


class _Folder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, name: str) -> IO[bytes]:
        try:
            return self._path(name).open("rb")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise KeyError(name) from error

    def size(self, name: str) -> int:
        try:
            return self._path(name).stat().st_size
        except (FileNotFoundError, NotADirectoryError) as error:
            raise KeyError(name) from error

    def _path(self, name: str) -> Path:
        # Names come from the base's own documents.
        if name.startswith("/") or ".." in name.split("/"):
            raise ValueError(f"{name[:120]!r} leads out of it")
        return self._folder / name


class _Archive:
    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        self._members = {item.name.removeprefix("./"): item for item in archive}

    def open(self, name: str) -> IO[bytes]:
        stream = self._archive.extractfile(self._members[name])
        if stream is None:
            raise KeyError(name)
        return stream

    def size(self, name: str) -> int:
        # Through a link, which older engines write for layers that repeat.
        stream = self.open(name)
        return stream.seek(0, io.SEEK_END)


@contextlib.contextmanager
def open_base(path: Path, platform: str, digest: str | None) -> Iterator[Base]:
    """Open a base.

    Args:
        path: A folder or an archive.
        platform: The one to choose (``linux/amd64``).
        digest: What the lock says the base is; absent where it does not say.

    Raises:
        UsageError: The path is no base, or holds another one than the lock's.
        ActionFailedError: It is damaged.
    """
    try:
        with contextlib.ExitStack() as stack:
            if path.is_dir():
                shelf: Shelf = _Folder(path)
            else:
                shelf = _Archive(stack.enter_context(tarfile.open(path, "r:", tarinfo=_Header)))
            base = _read_base(str(path), shelf, platform)
            if digest is not None and digest not in base.digests:
                raise UsageError(
                    f"--base-layout: {path} is not the base of the lock",
                    because=(f"the lock says {digest}", f"it holds {', '.join(base.digests) or 'no digest at all'}"),
                    hints=(
                        "`skopeo copy --all docker://IMAGE oci:DIR` keeps the digest, `docker save` does not",
                        "or say which image it is, unverified: `--base IMAGE`",
                    ),
                )
            yield base
    except tarfile.ReadError as error:
        raise UsageError(
            f"--base-layout: {path} is neither a folder nor a plain tar archive",
            because=(str(error),),
            hints=("a compressed archive must be unpacked first",),
        ) from error
    except FileNotFoundError as error:
        raise UsageError(
            f"--base-layout: {path} does not exist",
            hints=("write one with `skopeo copy docker://IMAGE oci:DIR` or `docker save -o FILE IMAGE`",),
        ) from error
    except PermissionError as error:
        raise UsageError(f"--base-layout: {path} cannot be read", because=(error.strerror or str(error),)) from error


def _read_base(where: str, shelf: Shelf, platform: str) -> Base:
    try:
        with contextlib.suppress(KeyError):
            shelf.size("oci-layout")
            return _read_layout(where, shelf, platform)
        return _read_saved(where, shelf, platform)
    except KeyError as error:
        raise refuse_base(where, f"it lacks {error.args[0]}") from error
    except RecursionError as error:
        raise refuse_base(where, "its documents are nested too deep") from error
    except (TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise refuse_base(where, f"its documents are damaged: {str(error) or type(error).__name__}") from error


def _read_layout(where: str, shelf: Shelf, platform: str) -> Base:
    index = json.loads(_read(shelf, "index.json", where))
    found = _find_manifests(where, shelf, index, platform, ())
    if not found:
        raise UsageError(f"--base-layout: {where} holds no image for {platform}")
    if len({digests[-1] for digests, _ in found}) > 1:
        raise UsageError(
            f"--base-layout: {where} holds {len(found)} images for {platform}",
            hints=("write a layout that holds the base alone",),
        )
    digests, manifest = found[0]
    config = _document(shelf, manifest["config"], where)
    diff_ids = config["rootfs"]["diff_ids"]
    layers = []
    for row, diff_id in zip(manifest["layers"], diff_ids, strict=True):
        if row["mediaType"] not in _LAYERS:
            raise refuse_base(where, f"a layer of it has the media type {row['mediaType']!r}")
        layers.append(
            BaseLayer(
                name=_blob(row["digest"]),
                digest=row["digest"],
                size=int(row["size"]),
                media_type=_LAYERS[row["mediaType"]],
                diff_id=_checked(diff_id),
            )
        )
    return _checked_platform(
        Base(where=where, config=config, layers=tuple(layers), digests=digests, shelf=shelf), platform
    )


def _find_manifests(
    where: str, shelf: Shelf, index: dict[str, Any], platform: str, above: tuple[str, ...]
) -> list[tuple[tuple[str, ...], dict[str, Any]]]:
    """Return each image manifest of a platform, with the digests of what led there."""
    found = []
    for row in index["manifests"]:
        named = row.get("platform")
        if named is not None and f"{named.get('os')}/{named.get('architecture')}" != platform:
            continue
        chain = (*above, _checked(row["digest"]))
        with contextlib.suppress(KeyError):
            # A layout of one platform lists the others without having them.
            shelf.size(_blob(row["digest"]))
            document = _document(shelf, row, where)
            kind = document.get("mediaType", row.get("mediaType"))
            if kind in _INDEXES and len(chain) < _DEPTH_MAX:
                found += _find_manifests(where, shelf, document, platform, chain)
            elif kind in _MANIFESTS and (named is not None or _platform_of(shelf, document, where) == platform):
                found.append((chain, document))
    return found


def _platform_of(shelf: Shelf, manifest: dict[str, Any], where: str) -> str:
    config = _document(shelf, manifest["config"], where)
    return f"{config.get('os')}/{config.get('architecture')}"


def _read_saved(where: str, shelf: Shelf, platform: str) -> Base:
    rows = json.loads(_read(shelf, "manifest.json", where))
    if len(rows) != 1:
        raise UsageError(
            f"--base-layout: {where} holds {len(rows)} images",
            hints=("save the base alone: `docker save -o FILE IMAGE`",),
        )
    config = json.loads(_read(shelf, rows[0]["Config"], where))
    layers = tuple(
        BaseLayer(name=name, digest="", size=shelf.size(name), media_type=_TAR, diff_id=_checked(diff_id))
        for name, diff_id in zip(rows[0]["Layers"], config["rootfs"]["diff_ids"], strict=True)
    )
    return _checked_platform(Base(where=where, config=config, layers=layers, digests=(), shelf=shelf), platform)


def _checked_platform(base: Base, platform: str) -> Base:
    found = f"{base.config.get('os')}/{base.config.get('architecture')}"
    if found != platform:
        raise UsageError(f"--base-layout: {base.where} is for {found}, the stack for {platform}")
    return base


def _document(shelf: Shelf, row: dict[str, Any], where: str) -> dict[str, Any]:
    digest = _checked(row["digest"])
    content = _read(shelf, _blob(digest), where)
    if hashlib.sha256(content).hexdigest() != digest.removeprefix("sha256:"):
        raise refuse_base(where, f"the blob {digest} is damaged")
    document: dict[str, Any] = json.loads(content)
    return document


def _read(shelf: Shelf, name: str, where: str) -> bytes:
    with shelf.open(name) as file:
        content = file.read(_DOCUMENT_BYTES_MAX + 1)
    if len(content) > _DOCUMENT_BYTES_MAX:
        raise refuse_base(where, f"{name} is larger than {_DOCUMENT_BYTES_MAX} bytes")
    return content


def _checked(digest: str) -> str:
    if not _DIGEST.fullmatch(digest):
        raise ValueError(f"{digest!r} is not a digest")
    return digest


def _blob(digest: str) -> str:
    return f"blobs/{_checked(digest).replace(':', '/')}"


class _Digested(io.RawIOBase):
    """A stream that digests what is read of it."""

    def __init__(self, stream: IO[bytes], halt: Halt) -> None:
        self.digest = hashlib.sha256()
        self.size = 0
        self._stream = stream
        self._halt = halt

    def read(self, size: int = -1, /) -> bytes:
        self._halt.check()
        data = self._stream.read(size)
        self.digest.update(data)
        self.size += len(data)
        return data

    def drain(self) -> str:
        while self.read(CHUNK_BYTES):
            pass
        return f"sha256:{self.digest.hexdigest()}"


def read_tree(base: Base, halt: Halt) -> tuple[Base, Tree]:
    """Read every layer once: compare it with its digests and see which files the base has.

    Returns:
        The base, the digest of every layer known now, and its tree.

    Raises:
        ActionFailedError: A layer is missing or is not what its digest says.
    """
    tree = Tree()
    layers = []
    for layer in base.layers:
        try:
            layers.append(_read_layer(base, layer, tree, halt))
        except KeyError as error:
            raise refuse_base(base.where, f"it lacks the layer {layer.name}") from error
        except RecursionError as error:
            raise refuse_base(base.where, f"the layer {layer.name} has too many headers for one file") from error
        except (tarfile.TarError, EOFError, OSError, ValueError) as error:
            raise refuse_base(base.where, f"the layer {layer.name} cannot be read: {error}") from error
        except ActionFailedError:
            raise
        except Exception as error:
            # The decompressor's own error, whose type differs between its bindings.
            if type(error).__name__ != "ZstdError":
                raise
            raise refuse_base(base.where, f"the layer {layer.name} cannot be read: {error}") from error
    return replace(base, layers=tuple(layers)), tree


def _read_layer(base: Base, layer: BaseLayer, tree: Tree, halt: Halt) -> BaseLayer:
    with base.shelf.open(layer.name) as file:
        kind = file.read(2)
        digest = layer.digest
        file.seek(0)
        if digest or kind == b"\x1f\x8b":
            blob = _Digested(file, halt)
            found = blob.drain()
            if digest and found != digest:
                raise refuse_base(base.where, f"the layer {digest} is damaged")
            if blob.size != layer.size:
                raise refuse_base(base.where, f"the layer {found} has {blob.size} bytes, not the {layer.size} it says")
            digest = found
            file.seek(0)
        unpacked = _Digested(open_layer(file), halt)
        with tarfile.open(fileobj=unpacked, mode="r|", bufsize=CHUNK_BYTES, tarinfo=_Header) as tar:
            tree.apply(tar)
        if unpacked.drain() != layer.diff_id:
            raise refuse_base(base.where, f"the layer {layer.name} does not unpack to {layer.diff_id}")
    media_type = f"{_TAR}+gzip" if not layer.digest and kind == b"\x1f\x8b" else layer.media_type
    return replace(layer, digest=digest or layer.diff_id, media_type=media_type)
