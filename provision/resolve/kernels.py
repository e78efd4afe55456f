"""Which GPUs the compiled code of packages beside the frameworks is for: a stack fits a GPU where all of it does."""

from __future__ import annotations

from collections.abc import Iterator

from provision.matrix.load import Matrix
from provision.matrix.model import CompanionPackage, Extra
from provision.matrix.query import capability_of, distribution_of, runs_on
from provision.records import replace
from provision.resolve.environment import MACHINES
from provision.resolve.options import Option, fact_of
from provision.resolve.requirements import UserRequirement, exact_line, parse_requirements
from provision.resolve.rules import Rejection, Wish, called, partial_pairs
from provision.versions import parse, spec_of

__all__ = ["find_left_out", "find_unlisted", "reject_triton", "serve_extras"]

_TRITON = "triton"


def find_left_out(row: CompanionPackage, wish: Wish) -> list[str]:
    """Return the GPUs of a request that the code of a release does not run on; none where its code is not known."""
    targets = row.sm if MACHINES[wish.platform] == "x86_64" else row.sm_aarch64
    if not targets:
        return []
    sm = [target for target in targets if target.startswith("sm_")]
    ptx = [target for target in targets if not target.startswith("sm_")]
    return [
        f"{called(name, rows)} ({_target(rows[0].compute_capability)})"
        for name, rows in wish.gpus
        if runs_on(capability_of(_target(rows[0].compute_capability)), sm, ptx) is None
    ]


def _target(capability: str) -> str:
    return f"sm_{capability.replace('.', '')}"


def reject_triton(matrix: Matrix, extra: Extra, wish: Wish, options: tuple[Option, ...]) -> Rejection | None:
    """Return why an extra that runs kernels of Triton cannot, on a GPU that the Triton of PyTorch does not serve.

    PyTorch itself goes on without them; such an extra does not.
    """
    if not extra.needs_compiler or extra.needs_nvcc:
        return None
    for option in options:
        for name, rows in wish.gpus:
            for pair in partial_pairs(matrix, option, rows[0]):
                if pair.left.startswith(_TRITON):
                    return Rejection(
                        rule="extra",
                        is_proved=True,
                        subject="",
                        because=f"cannot run {extra.id} on {called(name, rows)}: {pair.symptom}",
                        facts=(option.fact, fact_of("exclusion", pair.id, pair)),
                    )
    return None


def serve_extras(matrix: Matrix, extras: tuple[Extra, ...], wish: Wish) -> tuple[Extra, ...] | Rejection:
    """Return the extras with the releases that have code for the GPUs, where the newest one has none.

    Args:
        matrix: The facts.
        extras: What ``--with`` asks for; what is pinned already was chosen by what it goes with.
        wish: The request.

    Returns:
        The extras, or why none of the releases that the facts know serves a GPU.
    """
    if not wish.gpus:
        return extras
    served = []
    for extra in extras:
        lines = parse_requirements("\n".join(extra.requires), extra.id)
        exact: list[str] = []
        for line in lines:
            found = _serve(matrix, extra, line, wish)
            if isinstance(found, Rejection):
                return found
            exact.append(found)
        served.append(replace(extra, requires=tuple(exact)) if tuple(exact) != extra.requires else extra)
    return tuple(served)


def find_unlisted(matrix: Matrix, extras: tuple[Extra, ...], wish: Wish) -> list[str]:
    """Return the packages of extras with code for GPUs of which the facts do not say for which, and their releases.

    What nvcc compiles here gets code for the GPUs of the stack, and what has no such code of its own needs no list.
    """
    found: dict[str, None] = {}
    for extra in extras:
        if extra.needs_nvcc:
            continue
        is_read = False
        for line in parse_requirements("\n".join(extra.requires), extra.id):
            for row in _releases(matrix, line, wish)[:1]:
                is_read = True
                found |= {f"{item.package} {item.version}": None for item in _with_pinned(matrix, row, wish)}
        if not is_read and (extra.has_kernels or extra.is_fetched):
            found[distribution_of(extra)] = None
    return list(found)


def _with_pinned(matrix: Matrix, row: CompanionPackage, wish: Wish) -> Iterator[CompanionPackage]:
    """Yield a release and those that it pins, as far as their code for GPUs is not listed."""
    machine = MACHINES[wish.platform]
    rows = [row]
    for other, bound in row.requires.items():
        known = matrix.rows_where("companions.toml", "release", "package", other.__eq__)
        rows += [item for item in known if bound == f"=={item.version}"]
    for item in rows:
        is_listed = bool(item.sm if machine == "x86_64" else item.sm_aarch64)
        if not is_listed and _has_kernels(matrix, item):
            yield item


def _has_kernels(matrix: Matrix, row: CompanionPackage) -> bool:
    """Tell whether a release holds code for GPUs: it loads the runtime of CUDA, or other releases are known to."""
    if any(link.startswith("cudart.") for link in row.links):
        return True
    alike = matrix.rows_where("companions.toml", "release", "package", row.package.__eq__)
    return any(item.sm or item.sm_aarch64 for item in alike)


def _releases(matrix: Matrix, line: UserRequirement, wish: Wish) -> list[CompanionPackage]:
    """Return the known releases that a line admits on the machine of a request, newest first."""
    rows = [
        row
        for row in matrix.rows_where("companions.toml", "release", "package", line.name.__eq__)
        if (not line.specifier or row.version in spec_of(line.specifier)) and not parse(row.version).is_prerelease
    ]
    machine = MACHINES[wish.platform]
    rows = [
        row for row in rows if not row.platform_tags or any(tag.endswith((machine, "any")) for tag in row.platform_tags)
    ]
    return sorted(rows, key=lambda row: parse(row.version), reverse=True)


def _serve(matrix: Matrix, extra: Extra, line: UserRequirement, wish: Wish) -> str | Rejection:
    """Return the line as it is, with the release that serves the GPUs, or why there is none."""
    rows = _releases(matrix, line, wish)
    if not rows or not (gpus := find_left_out(rows[0], wish)):
        return line.text
    serving = next((row for row in rows if not find_left_out(row, wish)), None)
    if serving is not None:
        return exact_line(line, serving.version)
    return Rejection(
        rule="extra",
        # The lists were read from the wheels, and all releases that the extra admits are among them.
        is_proved=True,
        subject="",
        because=f"cannot hold {extra.id} on {', '.join(gpus)}: no release of {line.name} has code for it",
        facts=(
            fact_of("extra", extra.id, extra),
            fact_of("companion", f"{rows[0].package}-{rows[0].version}", rows[0], "sm"),
        ),
    )
