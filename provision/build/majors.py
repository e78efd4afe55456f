"""What of a lock is built for another CUDA than the stack, and what there is for its CUDA in its place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from provision.matrix.load import Matrix
from provision.matrix.model import Extra
from provision.matrix.query import distribution_of
from provision.records import record, replace
from provision.resolve.environment import MACHINES
from provision.resolve.requirements import normalise_name, requirement_of
from provision.resolve.rules import side_holds
from provision.resolve.solve import solve
from provision.resolve.stack import Reason, Stack
from provision.versions import is_empty, outside_of, spec_of

_BINDINGS = "cuda-bindings"
"""What reaches CUDA for others, in a release for each major of it."""


@record
class Misfit:
    """A package of a lock that is not for the CUDA of its stack.

    Attributes:
        name: Of the distribution.
        because: What is wrong with it.
        bounds: Constraints under which another release, or another CUDA, may do: ``cuda-python>=12,<13``, ``cuda>=13``.
            One with an extra is a line to add: ``numba-cuda[cu12]>=0.4``.
    """

    name: str
    because: str
    bounds: tuple[str, ...]


def find_misfit(stack: Stack, matrix: Matrix) -> Misfit | None:
    """Return the first package that is for another CUDA by the facts, or that has wheels under other names alone."""
    if not stack.cuda or stack.image is None:
        return None
    held = {name: version.partition("+")[0] for name, version in stack.packages.items()}
    rows: dict[str, list[Extra]] = {}
    for row in matrix.extras:
        name = distribution_of(row)
        if name in held and held[name] in spec_of(requirement_of(row.requires[0]).specifier):
            rows.setdefault(name, []).append(row)
    for name, every in rows.items():
        misfit = _of_another(stack, matrix, name, every, f"{name} {held[name]}")
        if misfit is not None:
            return misfit
    if (misfit := _find_bare(stack, held, rows)) is not None:
        return misfit
    if stack.image.flavor == "devel":
        return None
    pinned = {line.name for line in map(requirement_of, stack.request.requirements) if "==" in line.specifier}
    for package in stack.image.packages:
        kin = {distribution_of(row) for row in matrix.extras if package.name in row.by_cuda}
        # Who names a source by its path or address has chosen it, as by a pin.
        is_chosen = package.name in pinned or package.url is not None
        if package.is_built and kin and not is_chosen and not kin & {package.name, *held}:
            because = (
                f"{package.name} {package.version} is on the index as source alone, and this image has no nvcc for it"
            )
            return Misfit(name=package.name, because=because, bounds=())
    return None


def fit_cuda(stack: Stack, matrix: Matrix, *, is_image: bool = False) -> Stack:
    """Return the answer for the CUDA that the user's lines are for, where no lock says which releases they take.

    The stack itself comes back where the lines go with its CUDA, where the request names one, and where no other
    will do.

    Args:
        stack: Its requirements are the lines that are looked at.
        matrix: The facts.
        is_image: Whether the stack is to be an image.
    """
    misfit = _misfit_of_lines(stack, matrix) if stack.cuda and stack.request.cuda is None else None
    if misfit is None:
        return stack
    for bound in misfit.bounds:
        if bound.startswith("cuda") and bound[4:5] in "<>=":
            other = solve(replace(stack.request, cuda=bound.removeprefix("cuda")), matrix, is_image=is_image)
            if isinstance(other, Stack) and _misfit_of_lines(other, matrix) is None:
                reason = Reason(subject=misfit.name, because=misfit.because)
                return replace(other, request=stack.request, reasons=(*other.reasons, reason))
    return stack


def _misfit_of_lines(stack: Stack, matrix: Matrix) -> Misfit | None:
    """Return the first line of the user no release of which, that the facts know of, is for the CUDA of the stack."""
    machine = MACHINES[stack.platform]
    for text in stack.request.requirements:
        line = requirement_of(text)
        name = normalise_name(line.name)
        if line.url is not None or not line.holds(str(stack.python), machine):
            continue
        rows = [
            row
            for row in matrix.extras
            if row.requires and distribution_of(row) == name
            if not is_empty((requirement_of(row.requires[0]).specifier, line.specifier))
        ]
        misfit = _of_another(stack, matrix, name, rows, f"`{text}`") if rows else None
        if misfit is not None:
            return misfit
    return None


def _of_another(stack: Stack, matrix: Matrix, name: str, every: list[Extra], label: str) -> Misfit | None:
    """Return what is wrong with a package all of whose rows, as far as they are meant, exclude the CUDA of a stack."""
    known = _meant(stack, name, every)
    conflicts = [_conflict(row, str(stack.cuda)) for row in known]
    if not all(conflicts):
        return None
    # Another release brings the same parts where an extra names the CUDA.
    fitting = _fitting(matrix, name, stack) if known == every else ()
    bounds = (f"{name}{requirement_of(row.requires[0]).specifier}" for row in fitting)
    # The newest CUDA of several first.
    left = [f"cuda{bound}" for text in reversed(conflicts) for bound in outside_of(str(text).removeprefix("cuda"))]
    because = f"{label} is {known[0].title}, and does not go with CUDA {stack.cuda}"
    return Misfit(name=name, because=because, bounds=tuple(dict.fromkeys((*bounds, *left))))


def _find_bare(stack: Stack, held: Mapping[str, str], rows: Mapping[str, list[Extra]]) -> Misfit | None:
    """Return a package that names its CUDA by an extra and came without, where the bindings are for another CUDA."""
    bindings = held.get(_BINDINGS)
    if bindings is None or bindings.partition(".")[0] == str(stack.cuda).partition(".")[0]:
        return None
    for name, every in rows.items():
        # With the extra of one CUDA it came for that, which is looked at above.
        fitting = [row for row in every if _conflict(row, str(stack.cuda)) is None]
        lines = [row.requires[0] for row in fitting if any(_majors(requirement_of(row.requires[0]).extras))]
        if lines and _meant(stack, name, every) == every:
            because = (
                f"{name} {held[name]} without an extra brings {_BINDINGS} {bindings}, and the stack has CUDA "
                f"{stack.cuda}: `{lines[0]}` is for that"
            )
            return Misfit(name=name, because=because, bounds=tuple(lines))
    return None


def line_hint(stack: Stack, matrix: Matrix, name: str) -> Iterator[str]:
    """Yield the line that has what a package is, for the CUDA of a stack.

    Args:
        stack: Its requirements are the lines that are looked at.
        matrix: The facts.
        name: Normalised name of a package that will not do (``tensorrt-cu13``, ``cupy``).
    """
    alike = {other for row in matrix.extras if name in (*row.by_cuda, distribution_of(row)) for other in row.by_cuda}
    lines = [line for line in stack.request.requirements if normalise_name(requirement_of(line).name) in {name, *alike}]
    for row in matrix.extras:
        if alike & set(row.by_cuda) and stack.cuda and _conflict(row, stack.cuda) is None:
            own = requirement_of(row.requires[0])
            if lines and own.name not in row.by_cuda and own.name == requirement_of(lines[0]).name:
                return
            text = f"{own.name}[{','.join(sorted(own.extras))}]" if own.extras else own.name
            text = row.requires[0] if own.name == name else text
            where = f"in place of `{lines[0]}`" if lines else f"in place of what brings {name}"
            yield f"write `{text}` {where}: it is {row.title}"
            return


def _meant(stack: Stack, name: str, rows: list[Extra]) -> list[Extra]:
    """Return the rows of the CUDA that an extra of the user's lines, or a part in the lock, names; else all.

    ``numba-cuda[cu13]`` is the row of ``numba-cuda[cu13]``, ``transformer-engine-cu13`` in a lock that of
    ``transformer-engine[core-cu13]``.
    """
    machine = MACHINES[stack.platform]
    lines = map(requirement_of, stack.request.requirements)
    held = [line for line in lines if normalise_name(line.name) == name and line.holds(str(stack.python), machine)]
    majors = {major for line in held for major in _majors(line.extras)}
    majors |= set(_majors(other for other in stack.packages if other.startswith(f"{name}-cu")))
    return [row for row in rows if majors.intersection(_majors(requirement_of(row.requires[0]).extras))] or rows


def _majors(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if match := re.search(r"(?:^|[-_])cu(?:da)?([0-9]{2})$", name):
            yield match[1]


def _fitting(matrix: Matrix, name: str, stack: Stack) -> Iterator[Extra]:
    """Yield the rows of a distribution whose releases go with the CUDA of a stack."""
    for row in matrix.extras:
        if row.by_cuda and distribution_of(row) == name and _conflict(row, str(stack.cuda)) is None:
            yield row


def _conflict(row: Extra, cuda: str) -> str | None:
    return next((text for text in row.conflicts if text.startswith("cuda") and side_holds(text, {"cuda": cuda})), None)
