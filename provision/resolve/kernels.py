"""Which GPUs the compiled code of packages beside the frameworks is for: a stack fits a GPU where all of it does."""

from __future__ import annotations

from provision.matrix.load import Matrix
from provision.matrix.model import CompanionPackage, Extra
from provision.matrix.query import capability_of, distribution_of, runs_on
from provision.records import replace
from provision.resolve.environment import MACHINES
from provision.resolve.options import Option, fact_of
from provision.resolve.requirements import UserRequirement, exact_line, parse_requirements
from provision.resolve.rules import Rejection, Wish, called, find_exclusion, partial_pairs
from provision.versions import parse, spec_of

_TRITON = "triton"


def find_left_out(matrix: Matrix, row: CompanionPackage, wish: Wish) -> list[str]:
    """Return the GPUs of a request that a release cannot serve: its code leaves them out, or a fact excludes the pair.

    None where neither is known.
    """
    named = {row.package: row.version}
    excluded = [
        f"{called(name, rows)} ({_target(rows[0].compute_capability)})"
        for name, rows in wish.gpus
        if (found := find_exclusion(matrix, named, rows[0])) is not None and not found[0].is_open
    ]
    if row.is_code_optional or (excluded and len(excluded) == len(wish.gpus)):
        return excluded
    return list(dict.fromkeys((*excluded, *_beyond(row, wish))))


def find_unserved(matrix: Matrix, row: CompanionPackage, wish: Wish) -> list[tuple[CompanionPackage, list[str]]]:
    """Return a release, and what it pins, as far as their code leaves out GPUs of a request, each with these GPUs."""
    found = [row, *_pinned(matrix, row, wish)] if wish.gpus else []
    return [(item, gpus) for item in found if (gpus := find_left_out(matrix, item, wish))]


def _beyond(row: CompanionPackage, wish: Wish) -> list[str]:
    """Return the GPUs that no target in the code of a release serves."""
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


def _pinned(matrix: Matrix, row: CompanionPackage, wish: Wish) -> list[CompanionPackage]:
    """Return the known releases that one pins, and those pin in turn: of ``==26.10.*`` the newest.

    What has no wheel for the machine of the request is left out.
    """
    found: dict[str, CompanionPackage] = {}
    todo = [row]
    while todo:
        for other, bound in todo.pop().requires.items():
            if not bound.startswith("==") or other in found or other == row.package:
                continue
            known = [item for item in _on_machine(matrix, other, wish) if item.version in spec_of(bound)]
            if known:
                found[other] = max(known, key=lambda item: parse(item.version))
                todo.append(found[other])
    return list(found.values())


def _on_machine(matrix: Matrix, name: str, wish: Wish) -> list[CompanionPackage]:
    """Return the known releases of a package that have a wheel for the machine of a request, or none at all."""
    ends = (MACHINES[wish.platform], "any")
    return [
        row
        for row in matrix.rows_with("companions.toml", "release", "package", name)
        if not row.platform_tags or any(tag.endswith(ends) for tag in row.platform_tags)
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
        rows = _chosen(matrix, extra, wish)
        found |= {f"{row.package} {row.version}": None for row in rows if _is_unlisted(matrix, row, wish)}
        if not rows and extra.is_fetched:
            found[distribution_of(extra)] = None
    return list(found)


def find_codeless(matrix: Matrix, extras: tuple[Extra, ...], wish: Wish) -> list[str]:
    """Return a sentence for each release that goes on without code for a GPU, or for any on its machine."""
    machine = MACHINES[wish.platform]
    found: list[str] = []
    for extra in extras:
        for row in _chosen(matrix, extra, wish):
            label = f"{row.package} {row.version}"
            if machine in row.without_code and (row.sm or row.sm_aarch64):
                found.append(
                    f"the wheel of {label} for {machine} has no code for GPUs: what it computes is left to the CPU"
                )
            if row.is_code_optional and (gpus := _beyond(row, wish)):
                found.append(
                    f"{label} has no code of its own for {' and '.join(gpus)}: what needs it does not run there"
                )
    return list(dict.fromkeys(found))


def _chosen(matrix: Matrix, extra: Extra, wish: Wish) -> list[CompanionPackage]:
    """Return the releases that the lines of an extra take, the newest each, with what these pin."""
    found = []
    for line in parse_requirements("\n".join(extra.requires), extra.id):
        for row in _releases(matrix, line, wish)[:1]:
            found += [row, *_pinned(matrix, row, wish)]
    return found


def _is_unlisted(matrix: Matrix, row: CompanionPackage, wish: Wish) -> bool:
    """Tell whether a release holds code for GPUs of which no row says for which.

    It does where it loads the runtime of CUDA, or where other releases are known to.
    """
    machine = MACHINES[wish.platform]
    if machine in row.without_code or (row.sm if machine == "x86_64" else row.sm_aarch64):
        return False
    alike = matrix.rows_with("companions.toml", "release", "package", row.package)
    return any(link.startswith("cudart.") for link in row.links) or any(item.sm or item.sm_aarch64 for item in alike)


def _releases(matrix: Matrix, line: UserRequirement, wish: Wish) -> list[CompanionPackage]:
    """Return the known releases that a line admits on the machine of a request, newest first."""
    rows = [
        row
        for row in _on_machine(matrix, line.name, wish)
        if (not line.specifier or row.version in spec_of(line.specifier)) and not parse(row.version).is_prerelease
    ]
    return sorted(rows, key=lambda row: parse(row.version), reverse=True)


def _serve(matrix: Matrix, extra: Extra, line: UserRequirement, wish: Wish) -> str | Rejection:
    """Return the line as it is, with the release that serves the GPUs, or why there is none."""
    rows = _releases(matrix, line, wish)
    if not rows or not (unserved := find_unserved(matrix, rows[0], wish)):
        return line.text
    serving = next((row for row in rows if not find_unserved(matrix, row, wish)), None)
    if serving is not None:
        return exact_line(line, serving.version)
    lacking, gpus = unserved[0]
    which = f"no release of {line.name}" if lacking.package == line.name else f"no {lacking.package} of {line.name}"
    return Rejection(
        rule="extra",
        # The lists were read from the wheels, and all releases that the extra admits are among them.
        is_proved=True,
        subject="",
        because=f"cannot hold {extra.id} on {', '.join(gpus)}: {which} has code for it",
        facts=(
            fact_of("extra", extra.id, extra),
            fact_of("companion", f"{lacking.package}-{lacking.version}", lacking, "sm"),
        ),
    )
