"""What the facts know of the image an environment stands on."""

from __future__ import annotations

import re
from functools import lru_cache

from provision.audit.model import Base, Environment
from provision.matrix.load import Matrix
from provision.matrix.model import CudaImage
from provision.matrix.query import hub_name
from provision.versions import minor_of, parse, spec_of

_PYTHON = "python"
_CUDA = "nvidia/cuda"


def is_cuda_repository(matrix: Matrix, base: Base) -> bool:
    """Tell whether an image is one of nvidia/cuda, from whichever registry that carries it."""
    return base.repository in {hub_name(matrix, name) for name in matrix.setting("images.toml", "registries").values}


def cuda_image(matrix: Matrix, base: Base) -> CudaImage | None:
    """Return the row of an nvidia/cuda tag, ``None`` for other images and unknown tags."""
    if not base.tag or not is_cuda_repository(matrix, base):
        return None
    wanted = f"nvidia/cuda:{base.tag}"
    return _tagged(matrix, wanted)


@lru_cache(maxsize=64)
def _tagged(matrix: Matrix, wanted: str) -> CudaImage | None:
    """Return the row of a tag; one tag is asked about by many rules, and there are many rows."""
    rows: tuple[CudaImage, ...] = matrix.rows_with("images.toml", "cuda_image", "tag", wanted)
    return rows[0] if rows else None


def is_proved_absent(matrix: Matrix, base: Base) -> bool:
    """Tell whether an nvidia/cuda tag surely never was: its release is one whose tags are all listed.

    A tag that is named together with a digest is not looked up by any engine.
    """
    if base.digest or base.reference is None or not is_cuda_repository(matrix, base):
        return False
    if has_moving_tag(base):
        return True
    if cuda_image(matrix, base) is not None or "tensorrt" in base.tag:
        return False
    version = re.match(r"[0-9]+\.[0-9]+(\.[0-9]+)?(?=-)", base.tag)
    if version is None:
        return False
    rows = list(matrix.cuda_images_below(minor_of(version[0])))
    if version[1]:
        rows = [row for row in rows if row.cuda == version[0]]
    listed_until = matrix.setting("audit_rules.toml", "cuda_images_listed_until").value or "0"
    return bool(rows) and all(row.lifecycle != "unlisted" and parse(row.cuda) <= parse(listed_until) for row in rows)


def is_deleted(matrix: Matrix, base: Base) -> bool:
    """Tell whether the tag was taken off the registry: by NVIDIA's own lists, or with all tags of its CUDA release."""
    if not base.tag:
        return False
    image = cuda_image(matrix, base)
    if image is not None and image.lifecycle == "deleted":
        return True
    version = re.match(r"[0-9]+\.[0-9]+", base.tag)
    taken_off = matrix.setting("audit_rules.toml", "cuda_images_taken_off").values
    return base.repository == _CUDA and version is not None and version[0] in taken_off


def has_old_key(matrix: Matrix, base: Base) -> bool:
    """Tell whether an image was built with NVIDIA's repository before its key changed, and never again."""
    if f"{base.repository}:{base.tag}" in matrix.setting("audit_rules.toml", "old_key_tags").values:
        return True
    wanted = matrix.setting("audit_rules.toml", "old_key_images").entries.get(base.repository or "")
    if wanted is None:
        return False
    versions, _, part = wanted.partition(" ")
    version = base.tag.partition("-")[0]
    is_release = re.fullmatch(r"[0-9]+(\.[0-9]+)+", version) is not None
    return is_release and part in base.tag.split("-") and version in spec_of(versions)


def has_moving_tag(base: Base) -> bool:
    """Tell whether a tag names no version: absent, ``latest``, ``slim``."""
    # `name:` is what an undefined variable leaves, and no image at all.
    is_cut_off = (base.reference or "").endswith(":")
    return not base.digest and not is_cut_off and not re.search(r"[0-9]", base.tag)


def is_plain(matrix: Matrix, environment: Environment) -> bool:
    """Tell whether the base is an official image of a system or of Python, which knows nothing of GPUs."""
    base = environment.base
    return base is not None and base.repository in {_PYTHON, *_systems(matrix)}


def may_have_frameworks(matrix: Matrix, environment: Environment) -> bool:
    """Tell whether the base may come with frameworks: it is neither a plain image nor one of nvidia/cuda."""
    base = environment.base
    return base is not None and not (is_plain(matrix, environment) or is_cuda_repository(matrix, base))


def is_framework_image(matrix: Matrix, environment: Environment) -> bool:
    """Tell whether the base is the image of a framework that holds little beside it."""
    base = environment.base
    images = matrix.setting("audit_rules.toml", "framework_images").entries
    return base is not None and base.repository in images and not base.is_own_build


def is_bare(matrix: Matrix, environment: Environment) -> bool:
    """Tell whether the base is known to leave the shell of RUN and what that reads as Docker has it."""
    base = environment.base
    if base is None or base.repository is None:
        return False
    bare = matrix.setting("audit_rules.toml", "bare_images").values
    return base.repository in bare or is_plain(matrix, environment) or is_cuda_repository(matrix, base)


def starts_as_root(matrix: Matrix, base: Base) -> bool:
    """Tell whether an image is known to set no user of its own."""
    return base.repository in {_PYTHON, *_systems(matrix)} or is_cuda_repository(matrix, base)


def _systems(matrix: Matrix) -> set[str]:
    return {row.image.partition(":")[0] for row in matrix.os_releases if row.image is not None}
