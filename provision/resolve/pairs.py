"""Which release of a package that is built against PyTorch goes with which build of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from provision.matrix.load import Matrix
from provision.matrix.model import CompanionPackage, Extra
from provision.records import replace
from provision.resolve.environment import MACHINES, Demand
from provision.resolve.halves import binds
from provision.resolve.kernels import find_left_out, find_unserved
from provision.resolve.options import Option, fact_of
from provision.resolve.request import matches
from provision.resolve.requirements import exact_line, parse_requirements, place_of, requirement_of
from provision.resolve.rules import Rejection, Wish
from provision.resolve.stack import FactRef
from provision.versions import admits, admits_python, is_empty, parse, spec_of

if TYPE_CHECKING:
    from packaging.markers import Marker

    from provision.resolve.published import Problem

_TORCH = "torch"


def pair_extras(
    matrix: Matrix, extras: tuple[Extra, ...], wish: Wish, options: Sequence[Option], python: str | None
) -> tuple[tuple[Extra, ...], tuple[CompanionPackage, ...], list[Demand]] | Rejection:
    """Return the extras with the exact releases that go with this PyTorch, and the rows that say so.

    The user's own lines bind them, and releases that the lines name must go with this PyTorch themselves.

    Args:
        matrix: The facts.
        extras: What ``--with`` asks for.
        wish: The request.
        options: One build a framework.
        python: The Python.

    Returns:
        The extras, the rows of their releases, and what these rows and those of the user's releases ask of others.
    """
    torch = next((option for option in options if option.framework == _TORCH), None)
    if torch is None or python is None:
        return extras, (), []
    wanted = {
        requirement.name: (row, requirement.specifier)
        for row in extras
        for requirement in parse_requirements("\n".join(row.requires), row.id)
    }
    own = _own_bounds(wish.request.requirements, wish, python)
    unpaired = _unpaired_wheel(matrix, own, torch)
    if unpaired is not None:
        return unpaired
    known: dict[str, list[CompanionPackage]] = {}
    # The rows are gone through once: a file may have thousands of lines.
    for row in matrix.rows_where("companions.toml", "release", "package", {*wanted, *own}.__contains__):
        known.setdefault(row.package, []).append(row)
    releases = {
        name: rows
        for name, rows in sorted(known.items())
        if any(_TORCH in row.requires or row.paired_torch for row in rows)
    }
    if not releases:
        return extras, (), []
    bounds = {name: [specifier] for name, (_, specifier) in wanted.items()}
    for more in (own, _own_bounds(wish.request.constraints, wish, python)):
        for name, specifiers in more.items():
            bounds.setdefault(name, []).extend(specifiers)
    pairs: dict[str, CompanionPackage] = {}
    named: list[CompanionPackage] = []
    asked = _asked(extras)
    # What pins others is chosen before them.
    for name in sorted(releases, key=lambda name: (not _names(releases[name], set(releases)), name)):
        rows = [row for row in releases[name] if all(admits(bound, row.version) for bound in bounds[name])]
        if name not in wanted:
            found = _named_release(matrix, tuple(rows), wish, torch, python, bounds)
            if isinstance(found, Rejection):
                return found
            named += found
            for row in found:
                _bind(bounds, row.requires)
            continue
        built = [row for row in rows if not parse(row.version).is_prerelease and _is_built_for(matrix, row, torch)]
        built = [row for row in built if not _is_overtaken(row, rows, torch)]
        running = [row for row in built if _runs_on(matrix, row, python, MACHINES[wish.platform])]
        serving = [row for row in running if not find_unserved(matrix, row, wish)]
        # The newest that will do is taken, so what older ones need is not looked up.
        needed = (
            (row, _needs_of(matrix, row, asked[name], wish, python))
            for row in sorted(serving, key=lambda row: parse(row.version), reverse=True)
        )
        chosen = next((item for item in needed if not _contradicted(item[1], bounds)), None)
        if chosen is None:
            extra = wanted[name][0]
            facts: tuple[FactRef, ...] = (torch.fact, fact_of("extra", extra.id, extra))
            what, is_proved = name, False
            if serving:
                needs = _needs_of(matrix, serving[0], asked[name], wish, python)
                other, bound = _contradicted(needs, bounds)[0]
                what = f"{name} that takes {other}{','.join(filter(None, bounds[other]))} (it needs {other}{bound})"
                facts = (*facts, _fact(serving[0]))
            elif running:
                lacking, gpus = find_unserved(matrix, running[0], wish)[0]
                what = f"{name} for {', '.join(gpus)}"
                if lacking is not running[0]:
                    what += (
                        f" ({running[0].version} pins {lacking.package} {lacking.version}, which has no code for it)"
                    )
                facts = (*facts, _fact(lacking))
                # Each list was read from the wheel of its release; what is pinned may be done without.
                is_proved = all(find_left_out(matrix, row, wish) for row in running)
            elif built:
                what = f"{name} for Python {python} on {MACHINES[wish.platform]}"
            because = f"is paired with no {what} that the facts know"
            rule = "pins" if serving else "extra"
            return Rejection(rule=rule, is_proved=is_proved, subject="", because=because, facts=facts)
        pairs[name], needs = chosen
        _bind(bounds, needs)
    if pairs and (apart := _apart(matrix, pairs.values(), asked, torch, python, wish)):
        facts = (torch.fact, *map(_fact, pairs.values()))
        because = (
            f"is paired with {' and '.join(f'{row.package} {row.version}' for row in pairs.values())}, and {apart}"
        )
        return Rejection(rule="pins", is_proved=False, subject="", because=because, facts=facts)
    exact = {name: row.version for name, row in pairs.items()}
    return (
        tuple(_pinned(row, exact) for row in extras),
        tuple(pairs.values()),
        pair_demands([*pairs.values(), *named]),
    )


def _own_bounds(lines: tuple[str, ...], wish: Wish, python: str) -> dict[str, list[str]]:
    """Return what the user's lines that count here ask for: name → specifiers."""
    place = place_of(python, MACHINES[wish.platform])
    bounds: dict[str, list[str]] = {}
    for name, specifier, marker in _own_lines(lines) if lines else ():
        if marker is None or marker.evaluate(place):
            bounds.setdefault(name, []).append(specifier)
    return bounds


