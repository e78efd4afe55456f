"""Compiled companions of torch from a page of wheels that are for another torch or another CUDA."""

from __future__ import annotations

import re
from collections.abc import Iterable

from provision.audit.bases import minor_of
from provision.audit.model import Environment, Finding, Install, Options
from provision.audit.verdict import found
from provision.audit.wanted import CPU, build_of, cuda_major, cuda_of, standing
from provision.matrix.load import Matrix

ID = "C23"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold what the address of a page says against the torch that stands at the end."""
    del options
    torch = standing(environment, matrix, "torch")
    if torch is None or torch.version is None:
        return
    build = build_of(matrix, torch)
    for install in environment.installs:
        page = _page_of(matrix, install)
        if page is None or install.is_dry or not install.is_certain or install.target != torch.install.target:
            continue
        names, version, variant = page
        is_other = minor_of(version) != minor_of(torch.version)
        is_other_cuda = None not in (cuda_of(variant), cuda_of(build)) and cuda_major(cuda_of(variant)) != cuda_major(
            cuda_of(build)
        )
        is_without = variant == CPU and cuda_of(build) is not None
        if not (is_other or is_other_cuda or is_without):
            continue
        shown = f"torch {torch.version}+{build}" if build else f"torch {torch.version}"
        for requirement in install.requirements:
            if requirement.name in names and requirement.applies is True and requirement.url is None:
                yield found(
                    matrix,
                    ID,
                    span=requirement.span,
                    message=f"{requirement.name} comes from wheels for torch {version}+{variant}",
                    reasons=(f"{shown} is installed", *_why(is_other=is_other, is_without=is_without)),
                    severity="" if is_other or is_other_cuda else "warn",
                )


def _why(*, is_other: bool, is_without: bool) -> Iterable[str]:
    if is_other:
        yield "extensions are compiled against one minor of torch, and do not load with another"
    elif is_without:
        yield "these wheels hold no kernels for GPUs"
    else:
        yield "extensions load the CUDA that they were compiled with, and refuse a torch of another major"


def _page_of(matrix: Matrix, install: Install) -> tuple[frozenset[str], str, str] | None:
    """Return the packages of the only page that an install is given, and the torch and build that it is for."""
    pages = matrix.setting("audit_rules.toml", "torch_wheel_pages").entries
    hits = []
    for index in install.indexes:
        if index.kind != "find-links" or index.url is None:
            continue
        for template, names in pages.items():
            head, between, end = re.split(r"\{torch\}|\{build\}", template)
            pattern = rf"{re.escape(head)}([0-9.]+){re.escape(between)}(cu[0-9]+|cpu){re.escape(end)}"
            match = re.fullmatch(pattern, re.sub("%2[bB]", "+", index.url))
            if match is not None:
                hits.append((frozenset(names.split()), match[1], match[2]))
    return hits[0] if len(hits) == 1 else None
