"""Which release of a package that is built against PyTorch goes with which build of it."""

from __future__ import annotations

from collections.abc import Sequence

from provision.matrix.load import Matrix
from provision.matrix.model import CompanionPackage, Extra
from provision.records import replace
from provision.resolve.environment import Demand
from provision.resolve.options import Option, fact_of
from provision.resolve.request import matches
from provision.resolve.requirements import parse_requirements
from provision.resolve.rules import Rejection
from provision.versions import parse, spec_of

__all__ = ["pair_demands", "pair_extras"]

_TORCH = "torch"


def pair_extras(
    matrix: Matrix, extras: tuple[Extra, ...], options: Sequence[Option], python: str | None, lines: tuple[str, ...]
) -> tuple[tuple[Extra, ...], tuple[CompanionPackage, ...]] | Rejection:
    """Return the extras with the exact releases that go with this PyTorch, and the rows that say so.

    Args:
        matrix: The facts.
        extras: What ``--with`` asks for.
        options: One build a framework.
        python: The Python.
        lines: The user's own requirements, which may ask for less.
    """
    torch = next((option for option in options if option.framework == _TORCH), None)
    if torch is None or python is None:
        return extras, ()
    wanted = {
        requirement.name: (row, requirement.specifier)
        for row in extras
        for requirement in parse_requirements("\n".join(row.requires), row.id)
    }
    releases = {}
    for name in wanted:
        rows = matrix.rows_where("companions.toml", "release", "package", name.__eq__)
        if any(_TORCH in row.requires for row in rows):
            releases[name] = rows
    bounds = {name: [specifier] for name, (_, specifier) in wanted.items()}
    if lines and releases:
        for line in parse_requirements("\n".join(lines), "-r"):
            bounds.setdefault(line.name, []).append(line.specifier)
    pairs: dict[str, CompanionPackage] = {}
    # What pins others is chosen before them.
    for name in sorted(releases, key=lambda name: (not _names(releases[name], set(releases)), name)):
        built = [
            row
            for row in releases[name]
            if all(_admits(bound, row.version) for bound in bounds[name])
            and not parse(row.version).is_prerelease
            and _is_built_for(matrix, row, torch)
        ]
        fitting = [row for row in built if _runs_on(row, python)]
        if not fitting:
            extra = wanted[name][0]
            because = f"is paired with no {name}{f' for Python {python}' if built else ''} that the facts know"
            facts = (torch.fact, fact_of("extra", extra.id, extra))
            return Rejection(rule="extra", is_proved=False, subject="", because=because, facts=facts)
        pairs[name] = max(fitting, key=lambda row: parse(row.version))
        for other, bound in pairs[name].requires.items():
            bounds.setdefault(other, []).append(bound)
    exact = {name: f"{name}=={row.version}" for name, row in pairs.items()}
    return tuple(_pinned(row, exact) for row in extras), tuple(pairs.values())


def pair_demands(pairs: Sequence[CompanionPackage]) -> list[Demand]:
    """Return what chosen releases ask of packages that may be in the environment."""
    return [
        Demand(name=name, specifier=bound, why=f"{row.package} {row.version}", part="with", is_bound=True)
        for row in pairs
        for name, bound in {**row.requires, **row.extra_pins}.items()
        if name != _TORCH
    ]


def _names(rows: Sequence[CompanionPackage], others: set[str]) -> bool:
    return any(name in others for row in rows for name in row.requires)


def _is_built_for(matrix: Matrix, row: CompanionPackage, torch: Option) -> bool:
    """Tell whether the facts pair a release with a build of PyTorch.

    A release that pins PyTorch was built with that one. Of one that takes a range only what it was built with tells
    that its code is made for later ones too.
    """
    need = row.requires.get(_TORCH)
    if need is None or not matches(need, torch.version):
        return False
    if not need.startswith("==") and row.built_with is None:
        return False
    major = parse(row.cuda).release[0] if row.cuda is not None else _usual_major(matrix, torch)
    return major is None or major == torch.cuda_major


def _usual_major(matrix: Matrix, torch: Option) -> int | None:
    """Return the CUDA of the build that PyPI serves, which packages there are built with."""
    builds = matrix.torch_builds_of({torch.version})
    return next((parse(row.cuda).release[0] for row in builds if row.index == "pypi"), None)


def _runs_on(row: CompanionPackage, python: str) -> bool:
    return row.requires_python is None or f"{python.rstrip('t')}.99" in spec_of(row.requires_python)


def _admits(specifier: str, version: str) -> bool:
    return not specifier or version in spec_of(specifier)


def _pinned(extra: Extra, exact: dict[str, str]) -> Extra:
    lines = parse_requirements("\n".join(extra.requires), extra.id)
    return replace(extra, requires=tuple(exact.get(line.name, line.text) for line in lines))
