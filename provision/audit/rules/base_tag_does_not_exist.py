"""A tag that nvidia/cuda does not have."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.bases import has_moving_tag, is_deleted, is_proved_absent
from provision.audit.model import Base, Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix
from provision.versions import minor_of

ID = "B04"

_SHOWN = 3


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look the tag up in NVIDIA's lists."""
    del options
    base = environment.base
    if base is None or not environment.own_base or not is_proved_absent(matrix, base):
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
