"""Compiled companions of torch whose wheels are for another torch, another CUDA or another C++ ABI."""

from __future__ import annotations

import re
from collections.abc import Iterable

from provision.audit.model import Environment, Finding, Install, Options
from provision.audit.verdict import found
from provision.audit.wanted import CPU, Wanted, build_of, cuda_major, cuda_of, standing
from provision.matrix.load import Matrix
from provision.versions import minor_of

ID = "C23"


_WHEEL = re.compile(r"\+cu[0-9]+torch([0-9]+\.[0-9]+)(?:\.[0-9]+)?cxx11abi(TRUE|FALSE)-")
"""How flash-attn, mamba-ssm and causal-conv1d name their wheels."""


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold what the address of a page or a wheel says against the torch that stands at the end."""
    torch = standing(environment, matrix, "torch")
    if torch is None or torch.version is None:
        return
    build = build_of(matrix, torch)
    yield from _wheels(environment, matrix, torch, build)
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


def _wheels(environment: Environment, matrix: Matrix, torch: Wanted, build: str | None) -> Iterable[Finding]:
    rows = [row for row in matrix.torch_builds_of({torch.version or ""}) if build in (None, row.variant)]
    abis = {row.cxx11_abi for row in rows if row.variant != CPU}
    for install, requirement in environment.requirements():
        name = _WHEEL.search(re.sub("%2[bB]", "+", requirement.url or ""))
        if name is None or not install.is_certain or install.is_dry or requirement.applies is not True:
            continue
        is_other = name[1] != minor_of(torch.version or "")
        # Without a build that is named each of them must be of the other ABI.
        is_other_abi = abis == {int(name[2] == "FALSE")}
        if install.target == torch.install.target and (is_other or is_other_abi):
            yield found(
                matrix,
                ID,
                span=requirement.span,
                message=f"{requirement.name} comes as a wheel for torch {name[1]} with cxx11abi{name[2]}",
                reasons=(
                    f"torch {torch.version}{f'+{build}' if build else ''} is installed",
                    *(_why(is_other=True, is_without=False) if is_other else ()),
                    *(("the two are compiled with different C++ ABIs",) if is_other_abi else ()),
                ),
                severity="" if is_other_abi else "warn",
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