@lru_cache(maxsize=64)
def _own_lines(lines: tuple[str, ...]) -> tuple[tuple[str, str, Marker | None], ...]:
    """Return name, specifier and marker of the lines that bound a version; every candidate is held to them."""
    found = parse_requirements("\n".join(lines), "-r")
    return tuple((line.name, line.specifier, requirement_of(line.text).marker) for line in found if line.specifier)


def _unpaired_wheel(matrix: Matrix, own: Mapping[str, list[str]], torch: Option) -> Rejection | None:
    """Return why a package that PyTorch's own index serves, and the user's lines name, is of another PyTorch."""
    for name, specifiers in own.items():
        package = matrix.package(name) if name != _TORCH else None
        bare = [re.sub(r"\+[^,]*", "", specifier) for specifier in specifiers]
        needs: dict[str, str] = {}
        has_free = False
        for version in package.versions if package is not None else ():
            release = package.release(version) if package is not None else None
            plain = version.partition("+")[0]
            if release is not None and all(plain in spec_of(specifier) for specifier in bare):
                own_needs = [need for other, need, *_ in release.requires if other == _TORCH]
                needs.update((plain, need) for need in own_needs)
                # The last torchaudio is for any PyTorch.
                has_free = has_free or not own_needs
        if needs and not has_free and not any(matches(need or None, torch.version) for need in needs.values()):
            version, need = next(iter(needs.items()))
            return Rejection(
                rule="requirements",
                is_proved=f"=={version}" in bare,
                subject="",
                because=f"fails {name} {version} of the requirements, which needs torch{need}",
                facts=(torch.fact,),
            )
    return None


