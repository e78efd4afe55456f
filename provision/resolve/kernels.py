"""Which GPUs the compiled code of packages beside the frameworks is for: a stack fits a GPU where all of it does."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.matrix.model import CompanionPackage, Extra
from provision.matrix.query import capability_of, runs_on
from provision.records import replace
from provision.resolve.environment import MACHINES
from provision.resolve.options import Option, fact_of
from provision.resolve.requirements import UserRequirement, exact_line, parse_requirements
from provision.resolve.rules import Rejection, Wish, called, partial_pairs
from provision.versions import parse, spec_of

__all__ = ["find_left_out", "reject_triton", "serve_extras"]

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


def _serve(matrix: Matrix, extra: Extra, line: UserRequirement, wish: Wish) -> str | Rejection:
    """Return the line as it is, with the release that serves the GPUs, or why there is none."""
    rows = [
        row
        for row in matrix.rows_where("companions.toml", "release", "package", line.name.__eq__)
        if (not line.specifier or row.version in spec_of(line.specifier)) and not parse(row.version).is_prerelease
    ]
    machine = MACHINES[wish.platform]
    rows = [
        row for row in rows if not row.platform_tags or any(tag.endswith((machine, "any")) for tag in row.platform_tags)
    ]
    rows.sort(key=lambda row: parse(row.version), reverse=True)
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
