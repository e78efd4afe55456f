"""What files ask for, as one record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from provision.project.pins import Pin
from provision.records import NOTHING, record
from provision.resolve.named import FrameworkLine


@record
class Inputs:
    """What files ask for.

    Attributes:
        lines: Requirements, each with its place.
        constraints: Bounds on what is there.
        overrides: Requirements that stand for whatever else is asked of the packages they name.
        excludes: Packages that nothing brings.
        indexes: Further package indexes, the one that is asked first at the front; pages of links after
            ``find-links:``.
        sources: Packages that come from one index alone, as a request has them.
        cuda: CUDA that an index of PyTorch's, or a package of conda, names.
        is_cpu: An index of PyTorch's without CUDA is named.
        python: The Pythons that will do, as ``--python`` takes them.
        code: The folder of the project.
        empty: That it asks for nothing, a sentence.
        pins: Versions that a lock of the project holds: wishes, kept where they fit.
        files: Name → path of wheels and archives of this machine that lines name.
        hashes: Name → the place of a line, and the SHA-256 of the files that will do for it.
        folders: Folders of this machine with more of them.
        projects: Folders of this machine whose own code is meant too, the project's first.
        read: What was read, a sentence each.
        warnings: What was left out, a sentence each.
        places: Where ``cuda``, ``cpu`` and ``python`` stand.
    """

    lines: tuple[FrameworkLine, ...] = ()
    constraints: tuple[FrameworkLine, ...] = ()
    overrides: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    cuda: str | None = None
    is_cpu: bool = False
    python: str | None = None
    code: Path | None = None
    empty: str | None = None
    pins: tuple[Pin, ...] = ()
    files: Mapping[str, Path] = NOTHING
    hashes: Mapping[str, tuple[str, frozenset[str]]] = NOTHING
    folders: tuple[Path, ...] = ()
    projects: tuple[Path, ...] = ()
    read: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    places: Mapping[str, str] = NOTHING
