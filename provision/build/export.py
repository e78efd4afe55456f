"""Choose how a finished build leaves the builder.

The same layers cost 17 s or 180 s to hand over, depending on where the engine keeps its images and in which form they
are asked for (``tests/benchmarks/build_export.py`` measures it), so the choice is made from the store and from the
purpose.

* A graph-driver store (``overlay2``) keeps layers as unpacked folders. Handing over is one copy, no compression; its
  exporter takes no options, and a later push compresses with gzip.
* The containerd store keeps layers as blobs and unpacks them as well. Its default, gzip, takes three times as long as
  zstd; no compression saves a fifth of zstd's time and costs twice its disk, and a later push sends the zstd blobs
  as they are.
* Time stamps inside layers can be rewritten only where the result is not unpacked, which is the file export.
  Everywhere else the epoch reaches the image's configuration alone.

Layers of the base are never compressed anew: a registry that has the base recognises them only as they were pulled.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from provision.errors import MissingDependencyError, UsageError

Purpose = Literal["local", "push", "file"]
Kind = Literal["oci", "docker", "tar", "local"]

CONTAINERD = "containerd"
_ZSTD = (("compression", "zstd"), ("compression-level", "3"), ("oci-mediatypes", "true"))
_KINDS: tuple[Kind, ...] = ("oci", "docker", "tar", "local")
_BOOLEAN = "true|false"
# What a builder understands beside type and dest, for archives of images; file systems have but their time stamps.
_OPTIONS = {
    "compression": "zstd|gzip|estargz|uncompressed",
    "compression-level": "[0-9]|1[0-9]|2[0-2]",
    "force-compression": _BOOLEAN,
    "oci-mediatypes": _BOOLEAN,
    "rewrite-timestamp": _BOOLEAN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a person wants the result, as ``--output`` says it.

    Attributes:
        kind: ``oci`` and ``docker`` are archives of the image, ``tar`` and ``local`` its file system.
        path: The file, or for ``local`` the folder.
        options: For the builder, in the order they were given.
    """

    kind: Kind
    path: Path
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """How the builder hands an image over.

    Attributes:
        purpose: What the image is for.
        exporter: BuildKit's exporter; ``engine`` where the builder knows only its own store.
        options: The exporter's options, in the order they are written.
        is_saved: The image goes into the store first and is saved to a file from there.
        why: One sentence for the person who waits.
    """

    purpose: Purpose
    exporter: Literal["docker", "image", "oci", "tar", "local", "engine"]
    options: tuple[tuple[str, str], ...] = ()
    is_saved: bool = False
    why: str

    def output(self, destination: str | None = None) -> str | None:
        """Return the value of ``--output``, or nothing where the builder takes none.

        Args:
            destination: Path of the archive, for the exporter that writes one.
        """
        if self.exporter == "engine":
            return None
        pairs: list[tuple[str, str]] = [("type", self.exporter)]
        if destination is not None and not self.is_saved:
            pairs.append(("dest", destination))
        return ",".join(quote_field(f"{key}={value}") for key, value in (*pairs, *self.options))


def quote_field(text: str) -> str:
    """Quote one field of a builder's flag, which is a CSV record."""
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


def parse_output(text: str) -> Destination:
    """Read the value of ``--output``: the fields of a builder's flag, a CSV record.

    Raises:
        UsageError: A field is malformed, unknown or missing.
    """
    try:
        rows = list(csv.reader([text], strict=True))
        fields = [field.partition("=") for field in rows[0]]
    except (csv.Error, IndexError) as error:
        raise _no_output(text, f"it is not a list of fields ({error})") from error
    values: dict[str, str] = {}
    for key, equals, value in fields:
        if not equals or not value or not value.isprintable():
            raise _no_output(text, f"`{key}` has no value" if key.isprintable() else "it holds control characters")
        if values.setdefault(key, value) != value:
            raise _no_output(text, f"`{key}` stands there twice")
    kind = values.pop("type", "")
    if kind in ("image", "registry"):
        raise _no_output(text, "images go to a store with `--build`, to a registry with `--push`")
    if kind not in _KINDS:
        raise _no_output(text, f"type `{kind}` is none of {', '.join(_KINDS)}")
    path = values.pop("dest", None)
    if path is None or path == "-":
        raise _no_output(text, "`dest=` names the file" if path is None else "`dest=-` would mix with what is printed")
    known = _OPTIONS if kind in ("oci", "docker") else {}
    for key, value in values.items():
        if key not in known:
            raise _no_output(text, f"`{key}` is nothing that type `{kind}` takes" + _listed(known))
        if not re.fullmatch(known[key], value):
            raise _no_output(text, f"`{key}={value}` is not one of {known[key].replace('|', ', ')}")
    return Destination(kind=kind, path=Path(path), options=tuple(values.items()))