def _named_release(
    matrix: Matrix,
    rows: Sequence[CompanionPackage],
    wish: Wish,
    torch: Option,
    python: str,
    bounds: Mapping[str, list[str]],
) -> list[CompanionPackage] | Rejection:
    """Return the one release that the user's lines name, if it is one, or why none of those they admit will do."""
    reasons = [_why_not(matrix, row, wish, torch, python, bounds) for row in rows]
    if not rows or not all(reasons):
        return list(rows) if len(rows) == 1 else []
    newest, (because, is_proved) = max(
        ((row, reason) for row, reason in zip(rows, reasons, strict=True) if reason),
        key=lambda item: parse(item[0].version),
    )
    return Rejection(
        rule="requirements",
        # A range may admit releases that the facts do not list.
        is_proved=is_proved and any(bound == f"=={newest.version}" for bound in bounds[newest.package]),
        subject="",
        because=f"fails {newest.package} {newest.version} of the requirements, which {because}",
        facts=(torch.fact, _fact(newest)),
    )


def _why_not(
    matrix: Matrix,
    row: CompanionPackage,
    wish: Wish,
    torch: Option,
    python: str,
    bounds: Mapping[str, list[str]],
) -> tuple[str, bool] | None:
    """Return what keeps a release of the user's choice from this environment, and whether it surely does."""
    need = row.requires.get(_TORCH)
    if need is not None and not matches(need, torch.version):
        return f"needs torch{need}", True
    if not _runs_on(matrix, row, python):
        return f"needs Python {row.requires_python}" if row.requires_python else f"fails on Python {python}", True
    if not _is_for_cuda(matrix, row, torch):
        return f"is built for CUDA {_cuda_major(matrix, row, torch) or 'of another major'}", False
    for lacking, gpus in find_unserved(matrix, row, wish):
        is_own = lacking is row
        pins = "" if is_own else f"pins {lacking.package} {lacking.version}, which "
        # A package may do without one that it pins.
        targets = lacking.sm or lacking.sm_aarch64
        only = f", only {' '.join(targets)}" if targets else ""
        return f"{pins}has no code for {', '.join(gpus)}{only}", is_own
    for other, bound in _contradicted(row.requires, bounds):
        return f"needs {other}{bound}, against {other}{','.join(filter(None, bounds[other]))}", True
    return None


def _fact(row: CompanionPackage) -> FactRef:
    return fact_of("companion", f"{row.package}-{row.version}", row)


def _apart(
    matrix: Matrix,
    pairs: Iterable[CompanionPackage],
    asked: Mapping[str, tuple[str, ...]],
    torch: Option,
    python: str,
    wish: Wish,
) -> str | None:
    """Return why releases have no common set of what they need, as far as the facts hold what an index says of it."""
    from provision.resolve.published import Problem, Want

    wants = [Want(name=row.package, extras=asked[row.package], specifier=f"=={row.version}") for row in pairs]
    wants.append(Want(name=_TORCH, specifier=f"=={torch.version}"))
    return _clash(matrix, Problem(wants=tuple(wants), python=python, machine=MACHINES[wish.platform]))


@lru_cache(maxsize=256)
def _clash(matrix: Matrix, problem: Problem) -> str | None:
    from provision.resolve.published import Clash, solve_published

    found = solve_published(matrix, problem)
    return " and ".join(found.reasons) if isinstance(found, Clash) else None


def _asked(extras: Sequence[Extra]) -> dict[str, tuple[str, ...]]:
    """Return what extras ask for: distribution → extras of it."""
    return {line.name: tuple(line.extras) for row in extras for line in map(requirement_of, row.requires)}


def _needs_of(
    matrix: Matrix, row: CompanionPackage, asked: tuple[str, ...], wish: Wish, python: str
) -> Mapping[str, str]:
    """Return what a release asks for, all that an index says of it: what two of them pin may be in no row."""
    from provision.resolve.published import Problem, need_asks

    problem = Problem(wants=(), python=python, machine=MACHINES[wish.platform])
    found = need_asks(matrix, row.package, row.version, problem, asked)
    published: dict[str, list[str]] = {}
    for want in found:
        published.setdefault(want.name, []).append(want.specifier)
    return {**{name: ",".join(filter(None, clauses)) for name, clauses in published.items()}, **row.requires}


def _bind(bounds: dict[str, list[str]], needs: Mapping[str, str]) -> None:
    for other, bound in needs.items():
        bounds.setdefault(other, []).append(bound)


