"""An architecture in TORCH_CUDA_ARCH_LIST that the toolkit does not compile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from provision.audit.model import Environment, Finding, Options
from provision.audit.verdict import found
from provision.matrix.load import Matrix
from provision.versions import minor_of

ID = "G02"

_VARIABLE = "TORCH_CUDA_ARCH_LIST"


def check(environment: Environment, matrix: Matrix, options: Options) -> Iterable[Finding]:
    """Hold each number of the list against the architectures of the base's toolkit."""
    base = environment.base
    if base is None or base.cuda is None or environment.has_nvcc is not True:
        return
    row = next(iter(matrix.cuda_below(minor_of(base.cuda))), None)
    if row is None or not row.sm:
        return
    for variable in environment.own_variables:
        if variable.name != _VARIABLE or not variable.value:
            continue
        wrong = [text for text, number in _numbers(variable.value) if not min(row.sm) <= number <= max(row.sm)]
        if wrong:
            first, last = (f"{number / 10:.1f}" for number in (min(row.sm), max(row.sm)))
            yield found(
                matrix,
                ID,
                span=variable.span,
                message=f"nvcc of CUDA {base.cuda} does not compile for {', '.join(wrong)}",
                reasons=(f"CUDA {minor_of(base.cuda)} compiles for compute capability {first} to {last}",),
                facts=(f"cuda/{row.version}",),
            )


def _numbers(text: str) -> Iterator[tuple[str, int]]:
    for part in re.split(r"[;,\s]+", text.strip()):
        match = re.fullmatch(r"([0-9]{1,2})\.([0-9])[af]?(?:\+PTX)?", part)
        if match:
            yield f"{match[1]}.{match[2]}", int(match[1]) * 10 + int(match[2])
