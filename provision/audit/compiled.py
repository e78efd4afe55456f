"""Packages that are surely compiled with nvcc, because no prebuilt wheel fits."""

from __future__ import annotations

from collections.abc import Iterator

from provision.audit.model import Environment, Install, Options, Requirement
from provision.audit.wanted import Wanted, build_of, cuda_of, effective, python_of
from provision.matrix.load import Matrix
from provision.records import record

__all__ = ["Compiled", "builds_from_source"]

_FLASH_ATTN = "flash-attn"
_FORCE = "FLASH_ATTENTION_FORCE_BUILD"
_TRUE = ("1", "true")


@record
class Compiled:
    """One requirement that is compiled, and how that is known."""

    install: Install
    requirement: Requirement
    torch: Wanted | None
    because: str
    facts: tuple[str, ...] = ()


def builds_from_source(environment: Environment, matrix: Matrix, options: Options) -> Iterator[Compiled]:
    """Yield what is surely compiled.

    flash-attn takes a prebuilt wheel where its release has one for this torch, CUDA major and Python.
    """
    torch = effective(environment, matrix, "torch")
    for install, requirement in environment.requirements():
        if requirement.name != _FLASH_ATTN or requirement.url is not None or requirement.applies is not True:
            continue
        if install.is_dry or not install.is_certain:
            continue
        because = _why(environment, matrix, options, install, requirement, torch)
        if because:
            yield Compiled(
                install=install,
                requirement=requirement,
                torch=torch,
                because=because,
                facts=("knowledge/flash-attn-wheels",),
            )


def _why(
    environment: Environment,
    matrix: Matrix,
    options: Options,
    install: Install,
    requirement: Requirement,
    torch: Wanted | None,
) -> str:
    forced = install.environment.get(_FORCE)
    if forced is not None and (forced.value or "").lower() in _TRUE:
        return f"{_FORCE} makes its setup compile"
    release = matrix.setting("audit_rules.toml", "flash_attn_prebuilt").entries.get(requirement.version or "")
    if release is None or torch is None or torch.version is None or torch.install.target != install.target:
        return ""
    lists = _lists(release)
    minor = ".".join(torch.version.split(".")[:2])
    if minor not in lists["torch"]:
        return (
            f"release {requirement.version} has prebuilt wheels for torch {', '.join(lists['torch'])}, not for {minor}"
        )
    python = python_of(environment, torch, options)
    if python is not None and python not in lists["python"]:
        return f"release {requirement.version} has no prebuilt wheel for Python {python}"
    cuda = cuda_of(build_of(matrix, torch))
    if cuda is not None and cuda.partition(".")[0] not in lists["cuda"]:
        return f"release {requirement.version} has prebuilt wheels for CUDA {', '.join(lists['cuda'])}, not for {cuda}"
    return ""


def _lists(text: str) -> dict[str, list[str]]:
    """Read ``torch 2.4 2.5 cuda 12 python 3.9 3.10``."""
    found: dict[str, list[str]] = {}
    key = ""
    for word in text.split():
        if word[0].isdigit():
            found[key].append(word)
        else:
            key = word
            found[key] = []
    return found