def _contradicted(needs: Mapping[str, str], bounds: Mapping[str, list[str]]) -> list[tuple[str, str]]:
    """Return what a release needs of others that what is asked of them already leaves no version for."""
    return [
        (other, bound)
        for other, bound in needs.items()
        if bound and other != _TORCH and other in bounds and is_empty((*filter(None, bounds[other]), bound))
    ]


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

    A release that pins PyTorch was built with that one, and its publisher may name another way which it goes with. Of
    one that takes a range only what it was built with tells that its code is made for later ones too, unless it has
    no code that needs PyTorch or is compiled where it is installed.
    """
    need = row.requires.get(_TORCH)
    if not matches(row.paired_torch, torch.version) or not matches(need, torch.version):
        return False
    if _is_kept_from(matrix, row, torch):
        return False
    is_bare = _TORCH not in row.links if row.links else not row.platform_tags
    if need is None and row.paired_torch is None and row.platform_tags:
        return False
    if not is_bare and row.paired_torch is None and row.built_with is None and not _is_pin(need, torch):
        return False
    return _is_for_cuda(matrix, row, torch)


def _is_kept_from(matrix: Matrix, row: CompanionPackage, torch: Option) -> bool:
    """Tell whether a build of PyTorch is known to go with other releases alone, which their metadata does not say."""
    return any(
        not admits(known.requires[row.package], row.version)
        for known in matrix.constraints_of((_TORCH,))
        if row.package in known.requires
        and known.pythons is None
        and binds(known, {_TORCH: torch.version}, (torch.variant,), "")
    )


def _is_overtaken(row: CompanionPackage, rows: Sequence[CompanionPackage], torch: Option) -> bool:
    """Tell whether a later release ends below this PyTorch: then an earlier one without an end only did not know it."""
    bound = row.requires.get(_TORCH)
    if bound is None or "<" in bound or bound.startswith("=="):
        return False
    return any(
        "<" in (need := other.requires.get(_TORCH, "")) and is_empty((need, f">={torch.version}"))
        for other in rows
        if parse(other.version) > parse(row.version)
    )


def _is_pin(need: str | None, torch: Option) -> bool:
    """Tell whether a bound admits one version of PyTorch, or the patches of one minor."""
    if need is None or need.startswith("=="):
        return need is not None
    major, minor = parse(torch.version).release[:2]
    return is_empty((need, f"<{major}.{minor}")) and is_empty((need, f">={major}.{minor + 1}"))


def _is_for_cuda(matrix: Matrix, row: CompanionPackage, torch: Option) -> bool:
    """Tell whether a release is built for the CUDA of a build, as far as that is known."""
    majors = {int(link.removeprefix("cudart.")) for link in row.links if link.startswith("cudart.")}
    if majors:
        return torch.cuda_major in majors
    return _cuda_major(matrix, row, torch) in (None, torch.cuda_major)


def _cuda_major(matrix: Matrix, row: CompanionPackage, torch: Option) -> int | None:
    """Return the CUDA that a release is built for, where it is known; none where it is built for none."""
    if row.cuda is not None:
        return parse(row.cuda).release[0]
    is_bare = bool(row.links) or not row.platform_tags
    if is_bare and not (row.requires.get(_TORCH) or "").startswith("=="):
        return None
    return _usual_major(matrix, torch)


def _usual_major(matrix: Matrix, torch: Option) -> int | None:
    """Return the CUDA of the build that PyPI serves, which packages there are built with."""
    builds = matrix.torch_builds_of({torch.version})
    return next((parse(row.cuda).release[0] for row in builds if row.index == "pypi"), None)


def _runs_on(matrix: Matrix, row: CompanionPackage, python: str, machine: str | None = None) -> bool:
    tags = row.platform_tags if machine is not None else ()
    if tags and not any(tag.endswith((str(machine), "any")) for tag in tags):
        return False
    if row.pythons and python not in row.pythons:
        return False
    for known in matrix.constraints_of((row.package,)):
        # Some releases are silent about the Python that their code needs.
        if row.package in known.requires and binds(known, {row.package: row.version}, (), python):
            return admits(known.requires[row.package], row.version)
    return row.requires_python is None or admits_python(row.requires_python, python)


def _pinned(extra: Extra, exact: dict[str, str]) -> Extra:
    lines = parse_requirements("\n".join(extra.requires), extra.id)
    return replace(extra, requires=tuple(exact_line(line, exact.get(line.name)) for line in lines))
