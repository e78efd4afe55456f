"""A CUDA base under wheels that bring their own CUDA."""

from __future__ import annotations

from collections.abc import Iterable

from provision.audit.bases import cuda_image, is_cuda_repository
from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.audit.wanted import CPU, effective
from provision.matrix.load import Matrix
from provision.resolve.request import FRAMEWORKS

ID = "B02"

_PLAIN = {
    "",
    "apt",
    "apt-get",
    "cd",
    "chmod",
    "chown",
    "echo",
    "export",
    "groupadd",
    "ln",
    "mkdir",
    "pip",
    "pip3",
    "rm",
}
_PLAIN |= {"true", "update-alternatives", "useradd", "adduser", "addgroup", "uv", "set"}
_PYTHONS = ("python", "python3")
_COMPILERS = ("build-essential", "cmake", "g++", "gcc", "ninja-build", "make", "clang")


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Look for wheels with CUDA of their own and for nothing that could use that of the base."""
    base = environment.base
    if base is None or base.cuda is None or not is_cuda_repository(matrix, base):
        return
    if not environment.is_target or not environment.installs or not environment.is_final:
        return
    wishes = [wanted for name in FRAMEWORKS if (wanted := effective(environment, matrix, name)) is not None]
    if not wishes or any(wanted.variant in ("system-cuda", CPU) for wanted in wishes):
        return
    if any(wanted.framework == "jax" and wanted.variant is None for wanted in wishes):
        return
    if not _is_simple(environment, matrix):
        return
    names = " and ".join(wanted.framework for wanted in wishes)
    reasons = [f"the wheels of {names} bring their own CUDA, and nothing here uses CUDA {base.cuda} of the base"]
    if base.flavour != "base":
        reasons.append(f"the {base.flavour} image holds a second set of CUDA libraries")
    image = cuda_image(matrix, base)
    if image is not None and image.size_mb is not None:
        reasons.append(f"it was listed with {image.size_mb} MB before anything is installed")
    living = {row.version for row in matrix.pythons if row.end_of_life is None or row.end_of_life > matrix.dated}
    slim = f"python:{environment.python}-slim" if environment.python in living else "a slim Python image"
    yield found(
        matrix,
        ID,
        span=base.span,
        message=f"{base.repository}:{base.tag} is larger than needed",
        reasons=reasons,
        hint=f"{slim} would do",
        facts=[f"image/{image.tag}"] if image is not None else (),
    )


def _is_simple(environment: Environment, matrix: Matrix) -> bool:
    """Tell whether everything that happens is known to need no CUDA of the system."""
    heavy = set(matrix.setting("audit_rules.toml", "needs_system_cuda").values)
    if environment.copies_from:
        return False
    for install in environment.installs:
        if not install.is_complete or not install.is_build_isolated:
            return False
        if any(item.name in heavy or (item.url and "git+" in item.url) for item in install.requirements):
            return False
    for command in environment.commands:
        words = [word.text for word in command.words]
        program = command.program
        if None in words or program is None:
            return False
        is_module = program.startswith(_PYTHONS) and words[1:3] in (["-m", "pip"], ["-m", "venv"])
        if program not in _PLAIN and not is_module:
            return False
        if any(str(word).startswith((*_COMPILERS, "cuda", "libcu", "nvidia", ".")) for word in words[1:]):
            return False
    return True
