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

from dataclasses import dataclass
from typing import Literal

__all__ = ["CONTAINERD", "Export", "Purpose", "choose_export", "quote_field"]

Purpose = Literal["local", "push", "file"]

CONTAINERD = "containerd"
_ZSTD = (("compression", "zstd"), ("compression-level", "3"), ("oci-mediatypes", "true"))


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
    exporter: Literal["docker", "image", "oci", "engine"]
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
        if destination is not None and self.exporter == "oci":
            pairs.append(("dest", destination))
        return ",".join(quote_field(f"{key}={value}") for key, value in (*pairs, *self.options))


def quote_field(text: str) -> str:
    """Quote one field of a builder's flag, which is a CSV record."""
    return '"' + text.replace('"', '""') + '"' if "," in text or '"' in text else text


def choose_export(image_store: str, purpose: Purpose, *, is_buildx: bool = True) -> Export:
    """Choose the cheapest export that serves a purpose.

    Args:
        image_store: ``containerd``, or the name of the engine's graph driver (``overlay2``).
        purpose: ``local`` use, a ``push`` to a registry after the image was proved, or an archive ``file``.
        is_buildx: The builder takes ``--output``; older builders and the classic one do not.
    """
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