def _listed(known: dict[str, str]) -> str:
    return f"; it takes {', '.join(known)}" if known else ""


def _no_output(text: str, why: str) -> UsageError:
    shown = text if text.isprintable() and len(text) < 200 else repr(text)[:200]
    return UsageError(
        f"--output `{shown}` makes no sense",
        because=(why,),
        hints=("write it as in `--output type=oci,dest=image.tar`",),
    )


def choose_export(
    image_store: str,
    purpose: Purpose,
    *,
    is_buildx: bool = True,
    compression: str | None = None,
    destination: Destination | None = None,
) -> Export:
    """Choose the cheapest export that serves a purpose, and what was asked for exactly.

    Args:
        image_store: ``containerd``, or the name of the engine's graph driver (``overlay2``).
        purpose: ``local`` use, a ``push`` to a registry after the image was proved, or an archive ``file``.
        is_buildx: The builder takes ``--output``; older builders and the classic one do not.
        compression: Of the layers, where somebody asked for one.
        destination: What the builder is to write, where somebody asked for it.

    Raises:
        MissingDependencyError: This engine cannot do what was asked for.
    """
    is_containerd = is_buildx and image_store == CONTAINERD
    if destination is not None and destination.kind in ("tar", "local"):
        if not is_buildx:
            raise _cannot("write a file system", image_store)
        if compression is not None:
            raise UsageError(f"--compression: type `{destination.kind}` has no layers", hints=("leave it out",))
        why = "the file system of the image was asked for, without its configuration"
        return Export(purpose="file", exporter=destination.kind, options=destination.options, why=why)
    given = destination.options if destination is not None else ()
    if compression is not None:
        level = (("compression-level", "3"),) if compression == "zstd" else ()
        given = (("compression", compression), *level, ("oci-mediatypes", "true"), *given)
    if given and not is_containerd:
        raise _cannot("compress layers as asked", image_store)
    if given or (destination is not None and is_containerd):
        exporter: Literal["docker", "image", "oci"] = "image"
        if destination is not None:
            exporter = "docker" if destination.kind == "docker" else "oci"
        elif purpose == "file":
            exporter = "oci"
        return Export(
            purpose=purpose,
            exporter=exporter,
            options=tuple({**dict(_defaults(exporter)), **dict(given)}.items()),
            why="written as it was asked for",
        )
    return _cheapest(image_store, purpose, is_buildx=is_buildx)


def _defaults(exporter: str) -> tuple[tuple[str, str], ...]:
    # An archive of the engine's own kind knows no zstd.
    return (*_ZSTD, ("rewrite-timestamp", "true")) if exporter == "oci" else ()


def _cannot(what: str, image_store: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"this engine cannot {what}",
        because=(f"its {image_store} store takes and keeps layers unpacked",),
        hints=(
            'switch on its containerd store: `{"features": {"containerd-snapshotter": true}}` in daemon.json',
            "or build with another builder: `--matrix FILE` writes a bake file for any of buildx",
        ),
    )


def _cheapest(image_store: str, purpose: Purpose, *, is_buildx: bool) -> Export:
    if not is_buildx:
        return Export(
            purpose=purpose,
            exporter="engine",
            is_saved=purpose == "file",
            why="this builder writes into the engine's own store and nowhere else",
        )
    if image_store != CONTAINERD:
        whys = {
            "local": f"the {image_store} store takes layers as they are, so nothing is compressed",
            "push": f"the {image_store} store takes layers as they are; the engine compresses them with gzip when it "
            "pushes (its containerd store would push zstd)",
            "file": f"the {image_store} store cannot export an OCI archive, so the image is saved from the store",
        }
        return Export(purpose=purpose, exporter="docker", is_saved=purpose == "file", why=whys[purpose])
    if purpose == "file":
        return Export(
            purpose=purpose,
            exporter="oci",
            options=(*_ZSTD, ("rewrite-timestamp", "true")),
            why="an archive is not unpacked, so its time stamps can be rewritten and equal builds give equal bytes",
        )
    whys = {
        "local": "in the containerd store zstd takes a third of gzip's time and half the disk of no compression",
        "push": "the containerd store pushes the zstd blobs that are made here without compressing again",
    }
    return Export(purpose=purpose, exporter="image", options=_ZSTD, why=whys[purpose])
