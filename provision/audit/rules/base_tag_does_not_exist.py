"""A tag that nvidia/cuda does not have, or that an image of a framework cannot have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from provision.audit.bases import has_moving_tag, is_deleted, is_proved_absent
from provision.audit.model import Base, Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import cuda_of
from provision.matrix.load import Matrix
from provision.versions import minor_of, parse

ID = "B04"

_SHOWN = 3
_TAG = re.compile(
    r"[0-9.]+(?:-gpu)?(?:-jupyter)?|[0-9.]+-cuda(?P<cuda>[0-9]+\.[0-9]+)-cudnn(?P<cudnn>[0-9]+)(?:-(?P<flavour>runtime|devel))?"
)
"""What tags of images of TensorFlow and of PyTorch look like."""


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look the tag up in NVIDIA's lists."""
    base = environment.base
    if base is None or not environment.own_base:
        return
    if base.frameworks and not base.digest and not base.is_own_build:
        yield from _of_framework(matrix, base)
    if not is_proved_absent(matrix, base):
        return
    if is_deleted(matrix, base):
        return
    near = _nearest(matrix, base)
    tag = base.tag or "latest"
    if has_moving_tag(base):
        because = "the tags of nvidia/cuda name a release, a flavour and a system; there is no short form"
    else:
        because = f"NVIDIA's lists name every tag of CUDA {tag.partition('-')[0]}, and this is none of them"
    yield found(
        matrix,
        ID,
        span=base.span,
        message=f"{base.repository}:{tag} does not exist",
        reasons=(because,),
        hint=f"tags that are there: {', '.join(near)}" if near else "",
        facts=[f"image/nvidia/cuda:{name}" for name in near],
    )


def _of_framework(matrix: Matrix, base: Base) -> Iterable[Finding]:
    """Yield the tag of a release that never was, or that was never built with what the tag names."""
    tag = _TAG.fullmatch(base.tag)
    ((framework, version),) = base.frameworks.items()
    published = matrix.published(framework)
    if tag is None or not version or version.count(".") != 2 or published is None:
        return
    reason, hint = "", ""
    if version not in published.versions and parse(published.versions[-1]) < parse(version) < parse(
        published.versions[0]
    ):
        reason = f"there was no release {version} of {framework}"
    elif framework == "torch" and tag["cuda"] is not None:
        reason, hint = _of_torch(matrix, version, tag["cuda"], tag["cudnn"])
        if not reason and tag["flavour"] is None:
            reason, hint = "its tags end with a flavour", f"write `{base.tag}-runtime` or `{base.tag}-devel`"
    if reason:
        yield found(
            matrix,
            ID,
            span=base.span,
            message=f"{base.repository}:{base.tag} does not exist",
            reasons=(reason,),
            hint=hint,
        )


def _of_torch(matrix: Matrix, version: str, cuda: str, cudnn: str | None) -> tuple[str, str]:
    """Return why no image of a release of torch is for a CUDA, and what is there instead."""
    rows = matrix.torch_builds_of({version})
    release = next((row for row in matrix.torch_releases if row.version == version), None)
    if release is None or not release.is_variants_complete:
        return "", ""
    single = matrix.setting("audit_rules.toml", "pytorch_image_cudas").entries.get(version)
    have = [single] if single else [minor for row in rows if (minor := cuda_of(row.variant)) is not None]
    hint = (
        f"images of torch {version} are for CUDA {single}"
        if single
        else f"torch {version} is for CUDA {', '.join(have)}"
    )
    if have and cuda not in have:
        return f"no image of torch {version} is for CUDA {cuda}", hint
    majors = {row.cudnn.partition(".")[0] for row in rows if row.cudnn is not None}
    if len(majors) == 1 and cudnn is not None and {cudnn} != majors:
        return f"torch {version} comes with cuDNN {majors.pop()}", ""
    return "", ""


def _nearest(matrix: Matrix, base: Base) -> list[str]:
    """Return the kept tags most like this one, those of its CUDA minor alone where it names one."""
    from difflib import SequenceMatcher

    version = base.tag.partition("-")[0]
    rows = matrix.cuda_images_below(minor_of(version)) if version[:1].isdigit() else ()
    tags = [row.tag.partition(":")[2] for row in rows if row.lifecycle not in ("deleted", "unsupported")]
    rest = base.tag.partition("-")[2]

    def likeness(tag: str) -> tuple[float, str]:
        return -SequenceMatcher(None, tag.partition("-")[2], rest).ratio(), tag

    return sorted(tags, key=likeness)[:_SHOWN]
