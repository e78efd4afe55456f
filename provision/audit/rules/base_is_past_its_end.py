"""The base is at its end: its tag is deleted or unsupported, or its system or Python is past its last day."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from provision.audit.bases import cuda_image, is_deleted, is_proved_absent
from provision.audit.model import ERROR, Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix
from provision.versions import minor_of

ID = "B01"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold the base against the lists of tags and the dates of systems and Pythons."""
    base = environment.base
    if base is None or base.repository is None or not environment.own_base:
        return
    if is_proved_absent(matrix, base) and not is_deleted(matrix, base):
        return
    because = list(_reasons(environment, matrix))
    if because:
        yield found(
            matrix,
            ID,
            span=base.span,
            message=f"{base.repository}:{base.tag} {because[0][0]}",
            reasons=[reason for _, reason, _ in because],
            facts=[fact for _, _, fact in because if fact],
            # What cannot be pulled cannot be built; a digest may still be mirrored, and the rest only gets no fixes.
            severity=ERROR if not base.digest and is_deleted(matrix, base) else "",
        )


def _reasons(environment: Environment, matrix: Matrix) -> Iterator[tuple[str, str, str]]:
    base = environment.base
    if base is None:
        return
    image = cuda_image(matrix, base)
    fact = f"image/{image.tag}" if image is not None else ""
    if is_deleted(matrix, base):
        yield "is deleted upstream", f"nvidia/cuda:{base.tag} was taken off the registry", fact
    elif image is not None and image.lifecycle == "unsupported":
        yield "is no longer supported", f"CUDA {image.cuda} has a newer update, and tags like this get deleted", fact
    system = matrix.os_release(environment.os)
    if system is not None and system.end_of_life is not None and system.end_of_life < matrix.dated:
        fact = f"os/{system.id}"
        yield f"stands on {system.name}, which has ended", f"{system.name} ended on {system.end_of_life}", fact
    if base.repository != "python" or environment.python is None:
        return
    minor = minor_of(environment.python)
    python = next((row for row in matrix.pythons if row.version == minor), None)
    if python is not None and python.end_of_life is not None and python.end_of_life < matrix.dated:
        fact = f"python/{python.version}"
        yield f"holds Python {minor}, which has ended", f"Python {minor} ended on {python.end_of_life}", fact
